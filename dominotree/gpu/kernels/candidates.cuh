// Candidates of one level from the slices' lists of top_rows: the row's best M in order, and its log-sum-exp.
#pragma once
#include "builder.cuh"

// Where the slices' lists, sums and flags of top_rows lie.
struct Slices {
    const u64* lists;
    const float2* sums;
    const int* flags;
};

// One block merges one row. `stage`: SPLITS * M u64 of shared memory. Writes ids [M] and base [M] (global), best first,
// and returns log-sum-exp over the whole row to all threads. A row that held NaN and nothing finite becomes uniform,
// also in `line` (DraftBlock.repair).
__device__ inline float merge_row(const Slices& in, int row, int vocab, int m, int splits, float* line, u64* stage,
                                  int* ids, float* base) {
    int flags = 0;
    float most = NEG_INF, sum = 0;
    for (int i = 0; i < splits; i++) {
        flags |= in.flags[row * splits + i];
        most = fmaxf(most, in.sums[row * splits + i].x);
    }
    if ((flags & 3) == 1) {
        for (int i = threadIdx.x; i < m; i += blockDim.x) ids[i] = i, base[i] = 0;
        for (int i = threadIdx.x; i < vocab; i += blockDim.x) line[i] = 0;
        return logf((float)vocab);
    }
    for (int i = 0; i < splits; i++) {
        float2 part = in.sums[row * splits + i];
        if (part.x > NEG_INF) sum += part.y * expf(part.x - most);
    }
    const int total = splits * m;
    for (int i = threadIdx.x; i < total; i += blockDim.x) stage[i] = in.lists[(u64)row * total + i];
    __syncthreads();
    for (int i = threadIdx.x; i < total; i += blockDim.x) {
        const u64 entry = stage[i];
        int rank = i % m;
        if (entry == 0) continue;
        for (int list = 0; list < splits && rank < m; list++) {
            if (list == i / m) continue;
            int low = 0, high = m;  // entries of the list above this one
            while (low < high) {
                int middle = (low + high) / 2;
                if (stage[list * m + middle] > entry) low = middle + 1;
                else high = middle;
            }
            rank += low;
        }
        if (rank < m) ids[rank] = id_of(entry), base[rank] = unordered((u32)(entry >> 32));
    }
    __syncthreads();
    return most > NEG_INF ? most + logf(sum) : NEG_INF;
}
