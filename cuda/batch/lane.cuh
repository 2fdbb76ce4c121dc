// What a generated batch kernel stands on: one thread answers one case, from its evidence to its posteriors.
//
// jtgpu/backends/gpu/batch/partition.py has the rest written for one network: every contraction as straight-line code over
// the cells that can be other than zero, tables in registers, factors in constant memory. No thread waits for another.
// Where one kernel is not enough, batch_kept.py says what waits in registers, in shared memory, and in the thread's
// scratch memory on the card, whose bandwidth is then the limit. Wins wherever it can be compiled soon enough, which is
// up to 5,500 lines a processor of the host.
#include "common/types.cuh"

struct Lane {
    double* arena;            // scratch memory: [block][cell][thread]
    const double* factors;    // as the constant memory of the kernel holds them; the host's compiler has none
    const int* state;         // (V, n_cases), -1: not known
    const double* weight;     // (rows, n_cases)
    const u32* weight_row;    // (V,) the first row of a variable's weights; NONE: it has none
    const u32* column;        // (V,) the first number of a variable's posterior; NONE: not wanted
    double* posterior;        // (n_out, n_cases)
    double* log_evidence;     // (n_cases,), -inf: impossible
    u32 n_cases, n_out;
};

// What evidence leaves of a number that belongs to state k of a variable.
__device__ __forceinline__ double observed(double x, int state, int k) { return state < 0 || state == k ? x : 0.0; }

__device__ __forceinline__ double weighed(const Lane& b, double x, int state, u32 row, int k, u32 at) {
    x = observed(x, state, k);
    return row == NONE ? x : x * b.weight[(u64)(row + k) * b.n_cases + at];
}

__device__ __forceinline__ double log_of(double x) { return x > 0.0 ? log(x) : -INFINITY; }

// A number of the thread's scratch memory, now: not one that the compiler has kept since it was stored.
__device__ __forceinline__ double fetch(const double* from) {
#ifdef __CUDACC__
    double x;
    asm volatile("ld.global.f64 %0, [%1];" : "=d"(x) : "l"(from) : "memory");
    return x;
#else
    return *from;
#endif
}

// Numbers of the thread in shared memory, and now: not such as the compiler has kept since they were stored, for that
// takes registers, of which there are too few.
#if defined(KEPT) && KEPT > 0
#ifdef __CUDACC__
extern __shared__ double memory[];
#else
static double memory[KEPT];  // blocks run one after the other
#endif

__device__ __forceinline__ double kept(const double* from) {
#ifdef __CUDACC__
    double x;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"((u32)__cvta_generic_to_shared(from)));
    return x;
#else
    return *from;
#endif
}

__device__ __forceinline__ void keep(double* to, double x) {
#ifdef __CUDACC__
    asm volatile("st.shared.f64 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(to)), "d"(x));
#else
    *to = x;
#endif
}
#endif
