// Pairs of the edge loss, drawn as on the CPU: the subset of kept pairs, and negatives, grouped by node.

#define MAX_ATTEMPTS 16
#define NO_PAIR 0xffffffffu

// Draws of one layer: `n_kept` of `n_in_subset` pairs are kept. Edges have the lowest numbers.
struct PairShape {
    u32 n_negatives, n_in_subset, n_kept;
    // `is_union`: negatives are in the subset. `excludes_reverse`: the reverse of an edge is no negative either.
    u32 is_union, excludes_reverse;
    // Pairs of the loss, those left out included.
    u32 n_pairs;
    u32 n_words;
    // Names the draws of one slice of a step.
    u32 slice;
};

/// Marks the kept of all pairs, or unmarks the others, whichever are fewer: `kept` begins as zeros or ones accordingly.
KERNEL void kith_draw_subset(
    Layer layer, PairShape shape, const Streams *streams, u32 n_layers, u32 *kept) {
    __shared__ Permutation permutation;
    u32 place = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (threadIdx.x == 0) {
        permutation = permutation_of(streams[run * n_layers + layer.index].subset, shape.slice, shape.n_in_subset);
    }
    __syncthreads();
    bool is_kept_walked = shape.n_kept <= shape.n_in_subset / 2;
    u32 first = is_kept_walked ? 0 : shape.n_kept, end = is_kept_walked ? shape.n_kept : shape.n_in_subset;
    if (place >= end - first) return;
    u32 pair = (u32)inverse_of(&permutation, first + place);
    atomicXor(kept + (size_t)run * shape.n_words + pair / 32, 1u << pair % 32);
}

__device__ inline bool has_edge(const Graph &graph, u32 source, u32 destination) {
    // The last of a list is the destination itself.
    u32 low = graph.indptr[destination], high = graph.indptr[destination + 1] - 1;
    if (source == destination) return true;
    while (low < high) {
        u32 middle = (low + high) / 2;
        u32 found = graph.sources[middle];
        if (found == source) return true;
        if (found < source) low = middle + 1;
        else high = middle;
    }
    return false;
}

/// True if a store has an edge; both nodes are ids.
__device__ inline bool is_stored(const StoredLists &lists, u64 source, u64 destination) {
    u32 low = lists.indptr[destination], high = lists.indptr[destination + 1];
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        u32 found = lists.sources[middle];
        if (found == source) return true;
        if (found < source) low = middle + 1;
        else high = middle;
    }
    return false;
}

/// True if a pair is no valid negative. A sampled block lacks edges: `whole` has them all, and is null if the block is
/// the whole graph.
__device__ inline bool is_refused(
    const Graph &graph, const StoredLists &whole, u32 excludes_reverse, u32 source, u32 destination) {
    if (!whole.indptr) {
        return has_edge(graph, source, destination) || (excludes_reverse && has_edge(graph, destination, source));
    }
    u64 from = graph.ids[source], to = graph.ids[destination];
    return from == to || is_stored(whole, from, to) || (excludes_reverse && is_stored(whole, to, from));
}

/// Draws every negative that is kept until it is no edge; counts the pairs of each node, as source and as destination.
KERNEL void kith_draw_negatives(
    Layer layer, Graph graph, StoredLists whole, PairShape shape, const Streams *streams, u32 n_layers, const u32 *kept,
    uint2 *pairs, u32 *counts, u32 *n_left_out) {
    u32 index = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (index >= shape.n_negatives) return;
    counts += (size_t)run * graph.n_sources;
    uint2 pair = make_uint2(NO_PAIR, NO_PAIR);
    if (!shape.is_union || is_kept(kept + (size_t)run * shape.n_words, graph.n_edges + index)) {
        Stream stream = streams[run * n_layers + layer.index].negative;
        u32 attempt = 0;
        for (; attempt < MAX_ATTEMPTS; attempt++) {
            Draws draws = draws_of(stream, shape.slice, index, attempt);
            u32 source = below(&draws, graph.n_sources), destination = below(&draws, graph.n_destinations);
            if (!is_refused(graph, whole, shape.excludes_reverse, source, destination)) {
                pair = make_uint2(source, destination);
                break;
            }
        }
        if (attempt == MAX_ATTEMPTS) {
            atomicAdd(n_left_out + run, 1u);
        } else {
            atomicAdd(counts + pair.x, 1u);
            atomicAdd(counts + pair.y, 1u);
        }
    }
    pairs[(size_t)run * shape.n_negatives + index] = pair;
}

