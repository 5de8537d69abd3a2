// Whole rows of the residual stream, one CTA a row: embedding look-up, and the last norm.
//
//   ids given:     h[row] = table[ids[row]], scaled[row] = h ∘ weight, squares[row] = sum of h²
//   ids not given: normed[row] = weight ∘ bf16(h[row] / rms)
#include "common.cuh"

#define THREADS 256
#define VECTORS 4  // hidden sizes up to 8192

extern "C" __global__ void __launch_bounds__(THREADS)
rows(bf16* h, const long long* ids, const bf16* __restrict__ table, const bf16* __restrict__ weight, float eps,
     bf16* out, float* squares, int squares_pitch, int hidden) {
  __shared__ float sums[THREADS / 32];
  const int row = blockIdx.x, tid = threadIdx.x, vectors = hidden / 8;
  let_successor_start();
  wait_for_predecessor();

  uint4* mine = reinterpret_cast<uint4*>(h + (size_t)row * hidden);
  float x[VECTORS][8];
  float square = 0.f;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    int i = tid + v * THREADS;
    if (i >= vectors) continue;
    uint4 raw = ids ? __ldg(reinterpret_cast<const uint4*>(table + (size_t)ids[row] * hidden) + i) : __ldcg(mine + i);
    if (ids) mine[i] = raw;
    unpack(raw, x[v]);
#pragma unroll
    for (int j = 0; j < 8; ++j) square += x[v][j] * x[v][j];
  }
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
  if (tid % 32 == 0) sums[tid / 32] = square;
  __syncthreads();
  square = 0.f;
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) square += sums[w];
  if (squares && tid == 0) squares[(size_t)row * squares_pitch] = square;
  const float scale = rsqrtf(square / hidden + eps);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    int i = tid + v * THREADS;
    if (i >= vectors) continue;
    float w[8], y[8];
    unpack(__ldg(reinterpret_cast<const uint4*>(weight) + i), w);
#pragma unroll
    for (int j = 0; j < 8; ++j) y[j] = w[j] * (ids ? x[v][j] : rounded(x[v][j] * scale));
    reinterpret_cast<uint4*>(out + (size_t)row * hidden)[i] = pack(y);
  }
}
