// Grid-wide cooperation: every block writes a part, all blocks wait for each other, then every block reads the part of its neighbour. n values
// per turn; out[i] = in[(i + 256) % n], reached only if the other block had written before. `out` has one word more than n at its end, the
// barrier's counter, zero at the start.
//
// What a failure proves: the blocks of a cooperative launch are not all on the GPU at the same time, or do not see each other's memory, as
// fused optimizers and reductions with a grid-wide barrier need. The wait is bounded, so that a failure is a wrong value and no hang.
#pragma once

extern "C" __global__ void ds_cooperative(const unsigned *in, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    // in[0 .. n] are the values; the blocks exchange them through the words behind the counter.
    volatile unsigned *counter = out + n;
    volatile unsigned *exchange = out + n + 1;
    if (i < n) exchange[i] = in[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(out + n, 1u);
        for (unsigned turns = 0; *counter < gridDim.x && turns < 20000000u; ++turns) {
        }
        __threadfence();
    }
    __syncthreads();
    if (i < n) out[i] = *counter == gridDim.x ? exchange[(i + blockDim.x) % n] : 0xdeadbeefu;
}
