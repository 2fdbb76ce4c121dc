// The entry of an evidence pattern's own engine (jtgpu/backends/gpu/single/levels/pattern.py). Observed variables are no axes there:
// of a factor that has some, what belongs to their states is copied, a contiguous part of it, for they are its slowest
// axes where it is kept. A factor that has none is treated as `enter` does.
//
// Wins where a pattern comes often enough to be planned for. Loses nothing: the factors are small beside the tables.

struct Cut { u32 from, observed, n_observed, pad; };  // a factor: its first cell in `whole`; its rows of `observed`

struct CutEntry {
    const Cut* cuts;       // a Chunk's pad: 0 for a factor that is not cut, else 1 + the number of its Cut
    const uint2* observed; // variable, stride
    const real* whole;     // the factors that are cut
    const int* state;      // host: of the network's own variables
};

extern "C" __global__ void __launch_bounds__(256) enter_cut(Program p, Entry in, CutEntry cut) {
    __shared__ int state[MOST_AXES];
    __shared__ Known axes[MOST_AXES];
    __shared__ u32 at_states;
    let_next_start();
    const Chunk c = in.chunks[blockIdx.x];
    const bool before = in.dirty[blockIdx.x] != 0, is_cut = c.pad != 0;
    if (threadIdx.x == 0) at_states = 0;
    __syncthreads();
    const real* from = in.pristine + c.cell;
    if (is_cut) {
        const Cut f = cut.cuts[c.pad - 1];
        from = cut.whole + f.from;
        for (u32 i = threadIdx.x; i < f.n_observed; i += 256) {
            const uint2 axis = cut.observed[f.observed + i];
            atomicAdd(&at_states, (u32)cut.state[axis.x] * axis.y);
        }
    }
    bool seen = is_cut;
    if (threadIdx.x < c.n_known) {
        const Known axis = in.known[c.known + threadIdx.x];
        const int of = in.state[axis.variable];
        axes[threadIdx.x] = axis;
        state[threadIdx.x] = of;
        seen |= of != -1;
    }
    const bool now = __syncthreads_or(seen) != 0;
    int* most = &p.slots[c.table].top;  // `finish` left 0
    if (!now && !before) {
        if (threadIdx.x == 0 && (int)c.top > 0) atomicMax(most, (int)c.top);
        return;
    }
    from += at_states;
    double top = 0.0;
    for (u32 i = c.from + threadIdx.x; i < c.from + c.n; i += 256) {
        double value = from[i];
        for (u32 v = 0; v < c.n_known; v++) {
            if (state[v] == -1) continue;
            const u32 at = i / axes[v].inner % axes[v].card;
            if (state[v] == -2)
                value *= in.weights[axes[v].weight + at];
            else if (state[v] != (int)at)
                value = 0.0;
        }
        p.arena[c.cell + i] = (real)value;
        top = value > top ? value : top;
    }
    const int high = warp_max(word_of((real)top));
    if ((threadIdx.x & 31) == 0 && high > 0) atomicMax(most, high);
    if (threadIdx.x == 0) in.dirty[blockIdx.x] = now;
}
