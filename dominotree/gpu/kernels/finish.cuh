// The finished tree: stop rule, flat arrays, and the verify's ids, positions and mask.
#pragma once
#include "builder.cuh"

// Where a build's results go. `token`, `parent`, `depth`, `score` [budget]; the verify's rows are budget + 1.
struct Output {
    long long* token;
    int* parent;
    int* depth;
    double* score;
    int* count;
    long long* ids;
    long long* positions;
    unsigned char* mask;
    int* nan;
};

// The adaptive stop rule (builders/adaptive.py), all float64: costs [budget + 2] in ms, the draft's and then the verify's
// by node count; null for a fixed budget. Calibration: `knots` points x [knots], y [knots]; 0 for none.
struct Stop {
    const double* costs;
    const double* calibration;
    int knots;
};

__device__ inline double calibrated(const Stop& stop, double s) {
    const double *x = stop.calibration, *y = x + stop.knots;
    const int last = stop.knots - 1;
    if (last < 0) return s;
    if (s < x[0]) return y[0] + (s - x[0]);
    if (s >= x[last]) return y[last];
    int i = 0;
    while (s >= x[i + 1]) i++;
    double slope = __ddiv_rn(y[i + 1] - y[i], x[i + 1] - x[i]);
    return __dadd_rn(y[i], __dmul_rn(s - x[i], slope));
}

// Nodes to keep of `count` nodes in pop order: those before the first that does not raise the rate. By one block;
// `mass` [count + 1] doubles and `kept` an int, both shared memory. Additions run in pop order, as on the host.
__device__ inline int stop_count(const Stop& stop, const double* score, int count, double* mass, int* kept) {
    if (!stop.costs) return count;
    for (int i = threadIdx.x; i < count; i += blockDim.x) mass[i + 1] = exp(calibrated(stop, score[i]));
    __syncthreads();
    if (threadIdx.x == 0) {
        *kept = count;
        mass[0] = 0;
        for (int i = 0; i < count; i++) mass[i + 1] += mass[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        double before = __ddiv_rn(1 + mass[i], stop.costs[0] + stop.costs[i + 1]);
        double after = __ddiv_rn(1 + mass[i + 1], stop.costs[0] + stop.costs[i + 2]);
        if (!(after > before)) atomicMin(kept, i);
    }
    __syncthreads();
    return *kept;
}

// Write `kept` nodes and the padding behind them; the warps of the grid share the mask's rows. The shared arrays hold
// the tree in pop order. Padding: token = anchor, parent -1, depth 0, sees only itself. budget < 1024.
__device__ inline void write_tree(const Output& out, int budget, int kept, const int* token, const int* parent,
                                  const int* depth, const double* score, long long anchor, long long position,
                                  int nan) {
    const int rows = budget + 1, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    for (int row = blockIdx.x * warps + threadIdx.x / 32; row < rows; row += gridDim.x * warps) {
        u32 word = row / 32 == lane ? 1u << row % 32 : 0;  // lane l holds columns 32 l … 32 l + 31
        if (row <= kept) {
            for (int at = row ? parent[row - 1] : -1; at >= 0; at = parent[at])
                if ((at + 1) / 32 == lane) word |= 1u << (at + 1) % 32;
            if (lane == 0) word |= 1;
        }
        for (int first = 0; first < rows; first += 32) {
            u32 bits = __shfl_sync(0xffffffffu, word, first / 32);
            if (first + lane < rows) out.mask[row * rows + first + lane] = bits >> lane & 1;
        }
    }
    if (blockIdx.x != 0) return;
    for (int i = threadIdx.x; i < rows; i += blockDim.x) {
        bool node = i > 0 && i <= kept;
        out.ids[i] = node ? token[i - 1] : anchor;
        out.positions[i] = position + (node ? depth[i - 1] : 0);
        if (i < budget) {
            bool used = i < kept;
            out.token[i] = used ? token[i] : anchor;
            out.parent[i] = used ? parent[i] : -1;
            out.depth[i] = used ? depth[i] : 0;
            out.score[i] = used ? score[i] : (double)NEG_INF;
        }
    }
    if (threadIdx.x == 0) *out.count = kept, *out.nan = nan;
}
