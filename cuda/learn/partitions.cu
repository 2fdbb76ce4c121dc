// Markov chains over ordered partitions of the variables and graphs, a warp a chain: the steps of
// jtgpu/learn/dags/loops/partitions.py, of which the functions here have the names.
//
// Lanes are variables, or the candidate parents of one, or sets of a list. Random numbers are functions of the seed, the
// step and the chain's number; probabilities of arcs are added as integers.
// jtgpu/learn/dags/chains/gpu/partitions.py repeats the layout of Partitions.
#include "learn/chains.cuh"

#define ADJACENT 0.8
#define OF_ALL 0.25
#define NEGLIGIBLE_REST -16.0
#define ANY (~0ull)
#define NOBODY 0xffffffffu
enum { KIND, FIRST, SECOND, THIRD, FOURTH, ACCEPT, CONFIRM, SETS, DRAWS };

struct Partitions {
    const int* candidates;   // (n, m) possible parents, the candidates first, or -1
    const double* sums;      // (n, 2**k)
    const double* hits;      // (n, k, 2**(k - 1))
    const u64* masks;        // (n, n_sets) by descending weight
    const double* weights;   // (n, n_sets)
    const u64* outer_masks;  // (n, n_outer) sets with a member that is no candidate, in segments
    const u64* outer_counts; // (n, n_outer) weights in units of their segments
    const u32* outer_ends;   // (n, n_segments + 1)
    const double* outer_units;   // (n, n_segments)
    const double* outer_totals;  // (n, n_segments) of a segment and all later ones
    const double* outer_ratios;  // (n,)
    const double* log_factorials;
    u16* parts;              // (chains, n) the state, updated
    u64* parents;            // (chains, n)
    u64* arcs;               // (groups, n, n)
    double* trace;           // (chains,) ln weight at the last sample
    u64* best;               // (chains, n)
    double* best_weight;     // (chains,)
    u32* moves;              // (chains, 8) proposals and acceptances, added
    u64 seed, first;
    double shares[3];        // of reversals, of splits and merges, of swaps
    u32 n, k, n_sets, n_steps, thin, first_chain, n_chains, group, m, n_outer, n_segments, pad;
};

struct Chain {  // in shared memory; each array has n entries, rounded up to 4
    double *rough, *values, *gains, *exact;
    u64 *parents, *before, *last, *new_before, *new_last;
    u32* marks;
    u16 *part, *order, *next, *start, *cursor;  // start, cursor: 4 entries more
    u32* moves;
    u32 m;  // parts
};

__device__ __forceinline__ u32 chain_bytes(u32 n) {
    const u32 even = (n + 3) / 4 * 4;
    return even * (9 * 8 + 4 + 5 * 2) + 16 + 32;
}

__device__ __forceinline__ Chain chain_of_warp(u32 n) {
    const u32 even = (n + 3) / 4 * 4;
    char* at = (char*)chain_memory + (u64)(threadIdx.x / 32) * chain_bytes(n);
    Chain c;
    c.rough = (double*)at;
    c.values = c.rough + even;
    c.gains = c.values + even;
    c.exact = c.gains + even;
    c.parents = (u64*)(c.exact + even);
    c.before = c.parents + even;
    c.last = c.before + even;
    c.new_before = c.last + even;
    c.new_last = c.new_before + even;
    c.marks = (u32*)(c.new_last + even);
    c.moves = c.marks + even;
    c.part = (u16*)(c.moves + 8);
    c.order = c.part + even;
    c.next = c.order + even;
    c.start = c.next + even;
    c.cursor = c.start + even + 4;
    c.m = 0;
    return c;
}

struct Random {
    u64 seed, step;
    u32 chain;
    u32 words[8];

    __device__ __forceinline__ void begin(u64 number) {
        step = number;
        philox(seed, step, chain, 0, words);
        philox(seed, step, chain, 1, words + 4);
    }
    __device__ __forceinline__ u32 word(u32 i) const {
        u32 w[4];
        philox(seed, step, chain, i / 4, w);
        return i % 4 == 0 ? w[0] : i % 4 == 1 ? w[1] : i % 4 == 2 ? w[2] : w[3];
    }
};

__device__ __forceinline__ u32 lane_number() { return threadIdx.x % 32; }
__device__ __forceinline__ u32 lowest(u64 mask) { return __popcll((mask & (0ull - mask)) - 1); }
__device__ __forceinline__ u64 inner_of(const Partitions& o) { return (1ull << o.k) - 1; }

