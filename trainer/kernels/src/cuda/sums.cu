// Sums in a fixed order: pieces by position, threads of a block in turn, then piece after piece.

// Threads of a block that adds up a piece.
#define SUM_THREADS 256

/// Sums one number over `n_ways` threads of a block, `n_columns` apart; the first thread has the sum.
__device__ __forceinline__ float over_ways(float *shared, float own, u32 way, u32 n_ways, u32 n_columns) {
    shared[threadIdx.x] = own;
    __syncthreads();
    float sum = own;
    if (way == 0) {
        for (u32 other = 1; other < n_ways; other++) sum += shared[threadIdx.x + other * n_columns];
    }
    __syncthreads();
    return sum;
}

/// The gradient of attention weights, in pieces of nodes: Σ ∂(a₁·h_i) h_i and Σ ∂(a₂·h_i) h_i.
KERNEL void kith_attention_gradient(
    Layer layer, u32 n_sources, u32 n_destinations, const float *rows, const float *left_gradients,
    const float *right_gradients, float *pieces, u32 n_pieces, u32 piece_nodes) {
    __shared__ float shared[SUM_THREADS];
    u32 piece = blockIdx.x, run = blockIdx.y, n_columns = HEADS * layer.features;
    u32 width = min(n_columns, (u32)SUM_THREADS), n_ways = SUM_THREADS / width;
    u32 way = threadIdx.x / width;
    rows += (size_t)run * n_sources * layer.stride;
    left_gradients += (size_t)run * n_destinations * HEADS;
    right_gradients += (size_t)run * n_sources * HEADS;
    pieces += ((size_t)run * n_pieces + piece) * 2 * n_columns;
    u32 first = piece * piece_nodes, end = min(n_sources, first + piece_nodes);
    for (u32 base = 0; base < n_columns; base += width) {
        u32 column = base + threadIdx.x % width;
        u32 head = column / layer.features, feature = column % layer.features;
        float left = 0.f, right = 0.f;
        if (way < n_ways && column < n_columns) {
#pragma unroll 4
            for (u32 node = first + way; node < end; node += n_ways) {
                float row = rows[(size_t)node * layer.stride + head * PADDED + feature];
                right = fmaf(right_gradients[(size_t)node * HEADS + head], row, right);
                if (node < n_destinations) left = fmaf(left_gradients[(size_t)node * HEADS + head], row, left);
            }
        }
        left = over_ways(shared, left, way, n_ways, width);
        right = over_ways(shared, right, way, n_ways, width);
        if (way == 0 && column < n_columns) {
            pieces[2 * head * layer.features + feature] = left;
            pieces[(2 * head + 1) * layer.features + feature] = right;
        }
    }
}

/// The gradient of a layer's bias, in pieces of nodes.
KERNEL void kith_bias_gradient(
    Layer layer, u32 n_nodes, const float *gradients, float *pieces, u32 n_pieces, u32 piece_nodes) {
    __shared__ float shared[SUM_THREADS];
    u32 piece = blockIdx.x, run = blockIdx.y;
    u32 n_columns = layer.is_mean ? layer.features : HEADS * layer.features;
    u32 width = min(n_columns, (u32)SUM_THREADS), n_ways = SUM_THREADS / width;
    u32 way = threadIdx.x / width;
    gradients += (size_t)run * n_nodes * layer.stride;
    pieces += ((size_t)run * n_pieces + piece) * n_columns;
    u32 first = piece * piece_nodes, end = min(n_nodes, first + piece_nodes);
    for (u32 base = 0; base < n_columns; base += width) {
        u32 column = base + threadIdx.x % width;
        u32 head = column / layer.features, feature = column % layer.features;
        u32 last_head = layer.is_mean ? HEADS - 1 : head;
        float sum = 0.f;
        if (way < n_ways && column < n_columns) {
#pragma unroll 4
            for (u32 node = first + way; node < end; node += n_ways) {
                const float *row = gradients + (size_t)node * layer.stride + feature;
                for (u32 own = head; own <= last_head; own++) sum += row[own * PADDED];
            }
        }
        sum = over_ways(shared, sum, way, n_ways, width);
        if (way == 0 && column < n_columns) pieces[column] = sum;
    }
}

// Numbers that one block adds up; few, since there may be few numbers, of many pieces each.
#define SUM_COLUMNS 8

