// A level of which some contractions have code of their own: the last part of a generated source, after `run_shape`.
//
// Blocks of contractions with code come first, the heaviest first of all; the rest of the level's blocks run records
// as `level_light` does. Everything in one kernel costs the light path registers (2 blocks an SM and not 3) and saves
// a launch, or a fork in the graph.
//
// BLOCKS: of an SM.
extern "C" __global__ void __launch_bounds__(256, BLOCKS) level_shaped(Program p, const Job* jobs, u32 n_blocks,
                                                                       u32 first_task) {
    __shared__ real shared[SHARED_CELLS];
    __shared__ int tops[WARPS + 1];
    if (blockIdx.x >= n_blocks) {
        level<false>(p, first_task, blockIdx.x - n_blocks, shared);
        return;
    }
    let_next_start();
    run_shape(p, fetched(jobs + blockIdx.x), threadIdx.x >> 5, threadIdx.x & 31, shared, tops);
}
