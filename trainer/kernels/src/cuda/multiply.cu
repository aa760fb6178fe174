// Products of features and weights, forward and backward. Activation and dropout are applied as features are read; the
// results are not kept.

// The rows that a layer multiplies with its weights.
struct Input {
    u32 n_rows, dim;
    // Dense rows that are read as they are, or null: features of the store, the same for all runs, or rows between layers, `stride`
    // numbers from one run's to the next.
    const float *stored;
    u64 run_stride;
    // Or outputs of the layer before, before bias and ELU, in its own layout; where its bias starts among the weights.
    const float *hidden;
    u32 hidden_features, hidden_padded, hidden_stride, hidden_bias;
    // Ids of nodes in draws; null if positions are their ids.
    const u64 *ids;
};

// Shares of 8 columns of a row that dropout keeps.
__device__ __forceinline__ void row_factors(
    const Input &input, Stream stream, const Settings &settings, u32 row, u32 column, float *factors) {
    Words words = words_of(stream, input.ids ? input.ids[row] : row, column / 8, 0, 0);
    u32 threshold = input.stored ? settings.input_threshold : settings.threshold;
    float scale = input.stored ? settings.input_scale : settings.scale;
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        factors[2 * k] = (words.word[k] & 0xffff) >= threshold ? scale : 0.f;
        factors[2 * k + 1] = words.word[k] >> 16 >= threshold ? scale : 0.f;
    }
}

__device__ __forceinline__ size_t hidden_place(const Input &input, u32 run, u32 row, u32 column) {
    if (input.hidden_features == input.hidden_padded) {
        return ((size_t)run * input.n_rows + row) * input.hidden_stride + column;
    }
    return ((size_t)run * input.n_rows + row) * input.hidden_stride +
           column / input.hidden_features * input.hidden_padded + column % input.hidden_features;
}

// Eight numbers of a row from `column` on, a multiple of eight.
struct alignas(16) Eight {
    float value[8];
    u32 row, column;
    bool is_there;
};

/// Starts to read them, so that something else can be computed until they have arrived.
__device__ __forceinline__ Eight load_input(const Input &input, u32 run, u32 row, u32 column) {
    Eight eight;
    eight.row = row;
    eight.column = column;
    eight.is_there = row < input.n_rows && column < input.dim;
    if (!eight.is_there) {
#pragma unroll
        for (u32 k = 0; k < 8; k++) eight.value[k] = 0.f;
    } else if (input.stored) {
        const float *from = input.stored + run * input.run_stride + (size_t)row * input.dim + column;
        if (input.dim % 4 == 0 && column + 8 <= input.dim) {
            *(float4 *)eight.value = *(const float4 *)from;
            *(float4 *)(eight.value + 4) = *(const float4 *)(from + 4);
        } else {
#pragma unroll
            for (u32 k = 0; k < 8; k++) eight.value[k] = column + k < input.dim ? from[k] : 0.f;
        }
    } else if (input.hidden_features == input.hidden_padded && column + 8 <= input.dim) {
        const float *from = input.hidden + hidden_place(input, run, row, column);
        *(float4 *)eight.value = *(const float4 *)from;
        *(float4 *)(eight.value + 4) = *(const float4 *)(from + 4);
    } else {
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            eight.value[k] = column + k < input.dim ? input.hidden[hidden_place(input, run, row, column + k)] : 0.f;
        }
    }
    return eight;
}

/// The numbers as the weights see them: after bias, ELU and dropout; zeros beyond the end.
__device__ __forceinline__ void finish_input(
    const Input &input, const float *weights, bool is_dropped, Stream stream, const Settings &settings, Eight *eight) {
    if (!eight->is_there) return;
    if (!input.stored) {
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            u32 column = eight->column + k;
            float value = column < input.dim ? eight->value[k] + bias_of(weights, input.hidden_bias, column) : 0.f;
            eight->value[k] = value > 0.f ? value : expm1f(value);
        }
    }
    if (is_dropped) {
        float factors[8];
        row_factors(input, stream, settings, eight->row, eight->column, factors);
#pragma unroll
        for (u32 k = 0; k < 8; k++) eight->value[k] *= factors[k];
    }
}

