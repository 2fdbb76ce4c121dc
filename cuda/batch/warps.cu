// Expected counts of tables whose cases observe most variables: a warp a case, and only cells that its evidence leaves.
//
//   count_cases    for each case: the factors' cells, messages and derivatives without an axis of an observed variable,
//                  then the posterior of every family, weighted, is added to the counts
//   count_zero     clears the counts
//   count_round    the counts as doubles
//
// What a case takes depends on what it observes: tables have one state of observed variables, so a network's largest
// table may have one cell. A case with too many cells or products gets NaN for ln P(e) and adds nothing.
//
// Counts are integers of 128 bits, a power of two of which is 1, so their sums do not depend on the order of additions:
// the same bits from run to run and for any number of GPUs. Bound by instructions: some 300 for each contraction.
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

struct Contraction {         // of a factor's cells (no a), of two tables or one (b NONE), or of a family (no out)
    u32 out, a, b;
    u32 axes, n_axes;
    u32 cell;                // of a factor and its counts: the first cell
    u32 root, pad;           // of a family: its component
};

struct Place { u32 first; int exponent; };  // a case's table: its first cell, the power of two that multiplies it

struct Cases {
    const void* codes;       // (n, n_variables) signed integers of `width` bytes, -1: not observed
    const double* weights;   // (n, n_weights)
    const u32* weight_row;   // (n_variables,) the first of a variable's weights; NONE: it has none
    const double* of_case;   // (n,) weights of the cases
    double* log_evidence;    // (n,) -inf: impossible, NaN: not counted
    const double* factors;   // all cells of all factors
    const int* exponents;    // (n_factors,) powers of two that multiply them
    const Contraction* steps;  // factors, then contractions, then families
    const uint2* axes;       // variable and flags; cells of the factor from state to state
    const u32* card;         // (n_variables,)
    const u32* roots;        // (n_roots,) tables
    double* cells;           // (n, capacity)
    Place* tables;           // (n, n_tables)
    u64* counts;             // low and high halves, for each cell of each family
    u32 n, n_variables, n_weights, width;
    u32 n_factors, n_steps, n_tables, n_roots;
    u32 capacity, most_products;
    int shift;               // 2^shift is 1
    u32 pad;
};

// The axes of a contraction, one a lane: how many states are left, and cells from state to state.
struct Axes {
    u32 flags, extent, state, by_a, by_b;
    u32 open, out;           // lanes with several states; of these, those of the output
    u32 n_out, n_sum;
};

__device__ __forceinline__ u32 last_of(u32 lanes) { return 31 - __clz((int)lanes); }

// The axes of tables without observed variables. IS_FACTOR: `by_a` are the cells of a whole factor.
template <bool IS_FACTOR>
__device__ __forceinline__ Axes axes_of(const Cases& c, const Contraction& s, const u32* seen, u32 lane) {
    const bool there = lane < s.n_axes;
    const uint2 axis = there ? c.axes[s.axes + lane] : uint2{0, 0};
    const u32 what = there ? seen[axis.x & 0xffffu] : 1u;
    Axes x = {axis.x, what & 0xffffu, what >> 16, IS_FACTOR ? axis.y : 0, 0, 0, 0, 1, 1};
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
    return x;
}

// Cells of both inputs for one configuration of some axes, the last one fastest. All lanes call it.
__device__ __forceinline__ uint2 cells_at(const Axes& x, u32 lanes, u32 index) {
    uint2 at = uint2{0, 0};
    while (lanes) {
        const u32 i = last_of(lanes), extent = __shfl_sync(ALL, x.extent, i), rest = index / extent;
        const u32 digit = index - rest * extent;
        lanes ^= 1u << i;
        at.x += digit * __shfl_sync(ALL, x.by_a, i);
        at.y += digit * __shfl_sync(ALL, x.by_b, i);
        index = rest;
    }
    return at;
}