// ln(exp(x) + exp(y)), of which one is above -inf.
__device__ __forceinline__ double log_add(double x, double y) {
    const double high = x > y ? x : y, low = x > y ? y : x;
    return high + log1p(exp(low - high));
}

__device__ __forceinline__ u64 sum_of_warp(u64 x) {
    for (u32 bit = 16; bit; bit >>= 1)
        x += (u64)__double_as_longlong(__shfl_xor_sync(ALL, __longlong_as_double((long long)x), bit));
    return x;
}

__device__ __forceinline__ double hit(const Partitions& o, u32 v, u32 bit, u64 before) {
    const u32 mask = (u32)(before & inner_of(o));
    const u32 squeezed = (mask & ((1u << bit) - 1)) | (mask >> (bit + 1)) << bit;
    return o.hits[((u64)(v * o.k + bit) << (o.k - 1)) + squeezed];
}

__device__ __forceinline__ double all_sets(const Partitions& o, u32 v, u64 mask) {
    return o.sums[((u64)v << o.k) + (mask & inner_of(o))];
}

// ln of the total weight of the sets of candidates of v within `before` that have a member in `last`.
__device__ __forceinline__ double of_candidates(const Partitions& o, u32 v, u64 before, u64 last) {
    double total = -infinity();
    for (last &= inner_of(o); last; last &= last - 1) {
        const u32 bit = lowest(last);
        const double x = hit(o, v, bit, before);
        if (x > -infinity()) total = log_add(x, total);
        before &= ~(1ull << bit);
    }
    return total;
}

// Add the weights of the outer sets of v within `before` that have a member in `met` to a total; the warp together.
__device__ __forceinline__ double with_outer(const Partitions& o, u32 v, u64 before, u64 met, double total) {
    const u64* masks = o.outer_masks + (u64)v * o.n_outer;
    const u64* counts = o.outer_counts + (u64)v * o.n_outer;
    const u32* ends = o.outer_ends + v * (o.n_segments + 1);
    for (u32 s = 0; s < o.n_segments; s++) {
        if (o.outer_totals[v * o.n_segments + s] <= total + NEGLIGIBLE_REST) break;
        u64 count = 0;
        for (u32 i = ends[s] + lane_number(); i < ends[s + 1]; i += 32)
            if (!(masks[i] & ~before) && (masks[i] & met)) count += counts[i];
        count = sum_of_warp(count);
        if (count) total = log_add(o.outer_units[v * o.n_segments + s] + log((double)count), total);
    }
    return total;
}

// ln of the total weight of the parent sets of v that predecessors allow; the warp together.
__device__ __forceinline__ double value_of(const Partitions& o, u32 v, u64 before, u64 last) {
    if (!before) return all_sets(o, v, 0);
    return with_outer(o, v, before, last, of_candidates(o, v, before, last));
}

// An approximation by look-ups; exact without outer sets.
__device__ __forceinline__ double rough_of(const Partitions& o, u32 v, u64 before, u64 last) {
    if (!before) return all_sets(o, v, 0);
    double total = of_candidates(o, v, before, last);
    if (last && o.n_segments && o.outer_ratios[v] > -infinity()) {
        const double x = all_sets(o, v, before) + o.outer_ratios[v];
        if (x > -infinity() || total > -infinity()) total = log_add(x, total);
    }
    return total;
}

// The value of a variable, which is computed if it is unknown; the warp together.
__device__ __forceinline__ double current(const Partitions& o, const Chain& c, u32 v) {
    double x = c.values[v];
    if (x == infinity()) {
        x = value_of(o, v, c.before[v], c.last[v]);
        __syncwarp();
        if (lane_number() == 0) c.values[v] = x;
        __syncwarp();
    }
    return x;
}

// ln of the total weight of the parent sets of v within `before` that have a single member, or ANY; the warp together.
__device__ __forceinline__ double total_of(const Partitions& o, u32 v, u64 before, u64 met) {
    const double total = met == ANY ? all_sets(o, v, before) : of_candidates(o, v, before, met);
    return before & ~inner_of(o) ? with_outer(o, v, before, met, total) : total;
}

