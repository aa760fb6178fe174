// Attention backward. With g the gradient of the outputs o:
//
//     ∂z_ij = α_ij (d_ij g_i·h_j − g_i·o_i)
//
// The pass by destination recomputes the scores, and stores the gradients that each edge passes to its two rows; the
// pass by source only sums them. Another kernel computes the losses of pairs from their logits, a pair per thread.

// Gradients that one edge passes to its two rows.
struct EdgeGradient {
    float linear, dot, weight;
};

/// `taught` is what the edge loss adds to the gradient of the logit.
__device__ __forceinline__ EdgeGradient edge_gradient(
    const Layer &layer, Score score, float linear, float scale, float alpha, float factor, float toward, float along,
    float taught) {
    float normalized = alpha * (factor * toward - along);
    float raw = IS_DYNAMIC || score.raw > 0.f ? normalized : SLOPE * normalized;
    EdgeGradient gradient;
    gradient.weight = alpha * factor;
    gradient.linear = gradient.dot = 0.f;
    if (FORM == FORM_GO) {
        gradient.linear = raw + taught;
    } else if (FORM == FORM_MX) {
        gradient.linear = raw * score.gate;
        gradient.dot = fmaf(raw * linear, score.gate * (1.f - score.gate), taught);
    } else {
        gradient.dot = (raw + taught) * scale;
    }
    return gradient;
}

// Numbers per head that are left of an edge: the weight of its source's row, then the gradients of its linear part and of its
// dot product, as far as the form has them.
#define EDGE_PARTS (1 + (HAS_HALVES ? 1 : 0) + (HAS_PRODUCTS ? 1 : 0))
#define LINEAR_PART 1
#define DOT_PART (HAS_HALVES ? 2 : 1)

// Inputs of the edge loss: bits of the kept edges, and the gradient of one logit; room for the logits of all edges.
// Null without an edge loss.
struct EdgeLoss {
    const u32 *kept;
    const float *pair_gradients;
    float *logits;
    u32 n_words;
};

