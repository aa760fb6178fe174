// Attention forward: one pass by destination, with an online softmax.

// Softmax state of a neighbor list after some of its edges.
struct Attended {
    float max, total;
    float4 sums[VEC_ROOM];
};

__device__ __forceinline__ void add_attended(
    const Layer &layer, Attended *state, float other_max, float other_total, const float4 *other_sums) {
    float max = fmaxf(state->max, other_max);
    float own = expf(state->max - max), other = expf(other_max - max);
    state->max = max;
    state->total = state->total * own + other_total * other;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) state->sums[v] = fma4(other_sums[v], other, scaled4(state->sums[v], own));
}

__device__ __forceinline__ void finish_attended(
    const Layer &layer, const Place &place, const Attended &state, float *output, float2 *record) {
    float inverse = 1.f / (state.total + EPSILON);
    float4 output_row[VEC_ROOM];
#pragma unroll
    for (u32 v = 0; v < VEC; v++) output_row[v] = scaled4(state.sums[v], inverse);
    if (place.team != 0) return;
    store_row(layer, place, output_row, output);
    if (place.is_on && place.part == 0) record[place.head] = make_float2(state.max, inverse);
}

// Edges whose rows a team asks for before it uses the first: as many as there are registers for. Fewer, where two rows belong
// to an edge.
#ifdef KITH_VEC
#define N_AHEAD (VEC > 2 ? 1 : 2)
#define N_BESIDE (VEC > 2 ? 1 : 2)
#else
#define N_AHEAD 2
#define N_BESIDE 2
#endif

/// Outputs and records (maximum, 1 / total) of all whole lists; parts of the others.
KERNEL void kith_attend(
    Layer layer, Graph graph, const Item *items, u32 n_items, const float *weights, const float *rows, Targets targets,
    const u8 *mask, const Settings *settings, float *outputs, float2 *records, float *slot_sums, float2 *slot_totals, u32 n_slots) {
    u32 item_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (item_index >= n_items) return;
    Item item = item_of(items, graph.indptr, item_index);
    Place place = place_of(layer);
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * graph.n_sources * layer.stride;
    outputs += (size_t)run * graph.n_destinations * layer.stride;
    records += (size_t)run * graph.n_destinations * HEADS;
    slot_sums += (size_t)run * n_slots * layer.stride;
    slot_totals += (size_t)run * n_slots * HEADS;
    if (mask) mask += (size_t)run * graph.n_edges * ((HEADS + 7) / 8);
    float scale = product_scale(layer), kept_scale = mask ? settings[run].attention_scale : 1.f;

    float4 own[VEC_ROOM], right_weights[VEC_ROOM];
    float left = 0.f;
    u32 own_place = own_of(graph.own, graph.first, item.node);
    size_t own_row = (size_t)own_place * layer.stride;
    if (IS_DYNAMIC) {
        size_t first = (size_t)run * graph.n_destinations * layer.stride;
        load_row(layer, place, targets.rows + first + own_row, own);
        load_attention(layer, place, weights, 0, right_weights);
    } else {
        load_row(layer, place, rows + own_row, own);
    }
    if (HAS_HALVES) {
        load_attention(layer, place, weights, 0, right_weights);
        left = dot_of(layer, right_weights, own);
        load_attention(layer, place, weights, 1, right_weights);
    }
    Attended state;
    state.max = LOWEST;
    state.total = 0.f;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) state.sums[v] = zero4();

    for (u32 base = item.first; base < item.end; base += N_AHEAD * place.n_teams) {
        float4 ahead[N_AHEAD][VEC_ROOM];
#pragma unroll
        for (u32 k = 0; k < N_AHEAD; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            u32 source = graph.sources[edge < item.end ? edge : item.first];
            load_row(layer, place, rows + (size_t)source * layer.stride, ahead[k]);
        }
        float bent[N_AHEAD];
        float max = state.max;
#pragma unroll
        for (u32 k = 0; k < N_AHEAD; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            float linear = HAS_HALVES ? left + dot_of(layer, right_weights, ahead[k]) : 0.f;
            float dot = HAS_PRODUCTS ? product_of(layer, right_weights, own, ahead[k], scale) : 0.f;
            bool is_in = edge < item.end && !(LEAVES_OUT && is_left_out(layer, graph, run, edge, graph.sources[edge] == own_place));
            bent[k] = is_in ? score_of(layer, linear, dot).bent : -FLT_MAX;
            max = fmaxf(max, bent[k]);
        }
        float shrink = expf(state.max - max);
        state.max = max;
        state.total *= shrink;
#pragma unroll
        for (u32 v = 0; v < VEC; v++) state.sums[v] = scaled4(state.sums[v], shrink);
#pragma unroll
        for (u32 k = 0; k < N_AHEAD; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            float share = expf(bent[k] - max);
            state.total += share;
            share *= kept_factor(layer, place, mask, edge < item.end ? edge : item.first, kept_scale);
#pragma unroll
            for (u32 v = 0; v < VEC; v++) state.sums[v] = fma4(ahead[k][v], share, state.sums[v]);
        }
    }
    for (u32 across = place.team_len; across < 32; across *= 2) {
        float4 other[VEC_ROOM];
        for (u32 v = 0; v < VEC; v++) {
            other[v].x = __shfl_xor_sync(FULL, state.sums[v].x, across);
            other[v].y = __shfl_xor_sync(FULL, state.sums[v].y, across);
            other[v].z = __shfl_xor_sync(FULL, state.sums[v].z, across);
            other[v].w = __shfl_xor_sync(FULL, state.sums[v].w, across);
        }
        float other_max = __shfl_xor_sync(FULL, state.max, across);
        float other_total = __shfl_xor_sync(FULL, state.total, across);
        add_attended(layer, &state, other_max, other_total, other);
    }
    if (item.slot == NO_SLOT) {
        float *output = outputs + (size_t)item.node * layer.stride;
        finish_attended(layer, place, state, output, records + (size_t)item.node * HEADS);
    } else if (place.team == 0) {
        store_row(layer, place, state.sums, slot_sums + (size_t)item.slot * layer.stride);
        if (place.is_on && place.part == 0) {
            slot_totals[(size_t)item.slot * HEADS + place.head] = make_float2(state.max, state.total);
        }
    }
}