// A block makes a tile of the product: 128 × 64 numbers, 16 terms of their sums at a time; a thread 8 × 4 of them.
#define TILE_ROWS 128
#define TILE_COLUMNS 64
#define TILE_TERMS 16
#define TILE_THREADS 256

// Two of these: one is filled while the other is multiplied.
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

/// Column of the weights for a column of a padded row; false in the padding.
__device__ __forceinline__ bool weight_column(const Layer &layer, u32 padded_column, u32 *column) {
    u32 head = padded_column / PADDED, feature = padded_column % PADDED;
    *column = head * layer.features + feature;
    return head < HEADS && feature < layer.features;
}

/// rows = input · weights.
KERNEL void kith_multiply(
    Layer layer, Input input, const float *weights, const Settings *settings, const Streams *streams, u32 n_layers,
    u32 is_dropped, float *rows) {
    __shared__ Tiles tiles[2];
    u32 run = blockIdx.y, thread = threadIdx.x;
    u32 n_tile_columns = (layer.stride + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 first_row = blockIdx.x / n_tile_columns * TILE_ROWS, first_column = blockIdx.x % n_tile_columns * TILE_COLUMNS;
    u32 thread_row = thread / 16 * 8, thread_column = thread % 16 * 4;
    u32 a_row = thread / 2, a_term = thread % 2 * 8, b_term = thread / 16, b_column = thread % 16 * 4;
    weights += (size_t)run * layer.n_weights;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    float sums[8][4] = {};
    Eight a = load_input(input, run, first_row + a_row, a_term);
    alignas(16) float b[4];
    for (u32 first = 0, now = 1; first < layer.dim + TILE_TERMS; first += TILE_TERMS, now ^= 1) {
        // Terms from `first` on are read; those before, in the other tile, are multiplied.
        if (first < layer.dim) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                u32 column;
                bool is_weight = weight_column(layer, first_column + b_column + k, &column) && first + b_term < layer.dim;
                const float *from = weights + layer.weight + (size_t)(first + b_term) * HEADS * layer.features;
                b[k] = is_weight ? from[column] : 0.f;
            }
        }
        if (first > 0) add_tile(tiles[now], thread_row, thread_column, sums);
        if (first >= layer.dim) break;
        finish_input(input, weights, is_dropped, stream, own_settings, &a);
        Tiles &next = tiles[now ^ 1];
#pragma unroll
        for (u32 k = 0; k < 8; k++) next.a[a_term + k][a_row] = a.value[k];
        *(float4 *)&next.b[b_term][b_column] = *(float4 *)b;
        if (first + TILE_TERMS < layer.dim) a = load_input(input, run, first_row + a_row, first + TILE_TERMS + a_term);
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
    __shared__ Tiles tiles[2];
    u32 run = blockIdx.y, piece = blockIdx.z, thread = threadIdx.x;
    u32 n_tile_columns = (layer.stride + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 first_weight = blockIdx.x / n_tile_columns * TILE_ROWS;
    u32 first_column = blockIdx.x % n_tile_columns * TILE_COLUMNS;
    u32 thread_row = thread / 16 * 8, thread_column = thread % 16 * 4;
    u32 term = thread / 16, a_column = thread % 16 * 8, b_column = thread % 16 * 4;
    weights += (size_t)run * layer.n_weights;
    row_gradients += (size_t)run * input.n_rows * layer.stride + first_column + b_column;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    float sums[8][4] = {};
    u32 start = piece * piece_rows, end = min(input.n_rows, start + piece_rows);
    bool is_column = first_column + b_column < layer.stride;
    u32 row = start + term;
    Eight a = load_input(input, run, row < end ? row : input.n_rows, first_weight + a_column);
    float4 b = row < end && is_column ? *(const float4 *)(row_gradients + (size_t)row * layer.stride) : zero4();
    for (u32 first = start, now = 1;; first += TILE_TERMS, now ^= 1) {
        // As above.
        if (first > start) add_tile(tiles[now], thread_row, thread_column, sums);
        if (first >= end) break;
        finish_input(input, weights, is_dropped, stream, own_settings, &a);
        Tiles &next = tiles[now ^ 1];
        *(float4 *)&next.a[term][a_column] = *(float4 *)a.value;
        *(float4 *)&next.a[term][a_column + 4] = *(float4 *)(a.value + 4);
        *(float4 *)&next.b[term][b_column] = b;
        row = first + TILE_TERMS + term;
        a = load_input(input, run, row < end ? row : input.n_rows, first_weight + a_column);
        b = row < end && is_column ? *(const float4 *)(row_gradients + (size_t)row * layer.stride) : zero4();
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

/// Adds the bias to all rows, a number in each thread.
KERNEL void kith_add_bias(Layer layer, u32 n_rows, const float *weights, float *rows) {
    size_t place = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    u32 run = blockIdx.y, width = HEADS * layer.features;
    if (place >= (size_t)n_rows * width) return;
    u32 row = (u32)(place / width), column = (u32)(place % width);
    u32 head = column / layer.features, feature = column % layer.features;
    float *to = rows + ((size_t)run * n_rows + row) * layer.stride + head * PADDED + feature;
    *to += weights[(size_t)run * layer.n_weights + layer.bias + column];
}

/// The gradient of what the layer before gave: gradient · weightsᵀ, back through dropout and ELU. That of rows between layers has
/// neither. With `is_added`, it is added to what is there.
KERNEL void kith_input_gradient(
    Layer layer, Input input, const float *weights, const Settings *settings, const Streams *streams, u32 n_layers,
    u32 is_dropped, const float *row_gradients, float *hidden_gradients, u32 is_added) {
    __shared__ Tiles tiles[2];
    u32 run = blockIdx.y, thread = threadIdx.x;
    u32 n_tile_columns = (layer.dim + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 first_row = blockIdx.x / n_tile_columns * TILE_ROWS, first_column = blockIdx.x % n_tile_columns * TILE_COLUMNS;
    u32 thread_row = thread / 16 * 8, thread_column = thread % 16 * 4;
    u32 a_row = thread / 2, a_term = thread % 2 * 8, b_term = thread % 16, b_column = thread / 16 * 4;
    weights += (size_t)run * layer.n_weights;
    Stream stream = streams[run * n_layers + layer.index].rows;
    Settings own_settings = settings[run];
    bool is_row = first_row + a_row < input.n_rows;
    const float *gradient = row_gradients + ((size_t)run * input.n_rows + first_row + a_row) * layer.stride + a_term;
    float sums[8][4] = {};
    float4 a[2];
    alignas(16) float b[4];
#pragma unroll
    for (u32 q = 0; q < 2; q++) {
        a[q] = is_row && a_term + 4 * q < layer.stride ? *(const float4 *)(gradient + 4 * q) : zero4();
    }
    for (u32 first = 0, now = 1; first < layer.stride + TILE_TERMS; first += TILE_TERMS, now ^= 1) {
        // As above.
        if (first < layer.stride) {
            u32 column;
            bool is_weight = weight_column(layer, first + b_term, &column);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                u32 weight_row = first_column + b_column + k;
                const float *from = weights + layer.weight + (size_t)weight_row * HEADS * layer.features;
                b[k] = is_weight && weight_row < layer.dim ? from[column] : 0.f;
            }
        }
        if (first > 0) add_tile(tiles[now], thread_row, thread_column, sums);
        if (first >= layer.stride) break;
        Tiles &next = tiles[now ^ 1];
#pragma unroll
        for (u32 q = 0; q < 2; q++) {
            next.a[a_term + 4 * q][a_row] = a[q].x;
            next.a[a_term + 4 * q + 1][a_row] = a[q].y;
            next.a[a_term + 4 * q + 2][a_row] = a[q].z;
            next.a[a_term + 4 * q + 3][a_row] = a[q].w;
        }
        *(float4 *)&next.b[b_term][b_column] = *(float4 *)b;
#pragma unroll
        for (u32 q = 0; q < 2; q++) {
            u32 place = first + TILE_TERMS + a_term + 4 * q;
            bool is_there = is_row && place < layer.stride;
            a[q] = is_there ? *(const float4 *)(gradient + first + TILE_TERMS + 4 * q) : zero4();
        }
        __syncthreads();
    }
    u32 column = first_column + thread_column;
    if (column >= layer.dim) return;
    for (u32 i = 0; i < 8; i++) {
        u32 row = first_row + thread_row + i;
        if (row >= input.n_rows) continue;
        if (input.stored) {
            float *to = hidden_gradients + run * input.run_stride + (size_t)row * input.dim + column;
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                if (column + k < input.dim) to[k] = is_added ? to[k] + sums[i][k] : sums[i][k];
            }
            continue;
        }
        float factors[8];
        if (is_dropped) row_factors(input, stream, own_settings, row, column, factors);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (column + k >= input.dim) continue;
            size_t place = hidden_place(input, run, row, column + k);
            float before = input.hidden[place] + bias_of(weights, input.hidden_bias, column + k);
            float slope = before > 0.f ? 1.f : expf(before);
            if (is_dropped) slope *= column % 8 ? factors[4 + k] : factors[k];
            float own = sums[i][k] * slope;
            hidden_gradients[place] = is_added ? hidden_gradients[place] + own : own;
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
    return (column & 1 ? word >> 16 : word & 0xffff) >= settings.input_threshold ? settings.input_scale : 0.f;
}

/// Sparse rows with their zeros, by position: a warp for each.
KERNEL void kith_spread_rows(SparseRows sparse, u32 n_rows, float *out) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= n_rows) return;
    out += (size_t)row * sparse.dim;
    for (u32 column = lane; column < sparse.dim; column += 32) out[column] = 0.f;
    __syncwarp();
    u64 stored_row = sparse.ids ? sparse.ids[row] : row;
    u32 end = sparse.indptr[stored_row + 1];
    for (u32 entry = sparse.indptr[stored_row] + lane; entry < end; entry += 32) {
        out[sparse.columns[entry]] = sparse.values[entry];
    }
}

// Entries of a sparse row or column, and what dropout knows of them: the row or the column that all of them share.
struct SparseList {
    const u32 *others;
    const float *values;
    u32 first, end, shared;
    bool is_row;
};

// Columns of a result that a thread adds up, 32 apart.
#define SPARSE_COLUMNS 2

/// Σ value · matrix[other][place] over the entries of a list, for each of a thread's places; none where a place is NO_PLACE.
#define NO_PLACE 0xffffffffu
__device__ __forceinline__ void add_sparse(
    const SparseList &list, Stream stream, const Settings &settings, const u64 *ids, u32 is_dropped, const float *matrix,
    u32 pitch, const u32 *places, float *sums) {
    u32 lane = threadIdx.x % 32;
    for (u32 base = list.first; base < list.end; base += 32) {
        u32 entry = base + lane, own_other = 0;
        float own_value = 0.f;
        if (entry < list.end) {
            own_other = list.others[entry];
            own_value = list.values[entry];
            if (is_dropped) {
                u32 row = list.is_row ? list.shared : own_other, column = list.is_row ? own_other : list.shared;
                own_value *= sparse_factor(stream, settings, ids, row, column);
            }
        }
        u32 n = min(32u, list.end - base);
#pragma unroll 4
        for (u32 k = 0; k < n; k++) {
            float value = __shfl_sync(FULL, own_value, k);
            const float *from = matrix + (size_t)__shfl_sync(FULL, own_other, k) * pitch;
            if (value == 0.f) continue;
#pragma unroll
            for (u32 c = 0; c < SPARSE_COLUMNS; c++) {
                if (places[c] != NO_PLACE) sums[c] = fmaf(value, from[places[c]], sums[c]);
            }
        }
    }
}

/// rows = sparse rows · weights: a warp for each row.
KERNEL void kith_multiply_sparse(
    Layer layer, SparseRows sparse, const float *weights, const Settings *settings, const Streams *streams, u32 n_layers,
    u32 is_dropped, float *rows) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, run = blockIdx.y;
    if (row >= sparse.n_rows) return;
    weights += (size_t)run * layer.n_weights + layer.weight;
    rows += ((size_t)run * sparse.n_rows + row) * layer.stride;
    SparseList list = {sparse.columns, sparse.values, sparse.indptr[row], sparse.indptr[row + 1], row, true};
    for (u32 from = lane; from < layer.stride + lane; from += 32 * SPARSE_COLUMNS) {
        u32 places[SPARSE_COLUMNS];
        float sums[SPARSE_COLUMNS];
#pragma unroll
        for (u32 c = 0; c < SPARSE_COLUMNS; c++) {
            sums[c] = 0.f;
            u32 to = from + 32 * c;
            if (to >= layer.stride || !weight_column(layer, to, &places[c])) places[c] = NO_PLACE;
        }
        add_sparse(
            list, streams[run * n_layers + layer.index].rows, settings[run], sparse.ids, is_dropped, weights,
            HEADS * layer.features, places, sums);
#pragma unroll
        for (u32 c = 0; c < SPARSE_COLUMNS; c++) {
            if (from + 32 * c < layer.stride) rows[from + 32 * c] = sums[c];
        }
    }
}