/// Gradients of the rows as destinations and of a₁·h, or of targets and a; the gradients that each edge passes to its source, and
/// its logit.
KERNEL void kith_pull(
    Layer layer, Graph graph, const Item *items, u32 n_items, const float *weights, const float *rows, Targets targets,
    const u8 *mask, const Settings *settings, const float *outputs, const float *gradients, const float2 *records, EdgeLoss edge_loss,
    float *edge_gradients, float *row_gradients, float *left_gradients, float *slot_sums, float *slot_lefts,
    u32 n_slots) {
    u32 item_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (item_index >= n_items) return;
    Item item = item_of(items, graph.indptr, item_index);
    Place place = place_of(layer);
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * graph.n_sources * layer.stride;
    size_t own_row = ((size_t)run * graph.n_destinations + item.node) * layer.stride;
    records += ((size_t)run * graph.n_destinations + item.node) * HEADS;
    if (mask) mask += (size_t)run * graph.n_edges * ((HEADS + 7) / 8);
    float scale = product_scale(layer), kept_scale = mask ? settings[run].attention_scale : 1.f;
    const u32 *kept = edge_loss.kept ? edge_loss.kept + (size_t)run * edge_loss.n_words : 0;
    float pair_gradient = kept ? edge_loss.pair_gradients[run] : 0.f;
    float *logits = edge_loss.logits + (size_t)run * graph.n_edges;
    edge_gradients += (size_t)run * graph.n_edges * EDGE_PARTS * HEADS;

    float4 own[VEC_ROOM], gradient[VEC_ROOM], right_weights[VEC_ROOM], sums[VEC_ROOM], values[VEC_ROOM];
    load_row(layer, place, outputs + own_row, own);
    load_row(layer, place, gradients + own_row, gradient);
    float along = dot_of(layer, own, gradient), left = 0.f;
    if (IS_DYNAMIC) {
        load_row(layer, place, targets.rows + own_row, own);
        load_attention(layer, place, weights, 0, right_weights);
    } else {
        load_row(layer, place, rows + (size_t)item.node * layer.stride, own);
    }
    if (HAS_HALVES) {
        load_attention(layer, place, weights, 0, right_weights);
        left = dot_of(layer, right_weights, own);
        load_attention(layer, place, weights, 1, right_weights);
    }
    float2 record = place.is_on ? records[place.head] : make_float2(0.f, 0.f);
    float left_sum = 0.f;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = values[v] = zero4();

    for (u32 base = item.first; base < item.end; base += N_AHEAD * place.n_teams) {
        float4 ahead[N_AHEAD][VEC_ROOM];
#pragma unroll
        for (u32 k = 0; k < N_AHEAD; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            u32 source = graph.sources[edge < item.end ? edge : item.first];
            load_row(layer, place, rows + (size_t)source * layer.stride, ahead[k]);
        }
#pragma unroll
        for (u32 k = 0; k < N_AHEAD; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            bool is_edge = edge < item.end;
            if (!is_edge) edge = item.first;
            float linear = HAS_HALVES ? left + dot_of(layer, right_weights, ahead[k]) : 0.f;
            float dot = HAS_PRODUCTS ? product_of(layer, right_weights, own, ahead[k], scale) : 0.f;
            float toward = dot_of(layer, gradient, ahead[k]);
            Score score = score_of(layer, linear, dot);
            float taught = 0.f;
            if (kept) {
                float logit_of_head = HAS_PRODUCTS ? dot : linear;
                float logit = over_heads(layer, place, place.is_on ? logit_of_head : 0.f) * (1.f / (float)HEADS);
                if (is_edge && place.head == 0 && place.part == 0) logits[edge] = logit;
                if (is_edge && is_kept(kept, edge)) taught = pair_gradient * (sigmoid(logit) - 1.f);
            }
            bool is_in = is_edge && !(LEAVES_OUT && is_left_out(layer, graph, run, edge, graph.sources[edge] == item.node));
            float alpha = is_in ? expf(score.bent - record.x) * record.y : 0.f;
            float factor = kept_factor(layer, place, mask, edge, kept_scale);
            EdgeGradient edge_part =
                edge_gradient(layer, score, linear, scale, alpha, factor, toward, along, taught);
            if (is_edge && place.is_on && place.part == 0) {
                float *kept_of_edge = edge_gradients + (size_t)edge * EDGE_PARTS * HEADS + place.head;
                kept_of_edge[0] = edge_part.weight;
                if (HAS_HALVES) kept_of_edge[LINEAR_PART * HEADS] = edge_part.linear;
                if (HAS_PRODUCTS) kept_of_edge[DOT_PART * HEADS] = edge_part.dot;
            }
            left_sum += edge_part.linear;
            if (IS_DYNAMIC) {
                float dot_gradient = is_edge ? edge_part.dot : 0.f;
#pragma unroll
                for (u32 v = 0; v < VEC; v++) {
                    float4 sum = plus4(own[v], ahead[k][v]);
                    sums[v] = plus4(sums[v], through4(sum, dot_gradient));
                    values[v] = fma4(bend4(sum), dot_gradient, values[v]);
                }
            } else if (HAS_PRODUCTS) {
#pragma unroll
                for (u32 v = 0; v < VEC; v++) sums[v] = fma4(ahead[k][v], edge_part.dot, sums[v]);
            }
        }
    }
    left_sum = over_teams(place, left_sum);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = over_teams(place, sums[v]);
    if (IS_DYNAMIC) {
#pragma unroll
        for (u32 v = 0; v < VEC; v++) {
            sums[v] = times4(sums[v], right_weights[v]);
            values[v] = over_teams(place, values[v]);
        }
        bool is_whole = item.slot == NO_SLOT;
        size_t slot_row = is_whole ? 0 : ((size_t)run * n_slots + item.slot) * layer.stride;
        if (place.team != 0) return;
        store_row(layer, place, sums, is_whole ? targets.gradients + own_row : slot_sums + slot_row);
        store_row(layer, place, values, is_whole ? targets.values + own_row : targets.slot_values + slot_row);
        return;
    }
    if (place.team != 0) return;
    if (item.slot == NO_SLOT) {
        if (HAS_HALVES) {
            load_attention(layer, place, weights, 0, right_weights);
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sums[v] = fma4(right_weights[v], left_sum, sums[v]);
            if (place.is_on && place.part == 0) {
                left_gradients[((size_t)run * graph.n_destinations + item.node) * HEADS + place.head] = left_sum;
            }
        }
        store_row(layer, place, sums, row_gradients + ((size_t)run * graph.n_sources + item.node) * layer.stride);
    } else {
        store_row(layer, place, sums, slot_sums + ((size_t)run * n_slots + item.slot) * layer.stride);
        if (place.is_on && place.part == 0) {
            slot_lefts[((size_t)run * n_slots + item.slot) * HEADS + place.head] = left_sum;
        }
    }
}

