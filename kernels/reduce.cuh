// Block sums: out[b] is the sum, modulo 2^32, of the 256 values of block b; n is a multiple of 256. Values travel between the lanes of a warp
// by shuffle, then between the warps through shared memory.
//
// What a failure proves: lanes, shared memory or barriers do not work together, as softmax, layer norm and every optimizer's norm need.
// Integers, so the order of the additions cannot excuse a difference.
#pragma once

__device__ __forceinline__ unsigned ds_warp_sum(unsigned value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

extern "C" __global__ void ds_reduce(const unsigned *in, unsigned *out, unsigned n) {
    __shared__ unsigned of_warp[32];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned sum = ds_warp_sum(i < n ? in[i] : 0);
    if (lane == 0) of_warp[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = ds_warp_sum(lane < blockDim.x / 32 ? of_warp[lane] : 0);
        if (lane == 0) out[blockIdx.x] = sum;
    }
}
