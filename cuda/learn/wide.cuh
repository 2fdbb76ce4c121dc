// Positive numbers beyond the range of doubles, mantissa * 2**exponent, as jtgpu/learn/dags/loops/set_sums.py: they are
// added and multiplied without logarithms. Tables contain natural logarithms.
#include "learn/numbers.cuh"

#define ZERO_EXPONENT (-(1 << 27))  // of 0: a sum of a few is still an int
#define LN2 0.6931471805599453

struct Wide {
    double m;
    int e;
};

__device__ __forceinline__ Wide zero() { return {0.0, ZERO_EXPONENT}; }

// 2**-shift for shift >= 0; 0 from 1023 on.
__device__ __forceinline__ double scale(int shift) {
    return __hiloint2double((1023 - (shift < 1023 ? shift : 1023)) << 20, 0);
}

__device__ __forceinline__ Wide split(double log_x) {
    if (log_x == -infinity()) return zero();
    const double e = floor(log_x * 1.4426950408889634);
    return {exp((log_x - e * 6.93147180369123816490e-01) - e * 1.90821492927058770002e-10), (int)e};
}

__device__ __forceinline__ double log_of(Wide x) { return x.m > 0.0 ? log(x.m) + x.e * LN2 : -infinity(); }

__device__ __forceinline__ void add(Wide& sum, Wide x) {
    if (x.e > sum.e) {
        sum.m *= scale(x.e - sum.e);
        sum.e = x.e;
    }
    sum.m += x.m * scale(sum.e - x.e);
}

__device__ __forceinline__ Wide product(Wide x, Wide y) { return {x.m * y.m, x.e + y.e}; }

// The same number with a mantissa in [1, 2).
__device__ __forceinline__ Wide normalised(Wide x) {
    if (x.m == 0.0) return zero();
    const int high = __double2hiint(x.m);
    return {__longlong_as_double((__double_as_longlong(x.m) & 0xfffffffffffffLL) | 1023LL << 52),
            x.e + (high >> 20) - 1023};
}

// ln(exp(x) + exp(y)).
__device__ __forceinline__ double log_add(double x, double y) {
    const double high = x > y ? x : y, low = x > y ? y : x;
    return low == -infinity() ? high : high + log1p(exp(low - high));
}

// A set of variables without v as a number: the bits above v moved down by one. And back.
__device__ __forceinline__ u32 squeezed(u32 set, u32 v) { return (set & ((1u << v) - 1)) | (set >> (v + 1)) << v; }
__device__ __forceinline__ u32 expanded(u32 mask, u32 v) { return (mask & ((1u << v) - 1)) | (mask >> v) << (v + 1); }

#ifdef __CUDACC__
extern __shared__ double exact_memory[];
#else
static double exact_memory[1 << 15];
#endif