__device__ __forceinline__ void predecessors(const Partitions& o, const u16* part, u32 v, u64& before, u64& last) {
    const u32 own = part[v];
    before = last = 0;
    for (u32 j = 0; j < o.m; j++) {
        const int u = o.candidates[v * o.m + j];
        if (u < 0) continue;
        const u32 other = part[u];
        before |= (u64)(other < own) << j;
        last |= (u64)(other + 1 == own) << j;
    }
}

// Sort the variables by part.
__device__ __forceinline__ void sort(const Partitions& o, Chain& c) {
    const u32 lane = lane_number(), n = o.n;
    u32 most = 0;
    for (u32 i = lane; i <= n; i += 32) c.cursor[i] = 0;
    __syncwarp();
    for (u32 first = 0; first < n; first += 32) {
        const u32 v = first + lane, own = v < n ? c.part[v] : NOBODY, same = __match_any_sync(ALL, own);
        if (v < n && lowest(same) == lane) c.cursor[own] += __popc(same);
        if (v < n && own + 1 > most) most = own + 1;
        __syncwarp();
    }
    for (u32 bit = 16; bit; bit >>= 1) {
        const u32 other = __shfl_xor_sync(ALL, most, bit);
        most = other > most ? other : most;
    }
    c.m = most;
    u32 before = 0;
    for (u32 first = 0; first < n; first += 32) {  // first positions
        const u32 i = first + lane;
        const u32 own = i < n ? c.cursor[i] : 0;
        u32 sum = own;
        for (u32 by = 1; by < 32; by *= 2) {
            const u32 x = __shfl_up_sync(ALL, sum, by);
            if (lane >= by) sum += x;
        }
        if (i < n) c.start[i] = c.cursor[i] = (u16)(before + sum - own);
        before += __shfl_sync(ALL, sum, 31);
    }
    if (lane == 0) c.start[n] = (u16)n;
    __syncwarp();
    for (u32 first = 0; first < n; first += 32) {
        const u32 v = first + lane, own = v < n ? c.part[v] : NOBODY, same = __match_any_sync(ALL, own);
        if (v < n) c.order[c.cursor[own] + __popc(same & ((1u << lane) - 1))] = (u16)v;
        __syncwarp();
        if (v < n && lowest(same) == lane) c.cursor[own] += __popc(same);
        __syncwarp();
    }
}

// A parent set of v within `before` that has a member in `met`, drawn by the weights: its number. The warp takes 32 sets
// at a time.
__device__ __forceinline__ u32 draw_set(const Partitions& o, u32 v, u64 before, u64 met, double log_total, double u) {
    const u32 lane = lane_number();
    const u64* masks = o.masks + (u64)v * o.n_sets;
    const double* weights = o.weights + (u64)v * o.n_sets;
    u32 found = 0;
    double passed = 0.0;
    for (u32 first = 0; first < o.n_sets; first += 32) {
        const u32 i = first + lane;
        double weight = -infinity();
        if (i < o.n_sets) {
            const u64 mask = masks[i];
            if (!(mask & ~before) && (met == ANY || (mask & met))) weight = weights[i];
        }
        const u32 possible = __ballot_sync(ALL, weight > -infinity());
        if (!possible) continue;
        double share = 0.0;
        if (weight > -infinity()) {
            double x = weight - log_total;
            x = x > NEGLIGIBLE ? x : NEGLIGIBLE;
            share = exponential(x < 0.0 ? x : 0.0);
        }
        double all;
        const double below_own = sum_below(share, all);
        const u32 enough = possible & __ballot_sync(ALL, u - (passed + (below_own + share)) < 0.0);
        if (enough) return first + lowest(enough);
        passed += all;
        found = first + 31 - (u32)__clz((int)possible);
    }
    return found;
}

__device__ __forceinline__ u32 draw_parents(const Partitions& o, const Chain& c, u32 v, double u) {
    return draw_set(o, v, c.before[v], c.part[v] ? c.last[v] : ANY, current(o, c, v), u);
}

struct Change {  // of a partition: ln of the ratio of the proposals, and which parts and variable have other predecessors
    double log_ratio;
    int low, high, moved;
};

