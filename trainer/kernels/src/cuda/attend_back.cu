// Attention backward. With g the gradient of the outputs o:
//
//     ∂z_ij = α_ij (d_ij g_i·h_j − g_i·o_i)
//
// One pass by destination, one by source; each makes the scores again from the rows it reads, so nothing is kept of an
// edge. The pass by destination also finds the losses of the edges.

// What one edge means for its two rows.
struct EdgeGradient {
    float linear, dot, weight;
};

/// `taught` is what the edge loss adds to the gradient of the logit.
__device__ __forceinline__ EdgeGradient edge_gradient(
    const Layer &layer, Score score, float linear, float scale, float alpha, float factor, float toward, float along,
    float taught) {
    float normalized = alpha * (factor * toward - along);
    float raw = score.raw > 0.f ? normalized : SLOPE * normalized;
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

// What the edge loss looks at: bits of the edges that are kept, and the gradient of one logit. Null without one.
struct EdgeLoss {
    const u32 *kept;
    const float *pair_gradients;
    u32 n_words;
};

/// The slope of an edge's loss; adds the loss itself where it is kept.
__device__ __forceinline__ float edge_slope(
    const Layer &layer, const Place &place, float logit_of_head, bool is_looked_at, double *loss) {
    float logit = over_heads(layer, place, place.is_on ? logit_of_head : 0.f) / (float)HEADS;
    if (!is_looked_at) return 0.f;
    *loss += (double)softplus(-logit);
    return sigmoid(logit) - 1.f;
}

/// Gradients of the rows as destinations, of a₁·h, and the losses of edges; fills in g·o.
KERNEL void kith_pull(
    Layer layer, Graph graph, const Item *items, u32 n_items, const float *weights, const float *rows, const u8 *mask,
    const Settings *settings, const float *outputs, const float *gradients, float4 *records, EdgeLoss edge_loss,
    float *row_gradients, float *left_gradients, double *losses, float *slot_sums, float *slot_lefts, u32 n_slots) {
    u32 item_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (item_index >= n_items) return;
    Item item = items[item_index];
    Place place = place_of(layer);
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * graph.n_sources * layer.stride;
    size_t own_row = ((size_t)run * graph.n_destinations + item.node) * layer.stride;
    records += ((size_t)run * graph.n_destinations + item.node) * HEADS;
    if (mask) mask += (size_t)run * graph.n_edges * ((HEADS + 7) / 8);
    float scale = product_scale(layer), kept_scale = mask ? settings[run].scale : 1.f;
    const u32 *kept = edge_loss.kept ? edge_loss.kept + (size_t)run * edge_loss.n_words : 0;
    float pair_gradient = kept ? edge_loss.pair_gradients[run] : 0.f;

    float4 own[VEC_ROOM], gradient[VEC_ROOM], right_weights[VEC_ROOM], sums[VEC_ROOM];
    load_row(layer, place, outputs + own_row, own);
    load_row(layer, place, gradients + own_row, gradient);
    float along = dot_of(layer, own, gradient), left = 0.f;
    load_row(layer, place, rows + (size_t)item.node * layer.stride, own);
    if (HAS_WEIGHTS) {
        load_attention(layer, place, weights, 0, right_weights);
        left = dot_of(layer, right_weights, own);
        load_attention(layer, place, weights, 1, right_weights);
    }
    float4 record = place.is_on ? records[place.head] : zero4();
    float left_sum = 0.f;
    double loss = 0.0;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = zero4();

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
            float linear = HAS_WEIGHTS ? left + dot_of(layer, right_weights, ahead[k]) : 0.f;
            float dot = HAS_PRODUCTS ? scale * dot_of(layer, own, ahead[k]) : 0.f;
            float toward = dot_of(layer, gradient, ahead[k]);
            Score score = score_of(layer, linear, dot);
            float taught = 0.f;
            if (kept) {
                bool is_looked_at = is_edge && is_kept(kept, edge);
                taught = pair_gradient * edge_slope(layer, place, HAS_PRODUCTS ? dot : linear, is_looked_at, &loss);
            }
            float alpha = is_edge ? expf(score.bent - record.x) * record.y : 0.f;
            float factor = kept_factor(layer, place, mask, edge, kept_scale);
            EdgeGradient edge_part =
                edge_gradient(layer, score, linear, scale, alpha, factor, toward, along, taught);
            left_sum += edge_part.linear;
            if (HAS_PRODUCTS) {
#pragma unroll
                for (u32 v = 0; v < VEC; v++) sums[v] = fma4(ahead[k][v], edge_part.dot, sums[v]);
            }
        }
    }
    left_sum = over_teams(place, left_sum);
    loss = over_teams(place, loss);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = over_teams(place, sums[v]);
    if (kept && place.lane == 0) losses[(size_t)run * n_items + item_index] = loss;
    if (place.team != 0) return;
    bool is_first = item.first == graph.indptr[item.node];
    if (is_first && place.is_on && place.part == 0) records[place.head].z = along;
    if (item.slot == NO_SLOT) {
        if (HAS_WEIGHTS) {
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
/// half. With `is_added` they come on top of what is there, where there is something.
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
        if (HAS_WEIGHTS && place.is_on) half_sum += slot_halves[((size_t)run * n_slots + slot) * HEADS + place.head];
    }
    if (list.node < n_added) {
        load_row(layer, place, row, part);
        for (u32 v = 0; v < VEC; v++) sums[v] = plus4(sums[v], part[v]);
    }
    if (place.team != 0) return;
    if (HAS_WEIGHTS) {
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
    Layer layer, Graph graph, const Item *items, u32 n_items, const float *weights, const float *rows, const u8 *mask,
    const Settings *settings, const float *gradients, const float4 *records, EdgeLoss edge_loss,
    float *row_gradients, float *right_gradients, float *slot_sums, float *slot_rights, u32 n_slots) {
    u32 item_index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (item_index >= n_items) return;
    Item item = items[item_index];
    Place place = place_of(layer);
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * graph.n_sources * layer.stride;
    gradients += (size_t)run * graph.n_destinations * layer.stride;
    records += (size_t)run * graph.n_destinations * HEADS;
    row_gradients += (size_t)run * graph.n_sources * layer.stride;
    if (mask) mask += (size_t)run * graph.n_edges * ((HEADS + 7) / 8);
    float scale = product_scale(layer), kept_scale = mask ? settings[run].scale : 1.f;
    const u32 *kept = edge_loss.kept ? edge_loss.kept + (size_t)run * edge_loss.n_words : 0;
    float pair_gradient = kept ? edge_loss.pair_gradients[run] : 0.f;

    float4 own[VEC_ROOM], right_weights[VEC_ROOM], sums[VEC_ROOM];
    load_row(layer, place, rows + (size_t)item.node * layer.stride, own);
    float right = 0.f, right_sum = 0.f;
    if (HAS_WEIGHTS) {
        load_attention(layer, place, weights, 1, right_weights);
        right = dot_of(layer, right_weights, own);
    }
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = zero4();

    for (u32 base = item.first; base < item.end; base += N_BESIDE * place.n_teams) {
        float4 other_rows[N_BESIDE][VEC_ROOM], other_gradients[N_BESIDE][VEC_ROOM], other_records[N_BESIDE];
#pragma unroll
        for (u32 k = 0; k < N_BESIDE; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            u32 other = graph.destinations[edge < item.end ? edge : item.first];
            load_row(layer, place, gradients + (size_t)other * layer.stride, other_gradients[k]);
            if (HAS_PRODUCTS) load_row(layer, place, rows + (size_t)other * layer.stride, other_rows[k]);
            other_records[k] = place.is_on ? records[(size_t)other * HEADS + place.head] : zero4();
        }
#pragma unroll
        for (u32 k = 0; k < N_BESIDE; k++) {
            u32 edge = base + k * place.n_teams + place.team;
            bool is_edge = edge < item.end;
            u32 by_destination = graph.out_edges[is_edge ? edge : item.first];
            float4 record = other_records[k];
            float linear = HAS_WEIGHTS ? record.w + right : 0.f;
            float dot = HAS_PRODUCTS ? scale * dot_of(layer, own, other_rows[k]) : 0.f;
            float toward = dot_of(layer, own, other_gradients[k]);
            Score score = score_of(layer, linear, dot);
            float taught = 0.f;
            if (kept) {
                double ignored = 0.0;
                bool is_looked_at = is_edge && is_kept(kept, by_destination);
                taught = pair_gradient * edge_slope(layer, place, HAS_PRODUCTS ? dot : linear, is_looked_at, &ignored);
            }
            float alpha = is_edge ? expf(score.bent - record.x) * record.y : 0.f;
            float factor = kept_factor(layer, place, mask, by_destination, kept_scale);
            EdgeGradient edge_part =
                edge_gradient(layer, score, linear, scale, alpha, factor, toward, record.z, taught);
            right_sum += edge_part.linear;
#pragma unroll
            for (u32 v = 0; v < VEC; v++) {
                sums[v] = fma4(other_gradients[k][v], edge_part.weight, sums[v]);
                if (HAS_PRODUCTS) sums[v] = fma4(other_rows[k][v], edge_part.dot, sums[v]);
            }
        }
    }
    right_sum = over_teams(place, right_sum);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = over_teams(place, sums[v]);
    if (place.team != 0) return;
    if (item.slot == NO_SLOT) {
        float *row = row_gradients + (size_t)item.node * layer.stride;
        if (item.node < graph.n_destinations) {
            float4 before[VEC_ROOM];
            load_row(layer, place, row, before);
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sums[v] = plus4(sums[v], before[v]);
        }
        if (HAS_WEIGHTS) {
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

/// What pairs without an edge mean for the rows of their nodes, and their losses. `partners` has every pair twice: of the
/// destination's node the source, and of the source's node the destination, marked.
KERNEL void kith_negatives(
    Layer layer, u32 n_sources, u32 n_destinations, const u32 *starts, const u32 *partners, u32 n_room,
    const float *weights, const float *rows, const float *pair_gradients, float *row_gradients, float *left_gradients,
    float *right_gradients, double *losses) {
    u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32, run = blockIdx.y;
    if (node >= n_sources) return;
    Place place = place_of(layer);
    starts += (size_t)run * (n_sources + 1);
    partners += (size_t)run * n_room;
    weights += (size_t)run * layer.n_weights;
    rows += (size_t)run * n_sources * layer.stride;
    row_gradients += ((size_t)run * n_sources + node) * layer.stride;
    float scale = product_scale(layer), pair_gradient = pair_gradients[run];
    u32 first = starts[node], end = starts[node + 1];

    float4 own[VEC_ROOM], sums[VEC_ROOM], other[VEC_ROOM], halves[2][VEC_ROOM];
    load_row(layer, place, rows + (size_t)node * layer.stride, own);
    float own_halves[2] = {0.f, 0.f}, slopes[2] = {0.f, 0.f};
    double loss = 0.0;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) sums[v] = zero4();
    if (!HAS_PRODUCTS) {
        load_attention(layer, place, weights, 0, halves[0]);
        load_attention(layer, place, weights, 1, halves[1]);
        own_halves[0] = dot_of(layer, halves[0], own);
        own_halves[1] = dot_of(layer, halves[1], own);
    }
    for (u32 base = first; base < end; base += place.n_teams) {
        u32 pair = base + place.team;
        bool is_pair = pair < end;
        u32 partner = partners[is_pair ? pair : first];
        bool is_source = partner & IS_SOURCE;
        load_row(layer, place, rows + (size_t)(partner & ~IS_SOURCE) * layer.stride, other);
        float logit_of_head;
        if (HAS_PRODUCTS) {
            logit_of_head = scale * dot_of(layer, own, other);
        } else {
            float other_left = dot_of(layer, halves[0], other), other_right = dot_of(layer, halves[1], other);
            logit_of_head = is_source ? other_left + own_halves[1] : own_halves[0] + other_right;
        }
        float logit = over_heads(layer, place, place.is_on ? logit_of_head : 0.f) / (float)HEADS;
        float slope = is_pair ? sigmoid(logit) : 0.f;
        if (is_pair && !is_source) loss += (double)softplus(logit);
        if (HAS_PRODUCTS) {
#pragma unroll
            for (u32 v = 0; v < VEC; v++) sums[v] = fma4(other[v], slope, sums[v]);
        } else {
            if (is_source) slopes[1] += slope;
            else slopes[0] += slope;
        }
    }
    loss = over_teams(place, loss);
    if (place.lane == 0) losses[(size_t)run * n_sources + node] = loss;
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
    load_row(layer, place, row_gradients, other);
#pragma unroll
    for (u32 v = 0; v < VEC; v++) other[v] = plus4(other[v], sums[v]);
    store_row(layer, place, other, row_gradients);
}
