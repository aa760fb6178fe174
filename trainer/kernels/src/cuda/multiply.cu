// Products of rows and weights, and the way back. Rows are activated and dropped as they are read; nothing of that is kept.

// The rows that a layer multiplies with its weights.
struct Input {
    u32 n_rows, dim;
    // Dense rows of the store, the same for all runs; or null.
    const float *stored;
    // Or outputs of the layer before, before bias and ELU, in its own layout; where its bias starts among the weights.
    const float *hidden;
    u32 hidden_features, hidden_padded, hidden_stride, hidden_bias;
    // What nodes are called in draws; null where that is their position.
    const u64 *ids;
};

// Shares of 8 columns of a row that dropout keeps.
__device__ __forceinline__ void row_factors(
    const Input &input, Stream stream, const Settings &settings, u32 row, u32 column, float *factors) {
    Words words = words_of(stream, input.ids ? input.ids[row] : row, column / 8, 0, 0);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        factors[2 * k] = (words.word[k] & 0xffff) >= settings.threshold ? settings.scale : 0.f;
        factors[2 * k + 1] = words.word[k] >> 16 >= settings.threshold ? settings.scale : 0.f;
    }
}

__device__ __forceinline__ size_t hidden_place(const Input &input, u32 run, u32 row, u32 column) {
    if (input.hidden_features == input.hidden_padded) {
        return ((size_t)run * input.n_rows + row) * input.hidden_stride + column;
    }
    return ((size_t)run * input.n_rows + row) * input.hidden_stride +
           column / input.hidden_features * input.hidden_padded + column % input.hidden_features;
}

/// Eight numbers of a row from `column` on, a multiple of eight, as the weights see them; zeros beyond the end.
__device__ __forceinline__ void read_input(
    const Input &input, const float *weights, bool is_dropped, Stream stream, const Settings &settings, u32 run, u32 row,
    u32 column, float *out) {
    if (row >= input.n_rows || column >= input.dim) {
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = 0.f;
        return;
    }
    if (input.stored) {
        const float *from = input.stored + (size_t)row * input.dim + column;
        if (input.dim % 4 == 0 && column + 8 <= input.dim) {
            *(float4 *)out = *(const float4 *)from;
            *(float4 *)(out + 4) = *(const float4 *)(from + 4);
        } else {
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = column + k < input.dim ? from[k] : 0.f;
        }
    } else {
        if (input.hidden_features == input.hidden_padded && column + 8 <= input.dim) {
            const float *from = input.hidden + hidden_place(input, run, row, column);
            *(float4 *)out = *(const float4 *)from;
            *(float4 *)(out + 4) = *(const float4 *)(from + 4);
        } else {
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                out[k] = column + k < input.dim ? input.hidden[hidden_place(input, run, row, column + k)] : 0.f;
            }
        }
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            float value = column + k < input.dim ? out[k] + weights[input.hidden_bias + column + k] : 0.f;
            out[k] = value > 0.f ? value : expm1f(value);
        }
    }
    if (is_dropped) {
        float factors[8];
        row_factors(input, stream, settings, row, column, factors);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] *= factors[k];
    }
}

// A block makes a tile of the product: 128 × 64 numbers, 16 terms of their sums at a time; a thread 8 × 4 of them.
#define TILE_ROWS 128
#define TILE_COLUMNS 64
#define TILE_TERMS 16
#define TILE_THREADS 256

struct Tiles {
    // Padded: a column is read across threads.
    float a[TILE_TERMS][TILE_ROWS + 4];
    float b[TILE_TERMS][TILE_COLUMNS];
};

