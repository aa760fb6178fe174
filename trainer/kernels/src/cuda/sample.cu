// Neighbor sampling, hop by hop, and the positions of sampled nodes: the same results as sampler/src/slots.rs and
// sampler/client/src/blocks.rs, bit for bit. Nothing depends on the order of threads.
//
// Sizes are known here before the host knows them: grids are as large as a hop may be;
// blocks beyond its end do nothing.

#define SAMPLE_THREADS 256
// Edges, or other numbers, that one thread of a scan adds up, and one block.
#define SCAN_EACH 4
#define SCAN_TILE (SAMPLE_THREADS * SCAN_EACH)
// Most slots that are drawn in registers, and most that are drawn in the thread's own memory.
#define IN_REGISTERS 16
#define MAX_OWN 64
// Table entry of a node: no position, a position, or (with IS_EDGE) the first edge so far that drew it.
#define NO_POSITION 0xffffffffu
#define IS_EDGE 0x80000000u

struct HopSizes {
    u32 n_destinations, n_sources, n_edges;
    // Start of its edges, of the bounds of its lists and of its sources among those of all hops.
    u32 first_edge, first_bound, first_source;
};

// A batch: the arrays of all hops behind one another. One more has sizes than there are hops: that one's destinations
// are all nodes.
struct Sampled {
    HopSizes *hops;
    // Ids by position.
    u64 *ids;
    // Sources are ids until all hops are drawn, and positions then.
    u32 *indptr, *sources, *edge_destinations;
    // By id.
    u32 *table;
    // Sums of the blocks of a scan.
    u32 *totals;
};

__device__ __forceinline__ u32 n_tiles_of(u32 n, u32 tile) { return n > tile ? (n - 1) / tile + 1 : 1; }

/// Sum over the threads before this one, and the total of the block. All threads of a block must call it.
__device__ __forceinline__ u32 sum_before(u32 own, u32 *total) {
    __shared__ u32 sums[SAMPLE_THREADS / 32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = own;
    for (u32 across = 1; across < 32; across *= 2) {
        u32 other = __shfl_up_sync(FULL, sum, across);
        if (lane >= across) sum += other;
    }
    __syncthreads(); // The sums of the last call have been read.
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    u32 before = 0, all = 0;
    for (u32 other = 0; other < SAMPLE_THREADS / 32; other++) {
        if (other < warp) before += sums[other];
        all += sums[other];
    }
    *total = all;
    return before + sum - own;
}

/// Sum over the blocks before this one.
__device__ __forceinline__ u32 blocks_before(const u32 *totals) {
    u32 sum = 0, all;
    for (u32 block = threadIdx.x; block < blockIdx.x; block += SAMPLE_THREADS) sum += totals[block];
    sum_before(sum, &all);
    return all;
}

/// Gives the roots their positions.
KERNEL void kith_place_roots(Sampled sampled, u32 n_roots) {
    u32 position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position == 0) {
        HopSizes first = {n_roots, 0, 0, 0, 0, 0};
        sampled.hops[0] = first;
    }
    if (position < n_roots) sampled.table[sampled.ids[position]] = position;
}

/// Counts the edges of a hop, loops included, by block and all together.
KERNEL void kith_count_neighbors(StoredLists lists, Sampled sampled, u32 hop, u32 fanout) {
    HopSizes *own = sampled.hops + hop;
    u32 n_destinations = own->n_destinations, destination = blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    if (blockIdx.x >= n_tiles_of(n_destinations, SAMPLE_THREADS)) return;
    u32 n = 0, total;
    if (destination < n_destinations) {
        u64 node = sampled.ids[destination];
        n = min(lists.indptr[node + 1] - lists.indptr[node], fanout) + 1;
    }
    sum_before(n, &total);
    if (threadIdx.x == 0) {
        sampled.totals[blockIdx.x] = total;
        atomicAdd(&own->n_edges, total);
    }
}

/// Draws `k` of 0..n, fewer than n, as the definition says: without replacement, a repeated slot becomes the last one. Takes
/// time with the square of k: the CPU has a table for large fanouts, and a thread here has no room for one.
__device__ inline void draw_slots(Stream stream, u64 node, u32 n, u32 k, u32 *slots) {
    Draws draws = draws_of(stream, node, 0, 0);
    for (u32 index = 0; index < k; index++) {
        u32 last = n - k + index;
        u32 slot = below(&draws, last + 1);
        for (u32 before = 0; before < index; before++) {
            if (slots[before] == slot) {
                slot = last;
                break;
            }
        }
        slots[index] = slot;
    }
}

