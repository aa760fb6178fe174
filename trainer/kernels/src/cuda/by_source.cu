// Sorts the edges of a batch by source: a radix sort, lowest digit first. Each pass keeps the order of equal digits, so
// the edges of a source stay in the order they have by destination, for lists of any length.
//
// All hops are sorted at once: a key is the position of a source among the sources of all hops.

#define SORT_THREADS 256
#define SORT_WARPS (SORT_THREADS / 32)
// Values of a digit, one for each thread.
#define N_DIGITS SORT_THREADS
#define DIGIT_BITS 8
// Edges of a warp in one turn after the other, and of a block.
#define SORT_TURNS 16
#define SORT_TILE (SORT_THREADS * SORT_TURNS)

__device__ __forceinline__ u32 hop_of(const HopSizes *hops, u32 n_hops, u32 edge) {
    u32 hop = 0;
    while (hop + 1 < n_hops && edge >= hops[hop + 1].first_edge) hop++;
    return hop;
}

KERNEL void kith_source_keys(Sampled sampled, u32 n_hops, u32 n, u32 *keys) {
    u32 edge = blockIdx.x * blockDim.x + threadIdx.x;
    if (edge >= n) return;
    keys[edge] = sampled.hops[hop_of(sampled.hops, n_hops, edge)].first_source + sampled.sources[edge];
}

/// Counts the digits of each block, by digit and then by block.
KERNEL void kith_count_digits(u32 n, const u32 *keys, u32 shift, u32 n_tiles, u32 *counts) {
    __shared__ u32 own[N_DIGITS];
    u32 first = blockIdx.x * SORT_TILE;
    own[threadIdx.x] = 0;
    __syncthreads();
    for (u32 turn = 0; turn < SORT_TURNS; turn++) {
        u32 place = first + turn * SORT_THREADS + threadIdx.x;
        if (place < n) atomicAdd(own + (keys[place] >> shift) % N_DIGITS, 1u);
    }
    __syncthreads();
    counts[(size_t)threadIdx.x * n_tiles + blockIdx.x] = own[threadIdx.x];
}

/// The sum of each block of numbers.
KERNEL void kith_sum_tiles(u32 n, const u32 *values, u32 *totals) {
    u32 first = blockIdx.x * SCAN_TILE + threadIdx.x * SCAN_EACH, sum = 0, total;
    for (u32 place = first; place < first + SCAN_EACH; place++) sum += place < n ? values[place] : 0;
    sum_before(sum, &total);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

/// Puts the sum of all numbers before it into the place of each.
KERNEL void kith_scan_tiles(u32 n, u32 *values, const u32 *totals) {
    u32 first = blockIdx.x * SCAN_TILE + threadIdx.x * SCAN_EACH, sum = 0, total;
    u32 own[SCAN_EACH];
#pragma unroll
    for (u32 index = 0; index < SCAN_EACH; index++) {
        own[index] = first + index < n ? values[first + index] : 0;
        sum += own[index];
    }
    u32 before = blocks_before(totals);
    before += sum_before(sum, &total);
#pragma unroll
    for (u32 index = 0; index < SCAN_EACH; index++) {
        if (first + index < n) values[first + index] = before;
        before += own[index];
    }
}

/// Moves each key and its edge behind all that have a lower digit and all that have the same one and stand before it.
/// Without `edges` each is at its own place.
KERNEL void kith_sort_digits(
    u32 n, const u32 *keys, const u32 *edges, u32 shift, u32 n_tiles, const u32 *starts, u32 *sorted_keys,
    u32 *sorted_edges) {
    // Next position for each digit, by warp.
    __shared__ u32 next[SORT_WARPS][N_DIGITS];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 first = blockIdx.x * SORT_TILE + warp * 32 * SORT_TURNS + lane;
    for (u32 other = 0; other < SORT_WARPS; other++) next[other][threadIdx.x] = 0;
    __syncthreads();
    u32 own[SORT_TURNS];
#pragma unroll
    for (u32 turn = 0; turn < SORT_TURNS; turn++) own[turn] = first + turn * 32 < n ? keys[first + turn * 32] : 0;
#pragma unroll
    for (u32 turn = 0; turn < SORT_TURNS; turn++) {
        if (first + turn * 32 < n) atomicAdd(&next[warp][(own[turn] >> shift) % N_DIGITS], 1u);
    }
    __syncthreads();
    u32 start = starts[(size_t)threadIdx.x * n_tiles + blockIdx.x];
    for (u32 other = 0; other < SORT_WARPS; other++) {
        u32 count = next[other][threadIdx.x];
        next[other][threadIdx.x] = start;
        start += count;
    }
    __syncthreads();
#pragma unroll
    for (u32 turn = 0; turn < SORT_TURNS; turn++) {
        u32 place = first + turn * 32;
        bool is_on = place < n;
        u32 digit = (own[turn] >> shift) % N_DIGITS;
        u32 same = __match_any_sync(FULL, is_on ? digit : N_DIGITS);
        u32 n_before = __popc(same & ((1u << lane) - 1));
        u32 to = next[warp][digit] + n_before;
        __syncwarp();
        if (is_on && n_before == 0) next[warp][digit] += __popc(same);
        __syncwarp();
        if (is_on) {
            sorted_keys[to] = own[turn];
            sorted_edges[to] = edges ? edges[place] : place;
        }
    }
}

/// The lists of sources, from sorted keys: every source has an edge, so each list begins where a key does.
KERNEL void kith_place_by_source(
    Sampled sampled, u32 n_hops, u32 n, const u32 *keys, const u32 *edges, u32 *out_indptr, u32 *destinations,
    u32 *out_edges) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n) return;
    u32 hop = hop_of(sampled.hops, n_hops, place), key = keys[place], edge = edges[place];
    const HopSizes own = sampled.hops[hop];
    // One bound more than sources in each hop before.
    if (place == own.first_edge || keys[place - 1] != key) out_indptr[key + hop] = place - own.first_edge;
    if (place == own.first_edge + own.n_edges - 1) {
        out_indptr[own.first_source + hop + own.n_sources] = own.n_edges;
    }
    destinations[place] = sampled.edge_destinations[edge];
    out_edges[place] = edge - own.first_edge;
}