__device__ __forceinline__ void add_tile(const Tiles &tiles, u32 thread_row, u32 thread_column, float sums[8][4]) {
#pragma unroll
    for (u32 k = 0; k < TILE_TERMS; k++) {
        float a[8];
        *(float4 *)a = *(const float4 *)&tiles.a[k][thread_row];
        *(float4 *)(a + 4) = *(const float4 *)&tiles.a[k][thread_row + 4];
        float4 b = *(const float4 *)&tiles.b[k][thread_column];
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            sums[i][0] = fmaf(a[i], b.x, sums[i][0]);
            sums[i][1] = fmaf(a[i], b.y, sums[i][1]);
            sums[i][2] = fmaf(a[i], b.z, sums[i][2]);
            sums[i][3] = fmaf(a[i], b.w, sums[i][3]);
        }
    }
}

/// Where a number of a padded row stands in the weights; false in the padding.
__device__ __forceinline__ bool weight_column(const Layer &layer, u32 padded_column, u32 *column) {
    u32 head = padded_column / PADDED, feature = padded_column % PADDED;
    *column = head * layer.features + feature;
    return head < HEADS && feature < layer.features;
}

/// rows = input · weights.
KERNEL void kith_multiply(
    Layer layer, Input input, const float *weights, const Settings *settings, const Streams *streams, u32 n_layers,
    u32 is_dropped, float *rows) {
    __shared__ Tiles tiles;
    u32 run = blockIdx.y, thread = threadIdx.x;
    u32 n_tile_columns = (layer.stride + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 first_row = blockIdx.x / n_tile_columns * TILE_ROWS, first_column = blockIdx.x % n_tile_columns * TILE_COLUMNS;
    u32 thread_row = thread / 16 * 8, thread_column = thread % 16 * 4;
    weights += (size_t)run * layer.n_weights;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    float sums[8][4] = {};
    for (u32 first = 0; first < layer.dim; first += TILE_TERMS) {
        float read[8];
        u32 row = thread / 2, term = thread % 2 * 8;
        read_input(input, weights, is_dropped, stream, own_settings, run, first_row + row, first + term, read);
#pragma unroll
        for (u32 k = 0; k < 8; k++) tiles.a[term + k][row] = read[k];
        u32 b_term = thread / 16, b_column = thread % 16 * 4, column;
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            bool is_weight = weight_column(layer, first_column + b_column + k, &column) && first + b_term < layer.dim;
            const float *from = weights + layer.weight + (size_t)(first + b_term) * HEADS * layer.features;
            tiles.b[b_term][b_column + k] = is_weight ? from[column] : 0.f;
        }
        __syncthreads();
        add_tile(tiles, thread_row, thread_column, sums);
        __syncthreads();
    }
    for (u32 i = 0; i < 8; i++) {
        u32 row = first_row + thread_row + i, column = first_column + thread_column;
        if (row >= input.n_rows || column >= layer.stride) continue;
        float4 sum = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        *(float4 *)(rows + ((size_t)run * input.n_rows + row) * layer.stride + column) = sum;
    }
}

