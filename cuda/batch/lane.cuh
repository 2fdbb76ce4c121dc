// What a generated batch kernel uses: one thread answers one case, from its evidence to its posteriors.
//
// jtgpu/backends/gpu/batch/codegen.py generates the rest for one network: every contraction as straight-line code over
// the entries that can be other than zero, tables in registers, factors in constant memory. No thread waits for
// another. A network that is too large for one kernel has several; what a later one reads is in the thread's scratch
// memory, whose bandwidth is then the limit. Wins wherever it compiles soon enough: up to 5,500 lines a host core.
#include "common/types.cuh"

struct Lane {
    double* arena;            // scratch memory: [block][cell][thread]
    const double* factors;    // as the constant memory of the kernel holds them; used by the host's compiler alone
    const int* state;         // (V, n_cases), -1: not observed
    const double* weight;     // (rows, n_cases)
    const u32* weight_row;    // (V,) the first row of a variable's weights; NONE: it has none
    const u32* column;        // (V,) the first number of a variable's posterior; NONE: not wanted
    double* posterior;        // (n_out, n_cases)
    double* log_evidence;     // (n_cases,), -inf: impossible
    u32 n_cases, n_out;
};

// What kernels that count need as well (jtgpu/backends/gpu/counts/generated.py).
struct Weighted {
    const double* of_case;    // (n,) weights of the cases
    double least;             // least P(e) of a component that is computed with all digits
    u32 n, is_exact;          // is_exact: a component below `least` is impossible; otherwise the case is lost
};

// What evidence leaves of a number that belongs to state k of a variable.
__device__ __forceinline__ double observed(double x, int state, int k) { return state < 0 || state == k ? x : 0.0; }

__device__ __forceinline__ double weighted(const Lane& b, double x, int state, u32 row, int k, u32 at) {
    x = observed(x, state, k);
    return row == NONE ? x : x * b.weight[(u64)(row + k) * b.n_cases + at];
}

__device__ __forceinline__ double log_of(double x) { return x > 0.0 ? log(x) : -INFINITY; }

// Load a number of the thread's scratch memory here: the compiler would reuse the stored one, and spill it meanwhile.
__device__ __forceinline__ double load(const double* from) {
#ifdef __CUDACC__
    double x;
    asm volatile("ld.global.f64 %0, [%1];" : "=d"(x) : "l"(from) : "memory");
    return x;
#else
    return *from;
#endif
}
