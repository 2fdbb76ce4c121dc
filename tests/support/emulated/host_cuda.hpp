// Enough of CUDA for g++ to run a kernel on the host: a block's threads are fibers that switch at every barrier and
// shuffle. A thread that waits for one that never arrives is a deadlock, which ends the program. Blocks run one after
// another; with HOST_TOGETHER each in a thread of its own, simultaneously. Between two barriers threads run one after
// another, in an order that `host_order` chooses: a barrier that is missing changes answers in some of them.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#ifdef HOST_TOGETHER
#include <atomic>
#include <chrono>
#include <thread>
#define HOST_OWN thread_local  // every block's own
#else
#define HOST_OWN
#endif
#define __shared__ static HOST_OWN
#define __launch_bounds__(...)

struct uint2 { unsigned x, y; };
struct double2 { double x, y; };
static double2 make_double2(double x, double y) { return {x, y}; }
struct uint4 { unsigned x, y, z, w; };
struct char4 { signed char x, y, z, w; };
struct short4 { short x, y, z, w; };
struct int4 { int x, y, z, w; };
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
struct dim3_ { unsigned x; };
static HOST_OWN dim3_ threadIdx, blockIdx, blockDim, gridDim;
extern "C" { unsigned host_order = 0; }  // 0: as they are numbered, 1: backward, others: seeds of random orders

