// Moves of a chain over partitions that keep or change its parts, but no graph: swaps, splits and merges, relocations.
#include "learn/partitions.cuh"

#define ADJACENT 0.8

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
