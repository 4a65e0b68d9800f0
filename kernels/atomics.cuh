// Histogram: out[k] counts the values whose lowest byte is k. Each block counts in shared memory, then adds its 256 counts to the result;
// `out` is zero at the start.
//
// What a failure proves: atomic additions are lost, in shared or in global memory, as sorting, quantization and mixture-of-experts routing need.
#pragma once

extern "C" __global__ void ds_atomics(const unsigned *in, unsigned *out, unsigned n) {
    __shared__ unsigned count[256];
    for (unsigned k = threadIdx.x; k < 256; k += blockDim.x) count[k] = 0;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&count[in[i] & 255u], 1u);
    __syncthreads();
    for (unsigned k = threadIdx.x; k < 256; k += blockDim.x) {
        if (count[k] != 0) atomicAdd(&out[k], count[k]);
    }
}
