// Features of a store, as they are stored: on the device, or in memory of the host that the device reads itself.

#define ROW_F32 0
#define ROW_F16 1
#define ROW_BF16 2
#define NO_HOT 0xffffffffu

struct StoredRows {
    const unsigned char *all;
    // Rows of some nodes that are on the device, and the place of each node's among them; null if there are none.
    const unsigned char *hot;
    const u32 *slots;
    u32 dim, kind;
};

__device__ __forceinline__ float of_half(u32 bits, u32 kind) {
    if (kind == ROW_BF16) return __uint_as_float(bits << 16);
    // The exponent's offset is the difference of both biases; exact for numbers below the smallest normal one, too.
    float value = __uint_as_float((bits & 0x7fffu) << 13) * 5.192296858534828e33f;
    return __uint_as_float(__float_as_uint(value) | (bits & 0x8000u) << 16);
}

/// Copies the rows of nodes, one warp for each: those with these ids, or those from `first` on.
KERNEL void kith_gather_rows(StoredRows stored, const u64 *ids, u64 first, u32 n, float *rows) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    u64 id = ids ? ids[row] : first + row;
    const unsigned char *from = stored.all;
    if (stored.slots) {
        u32 slot = stored.slots[id];
        if (slot != NO_HOT) {
            from = stored.hot;
            id = slot;
        }
    }
    float *to = rows + (size_t)row * stored.dim;
    if (stored.kind == ROW_F32) {
        const float *values = (const float *)from + id * stored.dim;
        for (u32 column = lane; column < stored.dim; column += 32) to[column] = values[column];
    } else if (stored.dim % 2 == 0) {
        // Two at a time, so that a warp reads whole lines.
        const u32 *values = (const u32 *)from + id * (stored.dim / 2);
        for (u32 pair = lane; pair < stored.dim / 2; pair += 32) {
            u32 both = values[pair];
            to[2 * pair] = of_half(both & 0xffffu, stored.kind);
            to[2 * pair + 1] = of_half(both >> 16, stored.kind);
        }
    } else {
        const unsigned short *values = (const unsigned short *)from + id * stored.dim;
        for (u32 column = lane; column < stored.dim; column += 32) to[column] = of_half(values[column], stored.kind);
    }
}

/// How often each node is drawn from the lists, about: in parts of 1,024, over all destinations.
KERNEL void kith_count_draws(StoredLists lists, u32 n_nodes, u32 fanout, u64 *counts) {
    u32 node = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (node >= n_nodes) return;
    u32 start = lists.indptr[node], len = lists.indptr[node + 1] - start;
    u64 share = len > fanout ? ((u64)fanout << 10) / len : 1 << 10;
    for (u32 k = lane; k < len; k += 32) atomicAdd((unsigned long long *)counts + lists.sources[start + k], share);
}