__device__ __forceinline__ Change swap(const Partitions& o, const Chain& c, const Random& r) {
    const u32 m = c.m;
    if (m == 1) return {0.0, 0, -1, -1};
    u32 a, b;
    if (uniform(r.words[FIRST]) < ADJACENT) {
        a = below(r.words[SECOND], m - 1);
        b = a + 1;
    } else {
        u32 left = below(r.words[SECOND], m * (m - 1) / 2);
        a = 0;
        while (left >= m - 1 - a) {
            left -= m - 1 - a;
            a++;
        }
        b = a + 1 + left;
    }
    const u32 x = c.order[c.start[a] + below(r.words[THIRD], c.start[a + 1] - c.start[a])];
    const u32 y = c.order[c.start[b] + below(r.words[FOURTH], c.start[b + 1] - c.start[b])];
    if (lane_number() == 0) {
        c.next[x] = (u16)b;
        c.next[y] = (u16)a;
    }
    return {0.0, (int)a, (int)b + 1, -1};
}

__device__ __forceinline__ double log_subsets(const Partitions& o, u32 k, u32 i) {
    return o.log_factorials[k] - o.log_factorials[i] - o.log_factorials[k - i];
}

__device__ __forceinline__ Change split_or_merge(const Partitions& o, const Chain& c, const Random& r) {
    const u32 lane = lane_number(), n = o.n, m = c.m;
    u32 n_large = 0;
    for (u32 first = 0; first < m; first += 32) {
        const u32 i = first + lane;
        n_large += __popc(__ballot_sync(ALL, i < m && c.start[i + 1] - c.start[i] > 1));
    }
    if (uniform(r.words[FIRST]) < 0.5) {
        if (!n_large) return {0.0, 0, -1, -1};
        u32 left = below(r.words[SECOND], n_large), i = 0, k;
        while (true) {
            k = c.start[i + 1] - c.start[i];
            if (k > 1) {
                if (left == 0) break;
                left--;
            }
            i++;
        }
        const u32 size = 1 + below(r.words[THIRD], k - 1);
        for (u32 v = lane; v < n; v += 32) c.next[v] += c.part[v] > i;
        __syncwarp();
        u32 wanted = size;
        for (u32 first = 0; first < k; first += 32) {
            const u32 at = first + lane;
            const u32 mine = at < k ? below(r.word(DRAWS + 2 * n + at), k - at) : 0;
            for (u32 j = 0; j < 32 && first + j < k; j++) {
                const bool chosen = __shfl_sync(ALL, mine, j) < wanted;
                wanted -= chosen;
                if (j == lane && !chosen) c.next[c.order[c.start[i] + at]] = (u16)(i + 1);
            }
        }
        return {log((double)(n_large * (k - 1)) / m) + log_subsets(o, k, size), (int)i + 1, (int)i + 2, -1};
    }
    if (m == 1) return {0.0, 0, -1, -1};
    const u32 i = below(r.words[SECOND], m - 1);
    const u32 one = c.start[i + 1] - c.start[i], two = c.start[i + 2] - c.start[i + 1];
    for (u32 v = lane; v < n; v += 32) c.next[v] -= c.part[v] > i;
    n_large = n_large + 1 - (one > 1) - (two > 1);
    const u32 k = one + two;
    return {log((double)(m - 1) / (n_large * (k - 1))) - log_subsets(o, k, one), (int)i, (int)i + 1, -1};
}

__device__ __forceinline__ Change relocate(const Partitions& o, const Chain& c, const Random& r) {
    const u32 v = below(r.words[FIRST], o.n), a = c.part[v];
    const u32 alone = c.start[a + 1] - c.start[a] == 1, others = c.m - alone;
    if (!others) return {0.0, 0, -1, -1};
    const u32 now = alone ? others + a : a;
    u32 place = below(r.words[SECOND], 2 * others);
    place += place >= now;
    const u32 to_part = place < others, at = to_part ? place : place - others;
    for (u32 u = lane_number(); u < o.n; u += 32) {
        const u32 q = c.part[u] - (alone && c.part[u] > a);
        c.next[u] = (u16)(u == v ? at : q + (!to_part && q >= at));
    }
    const u32 left = a + !alone, joined = at + to_part;
    const u32 low = left < joined ? left : joined, high = left < joined ? joined : left;
    return {0.0, (int)(low + (!to_part && low >= at)), (int)(high + (!to_part && high >= at)), (int)v};
}

