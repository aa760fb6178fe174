// Losses of nodes, and evaluation of a model.

/// The logits of a class: the mean of the heads, and the bias.
__device__ __forceinline__ float logit_of(const Layer &layer, const float *weights, const float *output, u32 class_) {
    float sum = 0.f;
    for (u32 head = 0; head < HEADS; head++) sum += output[head * PADDED + class_];
    return (layer.is_mean ? sum / (float)HEADS : sum) + bias_of(weights, layer.bias, class_);
}

__device__ __forceinline__ float over_warp(float value) {
    for (u32 across = 1; across < 32; across *= 2) value += __shfl_xor_sync(FULL, value, across);
    return value;
}

__device__ __forceinline__ double over_warp(double value) {
    for (u32 across = 1; across < 32; across *= 2) value += __shfl_xor_sync(FULL, value, across);
    return value;
}

__device__ __forceinline__ float max_over_warp(float value) {
    for (u32 across = 1; across < 32; across *= 2) value = fmaxf(value, __shfl_xor_sync(FULL, value, across));
    return value;
}

// As `Regression` in labeled.rs.
enum { REGRESSION_MAE = 1, REGRESSION_HUBER = 2 };

// Labels of nodes by position: the class of each, below zero if skipped; or `bits`, a byte per node and class; or
// `numbers` to predict, `n_classes` per node.
struct Labels {
    const int *classes;
    const u8 *bits;
    const float *numbers;
    // Of classes in the loss of training; null if all are equal.
    const float *class_weights;
    u32 n_classes;
    // Share of a node's label that is spread over all classes.
    float smoothing;
    // Loss of numbers: one of REGRESSION_*.
    u32 regression;
    u32 unused;
};

/// Loss of the error of one number; its slope goes to `slope`.
__device__ __forceinline__ float error_loss(u32 regression, float error, float *slope) {
    float size = fabsf(error), sign = error > 0.f ? 1.f : error < 0.f ? -1.f : 0.f;
    if (regression == REGRESSION_MAE) {
        *slope = sign;
        return size;
    }
    if (regression == REGRESSION_HUBER) {
        float inner = fminf(size, 1.f);
        *slope = inner * sign;
        return inner * (size - inner * 0.5f);
    }
    *slope = 2.f * error;
    return error * error;
}

/// Weight of a class in the loss of training.
__device__ __forceinline__ float class_weight(const Labels &labels, u32 class_) {
    return labels.class_weights ? labels.class_weights[class_] : 1.f;
}

/// Weight that a class's logit has in the loss of a node: that of its own class, and its share of what is spread.
__device__ __forceinline__ float target_of(const Labels &labels, u32 class_, u32 own) {
    float spread = labels.smoothing / (float)labels.n_classes * class_weight(labels, class_);
    return class_ == own ? (1.f - labels.smoothing) * class_weight(labels, class_) + spread : spread;
}

/// ln Σ exp(logits), known to the whole warp.
__device__ __forceinline__ double log_sum_exp(
    const Layer &layer, const float *weights, const float *output, u32 n_classes, float *max_out) {
    float max = -FLT_MAX;
    for (u32 class_ = threadIdx.x % 32; class_ < n_classes; class_ += 32) {
        max = fmaxf(max, logit_of(layer, weights, output, class_));
    }
    max = max_over_warp(max);
    double sum = 0.0;
    for (u32 class_ = threadIdx.x % 32; class_ < n_classes; class_ += 32) {
        sum += (double)expf(logit_of(layer, weights, output, class_) - max);
    }
    *max_out = max;
    return log(over_warp(sum));
}