/// Gradients of rows whose lists came in pieces: adds up the parts, in order, and what they mean for the attention weights'
/// half. Of the first `n_added` nodes they come on top of what is there.
KERNEL void kith_join(
    Layer layer, const SplitList *lists, u32 n_lists, const float *weights, u32 half, u32 n_rows, u32 n_nodes,
    u32 n_added, float *row_gradients, float *half_gradients, const float *slot_sums, const float *slot_halves,
    u32 n_slots) {
    u32 list_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (list_index >= n_lists) return;
    SplitList list = lists[list_index];
    Place place = place_of(layer);
    float4 sums[VEC_ROOM], part[VEC_ROOM];
    for (u32 v = 0; v < VEC; v++) sums[v] = zero4();
    float *row = row_gradients + ((size_t)run * n_rows + list.node) * layer.stride;
    float half_sum = 0.f;
    for (u32 slot = list.first_slot; slot < list.first_slot + list.n_slots; slot++) {
        load_row(layer, place, slot_sums + ((size_t)run * n_slots + slot) * layer.stride, part);
        for (u32 v = 0; v < VEC; v++) sums[v] = plus4(sums[v], part[v]);
        if (HAS_HALVES && place.is_on) half_sum += slot_halves[((size_t)run * n_slots + slot) * HEADS + place.head];
    }
    if (list.node < n_added) {
        load_row(layer, place, row, part);
        for (u32 v = 0; v < VEC; v++) sums[v] = plus4(sums[v], part[v]);
    }
    if (place.team != 0) return;
    if (HAS_HALVES) {
        load_attention(layer, place, weights + (size_t)run * layer.n_weights, half, part);
        for (u32 v = 0; v < VEC; v++) sums[v] = fma4(part[v], half_sum, sums[v]);
        if (place.is_on && place.part == 0) {
            half_gradients[((size_t)run * n_nodes + list.node) * HEADS + place.head] = half_sum;
        }
    }
    store_row(layer, place, sums, row);
}

