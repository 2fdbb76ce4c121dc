// Structs and a case's axes, for warps.cu and warp_tables.cu; jtgpu/device/structs.py reads the layouts.
#include "common/types.cuh"

#ifdef __CUDACC__
extern __shared__ uint4 dynamic_shared[];
#else
static uint4 dynamic_shared[1 << 12];
#endif

#define IN_A 0x10000u        // of an axis: the table has it
#define IN_B 0x20000u
#define IN_OUT 0x40000u
#define WEIGHED 0x80000u     // weights of the variable's states multiply this factor
#define ALL 0xffffffffu      // lanes of a warp
#define MOST (1u << 30)      // numbers of cells and products are cut off here

struct Step { u32 out, a, b, pad; };               // tables; b NONE: only one
struct Family { u32 cell, derivative, root, n_axes; };  // its first cell; tables

#ifdef __CUDACC__
struct __align__(16) Table {
#else
struct Table {
#endif
    double value;            // of a table of one cell
    u32 first;               // cell; NONE: the table has one
    int exponent;            // of the power of two that multiplies it
};

struct Cases {
    const void* codes;       // (n, n_variables) signed integers of `width` bytes, -1: not observed
    const double* weights;   // (n, n_weights)
    const u32* weight_row;   // (n_variables,) the first of a variable's weights; NONE: it has none
    const double* of_case;   // (n,) weights of the cases
    double* log_evidence;    // (n,) -inf: impossible, NaN: not counted
    const double* factors;   // all cells of all factors
    const int* exponents;    // (n_families,) powers of two that multiply them
    const Step* steps;       // level by level
    const u32* levels;       // (n_levels + 1,) the first step of each
    const Family* families;
    const uint2* scopes;     // (most axes, n_families) variable and flags; cells of the factor from state to state
    const uint2* axes;       // (steps, then families, 32) the same of a step's inputs, or of a family
    const u32* card;         // (n_variables,)
    const u32* roots;        // (n_roots,) tables
    double* cells;           // (warps, capacity)
    Table* tables;           // (warps, n_tables)
    u64* counts;             // low and high halves, for each cell of each family
    u32* left;               // the number of cases that need more memory, and these
    u32 n, n_variables, n_weights, width;
    u32 n_families, n_steps, n_levels, n_tables;
    u32 n_roots, capacity, most_products;
    int shift;               // 2^shift is 1
};

// The axes of a contraction, one a lane: how many states are left, and cells from state to state.
struct Axes {
    u32 flags, extent, state, by_a, by_b;
    u32 open, out;           // lanes with several states; of these, those of the output
    u32 n_out, n_sum;
    const uint4* list;       // extent, 1 / extent, cells: of axes with several states, the output's and the last first
};

__device__ __forceinline__ u32 last_of(u32 lanes) { return 31 - __clz((int)lanes); }

// The axes of tables without observed variables. IS_FACTOR: `by_a` are cells of a whole factor. LISTED: with `list`.
template <bool IS_FACTOR, bool LISTED>
__device__ __forceinline__ Axes axes_of(uint2 axis, const u32* seen, uint4* list, u32 lane) {
    const u32 what = seen[axis.x & 0xffffu];
    Axes x = {axis.x, what & 0xffffu, what >> 16, IS_FACTOR ? axis.y : 0, 0, 0, 0, 1, 1, list};
    x.open = __ballot_sync(ALL, x.extent > 1);
    x.out = x.open & __ballot_sync(ALL, (x.flags & IN_OUT) != 0);
    u32 a = 1, b = 1;
    for (u32 left = x.open; left;) {
        const u32 i = last_of(left), extent = __shfl_sync(ALL, x.extent, i), flags = __shfl_sync(ALL, x.flags, i);
        left ^= 1u << i;
        if (lane == i) {
            if (!IS_FACTOR) x.by_a = flags & IN_A ? a : 0;
            x.by_b = flags & IN_B ? b : 0;
        }
        if (flags & IN_A) a *= extent;
        if (flags & IN_B) b *= extent;
        u32& n = flags & IN_OUT ? x.n_out : x.n_sum;
        n = (u64)n * extent < MOST ? n * extent : MOST;
    }
    if (LISTED && x.extent > 1) {
        const u32 behind = ~((2u << lane) - 1), sums = x.open & ~x.out;
        const u32 place = x.out >> lane & 1 ? __popc(x.out & behind) : __popc(x.out) + __popc(sums & behind);
        list[place] = uint4{x.extent, __float_as_uint(1.0f / (float)x.extent), x.by_a, x.by_b};
    }
    if (LISTED) __syncwarp();
    return x;
}

// Cells of both inputs for one configuration of some axes, the last one fastest. Not LISTED: all lanes call it. LISTED:
// by a part of the list; less than 2^24 configurations.
template <bool LISTED>
__device__ __forceinline__ uint2 cells_at(const Axes& x, u32 lanes, const uint4* axes, u32 index) {
    uint2 at = uint2{0, 0};
    for (; lanes; axes++) {
        const u32 i = last_of(lanes);
        lanes ^= 1u << i;
        uint4 axis;
        if (LISTED) axis = *axes;
        else axis = uint4{__shfl_sync(ALL, x.extent, i), 0, __shfl_sync(ALL, x.by_a, i), __shfl_sync(ALL, x.by_b, i)};
        u32 rest = 0;
        if (lanes && LISTED) {
            rest = (u32)((float)index * __uint_as_float(axis.y));
            const u32 left = index - rest * axis.x;
            rest = (int)left < 0 ? rest - 1 : left >= axis.x ? rest + 1 : rest;
        } else if (lanes) rest = index / axis.x;
        const u32 digit = index - rest * axis.x;
        at.x += digit * axis.z;
        at.y += digit * axis.w;
        index = rest;
    }
    return at;
}

__device__ __forceinline__ u32 warp_total(u32 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL, x);
#else
    for (u32 bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(ALL, x, bit);
    return x;
#endif
}
