// What the builder kernels share: ordered keys, block reductions, the finished tree's arrays.
#pragma once
#include "builder_ptx.cuh"

#define NEG_INF __uint_as_float(0xff800000u)

// Order-preserving bits of a float; -0 and +0 are the same value.
__device__ inline u32 ordered(float x) {
    u32 bits = __float_as_uint(x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float unordered(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// (value, then lower id) as one number: larger comes first.
__device__ inline u64 composite(float value, int id) {
    return (u64)ordered(value) << 32 | (0xffffffffu - (u32)id);
}

__device__ inline int id_of(u64 entry) {
    return (int)(0xffffffffu - (u32)entry);
}

__device__ inline float warp_max(float x) {
    for (int step = 16; step; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

__device__ inline float warp_sum(float x) {
    for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ inline int warp_sum(int x) {
    for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// Sum over the block's threads, returned to all; `scratch` holds one int per warp.
__device__ inline int block_sum(int x, int* scratch) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    int lane = threadIdx.x % 32;
    x = warp_sum(lane < (int)blockDim.x / 32 ? scratch[lane] : 0);
    __syncthreads();
    return x;
}
