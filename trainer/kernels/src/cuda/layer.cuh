// Types of all kernels: the shape of a layer, a graph, and the settings of each run.
//
// Several runs are computed at once: blockIdx.y is the run, and an array holds all runs one after the other. Rows are
// `stride` numbers long: heads side by side, each padded with zeros to `padded` numbers, a multiple of four.
typedef unsigned char u8;
typedef unsigned short u16;

#ifndef KERNEL
#define KERNEL extern "C" __global__
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#endif
#define FULL 0xffffffffu
#define SLOPE 0.2f
#define EPSILON 1e-16f
// Below every score, and yet finite: a list without an edge so far is multiplied with exp(LOWEST - LOWEST).
#define LOWEST -1e30f

#define FORM_GO 0
#define FORM_DP 1
#define FORM_SD 2
#define FORM_MX 3
// Layers without attention: see aggregate.cu.
#define FORM_GCN 4
#define FORM_MEAN 5
#define FORM_OWN 6
// GATv2's attention.
#define FORM_V2 7
// Without attention, too.
#define FORM_SUM 8

// No place among the weights: a layer has no such weight.
#define NO_WEIGHT 0xffffffffu

struct Layer {
    u32 index;
    u32 dim;
    u32 heads, features;
    u32 padded, stride;
    // A head's numbers are spread over `lanes` neighboring threads, `vec` times four for each.
    u32 lanes, vec;
    u32 form, is_mean;
    // Start of its weights, attention weights and bias among a run's weights, and the number of those.
    u32 weight, attention, bias, n_weights;
    // `leaves_out`: some edges may be left out of sums. `has_loops`: self-loops are in them.
    u32 leaves_out, has_loops;
};

// NVRTC gets the numbers that loops and registers depend on as constants; without it they are read at run time,
// and arrays have room for any.
#ifdef KITH_HEADS
#define HEADS KITH_HEADS
#define LANES KITH_LANES
#define VEC KITH_VEC
#define VEC_ROOM KITH_VEC
#define PADDED KITH_PADDED
#define FORM KITH_FORM
#define LEAVES_OUT KITH_LEAVES_OUT
#else
#define HEADS layer.heads
#define LANES layer.lanes
#define VEC layer.vec
#define VEC_ROOM 64
#define PADDED layer.padded
#define FORM layer.form
#define LEAVES_OUT layer.leaves_out
#endif
#define HAS_HALVES (FORM == FORM_GO || FORM == FORM_MX)
#define IS_DYNAMIC (FORM == FORM_V2)
#define HAS_PRODUCTS ((FORM >= FORM_DP && FORM <= FORM_MX) || IS_DYNAMIC)

struct Graph {
    u32 n_sources, n_destinations, n_edges;
    // Place of the first destination among the sources: above zero only in a chunk of a whole graph.
    u32 first;
    // By destination: where lists start, the sources in them; each list ends with its destination.
    const u32 *indptr, *sources;
    // By source: where lists start, the destinations in them, and which edge each is by destination.
    const u32 *out_indptr, *destinations, *out_edges;
    // Ids of nodes in draws; null if positions are their ids.
    const u64 *ids;
    // Place of each destination among the sources; null if they are next to each other, from `first` on.
    const u32 *own;
    // A bit for each edge that is dropped, by run, and words of them for a run; null if none is.
    const u32 *dropped;
    u32 n_dropped_words, unused;
};

/// True if a run leaves an edge out of its sums.
__device__ __forceinline__ bool is_left_out(const Layer &layer, const Graph &graph, u32 run, u32 edge, bool is_loop) {
    if (!LEAVES_OUT) return false;
    if (is_loop) return !layer.has_loops;
    return graph.dropped && graph.dropped[(size_t)run * graph.n_dropped_words + edge / 32] >> edge % 32 & 1;
}

/// Place of a destination among the sources.
__device__ __forceinline__ u32 own_of(const u32 *own, u32 first, u32 destination) {
    return own ? own[destination] : first + destination;
}

__device__ __forceinline__ u64 id_of(const Graph &graph, u32 node) {
    return graph.ids ? graph.ids[node] : node;
}

// Edges of one neighbor list for one warp. A list in several items leaves a part of its result in the `slot` of each; a
// whole list has no slot.
struct Item {
    u32 node, first, end, slot;
};
#define NO_SLOT 0xffffffffu
// Marks a partner in a pair without an edge: the node itself is the source.
#define IS_SOURCE 0x80000000u

/// An item of some; without any, each list is one.
__device__ __forceinline__ Item item_of(const Item *items, const u32 *indptr, u32 index) {
    if (items) return items[index];
    Item whole = {index, indptr[index], indptr[index + 1], NO_SLOT};
    return whole;
}