namespace host {
#ifndef HOST_STACK
#define HOST_STACK 65536
#endif
const unsigned STACK = HOST_STACK;  // bytes of a thread
struct Meeting { unsigned arrived = 0, generation = 0; uint64_t value[2][1024]; };

// A thread's registers, and the switch to another's. swapcontext would call the operating system each time, for signals.
#ifdef __x86_64__
typedef void* Context;
extern "C" void host_swap(Context* from, Context to);
asm(".text\n.hidden host_swap\n.globl host_swap\nhost_swap:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
inline void change(Context& from, Context& to) { host_swap(&from, to); }
inline void begin(Context& c, char* stack, void (*entry)()) {
    void** top = (void**)(((uintptr_t)stack + STACK) & ~(uintptr_t)15) - 2;
    top[0] = (void*)entry;
    c = top - 6;
}
#else
typedef ucontext_t Context;
inline void change(Context& from, Context& to) { swapcontext(&from, &to); }
inline void begin(Context& c, char* stack, void (*entry)()) {
    getcontext(&c);
    c.uc_stack.ss_sp = stack;
    c.uc_stack.ss_size = STACK;
    c.uc_link = nullptr;
    makecontext(&c, entry, 0);
}
#endif

struct Fiber { Context context; bool done; };
static HOST_OWN std::vector<Fiber> fibers;
struct Stacks {  // freed when the library is closed
    char* all = nullptr;
    ~Stacks() { free(all); }
};
static HOST_OWN Stacks stacks;
static HOST_OWN Context home;
static HOST_OWN unsigned current, live;
static HOST_OWN Meeting warps[32], block;
static HOST_OWN const std::function<void()>* body;

inline void entry() {
    (*body)();
    fibers[current].done = true;
    live--;
    change(fibers[current].context, home);
}

inline void pause() {
    unsigned me = current;
    change(fibers[me].context, home);
    threadIdx.x = me;
}

// Wait until `n` threads have arrived; returns the value of each.
inline const uint64_t* meet(Meeting& m, unsigned place, unsigned n, uint64_t value) {
    unsigned g = m.generation;
    m.value[g & 1][place] = value;
    if (++m.arrived == n) {
        m.arrived = 0;
        m.generation++;
    }
    while (m.generation == g) pause();
    return m.value[g & 1];
}

inline const uint64_t* meet_warp(uint64_t value) {
    const unsigned first = threadIdx.x & ~31u, left = blockDim.x - first;
    return meet(warps[threadIdx.x / 32], threadIdx.x % 32, left < 32 ? left : 32, value);
}

// The block makes no progress: is it a deadlock?
#ifdef HOST_TOGETHER
const int PATIENCE = 60;  // seconds in which no block goes on
static std::atomic<unsigned> steps;
inline bool stuck() {
    static thread_local unsigned seen = 0;
    static thread_local auto since = std::chrono::steady_clock::now();
    const unsigned all = steps;
    const auto now = std::chrono::steady_clock::now();
    if (all != seen) since = now;
    seen = all;
    std::this_thread::yield();
    return now - since > std::chrono::seconds(PATIENCE);
}
inline void went_on() { steps++; }
#else
inline bool stuck() { return true; }
inline void went_on() {}
#endif

inline void run_block(unsigned b, unsigned n_blocks, unsigned n_threads, const std::function<void()>& kernel) {
    body = &kernel;
    gridDim.x = n_blocks;
    blockDim.x = n_threads;
    blockIdx.x = b;
    if (fibers.size() < n_threads) {
        fibers.resize(n_threads);
        free(stacks.all);
        stacks.all = (char*)malloc((size_t)n_threads * STACK);
    }
    for (unsigned t = 0; t < n_threads; t++) {
        fibers[t].done = false;
        begin(fibers[t].context, stacks.all + (size_t)t * STACK, entry);
    }
    live = n_threads;
    unsigned random = host_order * (b + 1);
    const auto below = [&](unsigned n) { return (random = random * 1664525u + 1013904223u) / 65536u % n; };
    std::vector<unsigned> turns;
    for (unsigned t = 0; t < n_threads; t++) turns.push_back(host_order == 1 ? n_threads - 1 - t : t);
    for (auto& w : warps) w.arrived = 0;
    block.arrived = 0;
    unsigned before = 0, idle = 0;
    while (live) {
        unsigned progress = block.generation + (n_threads - live);
        for (auto& w : warps) progress += w.generation;
        if (progress != before) went_on();
        idle = progress == before ? idle + 1 : 0;
        before = progress;
        if (idle > (host_order > 1 ? 99 : 2) && stuck()) {
            fprintf(stderr, "deadlock in block %u\n", b);
            abort();
        }
        bool resting[32] = {};
        if (host_order > 1) {  // some warps go ahead of others
            for (unsigned t = n_threads - 1; t; t--) std::swap(turns[t], turns[below(t + 1)]);
            for (bool& r : resting) r = below(2);
        }
        for (unsigned t : turns)
            if (!fibers[t].done && !resting[t / 32]) {
                current = threadIdx.x = t;
                change(home, fibers[t].context);
            }
    }
}

inline void launch(unsigned n_blocks, unsigned n_threads, const std::function<void()>& kernel) {
#ifdef HOST_TOGETHER
    std::vector<std::thread> all;
    for (unsigned b = 0; b < n_blocks; b++) all.emplace_back(run_block, b, n_blocks, n_threads, std::cref(kernel));
    for (auto& t : all) t.join();
#else
    for (unsigned b = 0; b < n_blocks; b++) run_block(b, n_blocks, n_threads, kernel);
#endif
}
}  // namespace host

static inline void __syncthreads() { host::meet(host::block, threadIdx.x, blockDim.x, 0); }
static inline int __syncthreads_or(int x) {
    const uint64_t* v = host::meet(host::block, threadIdx.x, blockDim.x, x != 0);
    for (unsigned t = 0; t < blockDim.x; t++)
        if (v[t]) return 1;
    return 0;
}
static inline void __threadfence() {}
static inline void __trap() { fprintf(stderr, "trap\n"); abort(); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
static inline int __double2hiint(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return (int)(bits >> 32);
}
static inline double __hiloint2double(int high, int low) {
    uint64_t bits = (uint64_t)(unsigned)high << 32 | (unsigned)low;
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
static inline long long __double_as_longlong(double x) {
    long long bits;
    memcpy(&bits, &x, 8);
    return bits;
}
static inline double __longlong_as_double(long long bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
static inline double __shfl_xor_sync(unsigned, double x, unsigned bit) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    const uint64_t* v = host::meet_warp(bits);
    memcpy(&x, &v[(threadIdx.x % 32) ^ bit], 8);
    return x;
}
static inline double __shfl_sync(unsigned, double x, unsigned from) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    const uint64_t* v = host::meet_warp(bits);
    memcpy(&x, &v[from % 32], 8);
    return x;
}
static inline unsigned __shfl_sync(unsigned, unsigned x, unsigned from) { return (unsigned)host::meet_warp(x)[from % 32]; }
static inline int __float_as_int(float x) {
    int bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline float __shfl_xor_sync(unsigned, float x, unsigned bit) {
    const uint64_t* v = host::meet_warp((unsigned)__float_as_int(x));
    return __int_as_float((int)v[(threadIdx.x % 32) ^ bit]);
}
static inline unsigned __float_as_uint(float x) { return (unsigned)__float_as_int(x); }
static inline float __uint_as_float(unsigned bits) { return __int_as_float((int)bits); }
static inline unsigned long long __shfl_xor_sync(unsigned, unsigned long long x, unsigned bit) {
    return host::meet_warp(x)[(threadIdx.x % 32) ^ bit];
}
static inline unsigned __shfl_up_sync(unsigned, unsigned x, unsigned by) {
    const unsigned lane = threadIdx.x % 32;
    return host::meet_warp(x)[lane < by ? lane : lane - by];
}
static inline double __shfl_up_sync(unsigned, double x, unsigned by) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    const uint64_t* v = host::meet_warp(bits);
    const unsigned lane = threadIdx.x % 32;
    memcpy(&x, &v[lane < by ? lane : lane - by], 8);
    return x;
}
static inline unsigned __reduce_min_sync(unsigned, unsigned x) {
    const uint64_t* v = host::meet_warp(x);
    unsigned least = (unsigned)v[0];
    for (int i = 1; i < 32; i++) least = (unsigned)v[i] < least ? (unsigned)v[i] : least;
    return least;
}
static inline unsigned __match_any_sync(unsigned, unsigned x) {
    const uint64_t* v = host::meet_warp(x);
    unsigned who = 0;
    for (unsigned i = 0; i < 32; i++) who |= (unsigned)((unsigned)v[i] == x) << i;
    return who;
}
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
// Directed rounding: the compiler assumes the nearest, so these may be an ulp wider than a GPU's.
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double host_down(double x) { return nextafter(x, -INFINITY); }
static inline double host_up(double x) { return nextafter(x, INFINITY); }
static inline double __dsub_rd(double x, double y) { return host_down(x - y); }
static inline double __dsub_ru(double x, double y) { return host_up(x - y); }
static inline float host_down(float x) { return nextafterf(x, -INFINITY); }
static inline float host_up(float x) { return nextafterf(x, INFINITY); }
static inline float __double2float_rd(double x) { return (double)(float)x > x ? host_down((float)x) : (float)x; }
static inline float __double2float_ru(double x) { return (double)(float)x < x ? host_up((float)x) : (float)x; }
static inline float __fadd_rd(float x, float y) { return __double2float_rd((double)x + y); }  // exact in double, mostly
static inline float __fadd_ru(float x, float y) { return __double2float_ru((double)x + y); }
static inline float __fsub_rd(float x, float y) { return __double2float_rd((double)x - y); }
static inline float __fsub_ru(float x, float y) { return __double2float_ru((double)x - y); }
static inline float __fmul_rd(float x, float y) { return __double2float_rd((double)x * y); }
static inline float __fmul_ru(float x, float y) { return __double2float_ru((double)x * y); }
static inline float __fsqrt_ru(float x) { return __double2float_ru(sqrt((double)x)); }
static inline int __reduce_max_sync(unsigned, int x) {
    const uint64_t* v = host::meet_warp((unsigned)x);
    int most = (int)v[0];
    for (int i = 1; i < 32; i++) most = (int)v[i] > most ? (int)v[i] : most;
    return most;
}
static inline unsigned __shfl_xor_sync(unsigned, unsigned x, unsigned bit) {
    const uint64_t* v = host::meet_warp(x);
    return (unsigned)v[(threadIdx.x % 32) ^ bit];
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline unsigned __ballot_sync(unsigned, bool x) {
    const uint64_t* v = host::meet_warp(x);
    unsigned who = 0;
    for (unsigned i = 0; i < 32; i++) who |= (unsigned)(v[i] != 0) << i;
    return who;
}
static inline void __syncwarp(unsigned = 0) { host::meet_warp(0); }
static inline double __shfl_down_sync(unsigned, double x, unsigned by) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    const uint64_t* v = host::meet_warp(bits);
    const unsigned from = threadIdx.x % 32 + by;
    memcpy(&x, &v[from < 32 ? from : threadIdx.x % 32], 8);
    return x;
}
static inline float __shfl_down_sync(unsigned, float x, unsigned by) {
    const uint64_t* v = host::meet_warp((unsigned)__float_as_int(x));
    const unsigned from = threadIdx.x % 32 + by;
    return __int_as_float((int)v[from < 32 ? from : threadIdx.x % 32]);
}
static inline double atomicAdd(double* at, double x) { double old = *at; *at += x; return old; }
static inline unsigned atomicAdd(unsigned* at, unsigned x) { unsigned old = *at; *at += x; return old; }
static inline unsigned atomicOr(unsigned* at, unsigned x) { unsigned old = *at; *at |= x; return old; }
static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long x) {
    unsigned long long old = *at;
    *at += x;
    return old;
}
static inline int atomicMax(int* at, int x) { int old = *at; *at = x > old ? x : old; return old; }
