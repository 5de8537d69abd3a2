// What happens to whole rows between products: embedding look-up or residual sum, then RMSNorm. One CTA a row.
//
//   h[row]  = table[ids[row]]                      (ids given)
//   h[row] += bf16(sum over s of partial[s, row])  (partial given; without a residual when `fresh`)
//   normed[row] = weight * bf16(h[row] / rms)
//   features[row, …] = h[row]                      (features given)
#include "common.cuh"

#define THREADS 256
#define VECTORS 4  // hidden sizes up to 8192

__device__ __forceinline__ void unpack(uint4 v, float (&x)[8]) {
  const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ __forceinline__ uint4 pack(const float (&x)[8]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
    words[i] = *reinterpret_cast<unsigned*>(&pair);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
rows(bf16* __restrict__ h, const float* __restrict__ partial, int splits, const long long* __restrict__ ids,
     const bf16* __restrict__ table, const bf16* __restrict__ weight, float eps, bf16* __restrict__ normed,
     bf16* __restrict__ features, int feature_pitch, int hidden, int fresh, const void* next, long long next_bytes) {
  __shared__ float sums[THREADS / 32];
  const int row = blockIdx.x, n = gridDim.x, tid = threadIdx.x, vectors = hidden / 8;
  let_successor_start();
  if (tid == 0 && next_bytes > 0) prefetch_share(next, next_bytes, row, n);
  wait_for_predecessor();

  uint4* mine = reinterpret_cast<uint4*>(h + (size_t)row * hidden);
  float x[VECTORS][8];
  float square = 0.f;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    int i = tid + v * THREADS;
    if (i >= vectors) continue;
    if (ids) {
      unpack(reinterpret_cast<const uint4*>(table + (size_t)ids[row] * hidden)[i], x[v]);
      mine[i] = pack(x[v]);
    } else if (partial) {
      float sum[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
      for (int s = 0; s < splits; ++s) {
        const float4* p = reinterpret_cast<const float4*>(partial + ((size_t)s * n + row) * hidden) + 2 * i;
        float4 low = p[0], high = p[1];
        sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
        sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
      }
      if (fresh) {
#pragma unroll
        for (int j = 0; j < 8; ++j) x[v][j] = rounded(sum[j]);
      } else {
        unpack(mine[i], x[v]);
#pragma unroll
        for (int j = 0; j < 8; ++j) x[v][j] = rounded(x[v][j] + rounded(sum[j]));
      }
      mine[i] = pack(x[v]);
    } else {
      unpack(mine[i], x[v]);
    }
    if (features) reinterpret_cast<uint4*>(features + (size_t)row * feature_pitch)[i] = pack(x[v]);
#pragma unroll
    for (int j = 0; j < 8; ++j) square += x[v][j] * x[v][j];
  }
  if (!normed) return;
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
  if (tid % 32 == 0) sums[tid / 32] = square;
  __syncthreads();
  square = 0.f;
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) square += sums[w];
  const float scale = rsqrtf(square / hidden + eps);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    int i = tid + v * THREADS;
    if (i >= vectors) continue;
    float w[8], y[8];
    unpack(reinterpret_cast<const uint4*>(weight)[i], w);
#pragma unroll
    for (int j = 0; j < 8; ++j) y[j] = w[j] * rounded(x[v][j] * scale);
    reinterpret_cast<uint4*>(normed + (size_t)row * hidden)[i] = pack(y);
  }
}
