// The few machine instructions that the builder kernels need beyond CUDA C++: half precision, tensor cores, grid barrier.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

// Dynamic shared memory of this block.
__device__ inline unsigned char* dynamic_shared() {
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];
    return dynamic_shared_bytes;
}

__device__ inline float half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline unsigned short float_to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// acc[16x8] += a[16x16] b[16x8], float16 inputs, float32 accumulation; fragments as mma.m16n8k16 defines them.
__device__ inline void mma_16x8x16(float (&acc)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 16 bytes from global to shared memory without registers; wait_copies() before reading.
__device__ inline void copy_16(void* shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(global));
}

__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ inline void prefetch_l2(const void* global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// Barrier over all blocks of a grid that is resident as a whole. `counter` starts at 0; `round` counts from 1.
__device__ inline void grid_barrier(u32* counter, u32 blocks, u32 round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
        u32 seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        while (seen < blocks * round);
    }
    __syncthreads();
}
