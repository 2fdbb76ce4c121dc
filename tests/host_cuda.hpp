// Enough of CUDA for g++ to run a kernel of cuda/resident/ on the host: a block's threads are fibers that take turns
// at every barrier and shuffle. A thread that waits for one that never comes is a deadlock, and ends the program.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct dim3_ { unsigned x; };
static dim3_ threadIdx, blockIdx, blockDim, gridDim;

namespace host {
const unsigned STACK = 64 * 1024;
struct Meeting { unsigned arrived = 0, generation = 0; uint64_t value[2][1024]; };
struct Fiber { ucontext_t context; bool done; };
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static ucontext_t home;
static unsigned current, live;
static Meeting warps[32], block;
static const std::function<void()>* body;

inline void entry() {
    (*body)();
    fibers[current].done = true;
    live--;
    swapcontext(&fibers[current].context, &home);
}

inline void pause() {
    unsigned me = current;
    swapcontext(&fibers[me].context, &home);
    threadIdx.x = me;
}

// Wait until `n` threads are here; what each of them brought.
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
    return meet(warps[threadIdx.x / 32], threadIdx.x % 32, 32, value);
}

inline void launch(unsigned n_blocks, unsigned n_threads, const std::function<void()>& kernel) {
    body = &kernel;
    gridDim.x = n_blocks;
    blockDim.x = n_threads;
    if (fibers.size() < n_threads) {
        fibers.resize(n_threads);
        stacks.resize((size_t)n_threads * STACK);
    }
    for (unsigned b = 0; b < n_blocks; b++) {
        blockIdx.x = b;
        for (unsigned t = 0; t < n_threads; t++) {
            Fiber& f = fibers[t];
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = stacks.data() + (size_t)t * STACK;
            f.context.uc_stack.ss_size = STACK;
            f.context.uc_link = nullptr;
            f.done = false;
            makecontext(&f.context, entry, 0);
        }
        live = n_threads;
        for (auto& w : warps) w.arrived = 0;
        block.arrived = 0;
        unsigned before = 0, idle = 0;
        while (live) {
            unsigned progress = block.generation + (n_threads - live);
            for (auto& w : warps) progress += w.generation;
            idle = progress == before ? idle + 1 : 0;
            before = progress;
            if (idle > 2) {
                fprintf(stderr, "deadlock in block %u\n", b);
                abort();
            }
            for (unsigned t = 0; t < n_threads; t++)
                if (!fibers[t].done) {
                    current = threadIdx.x = t;
                    swapcontext(&home, &fibers[t].context);
                }
        }
    }
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
static inline double __shfl_xor_sync(unsigned, double x, unsigned bit) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    const uint64_t* v = host::meet_warp(bits);
    memcpy(&x, &v[(threadIdx.x % 32) ^ bit], 8);
    return x;
}
static inline int __reduce_max_sync(unsigned, int x) {
    const uint64_t* v = host::meet_warp((unsigned)x);
    int most = (int)v[0];
    for (int i = 1; i < 32; i++) most = (int)v[i] > most ? (int)v[i] : most;
    return most;
}
static inline void __syncwarp() { host::meet_warp(0); }
static inline unsigned atomicAdd(unsigned* at, unsigned x) { unsigned old = *at; *at += x; return old; }
static inline int atomicMax(int* at, int x) { int old = *at; *at = x > old ? x : old; return old; }