/// Gradients of the rows as sources, on top of those as destinations, and of a₂·h.
KERNEL void kith_push(
    Layer layer, Graph graph, const Item *items, u32 n_items, const float *weights, const float *rows, Targets targets,
    const float *gradients, const float *edge_gradients, float *row_gradients, float *right_gradients, float *slot_sums,
    float *slot_rights, u32 n_slots) {
    u32 item_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (item_index >= n_items) return;
    Item item = item_of(items, graph.out_indptr, item_index);
    Place place = place_of(layer);
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * graph.n_sources * layer.stride;
    gradients += (size_t)run * graph.n_destinations * layer.stride;
    edge_gradients += (size_t)run * graph.n_edges * EDGE_PARTS * HEADS;
    row_gradients += (size_t)run * graph.n_sources * layer.stride;

    // Of a dynamic attention: the node's own row, and sums that the attention weights multiply.
    float4 sums[VEC_ROOM], own[VEC_ROOM], dynamic[VEC_ROOM];
    float right_sum = 0.f;
    if (IS_DYNAMIC) {
        load_row(layer, place, rows + (size_t)item.node * layer.stride, own);
        targets.rows += (size_t)run * graph.n_destinations * layer.stride;
    }
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = dynamic[v] = zero4();
    for (u32 base = item.first; base < item.end; base += N_BESIDE * place.n_teams) {
        float4 other_rows[N_BESIDE][VEC_ROOM], other_gradients[N_BESIDE][VEC_ROOM];
        float parts[N_BESIDE][3];
#pragma unroll
        for (u32 k = 0; k < N_BESIDE; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            bool is_edge = edge < item.end;
            if (!is_edge) edge = item.first;
            u32 other = graph.destinations[edge];
            const float *kept_of_edge =
                edge_gradients + (size_t)graph.out_edges[edge] * EDGE_PARTS * HEADS + (place.is_on ? place.head : 0);
            load_row(layer, place, gradients + (size_t)other * layer.stride, other_gradients[k]);
            if (IS_DYNAMIC) {
                load_row(layer, place, targets.rows + (size_t)other * layer.stride, other_rows[k]);
            } else if (HAS_PRODUCTS) {
                load_row(layer, place, rows + (size_t)other * layer.stride, other_rows[k]);
            }
            parts[k][0] = is_edge ? kept_of_edge[0] : 0.f;
            parts[k][1] = is_edge && HAS_HALVES ? kept_of_edge[LINEAR_PART * HEADS] : 0.f;
            parts[k][2] = is_edge && HAS_PRODUCTS ? kept_of_edge[DOT_PART * HEADS] : 0.f;
        }
#pragma unroll
        for (u32 k = 0; k < N_BESIDE; k++) {
            right_sum += parts[k][1];
#pragma unroll
            for (u32 v = 0; v < VEC; v++) {
                sums[v] = fma4(other_gradients[k][v], parts[k][0], sums[v]);
                if (IS_DYNAMIC) {
                    dynamic[v] = plus4(dynamic[v], through4(plus4(own[v], other_rows[k][v]), parts[k][2]));
                } else if (HAS_PRODUCTS) {
                    sums[v] = fma4(other_rows[k][v], parts[k][2], sums[v]);
                }
            }
        }
    }
    right_sum = over_teams(place, right_sum);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = over_teams(place, sums[v]);
    if (IS_DYNAMIC) {
        load_attention(layer, place, weights, 0, own);
#pragma unroll
        for (u32 v = 0; v < VEC; v++) sums[v] = plus4(sums[v], times4(over_teams(place, dynamic[v]), own[v]));
    }
    if (place.team != 0) return;
    if (item.slot == NO_SLOT) {
        float *row = row_gradients + (size_t)item.node * layer.stride;
        if (item.node < graph.n_destinations && !IS_DYNAMIC) {
            float4 before[VEC_ROOM];
            load_row(layer, place, row, before);
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sums[v] = plus4(sums[v], before[v]);
        }
        if (HAS_HALVES) {
            float4 right_weights[VEC_ROOM];
            load_attention(layer, place, weights, 1, right_weights);
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sums[v] = fma4(right_weights[v], right_sum, sums[v]);
            if (place.is_on && place.part == 0) {
                right_gradients[((size_t)run * graph.n_sources + item.node) * HEADS + place.head] = right_sum;
            }
        }
        store_row(layer, place, sums, row);
    } else {
        store_row(layer, place, sums, slot_sums + ((size_t)run * n_slots + item.slot) * layer.stride);
        if (place.is_on && place.part == 0) {
            slot_rights[((size_t)run * n_slots + item.slot) * HEADS + place.head] = right_sum;
        }
    }
}

/// Adds this thread's numbers to a row.
__device__ __forceinline__ void add_row(const Layer &layer, const Place &place, const float4 *added, float *row) {
    float4 sums[VEC_ROOM];
    load_row(layer, place, row, sums);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = plus4(sums[v], added[v]);
    store_row(layer, place, sums, row);
}

