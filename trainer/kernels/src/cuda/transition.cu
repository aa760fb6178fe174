// Between layers: norms, activations and dropout; norm.cu has statistics of norms, residual.cu residuals. See transition.rs of the CPU for
// the formulas. Outputs y of a graph layer are in its own layout; what the next layer reads is plain: `width` numbers per node.

#define NORM_NONE 0
#define NORM_LAYER 1
#define NORM_NODES 2
#define NORM_EPSILON 1e-5

#define ACTIVATION_IDENTITY 0
#define ACTIVATION_ELU 1
#define ACTIVATION_GELU 2
#define ACTIVATION_LEAKY 3

struct Transition {
    u32 norm, activation;
    // Slope of a leaky ReLU below zero, unless it is learned.
    float leak;
    u32 width;
    // Threads that share a row, a power of two; each has eight columns at a time.
    u32 lanes;
    // Starts of γ and β, α, the slope, and the running mean and variance among the weights; NO_WEIGHT for none.
    u32 affine, mean_scale, slope, running;
};

// Position of a thread: eight columns of a row from `first` on, and further ones `step` later.
struct RowPlace {
    u32 row, run, first, step;
    bool is_row;
};

__device__ __forceinline__ RowPlace row_place(const Transition &transition, u32 n_rows) {
    RowPlace place;
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    place.row = thread / transition.lanes;
    place.run = blockIdx.y;
    place.first = thread % transition.lanes * 8;
    place.step = transition.lanes * 8;
    place.is_row = place.row < n_rows;
    return place;
}

/// The sum over the threads that share a row.
__device__ __forceinline__ float over_row(const Transition &transition, float value) {
    for (u32 across = 1; across < transition.lanes; across *= 2) value += __shfl_xor_sync(FULL, value, across);
    return value;
}

/// Place of a column in the layout of a layer's outputs.
__device__ __forceinline__ size_t output_place(const Layer &layer, size_t row, u32 column) {
    if (layer.features == layer.padded) return row * layer.stride + column;
    return row * layer.stride + column / layer.features * layer.padded + column % layer.features;
}

/// Eight outputs of a row; zeros beyond the end.
__device__ __forceinline__ void load_outputs(
    const Layer &layer, u32 width, const float *outputs, size_t row, u32 column, float *out) {
    if (layer.features == layer.padded && column + 8 <= width) {
        const float *from = outputs + row * layer.stride + column;
        *(float4 *)out = *(const float4 *)from;
        *(float4 *)(out + 4) = *(const float4 *)(from + 4);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) out[k] = column + k < width ? outputs[output_place(layer, row, column + k)] : 0.f;
}

__device__ __forceinline__ void store_outputs(
    const Layer &layer, u32 width, const float *from, size_t row, u32 column, float *outputs) {
    if (layer.features == layer.padded && column + 8 <= width) {
        float *to = outputs + row * layer.stride + column;
        *(float4 *)to = *(const float4 *)from;
        *(float4 *)(to + 4) = *(const float4 *)(from + 4);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (column + k < width) outputs[output_place(layer, row, column + k)] = from[k];
    }
}

/// Eight numbers of a plain row; zeros beyond the end.
__device__ __forceinline__ void load_plain(u32 width, const float *rows, size_t row, u32 column, float *out) {
    const float *from = rows + row * width + column;
    if (width % 4 == 0 && column + 8 <= width) {
        *(float4 *)out = *(const float4 *)from;
        *(float4 *)(out + 4) = *(const float4 *)(from + 4);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) out[k] = column + k < width ? from[k] : 0.f;
}

__device__ __forceinline__ void store_plain(u32 width, const float *from, size_t row, u32 column, float *rows) {
    float *to = rows + row * width + column;
    if (width % 4 == 0 && column + 8 <= width) {
        *(float4 *)to = *(const float4 *)from;
        *(float4 *)(to + 4) = *(const float4 *)(from + 4);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (column + k < width) to[k] = from[k];
    }
}

__device__ __forceinline__ float leak_of(const Transition &transition, const float *weights) {
    return transition.slope == NO_WEIGHT ? transition.leak : weights[transition.slope];
}

__device__ __forceinline__ float activated(u32 activation, float leak, float z) {
    if (activation == ACTIVATION_ELU) return z > 0.f ? z : expm1f(z);
    if (activation == ACTIVATION_GELU) return 0.5f * z * erfcf(-0.70710678f * z);
    if (activation == ACTIVATION_LEAKY) return z > 0.f ? z : leak * z;
    return z;
}