/// The gradient of the weights in pieces of rows: inputᵀ · gradient.
KERNEL void kith_weight_gradient(
    Layer layer, Input input, const float *weights, const Settings *settings, const Streams *streams, u32 n_layers,
    u32 is_dropped, const float *row_gradients, float *pieces, u32 piece_rows, u32 n_pieces) {
    __shared__ Tiles tiles;
    u32 run = blockIdx.y, piece = blockIdx.z, thread = threadIdx.x;
    u32 n_tile_columns = (layer.stride + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 first_weight = blockIdx.x / n_tile_columns * TILE_ROWS;
    u32 first_column = blockIdx.x % n_tile_columns * TILE_COLUMNS;
    u32 thread_row = thread / 16 * 8, thread_column = thread % 16 * 4;
    weights += (size_t)run * layer.n_weights;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    float sums[8][4] = {};
    u32 end = min(input.n_rows, (piece + 1) * piece_rows);
    for (u32 first = piece * piece_rows; first < end; first += TILE_TERMS) {
        float read[8];
        u32 term = thread / 16, a_column = thread % 16 * 8, row = first + term;
        read_input(
            input, weights, is_dropped, stream, own_settings, run, row < end ? row : input.n_rows,
            first_weight + a_column, read);
        *(float4 *)&tiles.a[term][a_column] = *(float4 *)read;
        *(float4 *)&tiles.a[term][a_column + 4] = *(float4 *)(read + 4);
        u32 b_column = thread % 16 * 4;
        bool is_row = row < end && first_column + b_column < layer.stride;
        const float *from = row_gradients + ((size_t)run * input.n_rows + row) * layer.stride + first_column + b_column;
        *(float4 *)&tiles.b[term][b_column] = is_row ? *(const float4 *)from : zero4();
        __syncthreads();
        add_tile(tiles, thread_row, thread_column, sums);
        __syncthreads();
    }
    float *out = pieces + ((size_t)run * n_pieces + piece) * layer.dim * HEADS * layer.features;
    for (u32 i = 0; i < 8; i++) {
        for (u32 k = 0; k < 4; k++) {
            u32 weight_row = first_weight + thread_row + i, column;
            bool is_weight = weight_column(layer, first_column + thread_column + k, &column);
            if (is_weight && weight_row < layer.dim) {
                out[(size_t)weight_row * HEADS * layer.features + column] = sums[i][k];
            }
        }
    }
}

/// The gradient of what the layer before gave: gradient · weightsᵀ, back through dropout and ELU.
KERNEL void kith_input_gradient(
    Layer layer, Input input, const float *weights, const Settings *settings, const Streams *streams, u32 n_layers,
    u32 is_dropped, const float *row_gradients, float *hidden_gradients) {
    __shared__ Tiles tiles;
    u32 run = blockIdx.y, thread = threadIdx.x;
    u32 n_tile_columns = (layer.dim + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 first_row = blockIdx.x / n_tile_columns * TILE_ROWS, first_column = blockIdx.x % n_tile_columns * TILE_COLUMNS;
    u32 thread_row = thread / 16 * 8, thread_column = thread % 16 * 4;
    weights += (size_t)run * layer.n_weights;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    float sums[8][4] = {};
    for (u32 first = 0; first < layer.stride; first += TILE_TERMS) {
        u32 row = thread / 2, term = thread % 2 * 8;
        for (u32 quad = 0; quad < 8; quad += 4) {
            bool is_there = first_row + row < input.n_rows && first + term + quad < layer.stride;
            const float *from =
                row_gradients + ((size_t)run * input.n_rows + first_row + row) * layer.stride + first + term + quad;
            float4 read = is_there ? *(const float4 *)from : zero4();
            tiles.a[term + quad][row] = read.x;
            tiles.a[term + quad + 1][row] = read.y;
            tiles.a[term + quad + 2][row] = read.z;
            tiles.a[term + quad + 3][row] = read.w;
        }
        u32 b_term = thread % 16, b_column = thread / 16 * 4, column;
        bool is_weight = weight_column(layer, first + b_term, &column);
        for (u32 k = 0; k < 4; k++) {
            u32 weight_row = first_column + b_column + k;
            bool is_there = is_weight && weight_row < layer.dim;
            const float *from = weights + layer.weight + (size_t)weight_row * HEADS * layer.features;
            tiles.b[b_term][b_column + k] = is_there ? from[column] : 0.f;
        }
        __syncthreads();
        add_tile(tiles, thread_row, thread_column, sums);
        __syncthreads();
    }
    u32 column = first_column + thread_column;
    if (column >= layer.dim) return;
    for (u32 i = 0; i < 8; i++) {
        u32 row = first_row + thread_row + i;
        if (row >= input.n_rows) continue;
        float factors[8];
        if (is_dropped) row_factors(input, stream, own_settings, row, column, factors);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (column + k >= input.dim) continue;
            size_t place = hidden_place(input, run, row, column + k);
            float before = input.hidden[place] + weights[input.hidden_bias + column + k];
            float slope = before > 0.f ? 1.f : expf(before);
            if (is_dropped) slope *= column % 8 ? factors[4 + k] : factors[k];
            hidden_gradients[place] = sums[i][k] * slope;
        }
    }
}

// Sparse rows of the store: by row, and again by column.
struct SparseRows {
    u32 n_rows, dim;
    const u32 *indptr, *columns;
    const float *values;
    const u32 *column_indptr, *column_rows;
    const float *column_values;
    const u64 *ids;
};

__device__ __forceinline__ float sparse_factor(
    Stream stream, const Settings &settings, const u64 *ids, u32 row, u32 column) {
    Words words = words_of(stream, ids ? ids[row] : row, column / 8, 0, 0);
    u32 low = column & 2 ? words.word[1] : words.word[0], high = column & 2 ? words.word[3] : words.word[2];
    u32 word = column & 4 ? high : low;
    return (column & 1 ? word >> 16 : word & 0xffff) >= settings.threshold ? settings.scale : 0.f;
}

/// rows = sparse rows · weights: a warp for each row.
KERNEL void kith_multiply_sparse(
    Layer layer, SparseRows sparse, const float *weights, const Settings *settings, const Streams *streams, u32 n_layers,
    u32 is_dropped, float *rows) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, run = blockIdx.y;
    if (row >= sparse.n_rows) return;
    weights += (size_t)run * layer.n_weights + layer.weight;
    rows += ((size_t)run * sparse.n_rows + row) * layer.stride;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    u32 first = sparse.indptr[row], end = sparse.indptr[row + 1];
    for (u32 from = 0; from < layer.stride; from += 32) {
        u32 column = 0;
        bool is_weight = from + lane < layer.stride && weight_column(layer, from + lane, &column);
        float sum = 0.f;
        for (u32 base = first; base < end; base += 32) {
            u32 place = base + lane, own_column = 0;
            float own_value = 0.f;
            if (place < end) {
                own_column = sparse.columns[place];
                own_value = sparse.values[place];
                if (is_dropped) own_value *= sparse_factor(stream, own_settings, sparse.ids, row, own_column);
            }
            u32 n = min(32u, end - base);
            for (u32 k = 0; k < n; k++) {
                float value = __shfl_sync(FULL, own_value, k);
                u32 weight_row = __shfl_sync(FULL, own_column, k);
                if (is_weight && value != 0.f) {
                    sum = fmaf(value, weights[(size_t)weight_row * HEADS * layer.features + column], sum);
                }
            }
        }
        if (from + lane < layer.stride) rows[from + lane] = sum;
    }
}

