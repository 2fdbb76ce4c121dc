// Numbers that the kernels of structure learning share: ln Gamma, binomial coefficients, ranks of sets.
//
// A set {a < b < ... < z} has the colexicographic rank C(a, 1) + C(b, 2) + ... among the sets of its size.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

#ifdef __CUDACC__
#define GRID_CONSTANT const __grid_constant__
#else
#define GRID_CONSTANT const
#define __noinline__
#endif
#define BINOMIAL_SIZES 8  // columns of a table of binomial coefficients, C(c, 0) to C(c, 7)

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }

// ln Gamma(x) for x > 0, by the steps of jtgpu/learn/dags/loops/counts.py: Stirling's series after a shift.
__device__ __noinline__ double log_gamma(double x) {
    double product = 1.0, shift = 0.0;
    while (x < 16.0) {
        product *= x;
        if (product > 1e200) {
            shift += log(product);
            product = 1.0;
        }
        x += 1.0;
    }
    const double y = 1.0 / (x * x);
    const double series = (((-1.0 / 1680.0 * y + 1.0 / 1260.0) * y - 1.0 / 360.0) * y + 1.0 / 12.0) / x;
    return (x - 0.5) * log(x) - x + 0.9189385332046727 + series - log(product) - shift;
}

// ln Gamma(shape + count) - ln Gamma(shape), or count ln count if the shape is 0.
__device__ __noinline__ double count_function(double shape, u32 count) {
    if (count == 0) return 0.0;
    if (shape == 0.0) return count * log((double)count);
    return log_gamma(shape + count) - log_gamma(shape);
}

// The largest c < limit with C(c, j) <= rank.
__device__ __forceinline__ u32 largest_member(const u64* binomials, u32 limit, u32 j, u64 rank) {
    u32 low = 0, high = limit;  // C(low, j) <= rank
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (binomials[middle * BINOMIAL_SIZES + j] <= rank) low = middle;
        else high = middle;
    }
    return low;
}

// The pair a < b of a rank: rank = C(b, 2) + a.
__device__ __forceinline__ void pair_of(u32 rank, u32& a, u32& b) {
    b = (u32)((1.0 + sqrt(1.0 + 8.0 * rank)) * 0.5);
    while (b * (b - 1) / 2 > rank) b--;
    while ((b + 1) * b / 2 <= rank) b++;
    a = rank - b * (b - 1) / 2;
}
