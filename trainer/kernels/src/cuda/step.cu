// Begin and end of a step: the streams of its draws, and the update of the weights. The step number is read from memory, so that one
// recording of a step can be played for all steps.

// Optimizers. Adam adds the decay to the gradient, and so does gradient descent; AdamW applies it to the weights.
#define RULE_ADAM 0
#define RULE_ADAMW 1
#define RULE_SGD 2
#define RULE_NESTEROV 3

struct StepFactors {
    float step_size, inverse_root_scale;
    // Factor of the weights.
    float kept_weight;
};

/// Streams of every run and layer, and of what is after the last, and factors of the update. `rates`: the learning rate of each run in this step, if it changes.
KERNEL void kith_begin_step(
    const u64 *step, const Settings *settings, const double *rates, u32 n_runs, u32 n_streams, Streams *streams,
    StepFactors *factors) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n_runs * n_streams) return;
    u32 run = place / n_streams, layer = place % n_streams;
    u64 run_key = settings[run].run_key;
    Streams own;
    own.rows = stream_of(run_key, layer == 0 ? KITH_INPUT_DROPOUT : KITH_HIDDEN_DROPOUT, *step, layer);
    own.attention = stream_of(run_key, KITH_ATTENTION_DROPOUT, *step, layer);
    own.negative = stream_of(run_key, KITH_NEGATIVE, *step, layer);
    own.subset = stream_of(run_key, KITH_PAIR_SUBSET, *step, layer);
    own.hidden = stream_of(run_key, KITH_HIDDEN_DROPOUT, *step, layer);
    own.edges = stream_of(run_key, KITH_EDGE_DROPOUT, *step, 0);
    streams[place] = own;
    if (layer == 0) {
        double n = (double)(*step + 1), rate = rates ? rates[run] : settings[run].learning_rate;
        double first = 1.0 - pow(0.9, n), second = 1.0 - pow(0.999, n);
        bool is_adam = settings[run].rule <= RULE_ADAMW;
        factors[run].step_size = (float)(is_adam ? rate / first : rate);
        factors[run].inverse_root_scale = is_adam ? 1.f / (float)sqrt(second) : 1.f;
        bool decays = settings[run].rule == RULE_ADAMW;
        factors[run].kept_weight = decays ? (float)(1.0 - rate * (double)settings[run].weight_decay) : 1.f;
    }
}

/// Draws the edges that are dropped, 32 in each thread; self-loops never are.
KERNEL void kith_drop_edges(
    Graph graph, const u32 *edge_destinations, const Settings *settings, const Streams *streams, u32 n_streams,
    u32 *dropped) {
    u32 word = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (word >= graph.n_dropped_words) return;
    Stream stream = streams[run * n_streams].edges;
    u32 threshold = settings[run].edge_threshold, bits = 0;
    for (u32 bit = 0; bit < 32 && 32 * word + bit < graph.n_edges; bit++) {
        u32 edge = 32 * word + bit, destination = edge_destinations[edge], source = graph.sources[edge];
        if (source == destination) continue;
        Words words = words_of(stream, id_of(graph, destination), id_of(graph, source), 0, 0);
        if ((words.word[0] & 0xffff) < threshold) bits |= 1u << bit;
    }
    dropped[(size_t)run * graph.n_dropped_words + word] = bits;
}

/// Adds the gradient of a slice to those of the slices before, or begins with it. After the weights comes the number of slices
/// with a loss that is not finite: ranks add it up, too.
KERNEL void kith_add_slice(
    u32 n_weights, u32 is_first, const float *gradient, float *sum, u32 n_losses, const double *losses) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place > n_weights) return;
    float own = 0.f;
    if (place < n_weights) {
        own = gradient[place];
    } else {
        for (u32 k = 0; k < n_losses; k++) {
            if (!(fabs(losses[k]) <= 1.7976931348623157e308)) own = 1.f;
        }
    }
    sum[place] = is_first ? own : sum[place] + own;
}

/// Adds the gradients of all slices of all ranks, in the order of slices; `order` says where each one is.
KERNEL void kith_add_ranks(u32 n, u32 n_slices, const u32 *order, const float *gradients, float *sum) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n) return;
    float all = gradients[(size_t)order[0] * n + place];
    for (u32 slice = 1; slice < n_slices; slice++) all += gradients[(size_t)order[slice] * n + place];
    sum[place] = all;
}

