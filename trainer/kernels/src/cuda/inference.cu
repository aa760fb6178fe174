// Evaluation over nodes of a graph, in chunks of destinations.

/// The lists of some destinations, one after the other, each with its self-loop at the end: those of `ids`, whose lists start
/// at `indptr`; or, without ids, those from `first` on. Sources are named by `places`, and by their ids without it.
KERNEL void kith_take_lists(
    StoredLists lists, u32 first, u32 n, u32 *indptr, u32 *sources, const u64 *ids, const u32 *places, u32 *own) {
    u32 place = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (place >= n) return;
    u32 node = ids ? (u32)ids[place] : first + place, start = lists.indptr[node], len = lists.indptr[node + 1] - start;
    u32 to = ids ? indptr[place] : start - lists.indptr[first] + place;
    for (u32 k = lane; k < len; k += 32) {
        u32 source = lists.sources[start + k];
        sources[to + k] = places ? places[source] : source;
    }
    if (lane != 0) return;
    u32 own_place = places ? places[node] : node;
    sources[to + len] = own_place;
    if (ids) {
        own[place] = own_place;
        return;
    }
    indptr[place] = to;
    if (place == n - 1) indptr[n] = to + len + 1;
}

/// Counts the edges from each node.
KERNEL void kith_count_sources(const u32 *sources, u32 n_edges, u32 *counts) {
    u32 edge = blockIdx.x * blockDim.x + threadIdx.x;
    if (edge < n_edges) atomicAdd(counts + sources[edge], 1u);
}

/// Factors of a GCN by such counts, which leave out self-loops: of the nodes with these ids, or of all.
KERNEL void kith_degree_factors(const u32 *counts, const u64 *ids, u32 n_nodes, u32 has_loops, float *factors) {
    u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n_nodes) return;
    u32 degree = counts[ids ? ids[node] : node] + has_loops;
    factors[node] = degree == 0 ? 0.f : 1.f / sqrtf((float)degree);
}