/// The same for few slots, each with the word of its own place; false where one of the words may have to be skipped.
__device__ __forceinline__ bool draw_in_registers(Stream stream, u64 node, u32 n, u32 k, u32 *slots) {
    Words words = {{0, 0, 0, 0}};
    bool is_sure = true;
#pragma unroll
    for (u32 index = 0; index < IN_REGISTERS; index++) {
        if (index % 4 == 0 && index < k) words = words_of(stream, node, 0, 0, index / 4);
        u32 last = n - k + index;
        u64 product = (u64)words.word[index % 4] * (last + 1);
        u32 slot = (u32)(product >> 32);
        is_sure = is_sure && (index >= k || (u32)product >= last + 1);
        bool is_repeated = false;
#pragma unroll
        for (u32 before = 0; before < index; before++) is_repeated = is_repeated || slots[before] == slot;
        slots[index] = is_repeated ? last : slot;
    }
    return is_sure;
}

/// Writes an edge, and remembers the first that drew its source. Edges are counted within the hop.
__device__ __forceinline__ void put_edge(
    const Sampled &sampled, const HopSizes &own, u32 destination, u32 edge, u32 source) {
    sampled.sources[own.first_edge + edge] = source;
    sampled.edge_destinations[own.first_edge + edge] = destination;
    // A position is smaller than any edge and stays.
    atomicMin(sampled.table + source, IS_EDGE | edge);
}

/// Says where lists begin, and draws them. With a fanout above MAX_OWN only slots are drawn, and `kith_take_neighbors`
/// has to follow: then a thread would write long lists alone.
KERNEL void kith_draw_neighbors(StoredLists lists, Sampled sampled, u32 hop, u32 fanout, u64 run_key, u64 step) {
    const HopSizes own = sampled.hops[hop];
    u32 destination = blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    u32 n_tiles = n_tiles_of(own.n_destinations, SAMPLE_THREADS);
    if (blockIdx.x >= n_tiles) return;
    bool is_on = destination < own.n_destinations;
    u64 node = is_on ? sampled.ids[destination] : 0;
    u32 start = is_on ? lists.indptr[node] : 0, n = is_on ? lists.indptr[node + 1] - start : 0;
    u32 k = min(n, fanout), total;
    u32 before = blocks_before(sampled.totals);
    u32 first = before + sum_before(is_on ? k + 1 : 0, &total);
    u32 *indptr = sampled.indptr + own.first_bound;
    if (blockIdx.x == n_tiles - 1 && threadIdx.x == 0) indptr[own.n_destinations] = before + total;
    if (!is_on) return;
    indptr[destination] = first;
    Stream stream = stream_of(run_key, KITH_NEIGHBOR, step, hop);
    if (fanout > MAX_OWN) {
        if (k < n) draw_slots(stream, node, n, k, sampled.sources + own.first_edge + first);
        return;
    }
    const u32 *list = lists.sources + start;
    u32 few[IN_REGISTERS];
    if (k <= IN_REGISTERS && (k == n || draw_in_registers(stream, node, n, k, few))) {
        u32 sources[IN_REGISTERS];
        // All are read before the first is written: they do not wait for each other.
#pragma unroll
        for (u32 index = 0; index < IN_REGISTERS; index++) {
            if (index < k) sources[index] = list[k == n ? index : few[index]];
        }
#pragma unroll
        for (u32 index = 0; index < IN_REGISTERS; index++) {
            if (index < k) put_edge(sampled, own, destination, first + index, sources[index]);
        }
    } else {
        u32 slots[MAX_OWN];
        if (k < n) draw_slots(stream, node, n, k, slots);
        for (u32 index = 0; index < k; index++) {
            put_edge(sampled, own, destination, first + index, list[k == n ? index : slots[index]]);
        }
    }
    put_edge(sampled, own, destination, first + k, (u32)node);
}

// Weights of the stored edges, and for each node the number of its edges with a weight above zero.
struct StoredWeights {
    const float *weights;
    const u32 *n_drawable;
};

/// Number of edges that a node draws by weight.
__device__ __forceinline__ u32 n_weighted(const StoredWeights &weighted, u64 node, u32 fanout) {
    return min(weighted.n_drawable[node], fanout);
}

/// `kith_count_neighbors` for draws by weight.
KERNEL void kith_count_weighted(StoredWeights weighted, Sampled sampled, u32 hop, u32 fanout) {
    HopSizes *own = sampled.hops + hop;
    u32 n_destinations = own->n_destinations, destination = blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    if (blockIdx.x >= n_tiles_of(n_destinations, SAMPLE_THREADS)) return;
    u32 n = destination < n_destinations ? n_weighted(weighted, sampled.ids[destination], fanout) + 1 : 0, total;
    sum_before(n, &total);
    if (threadIdx.x == 0) {
        sampled.totals[blockIdx.x] = total;
        atomicAdd(&own->n_edges, total);
    }
}