// Change of the rough weight by the new parts; variables whose predecessors change are marked.
__device__ __forceinline__ double gain_of(const Partitions& o, const Chain& c, const Change& change) {
    double gain = 0.0;
    bool possible = true;
    for (u32 v = lane_number(); v < o.n; v += 32) {
        const int next = c.next[v];
        bool changed = (change.low <= next && next <= change.high) || (int)v == change.moved;
        if (changed) {
            u64 before, last;
            predecessors(o, c.next, v, before, last);
            changed = before != c.before[v] || last != c.last[v] || (next == 0) != (c.part[v] == 0);
            if (changed) {
                const double x = !next || last ? rough_of(o, v, before, last) : -infinity();
                possible = possible && x != -infinity();
                gain += x - c.rough[v];
                c.gains[v] = x;
                c.new_before[v] = before;
                c.new_last[v] = last;
            }
        }
        c.marks[v] = changed;
    }
    if (__ballot_sync(ALL, !possible)) return -infinity();
    return sum_of_warp(gain);
}

// How much more the exact weight changes than the rough one.
__device__ __forceinline__ double correction(const Partitions& o, const Chain& c) {
    double gain = 0.0;
    for (u32 first = 0; first < o.n; first += 32) {
        u32 marked = __ballot_sync(ALL, first + lane_number() < o.n && c.marks[first + lane_number()]);
        for (; marked; marked &= marked - 1) {
            const u32 v = first + lowest(marked);
            const double x = value_of(o, v, c.new_before[v], c.new_last[v]);
            if (x == -infinity()) return x;
            gain += (x - c.gains[v]) - (current(o, c, v) - c.rough[v]);
            __syncwarp();
            if (lane_number() == 0) c.exact[v] = x;
        }
    }
    __syncwarp();
    return gain;
}

__device__ __forceinline__ bool change_partition(const Partitions& o, Chain& c, u32 kind, const Random& r) {
    const u32 lane = lane_number();
    for (u32 v = lane; v < o.n; v += 32) c.next[v] = c.part[v];
    __syncwarp();
    const Change change = kind == 1 ? split_or_merge(o, c, r) : kind == 2 ? swap(o, c, r) : relocate(o, c, r);
    __syncwarp();
    if (change.high < 0) return true;  // nothing changes
    const double log_ratio = change.log_ratio + gain_of(o, c, change);
    if (!(log(uniform(r.words[ACCEPT])) < log_ratio)) return false;
    __syncwarp();
    // accepted by the rough weights: does the exact one confirm it?
    if (o.n_segments && !(log(uniform(r.words[CONFIRM])) < correction(o, c))) return false;
    for (u32 v = lane; v < o.n; v += 32) {
        c.part[v] = c.next[v];
        if (c.marks[v]) {
            c.before[v] = c.new_before[v];
            c.last[v] = c.new_last[v];
            c.rough[v] = c.gains[v];
            c.values[v] = o.n_segments ? c.exact[v] : c.gains[v];
            c.parents[v] = ANY;
        }
    }
    __syncwarp();
    sort(o, c);
    return true;
}

// Those of the first k possible parents of v whose marks have none of the excluded bits.
__device__ __forceinline__ u64 free_of(const Partitions& o, const Chain& c, u32 v, u32 excluded, u32 k) {
    u64 found = 0;
    for (u32 first = 0; first < k; first += 32) {
        const u32 j = first + lane_number();
        const int u = j < k ? o.candidates[v * o.m + j] : -1;
        found |= (u64)__ballot_sync(ALL, u >= 0 && !(c.marks[u >= 0 ? u : 0] & excluded)) << first;
    }
    return found;
}

// Bit 0 of the descendants of i, and bit 1 of those of j, if both lose their parents.
__device__ __forceinline__ void mark_descendants(const Partitions& o, const Chain& c, u32 i, u32 j) {
    for (u32 level = 0; level < c.m; level++) {
        for (u32 at = c.start[level] + lane_number(); at < c.start[level + 1]; at += 32) {
            const u32 v = c.order[at];
            u32 mark = (u32)(v == i) | (u32)(v == j) << 1;
            if (v != i && v != j)
                for (u64 left = c.parents[v]; left; left &= left - 1)
                    mark |= c.marks[o.candidates[v * o.m + lowest(left)]];
            c.marks[v] = mark;
        }
        __syncwarp();
    }
}

__device__ __forceinline__ void number_parts(const Partitions& o, const Chain& c) {
    for (u32 group = 0; group < 3; group++)
        for (u32 level = 0; level < c.m; level++) {
            for (u32 at = c.start[level] + lane_number(); at < c.start[level + 1]; at += 32) {
                const u32 v = c.order[at], own = c.marks[v] & 1 ? 2 : c.marks[v] ? 1 : 0;
                if (own != group) continue;
                u32 part = 0;
                for (u64 left = c.parents[v]; left; left &= left - 1) {
                    const u32 above = c.part[o.candidates[v * o.m + lowest(left)]] + 1;
                    part = above > part ? above : part;
                }
                c.part[v] = (u16)part;
            }
            __syncwarp();
        }
}

