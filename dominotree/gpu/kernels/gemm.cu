// Skinny product Y[n, N] = X[n, K] · W[N, K]ᵀ for 1 to 136 rows, bound by reading W once from device memory.
//
// A CTA owns ROWS = RW·RBW·16 rows of W and a K range (blockIdx.y). Its warps split rows RW ways and K KW ways. W goes
// straight from device memory to registers, AHEAD steps of 32 columns ahead of use, 16 bytes a thread: lane (g, t) reads
// columns 8t … 8t+7 of rows g and g+8. Those 8 columns feed two m16n8k16 products; X is read from shared memory at the
// same 8 columns, so both operands agree on which column is which k. X is staged once (one slice) or slice by slice.
// The order of every sum is fixed by the shape alone.
//
// Defines: NT tiles of 8 rows of X, RW, KW, RBW, AHEAD, EPI (0 bf16, 1 float32, 2 float32 partial sums [S, n, N],
// 3 SwiGLU: the first half of W's rows are gates, the second ups, Y is bf16 [n, N/2]), PDL.
#include "common.cuh"

#define THREADS (RW * KW * 32)
#define ROWS (RW * RBW * 16)
#define PITCH (ROWS + 4)  // floats per token in the reduction buffer: conflict-free stores

__device__ __forceinline__ uint4 load_weights(const bf16* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint4 load_shared(unsigned at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return v;
}

__device__ __forceinline__ void copy_async(unsigned to, const void* from, bool real) {
  int size = real ? 16 : 0;  // 0: fill with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size));
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

struct Loader {  // where the next step of W is read
  const bf16* w;
  unsigned a[RBW], b[RBW];  // element offsets / 8 of rows g and g + 8, per row block
  int group, step, in, slice;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
skinny(const bf16* __restrict__ X, int ldx, const long long* __restrict__ xrows, const bf16* __restrict__ W,
       void* __restrict__ Y, int n, int N, int K, int range, int ks, int red_at, const void* next,
       long long next_bytes) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const int rw = warp / KW, kw = warp % KW;
  const int k_begin = blockIdx.y * range, k_end = min(K, k_begin + range);
  const int slices = (range + ks - 1) / ks, per = ks / (32 * KW);   // steps of one warp in one slice
  const int steps = slices * per, padded = (steps + AHEAD - 1) / AHEAD * AHEAD;
  const int blocks = (N + 15) / 16, groups = (blocks + RW * RBW - 1) / (RW * RBW);
  const int pitch = ks * 2 + 64;                                     // bytes per row of X: conflict-free reads
  const unsigned xs = (unsigned)__cvta_generic_to_shared(shared);
  float* red = reinterpret_cast<float*>(shared + red_at);

  let_successor_start();

  Loader at;
  at.w = W;
  at.group = blockIdx.x;
  at.step = at.in = at.slice = 0;
  auto aim = [&]() {
#pragma unroll
    for (int r = 0; r < RBW; ++r) {
      int block = min((at.group * RW + rw) * RBW + r, blocks - 1);
#if EPI == 3
      int row_a = block * 8 + g, row_b = N / 2 + row_a;
#else
      int row_a = min(block * 16 + g, N - 1), row_b = min(block * 16 + g + 8, N - 1);
#endif
      at.a[r] = (unsigned)((long long)row_a * K / 8);
      at.b[r] = (unsigned)((long long)row_b * K / 8);
    }
  };
  uint4 wa[AHEAD][RBW], wb[AHEAD][RBW];
  auto load = [&](int slot) {
    if (at.group < groups) {
      int k = k_begin + at.slice * ks + (kw * per + at.in) * 32 + 8 * t;
      k = k < k_end ? k : k_begin + 8 * t;  // beyond the end X is zero: any weights will do
#pragma unroll
      for (int r = 0; r < RBW; ++r) {
        wa[slot][r] = load_weights(at.w + (size_t)at.a[r] * 8 + k);
        wb[slot][r] = load_weights(at.w + (size_t)at.b[r] * 8 + k);
      }
    }
    ++at.step;
    if (++at.in == per) at.in = 0, ++at.slice;
    if (at.slice == slices) at.slice = slices - 1, at.in = 0;  // padded steps read the last slice again
    if (at.step == padded) {
      at.step = at.in = at.slice = 0;
      at.group += gridDim.x;
      if (at.group < groups) aim();
    }
  };
  aim();
#pragma unroll
  for (int u = 0; u < AHEAD; ++u) load(u);

  wait_for_predecessor();

  auto stage = [&](int slice, int buffer) {
    const int vectors = ks / 8, first = k_begin + slice * ks;
    const unsigned to = xs + buffer * n * pitch;
    for (int i = tid; i < n * vectors; i += THREADS) {
      int row = i / vectors, v = i % vectors, k = first + v * 8;
      long long source = xrows ? xrows[row] : row;
      copy_async(to + row * pitch + v * 16, X + source * ldx + (k < k_end ? k : 0), k < k_end);
    }
    commit_copies();
  };
  stage(0, 0);
  if (slices == 1) {
    wait_copies();
    __syncthreads();
  }

  unsigned row_at[NT];  // byte offset of this lane's row of X in each tile; rows beyond n repeat the last one
#pragma unroll
  for (int j = 0; j < NT; ++j) row_at[j] = min(j * 8 + g, n - 1) * pitch + 16 * t;

  int staged = 0;  // slices consumed so far, over all groups
  for (int group = blockIdx.x; group < groups; group += gridDim.x) {
    float acc[RBW][NT][4];
#pragma unroll
    for (int r = 0; r < RBW; ++r)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) acc[r][j][c] = 0.f;

    int in = 0;
    unsigned base = xs;
    for (int i0 = 0; i0 < padded; i0 += AHEAD) {
      if (slices > 1 && i0 % per == 0) {  // per is a multiple of AHEAD here
        wait_copies();
        __syncthreads();  // the slice is there, and nobody reads the other buffer any more
        base = xs + (staged & 1) * n * pitch;
        int following = i0 / per + 1;
        if (following < slices)
          stage(following, (staged + 1) & 1);
        else if (group + gridDim.x < groups)
          stage(0, (staged + 1) & 1);
        ++staged;
        in = 0;
      }
#pragma unroll
      for (int u = 0; u < AHEAD; ++u) {
        if (i0 + u < steps) {
          const unsigned column = base + (kw * per + in) * 64;
#pragma unroll
          for (int j = 0; j < NT; ++j) {
            uint4 x = load_shared(column + row_at[j]);
#pragma unroll
            for (int r = 0; r < RBW; ++r) {
              mma_16x8x16(acc[r][j], wa[u][r].x, wb[u][r].x, wa[u][r].y, wb[u][r].y, x.x, x.y);
              mma_16x8x16(acc[r][j], wa[u][r].z, wb[u][r].z, wa[u][r].w, wb[u][r].w, x.z, x.w);
            }
          }
        }
        ++in;
        load(u);
      }
    }

    if (group + gridDim.x >= groups && tid == 0 && next_bytes > 0)
      prefetch_share(next, next_bytes, blockIdx.y * gridDim.x + blockIdx.x, gridDim.x * gridDim.y);

    // Sum over the KW warps in order, then write.
#pragma unroll
    for (int r = 0; r < RBW; ++r)
#pragma unroll
      for (int j = 0; j < NT; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          red[(kw * NT * 8 + j * 8 + 2 * t + (c & 1)) * PITCH + (rw * RBW + r) * 16 + g + (c >> 1) * 8] = acc[r][j][c];
    __syncthreads();
#if EPI == 3
    const int half = ROWS / 2;
    for (int i = tid; i < n * half; i += THREADS) {
      int token = i / half, j = i % half, row = j / 8 * 16 + j % 8;
      float gate = 0.f, up = 0.f;
#pragma unroll
      for (int w = 0; w < KW; ++w) {
        gate += red[(w * NT * 8 + token) * PITCH + row];
        up += red[(w * NT * 8 + token) * PITCH + row + 8];
      }
      int column = group * half + j;
      if (column < N / 2) {
        gate = rounded(gate), up = rounded(up);
        float silu = rounded(gate / (1.f + __expf(-gate)));
        reinterpret_cast<bf16*>(Y)[(size_t)token * (N / 2) + column] = __float2bfloat16(silu * up);
      }
    }
#else
    for (int i = tid; i < n * ROWS; i += THREADS) {
      int token = i / ROWS, row = i % ROWS, column = group * ROWS + row;
      float sum = 0.f;
#pragma unroll
      for (int w = 0; w < KW; ++w) sum += red[(w * NT * 8 + token) * PITCH + row];
      if (column < N) {
#if EPI == 0
        reinterpret_cast<bf16*>(Y)[(size_t)token * N + column] = __float2bfloat16(sum);
#elif EPI == 1
        reinterpret_cast<float*>(Y)[(size_t)token * N + column] = sum;
#else
        reinterpret_cast<float*>(Y)[((size_t)blockIdx.y * n + token) * N + column] = sum;
#endif
      }
    }
#endif
    __syncthreads();
  }
}