// Of a dynamic attention, by destination: products with weights of their own; in training, their gradients, and what each adds
// to the gradient of the attention weights, also in slots. Null otherwise.
struct Targets {
    const float *rows;
    float *gradients, *values, *slot_values;
};

// All lists of a store, by destination, without loops; sources ascend.
struct StoredLists {
    const u32 *indptr, *sources;
};

// A list that came in pieces.
struct SplitList {
    u32 node, first_slot, n_slots;
};

struct Settings {
    u64 run_key;
    // A clip_norm of zero is none.
    double learning_rate, edge_weight, clip_norm;
    float weight_decay;
    // Hidden features with 16 bits below `threshold` are dropped; kept ones are multiplied with `scale`.
    u32 threshold;
    float scale;
    // The optimizer: RULE_… in step.cu.
    u32 rule;
    float momentum;
    // The same of the features of the graph, and of attention weights.
    u32 input_threshold;
    float input_scale;
    u32 attention_threshold;
    float attention_scale;
    // The same of edges, which are dropped without a factor.
    u32 edge_threshold;
};

// Streams of one run in one step, by layer.
struct Streams {
    Stream rows, attention, negative, subset;
    // Of hidden features that a layer reads; `rows` of the first layer are for the features of the graph.
    Stream hidden;
    // Of edges: the same in all layers.
    Stream edges;
};

/// A number of a bias that starts at a place among the weights, if there is one.
__device__ __forceinline__ float bias_of(const float *weights, u32 bias, u32 column) {
    return bias == NO_WEIGHT ? 0.f : weights[bias + column];
}

__device__ __forceinline__ u32 next_power_of_two(u32 n) {
    u32 power = 1;
    while (power < n) power *= 2;
    return power;
}

// Position of a thread: a team of threads processes one edge, each thread some numbers of one head.
struct Place {
    u32 lane, team_len, n_teams, team, head, part;
    bool is_on;
};

__device__ __forceinline__ Place place_of(const Layer &layer) {
    Place place;
    place.lane = threadIdx.x % 32;
    place.team_len = next_power_of_two(HEADS) * LANES;
    place.n_teams = 32 / place.team_len;
    place.team = place.lane / place.team_len;
    u32 within = place.lane % place.team_len;
    place.head = within / LANES;
    place.part = within % LANES;
    place.is_on = place.head < HEADS;
    return place;
}

__device__ __forceinline__ float4 zero4() { return make_float4(0.f, 0.f, 0.f, 0.f); }

__device__ __forceinline__ float4 plus4(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ __forceinline__ float4 scaled4(float4 a, float b) {
    return make_float4(a.x * b, a.y * b, a.z * b, a.w * b);
}

/// a * b + c
__device__ __forceinline__ float4 fma4(float4 a, float b, float4 c) {
    return make_float4(fmaf(a.x, b, c.x), fmaf(a.y, b, c.y), fmaf(a.z, b, c.z), fmaf(a.w, b, c.w));
}

__device__ __forceinline__ u32 quad_of(const Layer &layer, const Place &place, u32 v) { return v * LANES + place.part; }

__device__ __forceinline__ bool has_quad(const Layer &layer, const Place &place, u32 v) {
    return place.is_on && 4 * quad_of(layer, place, v) < PADDED;
}

/// This thread's numbers of a row.
__device__ __forceinline__ void load_row(const Layer &layer, const Place &place, const float *row, float4 *out) {
#pragma unroll
    for (u32 v = 0; v < VEC; v++) {
        const float *from = row + place.head * PADDED + 4 * quad_of(layer, place, v);
        out[v] = has_quad(layer, place, v) ? *(const float4 *)from : zero4();
    }
}

__device__ __forceinline__ void store_row(const Layer &layer, const Place &place, const float4 *from, float *row) {
#pragma unroll
    for (u32 v = 0; v < VEC; v++) {
        if (has_quad(layer, place, v)) *(float4 *)(row + place.head * PADDED + 4 * quad_of(layer, place, v)) = from[v];
    }
}

/// This thread's numbers of one half of the attention weights (heads × 2 features, the destination's half first), or of those of a
/// dynamic attention (heads × features).
__device__ __forceinline__ void load_attention(
    const Layer &layer, const Place &place, const float *weights, u32 half, float4 *out) {
#pragma unroll
    for (u32 v = 0; v < VEC; v++) {
        u32 row = IS_DYNAMIC ? place.head : 2 * place.head + half;
        const float *from = weights + layer.attention + row * layer.features;
        u32 first = 4 * quad_of(layer, place, v);
        float own[4];
        for (u32 k = 0; k < 4; k++) own[k] = place.is_on && first + k < layer.features ? from[first + k] : 0.f;
        out[v] = make_float4(own[0], own[1], own[2], own[3]);
    }
}

/// A sum over the threads of a head, known to all of them.
__device__ __forceinline__ float over_lanes(const Layer &layer, float sum) {
#pragma unroll
    for (u32 across = 1; across < LANES; across *= 2) sum += __shfl_xor_sync(FULL, sum, across);
    return sum;
}

__device__ __forceinline__ float bend(float x) { return x > 0.f ? x : SLOPE * x; }

__device__ __forceinline__ float4 bend4(float4 x) { return make_float4(bend(x.x), bend(x.y), bend(x.z), bend(x.w)); }

/// `gradient` through the leaky ReLU at x.
__device__ __forceinline__ float4 through4(float4 x, float gradient) {
    float below = SLOPE * gradient;
    return make_float4(
        x.x > 0.f ? gradient : below, x.y > 0.f ? gradient : below, x.z > 0.f ? gradient : below,
        x.w > 0.f ? gradient : below);
}

/// a · b, number by number.
__device__ __forceinline__ float4 times4(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

/// a·leaky_relu(t + h) of a head, known to all its threads.
__device__ __forceinline__ float dynamic_of(const Layer &layer, const float4 *weights, const float4 *a, const float4 *b) {
    float sum = 0.f;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) {
        float4 bent = bend4(plus4(a[v], b[v]));
        sum = fmaf(weights[v].x, bent.x, sum);
        sum = fmaf(weights[v].y, bent.y, sum);
        sum = fmaf(weights[v].z, bent.z, sum);
        sum = fmaf(weights[v].w, bent.w, sum);
    }
    return over_lanes(layer, sum);
}

/// The dot product of a head, known to all its threads.
__device__ __forceinline__ float dot_of(const Layer &layer, const float4 *a, const float4 *b) {
    float sum = 0.f;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) {
        sum = fmaf(a[v].x, b[v].x, sum);
        sum = fmaf(a[v].y, b[v].y, sum);
        sum = fmaf(a[v].z, b[v].z, sum);
        sum = fmaf(a[v].w, b[v].w, sum);
    }
    return over_lanes(layer, sum);
}