// Predecessors and values of all variables whose predecessors have changed.
__device__ __forceinline__ void evaluate(const Partitions& o, const Chain& c) {
    for (u32 v = lane_number(); v < o.n; v += 32) {
        u64 before, last;
        predecessors(o, c.part, v, before, last);
        if (before == c.before[v] && last == c.last[v]) continue;
        c.before[v] = before;
        c.last[v] = last;
        c.rough[v] = rough_of(o, v, before, last);
        c.values[v] = o.n_segments ? infinity() : c.rough[v];
    }
    __syncwarp();
}

__device__ __forceinline__ bool reverse(const Partitions& o, Chain& c, const Random& r) {
    const u32 lane = lane_number(), n = o.n;
    u32 arcs = 0;
    const u32 k = o.n_segments && uniform(r.words[SETS]) < OF_ALL ? o.m : o.k;
    for (u32 first = 0; first < n; first += 32) {
        const u32 v = first + lane;
        u32 missing = __ballot_sync(ALL, v < n && c.parents[v] == ANY);
        while (missing) {
            const u32 w = first + lowest(missing);
            missing &= missing - 1;
            const u32 set = draw_parents(o, c, w, uniform(r.word(DRAWS + w)));
            if (lane == 0) c.parents[w] = o.masks[(u64)w * o.n_sets + set];
        }
        __syncwarp();
        u32 count = v < n ? __popcll(c.parents[v]) : 0;
        for (u32 bit = 16; bit; bit >>= 1) count += __shfl_xor_sync(ALL, count, bit);
        arcs += count;
    }
    if (!arcs) return true;
    u32 number = below(r.words[FIRST], arcs), j = 0;
    for (u32 first = 0; first < n; first += 32) {  // the child of this arc
        const u32 v = first + lane, own = v < n ? __popcll(c.parents[v]) : 0;
        u32 sum = own;
        for (u32 by = 1; by < 32; by *= 2) {
            const u32 x = __shfl_up_sync(ALL, sum, by);
            if (lane >= by) sum += x;
        }
        const u32 has = __ballot_sync(ALL, sum > number), all = __shfl_sync(ALL, sum, 31);
        if (has) {
            const u32 at = lowest(has);
            j = first + at;
            number -= __shfl_sync(ALL, sum - own, at);
            break;
        }
        number -= all;
    }
    u64 left = c.parents[j];
    for (u32 x = 0; x < number; x++) left &= left - 1;
    const u32 i_in_j = lowest(left), i = (u32)o.candidates[j * o.m + i_in_j];
    u64 found = 0;
    for (u32 first = 0; first < k; first += 32) {
        const u32 at = first + lane;
        found |= (u64)__ballot_sync(ALL, at < k && o.candidates[i * o.m + (at < k ? at : 0)] == (int)j) << first;
    }
    if (!found || (c.parents[i] | c.parents[j]) >> k) return false;  // the way back is impossible
    const u32 j_in_i = lowest(found);
    __syncwarp();
    mark_descendants(o, c, i, j);
    const u64 for_i = free_of(o, c, i, 1, k), for_j = free_of(o, c, j, 3, k);
    const double z1 = total_of(o, i, for_i, 1ull << j_in_i), z2 = total_of(o, j, for_j, ANY);
    if (z1 == -infinity() || z2 == -infinity()) return false;
    const double z3 = total_of(o, j, free_of(o, c, j, 2, k), 1ull << i_in_j);
    const double z4 = total_of(o, i, free_of(o, c, i, 3, k), ANY);
    const u32 of_i = draw_set(o, i, for_i, 1ull << j_in_i, z1, uniform(r.words[SECOND]));
    const u32 of_j = draw_set(o, j, for_j, ANY, z2, uniform(r.words[THIRD]));
    const u64 new_i = o.masks[(u64)i * o.n_sets + of_i], new_j = o.masks[(u64)j * o.n_sets + of_j];
    const u32 after =
        arcs - __popcll(c.parents[i]) - __popcll(c.parents[j]) + __popcll(new_i) + __popcll(new_j);
    const double log_ratio = log((double)arcs / after) + z1 + z2 - z3 - z4;
    if (!(log(uniform(r.words[ACCEPT])) < log_ratio)) return false;
    __syncwarp();
    if (lane == 0) {
        c.parents[i] = new_i;
        c.parents[j] = new_j;
    }
    __syncwarp();
    number_parts(o, c);
    sort(o, c);
    evaluate(o, c);
    return true;
}

