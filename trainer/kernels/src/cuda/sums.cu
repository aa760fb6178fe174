// Sums in a fixed order: pieces by place, then one after the other.

/// out[i] = Σ pieces[piece][i], for each run; `out_stride` numbers from one run's to the next.
KERNEL void kith_sum_pieces(const float *pieces, u32 n_pieces, u32 n, float *out, u32 out_stride) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (place >= n) return;
    float sum = 0.f;
    for (u32 piece = 0; piece < n_pieces; piece++) sum += pieces[((size_t)run * n_pieces + piece) * n + place];
    out[(size_t)run * out_stride + place] = sum;
}

/// The sum of a run's numbers, by one block: threads take them in turn, and their sums are added in order.
KERNEL void kith_sum(const double *numbers, u32 n, double *out, u32 out_stride) {
    __shared__ double sums[256];
    u32 thread = threadIdx.x, run = blockIdx.y;
    double sum = 0.0;
    for (u32 place = thread; place < n; place += 256) sum += numbers[(size_t)run * n + place];
    sums[thread] = sum;
    __syncthreads();
    for (u32 half = 128; half > 0; half /= 2) {
        if (thread < half) sums[thread] += sums[thread + half];
        __syncthreads();
    }
    if (thread == 0) out[(size_t)run * out_stride] = sums[0];
}

/// The gradient of a layer's bias, in pieces of nodes.
KERNEL void kith_bias_gradient(
    Layer layer, u32 n_nodes, const float *gradients, float *pieces, u32 n_pieces) {
    u32 piece = blockIdx.x, run = blockIdx.y;
    u32 n_outputs = layer.is_mean ? layer.features : HEADS * layer.features;
    u32 end = min(n_nodes, (piece + 1) * N_PIECE);
    for (u32 column = threadIdx.x; column < n_outputs; column += blockDim.x) {
        float sum = 0.f;
        u32 head = column / layer.features, feature = column % layer.features;
        u32 last_head = layer.is_mean ? HEADS - 1 : head;
        for (u32 node = piece * N_PIECE; node < end; node++) {
            const float *row = gradients + ((size_t)run * n_nodes + node) * layer.stride + feature;
            for (u32 own = head; own <= last_head; own++) sum += row[own * PADDED];
        }
        pieces[((size_t)run * n_pieces + piece) * n_outputs + column] = sum;
    }
}