/// Gradients that negative pairs pass to the rows of their nodes, and their logits. `partners` has every pair twice:
/// the source for the destination's node, and the destination for the source's node, marked.
KERNEL void kith_negatives(
    Layer layer, u32 n_sources, u32 n_destinations, const u32 *starts, const u32 *partners, u32 n_room,
    const float *weights, const float *rows, const float *pair_gradients, float *row_gradients, float *left_gradients,
    float *right_gradients, float *logits) {
    u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (node >= n_sources) return;
    Place place = place_of(layer);
    starts += (size_t)run * (n_sources + 1);
    partners += (size_t)run * n_room;
    logits += (size_t)run * n_room;
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * n_sources * layer.stride;
    row_gradients += ((size_t)run * n_sources + node) * layer.stride;
    float scale = product_scale(layer), pair_gradient = pair_gradients[run];
    u32 first = starts[node], end = starts[node + 1];

    float4 own[VEC_ROOM], sums[VEC_ROOM], halves[2][VEC_ROOM];
    load_row(layer, place, rows + (size_t)node * layer.stride, own);
    float own_halves[2] = {0.f, 0.f}, slopes[2] = {0.f, 0.f};
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = zero4();
    if (!HAS_PRODUCTS) {
        load_attention(layer, place, weights, 0, halves[0]);
        load_attention(layer, place, weights, 1, halves[1]);
        own_halves[0] = dot_of(layer, halves[0], own);
        own_halves[1] = dot_of(layer, halves[1], own);
    }
    for (u32 base = first; base < end; base += N_AHEAD * place.n_teams) {
        float4 others[N_AHEAD][VEC_ROOM];
        u32 marks[N_AHEAD];
#pragma unroll
        for (u32 k = 0; k < N_AHEAD; k++) {
            u32 pair = base + k * place.n_teams + place.team;
            marks[k] = partners[pair < end ? pair : first];
            load_row(layer, place, rows + (size_t)(marks[k] & ~IS_SOURCE) * layer.stride, others[k]);
        }
#pragma unroll
        for (u32 k = 0; k < N_AHEAD; k++) {
            u32 pair = base + k * place.n_teams + place.team;
            bool is_pair = pair < end, is_source = marks[k] & IS_SOURCE;
            float logit_of_head;
            if (HAS_PRODUCTS) {
                logit_of_head = scale * dot_of(layer, own, others[k]);
            } else {
                float other_left = dot_of(layer, halves[0], others[k]), other_right = dot_of(layer, halves[1], others[k]);
                logit_of_head = is_source ? other_left + own_halves[1] : own_halves[0] + other_right;
            }
            float logit = over_heads(layer, place, place.is_on ? logit_of_head : 0.f) * (1.f / (float)HEADS);
            float slope = is_pair ? sigmoid(logit) : 0.f;
            // A pair's loss counts once.
            if (is_pair && place.head == 0 && place.part == 0) logits[pair] = is_source ? -FLT_MAX : logit;
            if (HAS_PRODUCTS) {
#pragma unroll
                for (u32 v = 0; v < VEC; v++) sums[v] = fma4(others[k][v], slope, sums[v]);
            } else {
                if (is_source) slopes[1] += slope;
                else slopes[0] += slope;
            }
        }
    }
    if (first == end) return;
    if (HAS_PRODUCTS) {
#pragma unroll
        for (u32 v = 0; v < VEC; v++) sums[v] = scaled4(over_teams(place, sums[v]), pair_gradient * scale);
    } else {
        for (u32 half = 0; half < 2; half++) {
            float taught = pair_gradient * over_teams(place, slopes[half]);
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sums[v] = fma4(halves[half][v], taught, sums[v]);
            u32 n_nodes = half ? n_sources : n_destinations;
            float *sum = (half ? right_gradients : left_gradients) + ((size_t)run * n_nodes + node) * HEADS;
            if (place.team == 0 && place.is_on && place.part == 0 && node < n_nodes) sum[place.head] += taught;
        }
    }
    if (place.team != 0) return;
    add_row(layer, place, sums, row_gradients);
}

