// Table of the kernels by name, compiled for the emulator of machine.h.
#include "machine.h"

#include "kith_kernels.inc"

namespace {

struct Kernel {
    const char *name;
    void (*launch)(unsigned const grid[3], unsigned n_threads, void **args);
};

#define ENTRY(name)                                                                                                    \
    {#name, [](unsigned const grid[3], unsigned n_threads, void **args) { machine::launch(name, grid, n_threads, args); }}

const Kernel KERNELS[] = {
    ENTRY(kith_attend),
    ENTRY(kith_attend_join),
    ENTRY(kith_draw_mask),
    ENTRY(kith_drop_edges),
    ENTRY(kith_factors),
    ENTRY(kith_take_lists),
    ENTRY(kith_count_sources),
    ENTRY(kith_degree_factors),
    ENTRY(kith_aggregate),
    ENTRY(kith_aggregate_join),
    ENTRY(kith_pull),
    ENTRY(kith_join),
    ENTRY(kith_push),
    ENTRY(kith_negatives),
    ENTRY(kith_dynamic_negatives),
    ENTRY(kith_attention_gradient),
    ENTRY(kith_multiply),
    ENTRY(kith_add_bias),
    ENTRY(kith_weight_gradient),
    ENTRY(kith_input_gradient),
    ENTRY(kith_spread_rows),
    ENTRY(kith_multiply_sparse),
    ENTRY(kith_weight_gradient_sparse),
    ENTRY(kith_draw_subset),
    ENTRY(kith_draw_negatives),
    ENTRY(kith_count_pairs),
    ENTRY(kith_scan_blocks),
    ENTRY(kith_scan_add),
    ENTRY(kith_group_pairs),
    ENTRY(kith_sort_pairs),
    ENTRY(kith_pair_gradients),
    ENTRY(kith_sum_pieces),
    ENTRY(kith_sum),
    ENTRY(kith_edge_losses),
    ENTRY(kith_negative_losses),
    ENTRY(kith_bias_gradient),
    ENTRY(kith_complete),
    ENTRY(kith_take_addition),
    ENTRY(kith_add_weights),
    ENTRY(kith_norm_parts),
    ENTRY(kith_norm_join),
    ENTRY(kith_norm_running),
    ENTRY(kith_transition),
    ENTRY(kith_transition_back),
    ENTRY(kith_transition_sums),
    ENTRY(kith_transition_nodes),
    ENTRY(kith_carry),
    ENTRY(kith_carry_back),
    ENTRY(kith_node_loss),
    ENTRY(kith_measure),
    ENTRY(kith_begin_step),
    ENTRY(kith_gather_rows),
    ENTRY(kith_count_draws),
    ENTRY(kith_add_slice),
    ENTRY(kith_add_ranks),
    ENTRY(kith_square_sums),
    ENTRY(kith_clip_factors),
    ENTRY(kith_update_by_slices),
    ENTRY(kith_update),
    ENTRY(kith_average),
    ENTRY(kith_end_step),
    ENTRY(kith_place_roots),
    ENTRY(kith_count_neighbors),
    ENTRY(kith_draw_neighbors),
    ENTRY(kith_count_weighted),
    ENTRY(kith_bound_weighted),
    ENTRY(kith_draw_weighted),
    ENTRY(kith_weighted_keys),
    ENTRY(kith_take_neighbors),
    ENTRY(kith_count_new),
    ENTRY(kith_place_new),
    ENTRY(kith_relabel),
    ENTRY(kith_forget_positions),
    ENTRY(kith_copy),
    ENTRY(kith_source_keys),
    ENTRY(kith_count_digits),
    ENTRY(kith_sum_tiles),
    ENTRY(kith_scan_tiles),
    ENTRY(kith_sort_digits),
    ENTRY(kith_place_by_source),
};

} // namespace

// Runs a kernel to its end; false if there is none of that name.
extern "C" bool kith_cuda_emulator_launch(const char *name, unsigned const grid[3], unsigned n_threads, void **args) {
    for (const Kernel &kernel : KERNELS) {
        if (strcmp(kernel.name, name) == 0) {
            kernel.launch(grid, n_threads, args);
            return true;
        }
    }
    return false;
}
