// The parents of a family but the smallest, which a warp takes: its lanes take the smallest, so that scores are written
// consecutively in the published order, child by child, parent sets by size and colexicographic rank.
#include "learn/numbers.cuh"

template <int N_PARENTS>
struct Upper {
    static const int N = N_PARENTS > 1 ? N_PARENTS - 1 : 0;
    u32 child, v;             // counted from the first child of the launch; the variable
    u32 limit;                // numbers below it may be the smallest parent
    u32 squeezed[N + 1];      // [1] to [N]: ascending, of the variables without v
    u64 first;                // of the child's scores, that of the smallest parent 0

    template <typename Families>
    __device__ __forceinline__ Upper(const Families& f, u64 warp) {
        const u64 n_upper = f.binomials[(u64)(f.n - 1) * BINOMIAL_SIZES + N];
        child = (u32)(warp / n_upper);
        v = f.first_child + child;
        u64 rank = warp % n_upper;
        first = f.first;
        limit = f.n - 1;
#pragma unroll
        for (int j = N; j > 0; j--) {
            limit = largest_member(f.binomials, limit, j, rank);
            rank -= f.binomials[limit * BINOMIAL_SIZES + j];
            first += f.binomials[limit * BINOMIAL_SIZES + j + 1];
            squeezed[j] = limit;
        }
    }

    // The variable of a number among those without v.
    __device__ __forceinline__ u32 variable(u32 x) const { return x + (x >= v); }
};