__device__ __forceinline__ u32 warp_total(u32 x) {
    for (u32 bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(ALL, x, bit);
    return x;
}

// A factor's cell for the states of the observed variables, and the first state of the others.
__device__ __forceinline__ u32 observed_cell(const Axes& x) { return warp_total(x.state * x.by_a); }

// Add to an integer of 128 bits.
__device__ __forceinline__ void add_exactly(u64* sum, double x, int shift) {
    const u64 bits = (u64)__double_as_longlong(x), digits = (bits & ((1ull << 52) - 1)) | 1ull << 52;
    const int e = (int)(bits >> 52 & 2047u), by = e - 1075 + shift;
    if (!e || by < -53) return;
    u64 low, high = 0;
    if (by < 0) low = (digits + (1ull << (-by - 1))) >> -by;
    else if (by < 64) low = digits << by, high = by ? digits >> (64 - by) : 0;
    else low = 0, high = digits << (by - 64);
    if (bits >> 63) low = 0 - low, high = ~high + !low;
    if (low) high += atomicAdd(sum, low) + low < low;
    if (high) atomicAdd(sum + 1, high);
}

// A warp's case.
struct Case {
    const u32* seen;         // (n_variables,) number of states that are left; the state that is observed, times 2^16
    const double* weights;
    double* cells;
    Place* tables;
    u32 lane, at, n_products;

    // Make room for a table of n cells that takes so many products; false: there is none.
    __device__ __forceinline__ bool begins(const Cases& c, const Axes& x) {
        const u64 products = (u64)x.n_out * x.n_sum + n_products;
        if ((u64)at + x.n_out > c.capacity || products > c.most_products) return false;
        n_products = (u32)products;
        return true;
    }

    // Publish the table at `at`, scaled if its largest cell is far from 1.
    __device__ __forceinline__ void ends(u32 table, u32 n, int top, int exponent) {
        top = warp_max(top);
        const int by = top ? shift_of<double>(top) : 0;
        __syncwarp();
        if (by) {
            const double scale = power_of_two<double>(-by);
            for (u32 i = lane; i < n; i += 32) cells[at + i] *= scale;
        }
        if (!lane) tables[table] = Place{at, exponent + by};
        at += n;
        __syncwarp();
    }
};

// What evidence leaves of a factor.
__device__ __forceinline__ bool enter(const Cases& c, Case& k, const Contraction& s) {
    Axes x = axes_of<true>(c, s, k.seen, k.lane);
    if (!k.begins(c, x)) return false;
    const double* const from = c.factors + s.cell + observed_cell(x);
    u32 row = NONE, weighed = 0;
    double scale = 1.0;
    if (c.n_weights) {
        if (x.flags & WEIGHED) row = c.weight_row[x.flags & 0xffffu];
        weighed = __ballot_sync(ALL, row != NONE);
        for (u32 left = weighed & ~x.open; left; left &= left - 1) {
            const u32 i = last_of(left & (0 - left));
            scale *= k.weights[__shfl_sync(ALL, row, i) + __shfl_sync(ALL, x.state, i)];
        }
    }
    int top = 0;
    for (u32 base = 0; base < x.n_out; base += 32) {
        const u32 index = base + k.lane;
        const bool mine = index < x.n_out;
        const uint2 at = cells_at(x, x.open, mine ? index : 0);
        double value = from[at.x] * scale;
        for (u32 lanes = weighed ? x.open : 0, rest = mine ? index : 0; lanes;) {
            const u32 i = last_of(lanes), extent = __shfl_sync(ALL, x.extent, i);
            const u32 first = __shfl_sync(ALL, row, i);
            if (weighed >> i & 1) value *= k.weights[first + rest % extent];
            rest /= extent;
            lanes ^= 1u << i;
        }
        if (mine) {
            k.cells[k.at + index] = value;
            const int word = word_of(value);
            top = word > top ? word : top;
        }
    }
    k.ends(s.out, x.n_out, top, c.exponents[s.out]);
    return true;
}

// Lanes share the outputs, and each sum if there are few of these.
__device__ __forceinline__ bool contract(const Cases& c, Case& k, const Contraction& s) {
    Axes x = axes_of<false>(c, s, k.seen, k.lane);
    if (!k.begins(c, x)) return false;
    const bool alone = s.b == NONE;
    const Place a = k.tables[s.a], b = alone ? Place{0, 0} : k.tables[s.b];
    const double *const from_a = k.cells + a.first, *const from_b = k.cells + b.first;
    u32 log_parts = 0;
    if (x.n_sum > 1 && x.n_out <= 16) log_parts = __clz((int)(x.n_out - 1)) - 27;
    if (x.n_sum > 1 && x.n_out == 1) log_parts = 5;
    const u32 parts = 1u << log_parts, part = k.lane & (parts - 1), sums = x.open & ~x.out;
    int top = 0;
    for (u32 base = 0; base < x.n_out; base += 32 >> log_parts) {
        const u32 index = base + (k.lane >> log_parts);
        const bool mine = index < x.n_out;
        const uint2 at = cells_at(x, x.out, mine ? index : 0);
        double sum = 0.0;
        for (u32 first = 0; first < x.n_sum; first += parts) {
            const u32 j = first + part;
            const uint2 by = cells_at(x, sums, j < x.n_sum ? j : 0);
            const double product = from_a[at.x + by.x] * (alone ? 1.0 : from_b[at.y + by.y]);
            sum += j < x.n_sum ? product : 0.0;
        }
        for (u32 bit = parts >> 1; bit; bit >>= 1) sum += __shfl_xor_sync(ALL, sum, bit);
        if (mine && !part) {
            k.cells[k.at + index] = sum;
            const int word = word_of(sum);
            top = word > top ? word : top;
        }
    }
    k.ends(s.out, x.n_out, top, a.exponent + b.exponent);
    return true;
}

__device__ __forceinline__ int clamped(int e) { return e > 1000 ? 1000 : e < -1000 ? -1000 : e; }

// Add a family's posterior to its counts: factor times derivative times weight / P(e).
__device__ __forceinline__ void count(const Cases& c, const Case& k, const Contraction& s, double weight) {
    const Axes x = axes_of<true>(c, s, k.seen, k.lane);
    u64* const to = c.counts + 2 * ((u64)s.cell + observed_cell(x));
    if (x.n_out == 1) {
        if (!k.lane) add_exactly(to, weight, c.shift);
        return;
    }
    const bool alone = s.b == NONE;
    const Place t = k.tables[s.a], d = alone ? Place{0, 0} : k.tables[s.b], root = k.tables[c.roots[s.root]];
    const int e = t.exponent + d.exponent - root.exponent, half = e / 2;
    const double by_t = power_of_two<double>(clamped(half)), by_d = power_of_two<double>(clamped(e - half));
    const double scale = weight / k.cells[root.first];
    for (u32 base = 0; base < x.n_out; base += 32) {
        const u32 index = base + k.lane;
        const bool mine = index < x.n_out;
        const uint2 at = cells_at(x, x.open, mine ? index : 0);
        if (!mine) continue;
        const double value = k.cells[t.first + index] * by_t * (alone ? by_d : k.cells[d.first + at.y] * by_d) * scale;
        add_exactly(to + 2 * (u64)at.x, value, c.shift);
    }
}

template <class T>
__device__ __forceinline__ bool read_codes(const Cases& c, u32 at, u32* seen, u32 lane) {
    const T* const codes = (const T*)c.codes + (u64)at * c.n_variables;
    bool good = true;
    for (u32 v = lane; v < c.n_variables; v += 32) {
        const int code = codes[v];
        const u32 card = c.card[v];
        good &= code < (int)card;
        seen[v] = code < 0 ? card : 1u | (code < (int)card ? (u32)code : 0u) << 16;
    }
    return !__ballot_sync(ALL, !good);
}

extern "C" __global__ void __launch_bounds__(128) count_cases(Cases c) {
    const u32 warp = threadIdx.x >> 5, at = blockIdx.x * (blockDim.x >> 5) + warp, lane = threadIdx.x & 31;
    if (at >= c.n) return;
    u32* const seen = (u32*)dynamic_shared + warp * c.n_variables;
    const bool good = c.width == 1   ? read_codes<signed char>(c, at, seen, lane)
                      : c.width == 2 ? read_codes<short>(c, at, seen, lane)
                                     : read_codes<int>(c, at, seen, lane);
    __syncwarp();
    const u64 row = at;
    Case k = {seen, c.weights + row * c.n_weights, c.cells + row * c.capacity, c.tables + row * c.n_tables, lane, 0, 0};
    bool fits = true;
    for (u32 i = 0; i < c.n_steps && fits; i++) {
        const Contraction s = c.steps[i];
        fits = i < c.n_factors ? enter(c, k, s) : contract(c, k, s);
    }
    double log_evidence = good ? 0.0 : -INFINITY;
    for (u32 i = 0; i < c.n_roots && fits; i++) {
        const Place root = k.tables[c.roots[i]];
        const double value = k.cells[root.first];
        log_evidence += value > 0.0 ? log(value) + root.exponent * 0.693147180559945309417 : -INFINITY;
    }
    if (!lane) c.log_evidence[at] = fits ? log_evidence : NAN;
    if (!fits || !(log_evidence > -INFINITY)) return;
    const double weight = c.of_case[at];
    for (u32 i = 0; i < c.n_factors; i++) count(c, k, c.steps[c.n_steps + i], weight);
}

extern "C" __global__ void __launch_bounds__(256) count_zero(u64* counts, u32 n) {
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) counts[at] = 0;
}

// The counts of some cells as doubles.
extern "C" __global__ void __launch_bounds__(256) count_round(
    const u64* counts, const u32* place, double* total, u32 n, int shift) {
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    u64 low = counts[2 * (u64)place[at]], high = counts[2 * (u64)place[at] + 1];
    const bool negative = high >> 63;
    if (negative) low = 0 - low, high = ~high + !low;
    const double x = ldexp((double)high, 64 - shift) + ldexp((double)low, -shift);
    total[at] = negative ? -x : x;
}