/// Says where lists begin that are drawn by weight.
KERNEL void kith_bound_weighted(StoredWeights weighted, Sampled sampled, u32 hop, u32 fanout) {
    const HopSizes own = sampled.hops[hop];
    u32 destination = blockIdx.x * SAMPLE_THREADS + threadIdx.x;
    u32 n_tiles = n_tiles_of(own.n_destinations, SAMPLE_THREADS);
    if (blockIdx.x >= n_tiles) return;
    bool is_on = destination < own.n_destinations;
    u32 n = is_on ? n_weighted(weighted, sampled.ids[destination], fanout) + 1 : 0, total;
    u32 before = blocks_before(sampled.totals);
    u32 first = before + sum_before(n, &total);
    u32 *indptr = sampled.indptr + own.first_bound;
    if (blockIdx.x == n_tiles - 1 && threadIdx.x == 0) indptr[own.n_destinations] = before + total;
    if (is_on) indptr[destination] = first;
}

/// Key of a slot: those with the smallest keys are drawn.
__device__ __forceinline__ double key_of(Stream stream, u64 node, u32 slot, float weight) {
    return __ddiv_rn(exponential_of(stream, node, slot), (double)weight);
}

/// Draws lists by weight, each by a warp: see sampler/src/weighted.rs. `fanout` is at most MAX_OWN.
KERNEL void kith_draw_weighted(
    StoredLists lists, StoredWeights weighted, Sampled sampled, u32 hop, u32 fanout, u64 run_key, u64 step) {
    __shared__ double all_keys[SAMPLE_THREADS / 32][MAX_OWN];
    __shared__ u32 all_slots[SAMPLE_THREADS / 32][MAX_OWN];
    const HopSizes own = sampled.hops[hop];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, destination = blockIdx.x * (SAMPLE_THREADS / 32) + warp;
    if (destination >= own.n_destinations) return;
    u64 node = sampled.ids[destination];
    u32 start = lists.indptr[node], n = lists.indptr[node + 1] - start, k = n_weighted(weighted, node, fanout);
    u32 first = sampled.indptr[own.first_bound + destination];
    const u32 *list = lists.sources + start;
    const float *weights = weighted.weights + start;
    if (weighted.n_drawable[node] <= fanout) {
        // All of them, in the order of the list.
        u32 n_before = 0;
        for (u32 chunk = 0; chunk < n; chunk += 32) {
            u32 slot = chunk + lane;
            bool is_drawn = slot < n && weights[slot] > 0.f;
            u32 drawn = __ballot_sync(FULL, is_drawn);
            u32 place = first + n_before + __popc(drawn & ((1u << lane) - 1));
            if (is_drawn) put_edge(sampled, own, destination, place, list[slot]);
            n_before += __popc(drawn);
        }
    } else {
        Stream stream = stream_of(run_key, KITH_WEIGHTED_NEIGHBOR, step, hop);
        double *keys = all_keys[warp], largest = __longlong_as_double(0x7ff0000000000000ll);
        u32 *slots = all_slots[warp], n_kept = 0;
        for (u32 chunk = 0; chunk < n; chunk += 32) {
            u32 slot = chunk + lane;
            double key = slot < n ? key_of(stream, node, slot, weights[slot]) : largest;
            u32 left = __ballot_sync(FULL, slot < n && key < largest);
            // One after the other, in the order of slots: of equal keys the earlier slot stays.
            while (left != 0) {
                u32 from = (u32)__ffs(left) - 1;
                left &= left - 1;
                double other = __shfl_sync(FULL, key, from);
                if (other >= largest) continue;
                u32 n_now = n_kept == k ? k - 1 : n_kept, low = lane, high = lane + 32;
                double low_key = low < n_now ? keys[low] : other, high_key = high < n_now ? keys[high] : other;
                u32 low_slot = low < n_now ? slots[low] : 0, high_slot = high < n_now ? slots[high] : 0;
                u32 place = __popc(__ballot_sync(FULL, low < n_now && low_key <= other)) +
                            __popc(__ballot_sync(FULL, high < n_now && high_key <= other));
                __syncwarp(); // All have read before anything is moved.
                if (low < n_now && low >= place) {
                    keys[low + 1] = low_key;
                    slots[low + 1] = low_slot;
                }
                if (high < n_now && high >= place) {
                    keys[high + 1] = high_key;
                    slots[high + 1] = high_slot;
                }
                if (lane == 0) {
                    keys[place] = other;
                    slots[place] = chunk + from;
                }
                __syncwarp();
                n_kept = n_now + 1;
                if (n_kept == k) largest = keys[k - 1];
                __syncwarp();
            }
        }
        for (u32 index = lane; index < k; index += 32) put_edge(sampled, own, destination, first + index, list[slots[index]]);
    }
    if (lane == 0) put_edge(sampled, own, destination, first + k, (u32)node);
}

