// Copy: out[i] = in[i], 16 bytes a thread and turn, as fast as the memory allows; n is the number of 16-byte words. Timed by the caller.
//
// What a failure proves: values change on their way through the memory of the GPU. A speed far below the card's own figure proves nothing broken,
// but says that the memory is shared (MIG), throttled or in use.
#pragma once

extern "C" __global__ void ds_copy(const uint4 *in, uint4 *out, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i];
}