// Draw a graph and add it to the sums.
__device__ __forceinline__ void take_sample(const Partitions& o, const Chain& c, const Random& r, u32 at) {
    const u32 lane = lane_number(), n = o.n;
    double weight = 0.0;
    for (u32 v = 0; v < n; v++) {
        const u32 set = draw_parents(o, c, v, uniform(r.word(DRAWS + n + v)));
        weight += o.weights[(u64)v * o.n_sets + set];
        if (lane == 0) c.parents[v] = o.masks[(u64)v * o.n_sets + set];
    }
    __syncwarp();
    // arcs from the part before count by their probability, given the partition and that all parents are candidates
    const u64 inner = inner_of(o);
    for (u32 v = lane; v < n; v += 32) {
        u64 before = c.before[v], last = c.last[v];
        double total = c.values[v];
        if (c.parents[v] & ~inner) {
            last = 0;
        } else if (o.n_segments) {
            before &= inner;
            total = of_candidates(o, v, before, last);
        }
        c.new_before[v] = before;
        c.new_last[v] = last;
        c.gains[v] = total;
    }
    __syncwarp();
    u64* arcs = o.arcs + (u64)(at / o.group) * n * n;
    for (u32 i = lane; i < n * o.m; i += 32) {
        const u32 v = i / o.m, bit = i % o.m;
        if (!(c.new_before[v] >> bit & 1)) continue;
        u64 share = 0;
        if (c.new_last[v] >> bit & 1) {
            double x = hit(o, v, bit, c.before[v]) - c.gains[v];
            x = x > NEGLIGIBLE ? x : NEGLIGIBLE;
            share = (u64)(exponential(x < 0.0 ? x : 0.0) * 4294967296.0 + 0.5);
        } else if (c.parents[v] >> bit & 1) {
            share = 4294967296ull;
        }
        if (share) atomicAdd(&arcs[(u64)o.candidates[i] * n + v], share);
    }
    if (weight > o.best_weight[at]) {
        __syncwarp();
        for (u32 v = lane; v < n; v += 32) o.best[(u64)at * n + v] = c.parents[v];
        if (lane == 0) o.best_weight[at] = weight;
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(128) partition_steps(GRID_CONSTANT Partitions o) {
    const u32 at = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = lane_number(), n = o.n;
    if (at >= o.n_chains) return;
    Chain c = chain_of_warp(n);
    for (u32 v = lane; v < n; v += 32) {
        c.part[v] = o.parts[(u64)at * n + v];
        c.parents[v] = o.parents[(u64)at * n + v];
        c.before[v] = c.last[v] = ~1ull;  // not computed yet
    }
    if (lane < 8) c.moves[lane] = 0;
    __syncwarp();
    sort(o, c);
    evaluate(o, c);
    Random r;
    r.seed = o.seed;
    r.chain = o.first_chain + at;
    for (u32 t = 0; t < o.n_steps; t++) {
        r.begin(o.first + t);
        const double x = uniform(r.words[KIND]) - o.shares[0];
        u32 kind = 0;
        bool accepted;
        if (x < 0.0) {
            accepted = reverse(o, c, r);
        } else {
            kind = x < o.shares[1] ? 1 : x < o.shares[1] + o.shares[2] ? 2 : 3;
            accepted = change_partition(o, c, kind, r);
        }
        if (lane == 0) {
            c.moves[2 * kind]++;
            c.moves[2 * kind + 1] += accepted;
        }
        __syncwarp();
        if ((t + 1) % o.thin == 0) {
            if (t + o.thin >= o.n_steps) {
                double sum = 0.0;
                for (u32 v = 0; v < n; v++) sum += current(o, c, v);
                if (lane == 0) o.trace[at] = sum;
            }
            take_sample(o, c, r, at);
        }
    }
    for (u32 v = lane; v < n; v += 32) {
        o.parts[(u64)at * n + v] = c.part[v];
        o.parents[(u64)at * n + v] = c.parents[v];
    }
    if (lane < 8) o.moves[at * 8 + lane] += c.moves[lane];
}