/// The gradient of the weights: a warp for each column of the rows, whose entries are added in the order of rows.
KERNEL void kith_weight_gradient_sparse(
    Layer layer, SparseRows sparse, const Settings *settings, const Streams *streams, u32 n_layers, u32 is_dropped,
    const float *row_gradients, float *gradient) {
    u32 weight_row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, run = blockIdx.y;
    if (weight_row >= sparse.dim) return;
    row_gradients += (size_t)run * sparse.n_rows * layer.stride;
    gradient += (size_t)run * layer.n_weights + layer.weight + (size_t)weight_row * HEADS * layer.features;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    u32 first = sparse.column_indptr[weight_row], end = sparse.column_indptr[weight_row + 1];
    for (u32 from = 0; from < layer.stride; from += 32) {
        u32 column = 0;
        bool is_weight = from + lane < layer.stride && weight_column(layer, from + lane, &column);
        float sum = 0.f;
        for (u32 base = first; base < end; base += 32) {
            u32 place = base + lane, own_row = 0;
            float own_value = 0.f;
            if (place < end) {
                own_row = sparse.column_rows[place];
                own_value = sparse.column_values[place];
                if (is_dropped) own_value *= sparse_factor(stream, own_settings, sparse.ids, own_row, weight_row);
            }
            u32 n = min(32u, end - base);
            for (u32 k = 0; k < n; k++) {
                float value = __shfl_sync(FULL, own_value, k);
                u32 row = __shfl_sync(FULL, own_row, k);
                if (is_weight && value != 0.f) {
                    sum = fmaf(value, row_gradients[(size_t)row * layer.stride + from + lane], sum);
                }
            }
        }
        if (is_weight) gradient[column] = sum;
    }
}