/// The same of a dynamic attention: gradients of rows, of targets, and of the attention weights.
KERNEL void kith_dynamic_negatives(
    Layer layer, u32 n_sources, u32 n_destinations, const u32 *starts, const u32 *partners, u32 n_room,
    const float *weights, const float *rows, Targets targets, const float *pair_gradients, float *row_gradients,
    float *logits) {
    u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (node >= n_sources) return;
    Place place = place_of(layer);
    starts += (size_t)run * (n_sources + 1);
    partners += (size_t)run * n_room;
    logits += (size_t)run * n_room;
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * n_sources * layer.stride;
    targets.rows += (size_t)run * n_destinations * layer.stride;
    u32 first = starts[node], end = starts[node + 1];
    if (first == end) return;

    // First the sums of pairs whose destination the node is, then of those whose source it is.
    float4 own[2][VEC_ROOM], sums[2][VEC_ROOM], values[VEC_ROOM], attention[VEC_ROOM];
    bool is_destination = node < n_destinations;
    load_row(layer, place, targets.rows + (size_t)(is_destination ? node : 0) * layer.stride, own[0]);
    load_row(layer, place, rows + (size_t)node * layer.stride, own[1]);
    load_attention(layer, place, weights, 0, attention);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[0][v] = sums[1][v] = values[v] = zero4();
    for (u32 base = first; base < end; base += place.n_teams) {
        u32 pair = base + place.team;
        bool is_pair = pair < end;
        u32 mark = partners[is_pair ? pair : first], partner = mark & ~IS_SOURCE;
        bool is_source = mark & IS_SOURCE;
        float4 ends[VEC_ROOM];
        if (is_source) load_row(layer, place, targets.rows + (size_t)partner * layer.stride, ends);
        else load_row(layer, place, rows + (size_t)partner * layer.stride, ends);
        float4 mine[VEC_ROOM];
#pragma unroll
        for (u32 v = 0; v < VEC; v++) mine[v] = is_source ? own[1][v] : own[0][v];
        float logit_of_head = dynamic_of(layer, attention, mine, ends);
        float logit = over_heads(layer, place, place.is_on ? logit_of_head : 0.f) * (1.f / (float)HEADS);
        float slope = is_pair ? sigmoid(logit) : 0.f;
        // A pair's loss counts once.
        if (is_pair && place.head == 0 && place.part == 0) logits[pair] = is_source ? -FLT_MAX : logit;
#pragma unroll
        for (u32 v = 0; v < VEC; v++) {
            float4 sum = plus4(mine[v], ends[v]);
            sums[0][v] = plus4(sums[0][v], through4(sum, is_source ? 0.f : slope));
            sums[1][v] = plus4(sums[1][v], through4(sum, is_source ? slope : 0.f));
            values[v] = fma4(bend4(sum), is_source ? 0.f : slope, values[v]);
        }
    }
    float pair_gradient = pair_gradients[run];
#pragma unroll
    for (u32 v = 0; v < VEC; v++) {
        float4 factor = scaled4(attention[v], pair_gradient);
        sums[0][v] = times4(over_teams(place, sums[0][v]), factor);
        sums[1][v] = times4(over_teams(place, sums[1][v]), factor);
        values[v] = scaled4(over_teams(place, values[v]), pair_gradient);
    }
    if (place.team != 0) return;
    size_t target = ((size_t)run * n_destinations + node) * layer.stride;
    add_row(layer, place, sums[1], row_gradients + ((size_t)run * n_sources + node) * layer.stride);
    if (!is_destination) return;
    add_row(layer, place, sums[0], targets.gradients + target);
    add_row(layer, place, values, targets.values + target);
}
