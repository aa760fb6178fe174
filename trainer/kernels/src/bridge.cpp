// Calls of libtorch that tch does not wrap: an autograd node whose backward is in Rust, and products of matrices in
// Rust's memory. Exceptions do not cross the border: errors are returned as strings.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <malloc.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/function.h>

extern "C" {
// Defined in bridge.rs. Takes the gradients of the outputs (null where there is none), writes those of the inputs.
char *kith_node_backward(void *node, at::Tensor *const *gradients, size_t n_gradients, at::Tensor **inputs, size_t n_inputs);
void kith_node_drop(void *node);
void kith_error_drop(char *error);
}

namespace {

char *describe(const std::exception &error) { return strdup(error.what()); }

// Skips the destructors that libtorch registers when it is loaded, however the process ends: they take a tenth of a
// second, and are not safe while other threads compute. Handlers run in reverse order, so this one runs first.
void leave(int code, void *) {
  fflush(nullptr);
  _exit(code);
}
const int leaves = on_exit(leave, nullptr);

struct FusedNode : public torch::autograd::Node {
  FusedNode(void *node, size_t n_inputs) : node(node), n_inputs(n_inputs) {}
  ~FusedNode() override { release_variables(); }

  torch::autograd::variable_list apply(torch::autograd::variable_list &&gradients) override {
    if (node == nullptr) throw std::runtime_error("backward was called twice on one step");
    std::vector<at::Tensor *> given, made(n_inputs, nullptr);
    for (const auto &gradient : gradients) given.push_back(gradient.defined() ? new at::Tensor(gradient) : nullptr);
    char *error = kith_node_backward(node, given.data(), given.size(), made.data(), n_inputs);
    torch::autograd::variable_list result(n_inputs);
    for (size_t i = 0; i < n_inputs; i++) {
      if (made[i] != nullptr) result[i] = std::move(*made[i]);
      delete made[i];
    }
    if (error != nullptr) {
      std::string message(error);
      kith_error_drop(error);
      throw std::runtime_error(message);
    }
    return result;
  }

  void release_variables() override {
    if (node != nullptr) kith_node_drop(node);
    node = nullptr;
  }

  void *node;
  size_t n_inputs;
};

} // namespace

extern "C" {

// Keeps freed memory for the next step: arrays of libtorch are as large as ours, and as many. One arena for all
// threads: an array that does not fit a thread's arena would be mapped anew every time, despite M_MMAP_MAX.
void kith_prepare() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

// Gives back to the system what was freed.
void kith_trim() { malloc_trim(0); }

// Makes the outputs depend on the inputs. The node belongs to the graph from here on, whatever happens.
char *kith_attach(void *node, at::Tensor *const *inputs, size_t n_inputs, at::Tensor *const *outputs, size_t n_outputs) {
  try {
    auto fused = std::shared_ptr<FusedNode>(new FusedNode(node, n_inputs), torch::autograd::deleteNode);
    torch::autograd::edge_list edges;
    for (size_t i = 0; i < n_inputs; i++) edges.push_back(torch::autograd::impl::gradient_edge(*inputs[i]));
    fused->set_next_edges(std::move(edges));
    for (size_t i = 0; i < n_outputs; i++) torch::autograd::create_gradient_edge(*outputs[i], fused);
    return nullptr;
  } catch (const std::exception &error) {
    return describe(error);
  }
}

// out (m × n) = a (m × k) · b (k × n); a flag says that a matrix is stored the other way round.
char *kith_multiply(float *out, const float *a, const float *b, int64_t m, int64_t k, int64_t n, bool a_turned, bool b_turned) {
  try {
    // The number of threads within an operation is each thread's own affair; ours are many already.
    thread_local bool is_alone = (at::set_num_threads(1), true);
    (void)is_alone;
    at::NoGradGuard no_grad;
    auto wrap = [](const float *data, int64_t rows, int64_t columns, bool turned) {
      auto sizes = turned ? std::vector<int64_t>{columns, rows} : std::vector<int64_t>{rows, columns};
      auto tensor = at::from_blob(const_cast<float *>(data), sizes, at::kFloat);
      return turned ? tensor.t() : tensor;
    };
    auto result = at::from_blob(out, {m, n}, at::kFloat);
    at::mm_out(result, wrap(a, m, k, a_turned), wrap(b, k, n, b_turned));
    return nullptr;
  } catch (const std::exception &error) {
    return describe(error);
  }
}
}
