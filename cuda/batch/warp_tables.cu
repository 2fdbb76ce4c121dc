// Posteriors of tables whose cases observe most variables: a warp a case, and only cells that its evidence leaves.
//
//   answer_cases   for each case: factors and messages to the roots, hence ln P(e); then the posteriors that are wanted
//                  of variables that it does not observe, and the messages that these need
//   answer_large   the same by a block each, with much more memory, of the cases that took too much
//
// A message away from the roots that has one cell is the number 1, since posteriors are normalised: so what is beyond
// observed variables is not computed. A case that observes nothing or that takes much too much gets NaN for ln P(e).
#include "batch/warp_case.cuh"

// Steps below `n_steps` up to the last of n_levels are messages to the roots; step i makes table n_families + i.
struct Wanted {
    const u32* columns;      // (n_columns,) variables, if evidence comes as columns; as rows the width of codes is 0
    const uint2* answers;    // (n_answers,) variable and its table
    const uint2* numbers;    // (n_out,) what is written: variable and 2^16 times the state; its table
    double* posterior;
    u64 by_number, by_case;  // from number to number, from case to case
    u32 n_columns, stride, n_answers, n_out;
    u32 n_down, words;       // levels of the other steps; shared memory of a case
};

// The states of a case in a table of columns, (n_columns, stride).
template <class T>
__device__ __forceinline__ bool read_columns(const Cases& c, const Wanted& w, u32 at, u32* seen, u32 lane) {
    bool good = true;
    for (u32 v = lane; v <= c.n_variables; v += 32) seen[v] = v < c.n_variables ? c.card[v] : 1;
    __syncwarp();
    for (u32 i = lane; i < w.n_columns; i += 32) {
        const int code = ((const T*)c.codes)[(u64)i * w.stride + at];
        const u32 v = w.columns[i];
        good &= code < (int)c.card[v];
        if (code >= 0) seen[v] = 1u | (code < (int)c.card[v] ? (u32)code : 0u) << 16;
    }
    return !__ballot_sync(ALL, !good);
}

__device__ __forceinline__ bool several(const u32* seen, u32 v) { return (seen[v] & 0xffffu) > 1; }

// The axes of the first of some steps, if there is one, a lane each.
__device__ __forceinline__ uint2 axis_of(const Cases& c, u32 first, u32 left, u32 lane) {
    return left ? c.axes[(u64)(first + __ffs((int)left) - 1) * 32 + lane] : uint2{0, 0};
}

// Which steps away from the roots, a bit each, are needed; tables of one cell become the number 1.
template <bool WIDE>
__device__ __forceinline__ void find_needed(
    const Cases& c, const Case<WIDE>& k, const Wanted& w, u32 first_down, u32* bits) {
    const u32 n_down = c.n_steps - first_down, made = c.n_families + first_down;
    for (u32 i = k.lane; i < (n_down + 31) / 32; i += 32) bits[i] = 0;
    __syncwarp();
    for (u32 i = k.lane; i < w.n_answers; i += 32) {
        const uint2 a = w.answers[i];
        if (a.y >= made && several(k.seen, a.x)) atomicOr(bits + (a.y - made) / 32, 1u << (a.y - made) % 32);
    }
    for (u32 level = c.n_levels + w.n_down; level-- > c.n_levels;) {
        __syncwarp();
        const u32 end = c.levels[level + 1];
        for (u32 first = c.levels[level]; first < end; first += 32) {
            const u32 mine = first + k.lane - first_down;
            const bool needed = first + k.lane < end && bits[mine / 32] >> mine % 32 & 1;
            bool open = false;
            u32 left = __ballot_sync(ALL, needed), next = axis_of(c, first, left, k.lane).x;
            while (left) {
                const u32 i = __ffs((int)left) - 1, flags = next;
                left &= left - 1;
                next = axis_of(c, first, left, k.lane).x;
                const bool any = __ballot_sync(ALL, flags & IN_OUT && several(k.seen, flags & 0xffffu)) != 0;
                if (k.lane == i) open = any;
            }
            if (!needed) continue;
            const Step s = c.steps[first + k.lane];
            if (!open) {
                k.tables[s.out] = Table{1.0, NONE, 0};
                atomicAdd(bits + mine / 32, 0u - (1u << mine % 32));  // clears it
                continue;
            }
            if (s.a >= made) atomicOr(bits + (s.a - made) / 32, 1u << (s.a - made) % 32);
            if (s.b != NONE && s.b >= made) atomicOr(bits + (s.b - made) / 32, 1u << (s.b - made) % 32);
        }
    }
    __syncwarp();
}

