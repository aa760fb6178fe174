// Jumping: outputs of all graph layers, for the output layer.
#define JUMP_SUM 1
#define JUMP_MAX 2
#define JUMP_CONCAT 3

struct Jump {
    u32 kind, width;
    // Numbers of a node that are carried, and where those of this layer begin.
    u32 stride, start;
    // Nodes of this layer, and the first of them that are carried.
    u32 n_rows, n_carried;
    u32 is_first;
};

/// Combines a layer's output with those of earlier layers: sum, max or concat.
KERNEL void kith_carry(Jump jump, const float *rows, float *carried) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (place >= jump.n_carried * jump.width) return;
    u32 node = place / jump.width, column = place % jump.width;
    float own = rows[((size_t)run * jump.n_rows + node) * jump.width + column];
    float *to = carried + ((size_t)run * jump.n_carried + node) * jump.stride + jump.start + column;
    if (jump.is_first || jump.kind == JUMP_CONCAT) {
        *to = own;
    } else {
        // What is not a number stays visible.
        *to = jump.kind == JUMP_SUM ? *to + own : own > *to || own != own ? own : *to;
    }
}

/// Adds a layer's part of the gradient of what is carried to the gradient of its output, or begins with it.
KERNEL void kith_carry_back(
    Jump jump, u32 begins, const float *rows, const float *carried, const float *gradients, float *row_gradients) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (place >= jump.n_rows * jump.width) return;
    u32 node = place / jump.width, column = place % jump.width;
    size_t own = ((size_t)run * jump.n_rows + node) * jump.width + column;
    float gradient = 0.f;
    if (node < jump.n_carried) {
        size_t from = ((size_t)run * jump.n_carried + node) * jump.stride + jump.start + column;
        bool is_taken = jump.kind != JUMP_MAX || rows[own] == carried[from];
        gradient = is_taken ? gradients[from] : 0.f;
    }
    row_gradients[own] = begins ? gradient : row_gradients[own] + gradient;
}