/// The same of lists that came in pieces, from their parts, in order.
KERNEL void kith_attend_join(
    Layer layer, u32 n_destinations, const SplitList *lists, u32 n_lists, float *outputs, float2 *records,
    const float *slot_sums, const float2 *slot_totals, u32 n_slots) {
    u32 list_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (list_index >= n_lists) return;
    SplitList list = lists[list_index];
    Place place = place_of(layer);
    outputs += ((size_t)run * n_destinations + list.node) * layer.stride;
    records += ((size_t)run * n_destinations + list.node) * HEADS;
    slot_sums += (size_t)run * n_slots * layer.stride;
    slot_totals += (size_t)run * n_slots * HEADS;

    Attended state;
    state.max = LOWEST;
    state.total = 0.f;
    for (u32 v = 0; v < VEC; v++) state.sums[v] = zero4();
    for (u32 slot = list.first_slot; slot < list.first_slot + list.n_slots; slot++) {
        float4 sums[VEC_ROOM];
        load_row(layer, place, slot_sums + (size_t)slot * layer.stride, sums);
        float2 total = place.is_on ? slot_totals[(size_t)slot * HEADS + place.head] : make_float2(LOWEST, 0.f);
        add_attended(layer, &state, total.x, total.y, sums);
    }
    finish_attended(layer, place, state, outputs, records);
}

/// Draws the attention dropout mask: a bit per edge and head, 8 heads to a byte.
KERNEL void kith_draw_mask(
    Layer layer, Graph graph, const u32 *edge_destinations, const Settings *settings, const Streams *streams,
    u32 n_layers, u8 *mask) {
    u32 edge = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (edge >= graph.n_edges) return;
    u32 n_bytes = (HEADS + 7) / 8;
    Stream stream = streams[run * n_layers + layer.index].attention;
    u32 threshold = settings[run].attention_threshold;
    u64 destination = id_of(graph, edge_destinations[edge]), source = id_of(graph, graph.sources[edge]);
    for (u32 byte = 0; byte < n_bytes; byte++) {
        Words words = words_of(stream, destination, source, 0, byte);
        u32 bits = 0;
        for (u32 word = 0; word < 4; word++) {
            bits |= ((words.word[word] & 0xffff) >= threshold ? 1u : 0u) << 2 * word;
            bits |= (words.word[word] >> 16 >= threshold ? 1u : 0u) << (2 * word + 1);
        }
        mask[((size_t)run * graph.n_edges + edge) * n_bytes + byte] = (u8)bits;
    }
}