/// The gradient of the weights, in pieces of every column's entries: a warp for each column of the rows, whose entries are added
/// in the order of rows.
KERNEL void kith_weight_gradient_sparse(
    Layer layer, SparseRows sparse, const Settings *settings, const Streams *streams, u32 n_layers, u32 is_dropped,
    const float *row_gradients, float *pieces, u32 n_pieces) {
    u32 weight_row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, run = blockIdx.y;
    u32 piece = blockIdx.z, n_columns = HEADS * layer.features;
    if (weight_row >= sparse.dim) return;
    row_gradients += (size_t)run * sparse.n_rows * layer.stride;
    pieces += (((size_t)run * n_pieces + piece) * sparse.dim + weight_row) * n_columns;
    u32 first = sparse.column_indptr[weight_row], end = sparse.column_indptr[weight_row + 1];
    u32 share = (end - first + n_pieces - 1) / n_pieces;
    SparseList list = {
        sparse.column_rows, sparse.column_values, min(end, first + piece * share), min(end, first + (piece + 1) * share),
        weight_row, false};
    for (u32 from = lane; from < layer.stride + lane; from += 32 * SPARSE_COLUMNS) {
        u32 places[SPARSE_COLUMNS], columns[SPARSE_COLUMNS];
        float sums[SPARSE_COLUMNS];
#pragma unroll
        for (u32 c = 0; c < SPARSE_COLUMNS; c++) {
            sums[c] = 0.f;
            places[c] = from + 32 * c;
            if (places[c] >= layer.stride || !weight_column(layer, places[c], &columns[c])) places[c] = NO_PLACE;
        }
        add_sparse(
            list, streams[run * n_layers + layer.index].rows, settings[run], sparse.ids, is_dropped, row_gradients,
            layer.stride, places, sums);
#pragma unroll
        for (u32 c = 0; c < SPARSE_COLUMNS; c++) {
            if (places[c] != NO_PLACE) pieces[columns[c]] = sums[c];
        }
    }
}
