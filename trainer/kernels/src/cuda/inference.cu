// Evaluation over all nodes, in chunks of destinations.

/// The lists of some destinations, one after the other, each with its self-loop at the end.
KERNEL void kith_take_lists(StoredLists lists, u32 first, u32 n, u32 *indptr, u32 *sources) {
    u32 place = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (place >= n) return;
    u32 node = first + place, start = lists.indptr[node], len = lists.indptr[node + 1] - start;
    u32 to = start - lists.indptr[first] + place;
    for (u32 k = lane; k < len; k += 32) sources[to + k] = lists.sources[start + k];
    if (lane != 0) return;
    sources[to + len] = node;
    indptr[place] = to;
    if (place == n - 1) indptr[n] = to + len + 1;
}

/// Counts the edges from each node.
KERNEL void kith_count_sources(const u32 *sources, u32 n_edges, u32 *counts) {
    u32 edge = blockIdx.x * blockDim.x + threadIdx.x;
    if (edge < n_edges) atomicAdd(counts + sources[edge], 1u);
}

/// Factors of a GCN by such counts, which leave out self-loops.
KERNEL void kith_degree_factors(const u32 *counts, u32 n_nodes, float *factors) {
    u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node < n_nodes) factors[node] = 1.f / sqrtf((float)(counts[node] + 1));
}