/// One weight's step. `IS_AS_ON_HOST`: with the host's roundings, for runs whose bits began there.
template <bool IS_AS_ON_HOST>
__device__ __forceinline__ void change_weight(
    const Settings &settings, StepFactors factors, float clip, bool is_decayed, float gradient, float *weight, float *first,
    float *second) {
    float decay = is_decayed && settings.rule != RULE_ADAMW ? settings.weight_decay : 0.f;
    float kept = is_decayed ? factors.kept_weight : 1.f;
    gradient = fmaf(decay, *weight, gradient * clip);
    if (settings.rule >= RULE_SGD) {
        float m = fmaf(settings.momentum, *first, gradient);
        *first = m;
        float along = settings.rule == RULE_NESTEROV ? fmaf(settings.momentum, m, gradient) : m;
        *weight = fmaf(-factors.step_size, along, __fmul_rn(*weight, kept));
        return;
    }
    float m = fmaf(gradient - *first, 0.1f, *first);
    float v = fmaf(*second, 0.999f, gradient * gradient * 0.001f);
    *first = m;
    *second = v;
    float scale = factors.inverse_root_scale;
    float root = IS_AS_ON_HOST ? __fadd_rn(__fmul_rn(sqrtf(v), scale), 1e-8f) : sqrtf(v) * scale + 1e-8f;
    *weight = __fmul_rn(*weight, kept) - factors.step_size * m / root;
}

// Weights that do not decay, and factors of gradients; null if all decay, and none is scaled down.
struct Exceptions {
    const u8 *is_not_decayed;
    const float *clip;
};

// Share of new statistics in the running ones.
#define MOMENTUM 0.1f

/// The step of every run. After the weights that are trained come running statistics, whose gradients are new statistics.
KERNEL void kith_update(
    u32 n_weights, u32 n_trained, const Settings *settings, const StepFactors *factors, Exceptions exceptions, const float *gradients,
    float *weights, float *first, float *second) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (place >= n_weights) return;
    size_t at = (size_t)run * n_weights + place;
    if (place >= n_trained) {
        weights[at] = fmaf(MOMENTUM, gradients[at] - weights[at], weights[at]);
        return;
    }
    bool is_decayed = !exceptions.is_not_decayed || !exceptions.is_not_decayed[place];
    float clip = exceptions.clip ? exceptions.clip[run] : 1.f;
    change_weight<false>(
        settings[run], factors[run], clip, is_decayed, gradients[at], weights + at, first + at, second + at);
}

/// The step of one run, by the gradients of its slices. From a loss on that is not finite, on whatever rank, no weight changes.
KERNEL void kith_update_by_slices(
    u32 n_weights, u32 n_trained, const Settings *settings, StepFactors factors, Exceptions exceptions, u32 *is_lost, const float *gradients,
    float *weights, float *first, float *second) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at == 0 && gradients[n_weights] != 0.f) *is_lost = 1;
    if (at >= n_weights || gradients[n_weights] != 0.f || *is_lost) return;
    if (at >= n_trained) {
        weights[at] = fmaf(MOMENTUM, gradients[at] - weights[at], weights[at]);
        return;
    }
    bool is_decayed = !exceptions.is_not_decayed || !exceptions.is_not_decayed[at];
    float clip = exceptions.clip ? exceptions.clip[0] : 1.f;
    change_weight<true>(*settings, factors, clip, is_decayed, gradients[at], weights + at, first + at, second + at);
}

/// Moves the averages of every run toward its weights, by the run's share of the distance; of 1: copies them. Running statistics are
/// copied. `is_lost`: null, or not zero after a loss that is not finite.
KERNEL void kith_average(
    u32 n_weights, u32 n_trained, const float *shares, const u32 *is_lost, const float *weights, float *averages) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (place >= n_weights || (is_lost && *is_lost)) return;
    size_t at = (size_t)run * n_weights + place;
    float share = place < n_trained ? shares[run] : 1.f;
    averages[at] = share == 1.f ? weights[at] : fmaf(weights[at] - averages[at], share, averages[at]);
}

KERNEL void kith_end_step(u64 *step) { *step += 1; }
