// Sums of neighbors with fixed factors: out_i = d_i Σ_j s_j h_j, forward by destination and backward by source. A GCN
// has d = s = 1/√degree, a mean d = 1/(edges into i) and s = 1, a sum d = s = 1, and a layer of an MLP only the node itself.

/// The factors of all nodes of a GCN, or of the destinations of a mean: a warp counts the edges of a node.
KERNEL void kith_factors(Layer layer, Graph graph, float *factors) {
    u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, run = blockIdx.y;
    bool is_gcn = FORM == FORM_GCN;
    if (node >= (is_gcn ? graph.n_sources : graph.n_destinations)) return;
    const u32 *indptr = is_gcn ? graph.out_indptr : graph.indptr;
    u32 first = indptr[node], end = indptr[node + 1], n = end - first;
    // Every destination has one self-loop.
    if (LEAVES_OUT && !layer.has_loops && node < graph.n_destinations) n--;
    if (LEAVES_OUT && graph.dropped) {
        u32 n_dropped = 0;
        for (u32 place = first + lane; place < end; place += 32) {
            u32 edge = is_gcn ? graph.out_edges[place] : place;
            if (is_left_out(layer, graph, run, edge, false)) n_dropped++;
        }
        for (u32 across = 1; across < 32; across *= 2) n_dropped += __shfl_xor_sync(FULL, n_dropped, across);
        n -= n_dropped;
    }
    if (lane != 0) return;
    factors += (size_t)run * graph.n_sources;
    if (is_gcn) factors[node] = n == 0 ? 0.f : 1.f / sqrtf((float)n);
    else factors[node] = 1.f / (float)max(n, 1u);
}

// Rows that a team reads before it adds the first: as many as there are registers for.
#ifdef KITH_VEC
#define N_ADDED (VEC > 4 ? 1 : VEC > 2 ? 2 : 4)
#else
#define N_ADDED 2
#endif

/// Factor of a node as a source, or as a destination, whose place among the sources is `own_of`.
__device__ __forceinline__ float factor_of(
    const Layer &layer, const float *factors, u32 node, const u32 *own, u32 first, bool is_destination) {
    if (FORM == FORM_GCN) return factors[is_destination ? own_of(own, first, node) : node];
    return FORM == FORM_MEAN && is_destination ? factors[node] : 1.f;
}

/// Σ of the neighbors' rows by whole list, times the node's factor; parts of the other lists. Forward, rows are hidden
/// features and lists those of destinations; backward, rows are gradients of outputs and lists those of sources.
KERNEL void kith_aggregate(
    Layer layer, Graph graph, u32 is_forward, const Item *items, u32 n_items, const float *factors, const float *rows,
    float *sums, float *slot_sums, u32 n_slots) {
    u32 item_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (item_index >= n_items) return;
    const u32 *others = is_forward ? graph.sources : graph.destinations;
    Item item = item_of(items, is_forward ? graph.indptr : graph.out_indptr, item_index);
    Place place = place_of(layer);
    rows += (size_t)run * (is_forward ? graph.n_sources : graph.n_destinations) * layer.stride;
    sums += (size_t)run * (is_forward ? graph.n_destinations : graph.n_sources) * layer.stride;
    slot_sums += (size_t)run * n_slots * layer.stride;
    if (graph.dropped) factors += (size_t)run * graph.n_sources;
    u32 own_place = is_forward ? own_of(graph.own, graph.first, item.node) : item.node;

    float4 sum[VEC_ROOM];
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sum[v] = zero4();
    if (FORM == FORM_OWN) {
        bool is_read = item.node < graph.n_destinations;
        u32 row = is_read ? own_of(graph.own, graph.first, item.node) : 0;
        if (is_read) load_row(layer, place, rows + (size_t)row * layer.stride, sum);
        if (place.team == 0) store_row(layer, place, sum, sums + (size_t)item.node * layer.stride);
        return;
    }
    for (u32 base = item.first; base < item.end; base += N_ADDED * place.n_teams) {
        float4 read[N_ADDED][VEC_ROOM];
        float factor[N_ADDED];
#pragma unroll
        for (u32 k = 0; k < N_ADDED; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            u32 other = others[edge < item.end ? edge : item.first];
            factor[k] = edge < item.end ? factor_of(layer, factors, other, graph.own, graph.first, !is_forward) : 0.f;
            if (LEAVES_OUT && edge < item.end) {
                u32 place_of_edge = is_forward ? edge : graph.out_edges[edge];
                if (is_left_out(layer, graph, run, place_of_edge, other == own_place)) factor[k] = 0.f;
            }
            load_row(layer, place, rows + (size_t)other * layer.stride, read[k]);
        }
#pragma unroll
        for (u32 k = 0; k < N_ADDED; k++) {
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sum[v] = fma4(read[k][v], factor[k], sum[v]);
        }
    }
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sum[v] = over_teams(place, sum[v]);
    if (place.team != 0) return;
    if (item.slot != NO_SLOT) {
        store_row(layer, place, sum, slot_sums + (size_t)item.slot * layer.stride);
        return;
    }
    float own = factor_of(layer, factors, item.node, graph.own, graph.first, is_forward);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sum[v] = scaled4(sum[v], own);
    store_row(layer, place, sum, sums + (size_t)item.node * layer.stride);
}

/// The same of lists that came in pieces, from their parts, in order.
KERNEL void kith_aggregate_join(
    Layer layer, Graph graph, u32 is_forward, const SplitList *lists, u32 n_lists, const float *factors, float *sums,
    const float *slot_sums, u32 n_slots) {
    u32 list_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (list_index >= n_lists || FORM == FORM_OWN) return;
    SplitList list = lists[list_index];
    Place place = place_of(layer);
    slot_sums += (size_t)run * n_slots * layer.stride;
    float4 sum[VEC_ROOM];
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sum[v] = zero4();
    slot_sums += (size_t)list.first_slot * layer.stride;
    for (u32 base = 0; base < list.n_slots; base += N_ADDED) {
        float4 part[N_ADDED][VEC_ROOM];
#pragma unroll
        for (u32 k = 0; k < N_ADDED; k++) {
            u32 slot = min(base + k, list.n_slots - 1);
            load_row(layer, place, slot_sums + (size_t)slot * layer.stride, part[k]);
        }
#pragma unroll
        for (u32 k = 0; k < N_ADDED; k++) {
            if (base + k >= list.n_slots) break;
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sum[v] = plus4(sum[v], part[k][v]);
        }
    }
    if (place.team != 0) return;
    if (graph.dropped) factors += (size_t)run * graph.n_sources;
    float own = factor_of(layer, factors, list.node, graph.own, graph.first, is_forward);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sum[v] = scaled4(sum[v], own);
    u32 n_nodes = is_forward ? graph.n_destinations : graph.n_sources;
    store_row(layer, place, sum, sums + ((size_t)run * n_nodes + list.node) * layer.stride);
}
