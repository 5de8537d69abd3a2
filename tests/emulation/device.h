// Enough of CUDA C++ to compile a kernel with g++ and run a whole grid on the CPU: every thread of every block is a
// fiber, barriers and warp operations hand control on. Slow and exact; for tests of small shapes.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __align__(n) alignas(n)
#define __launch_bounds__(...)

struct Size3 { int x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct Barrier { int waiting = 0, gathered = 0, result = 0; unsigned turn = 0; };
struct Warp { Barrier barrier; uint64_t value[32]; uint32_t words[32][6]; };
struct Block { Size3 index; Barrier barrier; std::vector<Warp> warps; unsigned char* shared; };
struct Fiber { void* stack; Block* block; int number; Size3 index; bool done; };

inline Fiber* running;
inline Size3 grid_size, block_size;
void hand_on();

#define threadIdx (running->index)
#define blockIdx (running->block->index)
#define gridDim grid_size
#define blockDim block_size

inline int block_threads() { return block_size.x * block_size.y * block_size.z; }
inline Warp& own_warp() { return running->block->warps[running->number / 32]; }
inline int own_lane() { return running->number % 32; }
inline int warp_threads() { return std::min(32, block_threads() - running->number / 32 * 32); }

// Wait until `count` fibers have come; returns the sum of their values.
inline int meet(Barrier& barrier, int count, int value) {
    const unsigned turn = barrier.turn;
    if (barrier.waiting == 0) barrier.gathered = 0;
    barrier.gathered += value;
    if (++barrier.waiting == count) {
        barrier.waiting = 0;
        barrier.result = barrier.gathered;
        barrier.turn++;
        return barrier.result;
    }
    while (barrier.turn == turn) hand_on();
    return barrier.result;
}

inline void __syncthreads() { meet(running->block->barrier, block_threads(), 0); }
inline int __syncthreads_count(int yes) {
    const int sum = meet(running->block->barrier, block_threads(), yes != 0);
    __syncthreads();
    return sum;
}
inline int __syncthreads_or(int yes) { return __syncthreads_count(yes) != 0; }
inline void __syncwarp(unsigned = ~0u) { meet(own_warp().barrier, warp_threads(), 0); }

// Every lane shows a value; `combine` reads all of them.
template <class F> auto with_lanes(uint64_t value, F combine) {
    Warp& warp = own_warp();
    warp.value[own_lane()] = value;
    __syncwarp();
    const auto result = combine(warp.value);
    __syncwarp();
    return result;
}
template <class T> T __shfl_sync(unsigned, T value, int source) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = with_lanes(bits, [&](uint64_t* all) { return all[source & 31]; });
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits) { return __shfl_sync(mask, value, own_lane() ^ bits); }
inline unsigned __ballot_sync(unsigned, int yes) {
    return with_lanes(yes != 0, [](uint64_t* all) {
        unsigned votes = 0;
        for (int i = 0; i < warp_threads(); i++) votes |= (unsigned)all[i] << i;
        return votes;
    });
}
inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    return with_lanes(value, [](uint64_t* all) { return (unsigned)*std::max_element(all, all + warp_threads()); });
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
    return with_lanes(value, [](uint64_t* all) { return (unsigned)*std::min_element(all, all + warp_threads()); });
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T, class V> T atomicAdd(T* p, V v) { T old = *p; *p = old + v; return old; }
template <class T, class V> T atomicMin(T* p, V v) { T old = *p; *p = std::min<T>(old, v); return old; }
template <class T, class V> T atomicMax(T* p, V v) { T old = *p; *p = std::max<T>(old, v); return old; }
template <class To, class From> To same_bits(From from) { To to; std::memcpy(&to, &from, sizeof(To)); return to; }
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldg(const T* p) { return *p; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