// Answer a case; false: it takes too much.
template <bool WIDE>
__device__ __forceinline__ bool answer(const Cases& c, const Wanted& w, u32 at, u32* seen, Case<WIDE> k) {
    const u32 lane = k.lane, first_down = c.levels[c.n_levels];
    const bool good = c.width == 0   ? read_codes<int>(c, at, seen, lane)
                      : c.width == 1 ? read_columns<signed char>(c, w, at, seen, lane)
                      : c.width == 2 ? read_columns<short>(c, w, at, seen, lane)
                                     : read_columns<int>(c, w, at, seen, lane);
    if (WIDE && k.warp == 0 && lane < 3) k.tops[lane] = 0;
    k.meet();
    k.weights += (u64)at * c.n_weights;
    bool one = false;
    for (u32 v = lane; v < c.n_variables; v += 32) one |= !several(seen, v);
    if (!__ballot_sync(ALL, one) || !enter_factors(c, k) || !contract_levels(c, k)) return false;
    const double log_evidence = log_evidence_of(c, k.tables, good);
    const bool possible = log_evidence > -INFINITY;
    if (possible) {
        u32* const bits = seen + c.n_variables + 1;
        if (!k.warp) find_needed(c, k, w, first_down, bits);
        for (u32 level = c.n_levels; level < c.n_levels + w.n_down; level++) {
            k.meet();
            const u32 end = c.levels[level + 1];
            for (u32 first = c.levels[level]; first < end; first += 32) {
                const u32 mine = first + lane - first_down;
                const bool needed = first + lane < end && bits[mine / 32] >> mine % 32 & 1;
                const Step s = needed ? c.steps[first + lane] : Step{0, 0, NONE, 0};
                u32 left = __ballot_sync(ALL, needed);
                uint2 next = axis_of(c, first, left, lane);
                while (left) {
                    const u32 i = __ffs((int)left) - 1, out = __shfl_sync(ALL, s.out, i), b = __shfl_sync(ALL, s.b, i);
                    const uint2 axis = next;
                    left &= left - 1;
                    next = axis_of(c, first, left, lane);
                    if (!contract(c, k, Step{out, __shfl_sync(ALL, s.a, i), b, 0}, axis)) return false;
                }
            }
        }
        k.meet();
        for (u32 i = 32 * k.warp + lane; i < w.n_answers; i += 32 * k.warps) {  // a lane a posterior
            const uint2 a = w.answers[i];
            const u32 card = seen[a.x] & 0xffffu;
            if (card < 2) continue;
            double* const cells = k.cells + k.tables[a.y].first;
            double total = 0.0;
            for (u32 j = 0; j < card; j++) total += cells[j];
            for (u32 j = 0; j < card; j++) cells[j] = total > 0.0 ? cells[j] / total : 0.0;
        }
        k.meet();
    }
    if (!lane && !k.warp) c.log_evidence[at] = log_evidence;
    for (u32 i = 32 * k.warp + lane; i < w.n_out; i += 32 * k.warps) {
        const uint2 x = w.numbers[i];
        const u32 what = seen[x.x & 0xffffu], state = x.x >> 16;
        double value = what >> 16 == state;
        if ((what & 0xffffu) > 1 && possible) value = k.cells[k.tables[x.y].first + state];
        w.posterior[i * w.by_number + at * w.by_case] = possible ? value : 0.0;
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(NARROW_THREADS) answer_cases(Cases c, Wanted w) {
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31, at = blockIdx.x * (NARROW_THREADS / 32) + warp;
    if (at >= c.n) return;
    u32* const seen = (u32*)dynamic_shared + warp * w.words;
    double* const cells = c.cells + (u64)at * c.capacity;
    Case<false> k = {seen, c.weights, cells, c.tables + (u64)at * c.n_tables, 0, 0, lane, 0, 1, 0, 0, 0};
    if (!answer(c, w, at, seen, k) && !lane) c.log_evidence[at] = NAN;
}

extern "C" __global__ void __launch_bounds__(WIDE_THREADS) answer_large(Cases c, Wanted w) {
    __shared__ uint4 lists[WIDE_THREADS / 32][32];
    __shared__ int tops[3];
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    u32* const seen = (u32*)dynamic_shared;
    double* const cells = c.cells + (u64)blockIdx.x * c.capacity;
    Table* const tables = c.tables + (u64)blockIdx.x * c.n_tables;
    Case<true> k = {seen, c.weights, cells, tables, lists[warp], tops, lane, warp, WIDE_THREADS / 32, 0, 0, 0};
    for (u32 at = blockIdx.x; at < c.n; at += gridDim.x) {
        const double before = *(volatile double*)(c.log_evidence + at);
        if (before == before) continue;  // not NaN
        __syncthreads();
        answer(c, w, at, seen, k);
        __syncthreads();
    }
}