__device__ __forceinline__ float activation_slope(u32 activation, float leak, float z) {
    if (activation == ACTIVATION_ELU) return z > 0.f ? 1.f : expf(z);
    if (activation == ACTIVATION_GELU) {
        return 0.5f * erfcf(-0.70710678f * z) + 0.39894228f * z * expf(-0.5f * z * z);
    }
    if (activation == ACTIVATION_LEAKY) return z > 0.f ? 1.f : leak;
    return 1.f;
}

/// Scale and shift of x̂ = scale · y − shift for a row of a layer norm.
__device__ __forceinline__ float2 row_moments(
    const Layer &layer, const Transition &transition, const RowPlace &place, const float *outputs, size_t row) {
    float sum = 0.f, y[8];
    for (u32 column = place.first; column < transition.width; column += place.step) {
        if (place.is_row) load_outputs(layer, transition.width, outputs, row, column, y);
#pragma unroll
        for (u32 k = 0; k < 8; k++) sum += place.is_row && column + k < transition.width ? y[k] : 0.f;
    }
    float mean = over_row(transition, sum) / (float)transition.width;
    float squares = 0.f;
    for (u32 column = place.first; column < transition.width; column += place.step) {
        if (place.is_row) load_outputs(layer, transition.width, outputs, row, column, y);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            float distance = place.is_row && column + k < transition.width ? y[k] - mean : 0.f;
            squares = fmaf(distance, distance, squares);
        }
    }
    float variance = over_row(transition, squares) / (float)transition.width;
    float scale = (float)(1.0 / sqrt((double)variance + NORM_EPSILON));
    return make_float2(scale, mean * scale);
}

// Eight columns of a row, on the way through a norm.
struct NormedEight {
    float normed[8], gamma[8], z[8];
};

__device__ __forceinline__ NormedEight normed_of(
    const Layer &layer, const Transition &transition, const float *weights, const float *statistics, float2 moments,
    const float *outputs, size_t row, u32 column) {
    NormedEight eight;
    load_outputs(layer, transition.width, outputs, row, column, eight.normed);
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        u32 own = column + k < transition.width ? column + k : 0;
        if (transition.norm == NORM_NODES) {
            eight.normed[k] = fmaf(eight.normed[k], statistics[own], -statistics[transition.width + own]);
        } else if (transition.norm == NORM_LAYER) {
            eight.normed[k] = fmaf(eight.normed[k], moments.x, -moments.y);
        }
        eight.gamma[k] = 1.f;
        eight.z[k] = eight.normed[k];
        if (transition.norm != NORM_NONE) {
            eight.gamma[k] = weights[transition.affine + own];
            eight.z[k] = fmaf(eight.normed[k], eight.gamma[k], weights[transition.affine + transition.width + own]);
        }
    }
    return eight;
}

/// Shares of 8 columns of a row that dropout keeps.
__device__ __forceinline__ void hidden_factors(
    Stream stream, const Settings &settings, u64 id, u32 column, float *factors) {
    Words words = words_of(stream, id, column / 8, 0, 0);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        factors[2 * k] = (words.word[k] & 0xffff) >= settings.threshold ? settings.scale : 0.f;
        factors[2 * k + 1] = words.word[k] >> 16 >= settings.threshold ? settings.scale : 0.f;
    }
}

// Threads of a block that adds up pieces of nodes.
#define NORM_THREADS 256
// Columns that a block joins the pieces of.
#define NORM_COLUMNS 8

/// Sums two numbers over `n_ways` threads of a block, `n_columns` apart; the first thread has the sums.
__device__ __forceinline__ float2 sums_of_ways(float2 own, u32 way, u32 n_ways, u32 n_columns) {
    __shared__ float2 shared[NORM_THREADS];
    shared[threadIdx.x] = own;
    __syncthreads();
    if (way == 0) {
        for (u32 other = 1; other < n_ways; other++) {
            own.x += shared[threadIdx.x + other * n_columns].x;
            own.y += shared[threadIdx.x + other * n_columns].y;
        }
    }
    __syncthreads();
    return own;
}

