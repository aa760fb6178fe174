// Statistics of norms over nodes: of the outputs, in pieces of nodes that are joined in order, or running ones.

/// Mean of each column in a piece of nodes, and the sum of squared distances to it.
KERNEL void kith_norm_parts(
    Layer layer, u32 width, u32 n_rows, const float *outputs, float *pieces, u32 n_pieces, u32 piece_nodes) {
    u32 piece = blockIdx.x, run = blockIdx.y;
    u32 n_columns = min(width, (u32)NORM_THREADS), n_ways = NORM_THREADS / n_columns;
    u32 way = threadIdx.x / n_columns;
    pieces += ((size_t)run * n_pieces + piece) * 2 * width;
    u32 first = piece * piece_nodes, end = min(n_rows, first + piece_nodes);
    for (u32 base = 0; base < width; base += n_columns) {
        u32 column = base + threadIdx.x % n_columns;
        bool is_on = way < n_ways && column < width;
        // Shifted by the piece's first value, to avoid cancellation.
        float sum = 0.f, squares = 0.f;
        float start = is_on ? outputs[output_place(layer, (size_t)run * n_rows + first, column)] : 0.f;
        if (is_on) {
#pragma unroll 4
            for (u32 node = first + way; node < end; node += n_ways) {
                float distance = outputs[output_place(layer, (size_t)run * n_rows + node, column)] - start;
                sum += distance;
                squares = fmaf(distance, distance, squares);
            }
        }
        float2 sums = sums_of_ways(make_float2(sum, squares), way, n_ways, n_columns);
        if (way == 0 && is_on) {
            float n = (float)(end - first);
            pieces[column] = start + sums.x / n;
            pieces[width + column] = fmaxf(0.f, sums.y - sums.x / n * sums.x);
        }
    }
}

// Numbers, their mean, and the sum of squared distances to it.
struct Moments {
    double n, mean, squares;
};

__device__ __forceinline__ Moments joined(Moments a, Moments b) {
    if (b.n == 0.0) return a;
    Moments both;
    both.n = a.n + b.n;
    double distance = b.mean - a.mean;
    both.mean = a.mean + distance * (b.n / both.n);
    both.squares = a.squares + b.squares + distance * distance * (a.n * b.n / both.n);
    return both;
}

/// Scale, shift and mean of a column, for x̂ = scale · y − shift.
__device__ __forceinline__ void write_statistics(
    const Transition &transition, const float *weights, u32 column, double mean, double variance, float *statistics) {
    double share = transition.mean_scale == NO_WEIGHT ? 1.0 : (double)weights[transition.mean_scale + column];
    double center = share * mean, spread = variance + (mean - center) * (mean - center);
    float scale = (float)(1.0 / sqrt(spread + NORM_EPSILON));
    statistics[column] = scale;
    statistics[transition.width + column] = (float)center * scale;
    statistics[2 * transition.width + column] = (float)mean;
}

/// Joins the pieces of each column, in order. In training, `gradients` get the slice's share of what running statistics average.
KERNEL void kith_norm_join(
    Transition transition, u32 n_rows, const float *pieces, u32 n_pieces, u32 piece_nodes, const float *weights,
    u32 n_weights, float share, float *gradients, float *statistics) {
    __shared__ Moments shared[NORM_THREADS];
    u32 column = blockIdx.x * NORM_COLUMNS + threadIdx.x % NORM_COLUMNS, way = threadIdx.x / NORM_COLUMNS, run = blockIdx.y;
    u32 width = transition.width;
    Moments own = {0.0, 0.0, 0.0};
    if (column < width) {
#pragma unroll 4
        for (u32 piece = way; piece < n_pieces; piece += NORM_THREADS / NORM_COLUMNS) {
            const float *from = pieces + ((size_t)run * n_pieces + piece) * 2 * width;
            u32 first = piece * piece_nodes;
            Moments part = {(double)(min(n_rows, first + piece_nodes) - first), from[column], from[width + column]};
            own = joined(own, part);
        }
    }
    shared[threadIdx.x] = own;
    __syncthreads();
    if (way > 0 || column >= width) return;
    for (u32 other = 1; other < NORM_THREADS / NORM_COLUMNS; other++) {
        own = joined(own, shared[threadIdx.x + other * NORM_COLUMNS]);
    }
    weights += (size_t)run * n_weights;
    write_statistics(
        transition, weights, column, own.mean, own.squares / own.n, statistics + (size_t)run * 3 * width);
    if (gradients && transition.running != NO_WEIGHT) {
        gradients += (size_t)run * n_weights + transition.running;
        const float *running = weights + transition.running;
        // One node has no variance: the running statistics stay as they are.
        bool is_one = own.n < 2.0;
        gradients[column] = (is_one ? running[column] : (float)own.mean) * share;
        gradients[width + column] = (is_one ? running[width + column] : (float)(own.squares / (own.n - 1.0))) * share;
    }
}

/// Scale, shift and mean of each column from running statistics.
KERNEL void kith_norm_running(Transition transition, const float *weights, u32 n_weights, float *statistics) {
    u32 column = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (column >= transition.width) return;
    weights += (size_t)run * n_weights;
    double mean = weights[transition.running + column], variance = weights[transition.running + transition.width + column];
    write_statistics(transition, weights, column, mean, variance, statistics + (size_t)run * 3 * transition.width);
}