/// Counts the pairs of each node, as source and as destination, that were drawn elsewhere.
KERNEL void kith_count_pairs(u32 n_negatives, const uint2 *pairs, u32 *counts) {
    u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= n_negatives) return;
    atomicAdd(counts + pairs[index].x, 1u);
    atomicAdd(counts + pairs[index].y, 1u);
}

// Nodes whose counts one block adds up.
#define SCAN_NODES 1024

/// Start of each node's pairs within its block of nodes, and the total of the block.
KERNEL void kith_scan_blocks(u32 n_nodes, const u32 *counts, u32 *starts, u32 *totals, u32 n_blocks) {
    __shared__ u32 sums[SCAN_NODES];
    u32 thread = threadIdx.x, run = blockIdx.y, node = blockIdx.x * SCAN_NODES + thread;
    u32 own = node < n_nodes ? counts[(size_t)run * n_nodes + node] : 0;
    sums[thread] = own;
    __syncthreads();
    for (u32 across = 1; across < SCAN_NODES; across *= 2) {
        u32 other = thread >= across ? sums[thread - across] : 0;
        __syncthreads();
        sums[thread] += other;
        __syncthreads();
    }
    if (node < n_nodes) starts[(size_t)run * (n_nodes + 1) + node] = sums[thread] - own;
    if (thread == SCAN_NODES - 1) totals[(size_t)run * n_blocks + blockIdx.x] = sums[thread];
}

/// Adds the totals of the blocks before, and clears the counts for the next use.
KERNEL void kith_scan_add(u32 n_nodes, u32 *counts, u32 *starts, const u32 *totals, u32 n_blocks) {
    __shared__ u32 before;
    u32 thread = threadIdx.x, run = blockIdx.y, node = blockIdx.x * SCAN_NODES + thread;
    totals += (size_t)run * n_blocks;
    if (thread == 0) {
        before = 0;
        for (u32 block = 0; block < blockIdx.x; block++) before += totals[block];
    }
    __syncthreads();
    if (node < n_nodes) {
        starts[(size_t)run * (n_nodes + 1) + node] += before;
        counts[(size_t)run * n_nodes + node] = 0;
    }
    if (node == n_nodes - 1) starts[(size_t)run * (n_nodes + 1) + n_nodes] = before + totals[blockIdx.x];
}

/// Puts each pair into the lists of its two nodes, in any order.
KERNEL void kith_group_pairs(
    u32 n_nodes, u32 n_negatives, const uint2 *pairs, const u32 *starts, u32 *cursors, u32 *codes) {
    u32 index = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (index >= n_negatives) return;
    uint2 pair = pairs[(size_t)run * n_negatives + index];
    if (pair.x == NO_PAIR) return;
    starts += (size_t)run * (n_nodes + 1);
    cursors += (size_t)run * n_nodes;
    codes += (size_t)run * 2 * n_negatives;
    codes[starts[pair.y] + atomicAdd(cursors + pair.y, 1u)] = 2 * index;
    codes[starts[pair.x] + atomicAdd(cursors + pair.x, 1u)] = 2 * index + 1;
}

/// Sorts the list of each node by the index of its pairs and names the partners; clears the cursors. Lists are short: nodes
/// are drawn uniformly.
KERNEL void kith_sort_pairs(
    u32 n_nodes, u32 n_negatives, const uint2 *pairs, const u32 *starts, u32 *cursors, u32 *codes) {
    u32 node = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (node >= n_nodes) return;
    pairs += (size_t)run * n_negatives;
    starts += (size_t)run * (n_nodes + 1);
    codes += (size_t)run * 2 * n_negatives;
    u32 first = starts[node], end = starts[node + 1];
    for (u32 place = first + 1; place < end; place++) {
        u32 code = codes[place], to = place;
        while (to > first && codes[to - 1] > code) {
            codes[to] = codes[to - 1];
            to--;
        }
        codes[to] = code;
    }
    for (u32 place = first; place < end; place++) {
        u32 code = codes[place];
        uint2 pair = pairs[code / 2];
        codes[place] = code % 2 ? pair.y | IS_SOURCE : pair.x;
    }
    cursors[(size_t)run * n_nodes + node] = 0;
}

/// The gradient of one logit in each run: the weight of the edge loss over pairs and heads. Clears the count.
KERNEL void kith_pair_gradients(
    Layer layer, PairShape shape, u32 n_runs, const Settings *settings, u32 *n_left_out, float *pair_gradients,
    u32 *n_pairs) {
    u32 run = blockIdx.x * blockDim.x + threadIdx.x;
    if (run >= n_runs) return;
    u32 n = max(shape.n_pairs - n_left_out[run], 1u);
    n_pairs[run] = n;
    pair_gradients[run] = (float)(settings[run].edge_weight / ((double)n * HEADS));
    n_left_out[run] = 0;
}