/// rows = dropout(f(norm(outputs))).
KERNEL void kith_transition(
    Layer layer, Transition transition, u32 n_rows, const float *weights, const float *statistics, const Settings *settings,
    const Streams *streams, u32 n_streams, u32 reader, u32 is_dropped, const u64 *ids, const float *outputs, float *rows) {
    RowPlace place = row_place(transition, n_rows);
    u32 width = transition.width, run = place.run;
    weights += (size_t)run * layer.n_weights;
    statistics += (size_t)run * 3 * width;
    size_t row = (size_t)run * n_rows + (place.is_row ? place.row : 0);
    float2 moments = make_float2(1.f, 0.f);
    if (transition.norm == NORM_LAYER) moments = row_moments(layer, transition, place, outputs, row);
    if (!place.is_row) return;
    float leak = leak_of(transition, weights);
    Stream stream = streams[run * n_streams + reader].hidden;
    Settings own_settings = settings[run];
    u64 id = ids ? ids[place.row] : place.row;
    for (u32 column = place.first; column < width; column += place.step) {
        NormedEight eight = normed_of(layer, transition, weights, statistics, moments, outputs, row, column);
#pragma unroll
        for (u32 k = 0; k < 8; k++) eight.z[k] = activated(transition.activation, leak, eight.z[k]);
        if (is_dropped) {
            float factors[8];
            hidden_factors(stream, own_settings, id, column, factors);
#pragma unroll
            for (u32 k = 0; k < 8; k++) eight.z[k] *= factors[k];
        }
        store_plain(width, eight.z, row, column, rows);
    }
}

/// Takes the gradient of rows back to that of z, in place, and without a norm over nodes to that of outputs. Of a layer norm,
/// `records` get the moments of rows; `slopes` get each row's part of the gradient of a learned slope.
KERNEL void kith_transition_back(
    Layer layer, Transition transition, u32 n_rows, const float *weights, const float *statistics, const Settings *settings,
    const Streams *streams, u32 n_streams, u32 reader, u32 is_dropped, const u64 *ids, const float *outputs,
    float *row_gradients, float *gradients, float2 *records, float *slopes) {
    RowPlace place = row_place(transition, n_rows);
    u32 width = transition.width, run = place.run;
    weights += (size_t)run * layer.n_weights;
    statistics += (size_t)run * 3 * width;
    size_t row = (size_t)run * n_rows + (place.is_row ? place.row : 0);
    float2 moments = make_float2(1.f, 0.f);
    if (transition.norm == NORM_LAYER) moments = row_moments(layer, transition, place, outputs, row);
    float leak = leak_of(transition, weights);
    Stream stream = streams[run * n_streams + reader].hidden;
    Settings own_settings = settings[run];
    u64 id = ids && place.is_row ? ids[place.row] : place.row;
    float sum = 0.f, along = 0.f, slope = 0.f;
    for (u32 column = place.first; column < width && place.is_row; column += place.step) {
        NormedEight eight = normed_of(layer, transition, weights, statistics, moments, outputs, row, column);
        float gradient[8], factors[8];
        load_plain(width, row_gradients, row, column, gradient);
        if (is_dropped) hidden_factors(stream, own_settings, id, column, factors);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            if (is_dropped) gradient[k] *= factors[k];
            if (column + k < width && !(eight.z[k] > 0.f)) slope = fmaf(gradient[k], eight.z[k], slope);
            gradient[k] *= activation_slope(transition.activation, leak, eight.z[k]);
            if (column + k < width) {
                sum = fmaf(gradient[k], eight.gamma[k], sum);
                along = fmaf(gradient[k] * eight.gamma[k], eight.normed[k], along);
            }
        }
        store_plain(width, gradient, row, column, row_gradients);
        if (transition.norm == NORM_NONE) store_outputs(layer, width, gradient, row, column, gradients);
    }
    if (transition.slope != NO_WEIGHT) {
        slope = over_row(transition, slope);
        if (place.is_row && place.first == 0) slopes[row] = slope;
    }
    if (transition.norm != NORM_LAYER) return;
    sum = over_row(transition, sum) / (float)width;
    along = over_row(transition, along) / (float)width;
    if (!place.is_row) return;
    if (place.first == 0) records[row] = moments;
    for (u32 column = place.first; column < width; column += place.step) {
        NormedEight eight = normed_of(layer, transition, weights, statistics, moments, outputs, row, column);
        float gradient[8];
        load_plain(width, row_gradients, row, column, gradient);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            gradient[k] = moments.x * (gradient[k] * eight.gamma[k] - sum - eight.normed[k] * along);
        }
        store_outputs(layer, width, gradient, row, column, gradients);
    }
}

