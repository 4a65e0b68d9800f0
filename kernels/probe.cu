// All kernels of the probe in one translation unit: one run of nvcc, as dear as the smallest op's. `host.cpp` starts them.
//
// Each kernel has the form (const T *in, T *out, unsigned n), and a start function that the host half calls, as an extension's .cu and .cpp
// are split. Only <cuda_runtime.h> is needed, which nvcc includes by itself.
#include "atomics.cuh"
#include "cooperative.cuh"
#include "copy.cuh"
#include "half.cuh"
#include "reduce.cuh"
#include "tensor.cuh"
#include "vector_add.cuh"

#include "probe.h"

#define DS_START(name, input, output)                                                                                             \
    extern "C" int name##_start(const void *in, void *out, unsigned n, unsigned blocks, unsigned threads) {                     \
        name<<<blocks, threads>>>(static_cast<const input *>(in), static_cast<output *>(out), n);                               \
        return static_cast<int>(cudaGetLastError());                                                                            \
    }

DS_START(ds_vector_add, float, float)
DS_START(ds_reduce, unsigned, unsigned)
DS_START(ds_atomics, unsigned, unsigned)
DS_START(ds_fp16, unsigned short, unsigned short)
DS_START(ds_bf16, unsigned short, unsigned short)
DS_START(ds_tensor, unsigned short, float)
DS_START(ds_copy, uint4, uint4)

extern "C" int ds_cooperative_start(const void *in, void *out, unsigned n, unsigned blocks, unsigned threads) {
    void *args[] = {&in, &out, &n};
    return static_cast<int>(cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(ds_cooperative), dim3(blocks), dim3(threads), args, 0, 0));
}
