// Begin and end of a step: the streams of its draws, and Adam. The step number is read from memory, so that one
// recording of a step can be played for all steps.

struct AdamFactors {
    float step_size, inverse_root_scale;
};

/// Streams of every run and layer, and what Adam's moments are corrected by.
KERNEL void kith_begin_step(
    const u64 *step, const Settings *settings, u32 n_runs, u32 n_layers, Streams *streams, AdamFactors *factors) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n_runs * n_layers) return;
    u32 run = place / n_layers, layer = place % n_layers;
    u64 run_key = settings[run].run_key;
    Streams own;
    own.rows = stream_of(run_key, layer == 0 ? KITH_INPUT_DROPOUT : KITH_HIDDEN_DROPOUT, *step, layer);
    own.attention = stream_of(run_key, KITH_ATTENTION_DROPOUT, *step, layer);
    own.negative = stream_of(run_key, KITH_NEGATIVE, *step, layer);
    own.subset = stream_of(run_key, KITH_PAIR_SUBSET, *step, layer);
    streams[place] = own;
    if (layer == 0) {
        double n = (double)(*step + 1);
        double first = 1.0 - pow(0.9, n), second = 1.0 - pow(0.999, n);
        factors[run].step_size = (float)(settings[run].learning_rate / first);
        factors[run].inverse_root_scale = 1.f / (float)sqrt(second);
    }
}

/// Adds the gradient of a slice to those of the slices before.
KERNEL void kith_add_slice(u32 n_weights, u32 is_first, const float *gradient, float *sum) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < n_weights) sum[place] = is_first ? gradient[place] : sum[place] + gradient[place];
}

/// Adam with coupled decay. `is_as_on_host`: with the host's roundings, for runs whose bits began there.
KERNEL void kith_adam(
    u32 n_weights, u32 is_as_on_host, const Settings *settings, const AdamFactors *factors, const float *gradients,
    float *weights, float *first, float *second) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (place >= n_weights) return;
    size_t at = (size_t)run * n_weights + place;
    float weight = weights[at];
    float gradient = fmaf(settings[run].weight_decay, weight, gradients[at]);
    float m = fmaf(gradient - first[at], 0.1f, first[at]);
    float v = fmaf(second[at], 0.999f, gradient * gradient * 0.001f);
    first[at] = m;
    second[at] = v;
    float scale = factors[run].inverse_root_scale;
    float root = is_as_on_host ? __fadd_rn(__fmul_rn(sqrtf(v), scale), 1e-8f) : sqrtf(v) * scale + 1e-8f;
    weights[at] = weight - factors[run].step_size * m / root;
}

KERNEL void kith_end_step(u64 *step) { *step += 1; }