/// The sum over a team's heads of a number that all threads of a head know.
__device__ __forceinline__ float over_heads(const Layer &layer, const Place &place, float value) {
#pragma unroll
    for (u32 across = LANES; across < place.team_len; across *= 2) value += __shfl_xor_sync(FULL, value, across);
    return value;
}

/// The sum over the teams of a warp.
__device__ __forceinline__ float over_teams(const Place &place, float value) {
#pragma unroll
    for (u32 across = place.team_len; across < 32; across *= 2) value += __shfl_xor_sync(FULL, value, across);
    return value;
}

__device__ __forceinline__ double over_teams(const Place &place, double value) {
#pragma unroll
    for (u32 across = place.team_len; across < 32; across *= 2) value += __shfl_xor_sync(FULL, value, across);
    return value;
}

__device__ __forceinline__ float4 over_teams(const Place &place, float4 value) {
    return make_float4(
        over_teams(place, value.x), over_teams(place, value.y), over_teams(place, value.z), over_teams(place, value.w));
}

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.f, 1.f + expf(-x)); }

/// ln(1 + e^x), without overflow.
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }

/// A score, and what it was made of.
struct Score {
    float raw, gate, bent;
};

__device__ __forceinline__ Score score_of(const Layer &layer, float linear, float dot) {
    Score score;
    score.gate = 0.f;
    if (FORM == FORM_GO) {
        score.raw = linear;
    } else if (FORM == FORM_MX) {
        score.gate = sigmoid(dot);
        score.raw = linear * score.gate;
    } else {
        score.raw = dot;
    }
    score.bent = IS_DYNAMIC ? score.raw : bend(score.raw);
    return score;
}

/// Factor applied to dot products: 1/√features for SD, 1 otherwise.
__device__ __forceinline__ float product_scale(const Layer &layer) {
    return FORM == FORM_SD ? (float)(1.0 / sqrt((double)layer.features)) : 1.f;
}

/// The sum over features of both ends: a scaled dot product, or that of a dynamic attention with its weights.
__device__ __forceinline__ float product_of(
    const Layer &layer, const float4 *weights, const float4 *own, const float4 *other, float scale) {
    return IS_DYNAMIC ? dynamic_of(layer, weights, own, other) : scale * dot_of(layer, own, other);
}

/// Dropout factor of an edge's attention in this thread's head. Bits are drawn before: one byte for 8 heads.
__device__ __forceinline__ float kept_factor(const Layer &layer, const Place &place, const u8 *mask, u32 edge, float scale) {
    if (!mask) return 1.f;
    u32 n_bytes = (HEADS + 7) / 8;
    u32 bits = mask[(size_t)edge * n_bytes + place.head / 8 * (place.is_on ? 1 : 0)];
    return bits >> place.head % 8 & 1 ? scale : 0.f;
}

__device__ __forceinline__ bool is_kept(const u32 *kept, u32 pair) { return kept[pair / 32] >> pair % 32 & 1; }
