// Rows of a table in groups of 32, column by column ([group][column][lane]), and the tree of boxes over them.
//
// A leaf is a group of references. Nodes of a level are numbered; the children of node c are nodes 32c .. 32c+31 of the
// level below. Boxes are stored in groups of 32 siblings, so that a warp reads them coalesced, a lane a child. All
// coordinates of boxes are float32 relative to a centre and rounded outwards: bounds computed from them, rounded towards
// zero, never exceed the float64 distances.
//
// jtgpu/screen/gpu_tree.py fills the structs.
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARPS 8            // of a block; each works alone
#define LEVELS 6           // of a tree: 32^6 leaves
#define NO_BOX 0x7f800000u // bits of infinity: a child that does not exist or is done
#define ALL 0xffffffffu

struct Tree {
    const double* numbers;    // [leaf][n_numbers][32], NaN after the last row
    const u64* words;         // [leaf][n_planes + 2 n_groups][32]: planes, observed and unseen columns as bits
    const u32* counts;        // [leaf * 32]: rows of the table that are equal to each, 0 after the last row
    float* sides;             // [box group][2 n_numbers][32]: lowest and highest coordinates
    u64* agreed;              // [box group][n_groups + n_planes][32]: columns in which all rows agree; their planes
    const double* centres;    // [n_numbers]
    const u32* planes;        // [n_groups + 1]: first plane of each group of up to 64 columns
    u32 n_rows, n_leaves, n_numbers, n_planes, n_groups, n_levels;
    u32 first[LEVELS], size[LEVELS];  // of each level: its first box group, its nodes
};

// Least of a warp; sm_75 has no instruction for it.
__device__ __forceinline__ u32 warp_min(u32 x) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __reduce_min_sync(ALL, x);
#else
    for (u32 bit = 16; bit; bit >>= 1) {
        const u32 other = __shfl_xor_sync(ALL, x, bit);
        x = other < x ? other : x;
    }
    return x;
#endif
}
