// Residual of a graph layer: a linear layer of its input, the input itself, and biases. Null, or NO_WEIGHT, for
// none. A mean of heads gets it through its first head, times their number.
struct Addition {
    const float *product;
    const float *input;
    u32 product_stride, n_inputs;
    u32 bias, own_bias;
};

/// Completes the outputs of a graph layer, in place or elsewhere: the backward pass of attention needs them as they were. Of several
/// heads whose mean is taken, only the first changes.
KERNEL void kith_complete(
    Layer layer, Transition transition, Addition addition, u32 n_rows, const float *weights, const float *outputs,
    float *completed) {
    RowPlace place = row_place(transition, n_rows);
    if (!place.is_row) return;
    u32 width = transition.width;
    weights += (size_t)place.run * layer.n_weights;
    size_t row = (size_t)place.run * n_rows + place.row;
    float factor = layer.is_mean ? (float)layer.heads : 1.f;
    for (u32 column = place.first; column < width; column += place.step) {
        float y[8], input[8];
        load_outputs(layer, width, outputs, row, column, y);
        if (addition.input) load_plain(width, addition.input, (size_t)place.run * addition.n_inputs + place.row, column, input);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            if (column + k >= width) continue;
            float sum = addition.product ? addition.product[row * addition.product_stride + column + k] : 0.f;
            if (addition.own_bias != NO_WEIGHT) sum += weights[addition.own_bias + column + k];
            if (addition.input) sum += input[k];
            if (addition.bias != NO_WEIGHT) sum += weights[addition.bias + column + k];
            y[k] = fmaf(factor, sum, y[k]);
        }
        store_outputs(layer, width, y, row, column, completed);
        if (!layer.is_mean || completed == outputs) continue;
        for (u32 head = 1; head < layer.heads; head++) {
            for (u32 k = 0; k < 8 && column + k < width; k++) {
                size_t at = row * layer.stride + head * layer.padded + column + k;
                completed[at] = outputs[at];
            }
        }
    }
}

/// The gradient of what was added, from that of the outputs: into rows of another stride, or added to the gradient of the input.
KERNEL void kith_take_addition(
    Layer layer, Transition transition, u32 n_rows, const float *gradients, float *product_gradients, u32 product_stride,
    float *input_gradients, u32 n_inputs) {
    RowPlace place = row_place(transition, n_rows);
    if (!place.is_row) return;
    u32 width = transition.width;
    size_t row = (size_t)place.run * n_rows + place.row;
    float factor = layer.is_mean ? (float)layer.heads : 1.f;
    for (u32 column = place.first; column < width; column += place.step) {
        float gradient[8];
        load_outputs(layer, width, gradients, row, column, gradient);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            // Zeros in the padding.
            if (product_gradients && column + k < product_stride) {
                product_gradients[row * product_stride + column + k] = factor * gradient[k];
            }
            if (column + k >= width) continue;
            if (input_gradients) {
                size_t to = ((size_t)place.run * n_inputs + place.row) * width + column + k;
                input_gradients[to] = fmaf(factor, gradient[k], input_gradients[to]);
            }
        }
    }
}

/// The sum of two weights, for a product with both.
KERNEL void kith_add_weights(u32 n, u32 first, u32 second, const float *weights, u32 n_weights, float *sum) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (place >= n) return;
    weights += (size_t)run * n_weights;
    sum[(size_t)run * n + place] = weights[first + place] + weights[second + place];
}