/// Gradients of γ and β in pieces of nodes, Σ dz · x̂ and Σ dz, and of a learned slope.
KERNEL void kith_transition_sums(
    Layer layer, Transition transition, u32 n_rows, const float *statistics, const float2 *records, const float *outputs,
    const float *row_gradients, const float *slopes, float *pieces, float *slope_pieces, u32 n_pieces, u32 piece_nodes) {
    u32 piece = blockIdx.x, run = blockIdx.y, width = transition.width;
    u32 n_columns = min(width, (u32)NORM_THREADS), n_ways = NORM_THREADS / n_columns;
    u32 way = threadIdx.x / n_columns;
    statistics += (size_t)run * 3 * width;
    pieces += ((size_t)run * n_pieces + piece) * 2 * width;
    u32 first = piece * piece_nodes, end = min(n_rows, first + piece_nodes);
    if (transition.slope != NO_WEIGHT && threadIdx.x < 32) {
        float sum = 0.f;
        for (u32 node = first + threadIdx.x; node < end; node += 32) sum += slopes[(size_t)run * n_rows + node];
        for (u32 across = 1; across < 32; across *= 2) sum += __shfl_xor_sync(FULL, sum, across);
        if (threadIdx.x == 0) slope_pieces[run * n_pieces + piece] = sum;
    }
    if (transition.norm == NORM_NONE) return;
    for (u32 base = 0; base < width; base += n_columns) {
        u32 column = base + threadIdx.x % n_columns;
        bool is_on = way < n_ways && column < width;
        bool is_nodes = transition.norm == NORM_NODES;
        float scale = is_on && is_nodes ? statistics[column] : 1.f;
        float shift = is_on && is_nodes ? statistics[width + column] : 0.f;
        float scaled = 0.f, plain = 0.f;
        if (is_on) {
#pragma unroll 4
            for (u32 node = first + way; node < end; node += n_ways) {
                size_t row = (size_t)run * n_rows + node;
                float2 own = is_nodes ? make_float2(scale, shift) : records[row];
                float normed = fmaf(outputs[output_place(layer, row, column)], own.x, -own.y);
                float gradient = row_gradients[row * width + column];
                scaled = fmaf(gradient, normed, scaled);
                plain += gradient;
            }
        }
        float2 sums = sums_of_ways(make_float2(scaled, plain), way, n_ways, n_columns);
        if (way == 0 && is_on) {
            pieces[column] = sums.x;
            pieces[width + column] = sums.y;
        }
    }
}

/// Takes the gradient of z back through a norm over nodes, given the gradients of γ and β; and makes that of α.
KERNEL void kith_transition_nodes(
    Layer layer, Transition transition, u32 n_rows, const float *weights, const float *statistics, const float *outputs,
    const float *row_gradients, float *weight_gradients, float *gradients) {
    RowPlace place = row_place(transition, n_rows);
    if (!place.is_row) return;
    u32 width = transition.width, run = place.run;
    weights += (size_t)run * layer.n_weights;
    weight_gradients += (size_t)run * layer.n_weights;
    statistics += (size_t)run * 3 * width;
    size_t row = (size_t)run * n_rows + place.row;
    float n = (float)n_rows;
    for (u32 column = place.first; column < width; column += place.step) {
        float y[8], gradient[8];
        load_outputs(layer, width, outputs, row, column, y);
        load_plain(width, row_gradients, row, column, gradient);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            u32 own = column + k;
            if (own >= width) continue;
            float scale = statistics[own], mean = statistics[2 * width + own];
            float share = transition.mean_scale == NO_WEIGHT ? 1.f : weights[transition.mean_scale + own];
            float scaled = weight_gradients[transition.affine + own];
            float plain = weight_gradients[transition.affine + width + own];
            float factor = weights[transition.affine + own] * scale;
            // The mean of x̂ is zero if α is 1.
            float inner = factor * (plain - scale * mean * (1.f - share) * scaled);
            float normed = fmaf(y[k], scale, -statistics[width + own]);
            gradient[k] = fmaf(gradient[k], factor, -fmaf(normed, factor * scaled / n, share * inner / n));
            if (place.row == 0 && transition.mean_scale != NO_WEIGHT) {
                weight_gradients[transition.mean_scale + own] = -mean * inner;
            }
        }
        store_outputs(layer, width, gradient, row, column, gradients);
    }
}
