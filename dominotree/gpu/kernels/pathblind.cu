// Best-first trees whose children depend on the level only (marginal, static): the children of every level are known
// before the first pop, so the heap is a frontier of one next sibling per expanded node, popped by one warp.
//
// Bound: a chain of BUDGET dependent pops, about 0.1 us each.
//
// Defines: LEVELS, VOCAB, M (<= 1024), CHILDREN (<= M), BUDGET (< 1024), SPLITS.
#include "candidates.cuh"
#include "finish.cuh"

#define THREADS 256

// The children of every level under the marginal scorer: grid (LEVELS). base - log-sum-exp over the whole row, ordered
// by (score, then lower id): child_score float32, child_token int [LEVELS, CHILDREN].
extern "C" __global__ void __launch_bounds__(THREADS)
marginal_levels(const u64* lists, const float2* sums, const int* flags, float* logits, float* child_score,
                int* child_token) {
    struct Shared {
        u64 stage[SPLITS * M];
        u64 entry[M];
        int id[M];
        float base[M];
    };
    Shared& s = *(Shared*)dynamic_shared();
    const int row = blockIdx.x;
    const float logz = merge_row({lists, sums, flags}, row, VOCAB, M, SPLITS, logits + (u64)row * VOCAB, s.stage, s.id,
                                 s.base);
    __syncthreads();
    for (int m = threadIdx.x; m < M; m += THREADS) s.entry[m] = composite(s.base[m] - logz, s.id[m]);
    __syncthreads();
    for (int m = threadIdx.x; m < M; m += THREADS) {  // ordered by base already: subtracting can only make ties
        const u64 entry = s.entry[m];
        int rank = m;
        for (int at = m + 1; at < M && s.entry[at] >> 32 >= entry >> 32; at++) rank += s.entry[at] > entry;
        for (int at = m - 1; at >= 0 && s.entry[at] >> 32 <= entry >> 32; at--) rank -= s.entry[at] < entry;
        if (rank < CHILDREN) {
            child_score[row * CHILDREN + rank] = unordered((u32)(entry >> 32));
            child_token[row * CHILDREN + rank] = id_of(entry);
        }
    }
}

struct Shared {
    u64 key[BUDGET + 1];      // of the frontier: ordered bits of its cumulative score, 0 for none left
    double cum[BUDGET + 1];   // its parent's cumulative score
    int from[BUDGET + 1], level[BUDGET + 1], rank[BUDGET + 1];
    double score[BUDGET];     // the tree
    int token[BUDGET], parent[BUDGET], depth[BUDGET];
    double mass[BUDGET + 1];
    int size, kept;
    float child_score[LEVELS * CHILDREN];
};

__device__ inline u64 ordered_double(double x) {
    u64 bits = (u64)__double_as_longlong(x + 0.0);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

__device__ inline double unordered_double(u64 key) {
    return __longlong_as_double((long long)(key >> 63 ? key & ~(1ull << 63) : ~key));
}

// One block. `limits` int32 [2]: levels and nodes allowed in this round.
extern "C" __global__ void __launch_bounds__(THREADS)
pop_levels(const float* child_score, const int* child_token, const int* flags, const long long* anchor,
           const long long* position, const int* limits, const double* costs, const double* calibration, int knots,
           long long* out_token, int* out_parent, int* out_depth, double* out_score, int* out_count,
           long long* out_ids, long long* out_positions, unsigned char* out_mask, int* out_nan) {
    Shared& s = *(Shared*)dynamic_shared();
    const int tid = threadIdx.x, lane = tid % 32;
    const int levels = limits[0] < LEVELS ? limits[0] : LEVELS, budget = limits[1] < BUDGET ? limits[1] : BUDGET;
    for (int i = tid; i < LEVELS * CHILDREN; i += THREADS) s.child_score[i] = child_score[i];
    __syncthreads();
    if (tid < 32) {
        int used = levels > 0, size = 0;
        if (lane == 0 && used) {
            s.key[0] = ordered_double(s.child_score[0]);
            s.cum[0] = 0, s.from[0] = -1, s.level[0] = 0, s.rank[0] = 0;
        }
        __syncwarp();
        u64 best = lane == 0 && used ? s.key[0] : 0;  // of the lane's own slots: slot % 32 == lane
        int slot = 0;
        while (size < budget) {
            // the highest score, then the parent that was popped first
            const u32 high = __reduce_max_sync(0xffffffffu, (u32)(best >> 32));
            const bool near = high && (u32)(best >> 32) == high;
            const u32 low = __reduce_max_sync(0xffffffffu, near ? (u32)best : 0);
            const bool equal = near && (u32)best == low;
            if (!__any_sync(0xffffffffu, equal)) break;
            const u32 first = __reduce_min_sync(0xffffffffu, equal ? (u32)(s.from[slot] + 1) : 0xffffffffu);
            const int winner = __ffs(__ballot_sync(0xffffffffu, equal && (u32)(s.from[slot] + 1) == first)) - 1;
            const int at = __shfl_sync(0xffffffffu, slot, winner);
            const int level = s.level[at], rank = s.rank[at];
            const double score = unordered_double((u64)high << 32 | low), cum = s.cum[at];
            __syncwarp();
            const bool sibling = rank + 1 < CHILDREN, child = level + 1 < levels;
            if (lane == 0) {
                s.score[size] = score, s.parent[size] = (int)first - 1, s.depth[size] = level + 1;
                s.token[size] = level * CHILDREN + rank;
                s.key[at] = sibling ? ordered_double(cum + (double)s.child_score[level * CHILDREN + rank + 1]) : 0;
                s.rank[at] = rank + 1;
                if (child) {
                    s.key[used] = ordered_double(score + (double)s.child_score[(level + 1) * CHILDREN]);
                    s.cum[used] = score, s.from[used] = size, s.level[used] = level + 1, s.rank[used] = 0;
                }
            }
            __syncwarp();
            used += child;
            size++;
            if (lane == at % 32 || (child && lane == (used - 1) % 32)) {
                best = 0;
                for (int i = lane; i < used; i += 32)
                    if (s.key[i] > best || (s.key[i] && s.key[i] == best && s.from[i] < s.from[slot]))
                        best = s.key[i], slot = i;
            }
            __syncwarp();
        }
        if (lane == 0) s.size = size;
    }
    __syncthreads();
    const int size = s.size;
    for (int i = tid; i < size; i += THREADS) s.token[i] = child_token[s.token[i]];
    __syncthreads();
    const Stop stop = {costs, calibration, knots};
    const Output out = {out_token, out_parent, out_depth, out_score, out_count, out_ids, out_positions, out_mask, out_nan};
    const int kept = stop_count(stop, s.score, size, s.mass, &s.kept);
    int nan = 0;
    for (int i = 0; i < LEVELS * SPLITS; i++) nan |= flags[i] & 1;
    write_tree(out, BUDGET, kept, s.token, s.parent, s.depth, s.score, *anchor, *position, nan);
}

extern "C" __global__ void shared_bytes(int* out) {
    int levels = (SPLITS * M + M) * 8 + M * 8, pops = sizeof(Shared);
    *out = levels > pops ? levels : pops;
}
