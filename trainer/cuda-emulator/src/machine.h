// Emulator that runs CUDA kernels on the CPU, slowly and one block after the other, for tests without a GPU. Threads of
// a block are fibers; they take turns where a kernel waits for others, and nowhere else.
#pragma once
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#define KERNEL static
#define __device__ static
#define __forceinline__ inline
#define __shared__ static

using std::max;
using std::min;

struct uint3_ {
    unsigned x, y, z;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

static uint3_ threadIdx, blockIdx, blockDim, gridDim;

namespace machine {

constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 256 << 10;

// Barrier of a warp or a block.
struct Meeting {
    unsigned n_expected = 0, n_here = 0, turn = 0;
    uint64_t values[2][WARP] = {};

    void arrive() {
        if (++n_here == n_expected) open();
    }
    void leave() {
        n_expected--;
        if (n_expected > 0 && n_here == n_expected) open();
    }
    void open() {
        n_here = 0;
        turn++;
    }
};

#if defined(__x86_64__)
// Saved state of a fiber: the registers that a function must keep are on its stack. Avoids the system calls of
// swapcontext, since kernels wait for each other all the time.
struct Context {
    void *stack;
};

extern "C" void kith_cuda_emulator_switch(Context *from, Context *to);
asm(R"(
.text
.globl kith_cuda_emulator_switch
.hidden kith_cuda_emulator_switch
kith_cuda_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

static inline void begin(Context &context, char *stack, size_t n_bytes, void (*entry)()) {
    // As if `entry` had been called: its return address is nobody's, and the stack stands as a call leaves it.
    uintptr_t top = ((uintptr_t)stack + n_bytes) & ~(uintptr_t)15;
    void **place = (void **)top;
    *--place = nullptr;
    *--place = (void *)entry;
    for (int saved = 0; saved < 6; saved++) *--place = nullptr;
    context.stack = place;
}

static inline void switch_to(Context &from, Context &to) { kith_cuda_emulator_switch(&from, &to); }
#else
using Context = ucontext_t;

static inline void begin(Context &context, char *stack, size_t n_bytes, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = n_bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}

static inline void switch_to(Context &from, Context &to) { swapcontext(&from, &to); }
#endif

struct Fiber {
    Context context;
    std::vector<char> stack;
    bool is_done = true;
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Meeting> warps;
    Meeting all;
    unsigned current = 0;
    Context outside;
    void (*body)(void *) = nullptr;
    void *work = nullptr;
};

static Block block;

static inline void set_thread(unsigned thread) {
    block.current = thread;
    threadIdx = {thread, 0, 0};
}

static void enter() {
    block.body(block.work);
    Fiber &fiber = block.fibers[block.current];
    fiber.is_done = true;
    block.warps[block.current / WARP].leave();
    block.all.leave();
    switch_to(fiber.context, block.outside);
    abort();
}

static inline void yield_now() {
    switch_to(block.fibers[block.current].context, block.outside);
}

static inline void wait(Meeting &meeting) {
    unsigned turn = meeting.turn;
    meeting.arrive();
    while (meeting.turn == turn) yield_now();
}

/// Runs all threads of one block to their ends.
static void run_block(unsigned n_threads) {
    block.fibers.resize(n_threads > block.fibers.size() ? n_threads : block.fibers.size());
    block.warps.assign((n_threads + WARP - 1) / WARP, Meeting());
    block.all = Meeting();
    block.all.n_expected = n_threads;
    for (unsigned thread = 0; thread < n_threads; thread++) {
        block.warps[thread / WARP].n_expected++;
        Fiber &fiber = block.fibers[thread];
        fiber.stack.resize(STACK_BYTES);
        fiber.is_done = false;
        begin(fiber.context, fiber.stack.data(), fiber.stack.size(), enter);
    }
    for (bool is_done = false; !is_done;) {
        is_done = true;
        for (unsigned thread = 0; thread < n_threads; thread++) {
            if (block.fibers[thread].is_done) continue;
            set_thread(thread);
            switch_to(block.outside, block.fibers[thread].context);
            is_done = is_done && block.fibers[thread].is_done;
        }
    }
}

template <class T> T exchange(T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "a register or two");
    Meeting &warp = block.warps[block.current / WARP];
    unsigned parity = warp.turn % 2;
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    warp.values[parity][block.current % WARP] = bits;
    // Reads of the other turn use the other half: no thread is two turns ahead.
    wait(warp);
    T other;
    memcpy(&other, &warp.values[parity][from % WARP], sizeof(T));
    return other;
}

template <class... Args, size_t... Places>
void call(void (*kernel)(Args...), void **args, std::index_sequence<Places...>) {
    kernel(*static_cast<std::remove_reference_t<Args> *>(args[Places])...);
}

template <class... Args>
void launch(void (*kernel)(Args...), unsigned const grid[3], unsigned n_threads, void **args) {
    struct Work {
        void (*kernel)(Args...);
        void **args;
    } work = {kernel, args};
    block.work = &work;
    block.body = [](void *work) {
        Work *own = static_cast<Work *>(work);
        call(own->kernel, own->args, std::index_sequence_for<Args...>());
    };
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {n_threads, 1, 1};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                run_block(n_threads);
            }
}

} // namespace machine

template <class T> T __shfl_xor_sync(unsigned, T value, unsigned across) {
    return machine::exchange(value, machine::block.current % machine::WARP ^ across);
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned across) {
    unsigned lane = machine::block.current % machine::WARP;
    return machine::exchange(value, lane < across ? lane : lane - across);
}
template <class T> T __shfl_sync(unsigned, T value, unsigned from) { return machine::exchange(value, from); }
template <class T> unsigned __match_any_sync(unsigned, T value) {
    // All values of this turn stay readable until the next but one: see exchange.
    unsigned parity = machine::block.warps[machine::block.current / machine::WARP].turn % 2, same = 0;
    machine::exchange(value, 0);
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    const machine::Meeting &warp = machine::block.warps[machine::block.current / machine::WARP];
    for (unsigned lane = 0; lane < machine::WARP; lane++) same |= (unsigned)(warp.values[parity][lane] == bits) << lane;
    return same;
}
static inline unsigned __ballot_sync(unsigned, bool value) {
    unsigned parity = machine::block.warps[machine::block.current / machine::WARP].turn % 2, set = 0;
    machine::exchange((unsigned)value, 0);
    const machine::Meeting &warp = machine::block.warps[machine::block.current / machine::WARP];
    for (unsigned lane = 0; lane < machine::WARP; lane++) set |= (unsigned)(warp.values[parity][lane] != 0) << lane;
    return set;
}
static inline void __syncwarp() { machine::wait(machine::block.warps[machine::block.current / machine::WARP]); }
static inline int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __longlong_as_double(long long bits) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
static inline long long __double_as_longlong(double value) {
    long long bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}
static inline unsigned __popc(unsigned bits) { return (unsigned)__builtin_popcount(bits); }
static inline void __syncthreads() { machine::wait(machine::block.all); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value) {
    unsigned long long before = *to;
    *to += value;
    return before;
}

static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline unsigned atomicAdd(unsigned *to, unsigned value) {
    unsigned before = *to;
    *to += value;
    return before;
}
static inline unsigned atomicMin(unsigned *to, unsigned value) {
    unsigned before = *to;
    *to = value < before ? value : before;
    return before;
}
static inline unsigned atomicXor(unsigned *to, unsigned value) {
    unsigned before = *to;
    *to ^= value;
    return before;
}