/// out[i] = Σ pieces[piece][i], for each run; `out_stride` numbers from one run's to the next.
KERNEL void kith_sum_pieces(const float *pieces, u32 n_pieces, u32 n, float *out, u32 out_stride) {
    __shared__ float shared[SUM_THREADS];
    u32 place = blockIdx.x * SUM_COLUMNS + threadIdx.x % SUM_COLUMNS, way = threadIdx.x / SUM_COLUMNS, run = blockIdx.y;
    float sum = 0.f;
    if (place < n) {
#pragma unroll 4
        for (u32 piece = way; piece < n_pieces; piece += SUM_THREADS / SUM_COLUMNS) {
            sum += pieces[((size_t)run * n_pieces + piece) * n + place];
        }
    }
    sum = over_ways(shared, sum, way, SUM_THREADS / SUM_COLUMNS, SUM_COLUMNS);
    if (way == 0 && place < n) out[(size_t)run * out_stride + place] = sum;
}

__device__ __forceinline__ void sum_of_block(double own, double *out) {
    __shared__ double sums[SUM_THREADS];
    sums[threadIdx.x] = own;
    __syncthreads();
    for (u32 half = SUM_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = sums[0];
}

/// Adds up a run's numbers, as many blocks as there are parts, each its own share of them.
KERNEL void kith_sum(const double *numbers, u32 n, double *out, u32 out_stride) {
    u32 run = blockIdx.y, part = blockIdx.x;
    u32 share = (n + gridDim.x - 1) / gridDim.x;
    u32 end = min(n, (part + 1) * share);
    double sum = 0.0;
    for (u32 place = part * share + threadIdx.x; place < end; place += SUM_THREADS) {
        sum += numbers[(size_t)run * n + place];
    }
    sum_of_block(sum, out + (size_t)run * out_stride + part);
}

/// The losses of the edges that are kept, by their logits, in as many parts as there are blocks.
KERNEL void kith_edge_losses(const float *logits, u32 n, const u32 *kept, u32 n_words, double *parts) {
    u32 run = blockIdx.y, stride = gridDim.x * SUM_THREADS;
    double sum = 0.0;
    for (u32 edge = blockIdx.x * SUM_THREADS + threadIdx.x; edge < n; edge += stride) {
        if (is_kept(kept + (size_t)run * n_words, edge)) sum += (double)softplus(-logits[(size_t)run * n + edge]);
    }
    sum_of_block(sum, parts + (size_t)run * gridDim.x + blockIdx.x);
}

/// The losses of pairs without an edge, as many as the last node's list ends with.
KERNEL void kith_negative_losses(const float *logits, u32 n_room, const u32 *starts, u32 n_nodes, double *parts) {
    u32 run = blockIdx.y, stride = gridDim.x * SUM_THREADS;
    u32 n = starts[(size_t)run * (n_nodes + 1) + n_nodes];
    double sum = 0.0;
    for (u32 pair = blockIdx.x * SUM_THREADS + threadIdx.x; pair < n; pair += stride) {
        sum += (double)softplus(logits[(size_t)run * n_room + pair]);
    }
    sum_of_block(sum, parts + (size_t)run * gridDim.x + blockIdx.x);
}

/// The sum of squares of the first `n` numbers of each run's gradient, in as many parts as there are blocks.
KERNEL void kith_square_sums(const float *gradients, u32 n, u32 stride_of_runs, double *parts) {
    u32 run = blockIdx.y, stride = gridDim.x * SUM_THREADS;
    double sum = 0.0;
    for (u32 place = blockIdx.x * SUM_THREADS + threadIdx.x; place < n; place += stride) {
        double own = gradients[(size_t)run * stride_of_runs + place];
        sum += own * own;
    }
    sum_of_block(sum, parts + (size_t)run * gridDim.x + blockIdx.x);
}

/// Factors by which gradients are scaled down to the largest norm, by the sums of their squares, a run in each block.
KERNEL void kith_clip_factors(const double *parts, u32 n_parts, const Settings *settings, float *clip) {
    u32 run = blockIdx.y;
    if (threadIdx.x != 0) return;
    double sum = 0.0;
    for (u32 part = 0; part < n_parts; part++) sum += parts[(size_t)run * n_parts + part];
    double most = settings[run].clip_norm, factor = most / (sqrt(sum) + 1e-6);
    clip[run] = most > 0.0 && factor < 1.0 ? (float)factor : 1.f;
}