/// The loss of every node that is looked at, and the gradient of the outputs, which is zero for the others. `share` is one
/// over what losses are divided by.
KERNEL void kith_node_loss(
    Layer layer, u32 n_nodes, const float *weights, const float *outputs, Labels labels, double share, float *gradients,
    double *losses) {
    u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, run = blockIdx.y;
    if (node >= n_nodes) return;
    weights += (size_t)run * layer.n_weights;
    const float *output = outputs + ((size_t)run * n_nodes + node) * layer.stride;
    float *gradient = gradients + ((size_t)run * n_nodes + node) * layer.stride;
    int own = labels.classes[node];
    double loss = 0.0;
    float part = (float)(share / HEADS);
    if (own < 0) {
        for (u32 place = lane; place < layer.stride; place += 32) gradient[place] = 0.f;
    } else {
        float max = 0.f;
        double log_sum = labels.bits || labels.numbers ? 0.0 : log_sum_exp(layer, weights, output, labels.n_classes, &max);
        bool is_plain = !labels.class_weights && labels.smoothing == 0.f;
        float total = 1.f;
        if (!is_plain && !labels.bits && !labels.numbers) {
            total = 0.f;
            for (u32 class_ = lane; class_ < labels.n_classes; class_ += 32) total += target_of(labels, class_, (u32)own);
            total = over_warp(total);
        }
        for (u32 class_ = lane; class_ < labels.n_classes; class_ += 32) {
            float logit = logit_of(layer, weights, output, class_), slope;
            if (labels.numbers) {
                float error = logit - labels.numbers[(size_t)node * labels.n_classes + class_];
                loss += (double)error_loss(labels.regression, error, &slope);
            } else if (labels.bits) {
                float is_true = labels.bits[(size_t)node * labels.n_classes + class_] ? 1.f : 0.f;
                loss += (double)(softplus(logit) - is_true * logit);
                slope = sigmoid(logit) - is_true;
            } else if (!is_plain) {
                float target = target_of(labels, class_, (u32)own);
                loss += (double)target * (log_sum - (double)(logit - max));
                slope = total * (float)exp((double)(logit - max) - log_sum) - target;
            } else {
                bool is_true = class_ == (u32)own;
                if (is_true) loss += log_sum - (double)(logit - max);
                slope = (float)exp((double)(logit - max) - log_sum) - (is_true ? 1.f : 0.f);
            }
            for (u32 head = 0; head < HEADS; head++) gradient[head * PADDED + class_] = slope * part;
        }
    }
    loss = over_warp(loss);
    if (lane == 0) losses[(size_t)run * n_nodes + node] = loss * share;
}

/// The loss of each of some nodes, and counts of all: right, said to be so, and so. `labels` are those of these nodes;
/// `n_losses` is the number of losses of a run, and outputs begin with those of node `first`.
KERNEL void kith_measure(
    Layer layer, u32 n_nodes, u32 first, const float *weights, const float *outputs, Labels labels, const u32 *nodes, u32 n,
    double *losses, u32 n_losses, u32 *counts, u32 count_stride) {
    u32 place = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, run = blockIdx.y;
    if (place >= n) return;
    u32 node = nodes[place] - first;
    weights += (size_t)run * layer.n_weights;
    counts += (size_t)run * count_stride;
    const float *output = outputs + ((size_t)run * n_nodes + node) * layer.stride;
    double loss = 0.0;
    u32 n_right = 0, n_said = 0, n_true = 0;
    if (labels.bits) {
        for (u32 class_ = lane; class_ < labels.n_classes; class_ += 32) {
            float logit = logit_of(layer, weights, output, class_);
            bool is_true = labels.bits[(size_t)place * labels.n_classes + class_], says_so = logit > 0.f;
            loss += (double)(softplus(logit) - (is_true ? logit : 0.f));
            n_right += says_so && is_true;
            n_said += says_so;
            n_true += is_true;
        }
    } else {
        u32 own = (u32)labels.classes[place];
        float max;
        double log_sum = log_sum_exp(layer, weights, output, labels.n_classes, &max);
        // Of several largest the first.
        u32 largest = 0xffffffffu;
        for (u32 class_ = lane; class_ < labels.n_classes; class_ += 32) {
            float logit = logit_of(layer, weights, output, class_);
            if (logit == max) largest = min(largest, class_);
            if (class_ == own) loss = log_sum - (double)(logit - max);
        }
        for (u32 across = 1; across < 32; across *= 2) largest = min(largest, __shfl_xor_sync(FULL, largest, across));
        n_right = lane == 0 && largest == own;
        n_said = n_true = lane == 0;
    }
    loss = over_warp(loss);
    if (lane == 0) losses[(size_t)run * n_losses + place] = loss;
    if (n_right) atomicAdd(counts, n_right);
    if (n_said) atomicAdd(counts + 1, n_said);
    if (n_true) atomicAdd(counts + 2, n_true);
}
