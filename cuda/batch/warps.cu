// Expected counts of tables whose cases observe most variables: a warp a case, and only cells that its evidence leaves.
//
//   count_cases,
//   count_large    for each case: the factors' cells, messages and derivatives without an axis of an observed variable,
//                  then the posterior of every family, weighted, is added to the counts
//   count_zero     clears the counts
//   count_round    the counts as doubles
//
// What a case takes depends on what it observes: tables have one state of observed variables, so a network's largest
// table may have one cell. Tables of one cell are computed from such tables by a lane each, all others by the whole
// warp. Cases with many cells or products are done last, by a block each, in few and larger pieces of memory, with the
// same bits; one with too many gets NaN for ln P(e) and adds nothing.
//
// Counts are integers of 128 bits, a power of two of which is 1, so their sums do not depend on the order of additions:
// the same bits from run to run and for any number of GPUs. Bound by instructions and by trips to the L2.
#include "batch/warp_case.cuh"

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

__device__ __forceinline__ int clamped(int e) { return e > 1000 ? 1000 : e < -1000 ? -1000 : e; }

// Add a family's posterior to its counts: factor times derivative times weight / P(e).
template <bool WIDE>
__device__ __forceinline__ void count(const Cases& c, const Case<WIDE>& k, u32 f, double weight) {
    const Axes x = axes_of<true, WIDE>(c.axes[(u64)(c.n_steps + f) * 32 + k.lane], k.seen, k.list, k.lane);
    const Family s = c.families[f];
    u64* const to = c.counts + 2 * ((u64)s.cell + warp_total(x.state * x.by_a));
    const bool alone = s.derivative == NONE;
    const Table t = k.tables[f], d = alone ? Table{1.0, NONE, 0} : k.tables[s.derivative], root = k.tables[s.root];
    const double *const from_t = k.cells_of(f, t), *const from_d = alone ? 0 : k.cells_of(s.derivative, d);
    const int e = t.exponent + d.exponent - root.exponent, half = e / 2;
    const double by_t = power_of_two<double>(clamped(half)), by_d = power_of_two<double>(clamped(e - half));
    const double scale = weight / root.value;
    for (u32 base = 32 * k.warp; base < x.n_out; base += 32 * k.warps) {
        const u32 index = base + k.lane;
        const bool mine = index < x.n_out;
        const uint2 at = cells_at<WIDE>(x, x.open, x.list, mine ? index : 0);
        if (!mine) continue;
        const double by = alone ? by_d : from_d[at.y] * by_d;
        add_exactly(to + 2 * (u64)at.x, from_t[index] * by_t * by * scale, c.shift);
    }
}

// Count a case, unless ln P(e) is below `least`; false: it takes too much.
template <bool WIDE>
__device__ __forceinline__ bool run_case(const Cases& c, u32 at, u32* seen, Case<WIDE> k, double least) {
    const u32 lane = k.lane;
    const bool good = c.width == 1   ? read_codes<signed char>(c, at, seen, lane)
                      : c.width == 2 ? read_codes<short>(c, at, seen, lane)
                                     : read_codes<int>(c, at, seen, lane);
    if (WIDE && k.warp == 0 && lane < 3) k.tops[lane] = 0;
    k.meet();
    k.weights += (u64)at * c.n_weights;
    if (!enter_factors(c, k) || !contract_levels(c, k)) return false;
    const double log_evidence = log_evidence_of(c, k.tables, good);
    if (!lane && !k.warp) c.log_evidence[at] = log_evidence;
    if (!(log_evidence > -INFINITY && log_evidence >= least)) return true;
    const double weight = c.of_case[at];
    for (u32 first = 0; first < c.n_families; first += 32) {
        const u32 f = first + lane;
        bool done = true;
        if (f < c.n_families) {
            u32 cell;
            done = observes<false>(c, seen, f, c.families[f], cell);
            if (done && !k.warp) add_exactly(c.counts + 2 * (u64)cell, weight, c.shift);
        }
        for (u32 left = __ballot_sync(ALL, !done); left; left &= left - 1)
            count(c, k, first + __ffs((int)left) - 1, weight);
    }
    return true;
}

// All cases, a warp each, with the memory that most of them take.
extern "C" __global__ void __launch_bounds__(NARROW_THREADS) count_cases(Cases c, double least) {
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31, at = blockIdx.x * (NARROW_THREADS / 32) + warp;
    if (at >= c.n) return;
    u32* const seen = (u32*)dynamic_shared + warp * (c.n_variables + 1);
    double* const cells = c.cells + (u64)at * c.capacity;
    Case<false> k = {seen, c.weights, cells, c.tables + (u64)at * c.n_tables, 0, 0, lane, 0, 1, 0, 0, 0};
    if (!run_case(c, at, seen, k, least) && !lane) c.left[1 + atomicAdd(c.left, 1u)] = at;
}

// The cases that are left, a block each, with much more memory.
extern "C" __global__ void __launch_bounds__(WIDE_THREADS) count_large(Cases c, double least) {
    __shared__ uint4 lists[WIDE_THREADS / 32][32];
    __shared__ int tops[3];
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n = *c.left;
    u32* const seen = (u32*)dynamic_shared;
    double* const cells = c.cells + (u64)blockIdx.x * c.capacity;
    Table* const tables = c.tables + (u64)blockIdx.x * c.n_tables;
    Case<true> k = {seen, c.weights, cells, tables, lists[warp], tops, lane, warp, WIDE_THREADS / 32, 0, 0, 0};
    for (u32 i = blockIdx.x; i < n; i += gridDim.x) {
        const u32 at = c.left[1 + i];
        __syncthreads();
        if (!run_case(c, at, seen, k, least) && !threadIdx.x) c.log_evidence[at] = NAN;
    }
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