/// Keys of the slots of one node, for tests.
KERNEL void kith_weighted_keys(u32 n, u64 node, u32 hop, u64 run_key, u64 step, const float *weights, double *keys) {
    u32 slot = blockIdx.x * blockDim.x + threadIdx.x;
    if (slot < n) keys[slot] = key_of(stream_of(run_key, KITH_WEIGHTED_NEIGHBOR, step, hop), node, slot, weights[slot]);
}

/// Turns the slots of a hop into edges, each by a thread of its own.
KERNEL void kith_take_neighbors(StoredLists lists, Sampled sampled, u32 hop, u32 fanout) {
    const HopSizes own = sampled.hops[hop];
    u32 edge = blockIdx.x * blockDim.x + threadIdx.x;
    if (edge >= own.n_edges) return;
    const u32 *indptr = sampled.indptr + own.first_bound;
    // The last list that begins at the edge or before it: none is empty.
    u32 low = 0, high = own.n_destinations;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (indptr[middle] <= edge) low = middle;
        else high = middle;
    }
    u64 node = sampled.ids[low];
    u32 start = lists.indptr[node], n = lists.indptr[node + 1] - start, index = edge - indptr[low];
    u32 source = (u32)node;
    if (index < min(n, fanout)) {
        source = lists.sources[start + (n > fanout ? sampled.sources[own.first_edge + edge] : index)];
    }
    put_edge(sampled, own, low, edge, source);
}

/// True if an edge is the first of the batch to draw its source.
__device__ __forceinline__ bool is_first(const Sampled &sampled, const HopSizes &own, u32 edge) {
    return edge < own.n_edges && sampled.table[sampled.sources[own.first_edge + edge]] == (IS_EDGE | edge);
}

/// Counts the new nodes of a hop by block.
KERNEL void kith_count_new(Sampled sampled, u32 hop) {
    const HopSizes own = sampled.hops[hop];
    if (blockIdx.x >= n_tiles_of(own.n_edges, SCAN_TILE)) return;
    u32 first = blockIdx.x * SCAN_TILE + threadIdx.x * SCAN_EACH, n = 0, total;
    for (u32 edge = first; edge < first + SCAN_EACH; edge++) n += is_first(sampled, own, edge);
    sum_before(n, &total);
    if (threadIdx.x == 0) sampled.totals[blockIdx.x] = total;
}

/// Gives the new nodes of a hop their positions, in the order of the edges that drew them first, and says where the next
/// hop begins.
KERNEL void kith_place_new(Sampled sampled, u32 hop) {
    HopSizes own = sampled.hops[hop];
    u32 n_tiles = n_tiles_of(own.n_edges, SCAN_TILE);
    if (blockIdx.x >= n_tiles) return;
    u32 first = blockIdx.x * SCAN_TILE + threadIdx.x * SCAN_EACH, n = 0, total;
    bool is_new[SCAN_EACH];
#pragma unroll
    for (u32 index = 0; index < SCAN_EACH; index++) {
        // Positions that other threads write meanwhile are those of other edges: the answer stays.
        is_new[index] = is_first(sampled, own, first + index);
        n += is_new[index];
    }
    u32 before = own.n_destinations + blocks_before(sampled.totals);
    u32 position = before + sum_before(n, &total);
#pragma unroll
    for (u32 index = 0; index < SCAN_EACH; index++) {
        if (!is_new[index]) continue;
        u32 id = sampled.sources[own.first_edge + first + index];
        sampled.ids[position] = id;
        sampled.table[id] = position++;
    }
    if (blockIdx.x == n_tiles - 1 && threadIdx.x == 0) {
        u32 n_sources = before + total;
        HopSizes next = {n_sources, 0, 0, own.first_edge + own.n_edges, own.first_bound + own.n_destinations + 1,
                         own.first_source + n_sources};
        sampled.hops[hop].n_sources = n_sources;
        sampled.hops[hop + 1] = next;
    }
}

/// Turns the sources of all hops from ids into positions.
KERNEL void kith_relabel(Sampled sampled, u32 n_hops) {
    u32 edge = blockIdx.x * blockDim.x + threadIdx.x;
    if (edge < sampled.hops[n_hops].first_edge) sampled.sources[edge] = sampled.table[sampled.sources[edge]];
}

/// Forgets all positions.
KERNEL void kith_forget_positions(Sampled sampled, u32 n_hops) {
    u32 position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position < sampled.hops[n_hops].n_destinations) sampled.table[sampled.ids[position]] = NO_POSITION;
}

/// Copies words.
KERNEL void kith_copy(u32 n, const u32 *from, u32 *to) {
    u32 place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < n) to[place] = from[place];
}
