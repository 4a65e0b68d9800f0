// The device half: a kernel in half precision, whose header needs the C++ core libraries, and a call that libcudart answers without a GPU.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void scale(__half* x, __half by) { x[threadIdx.x] = __hmul(x[threadIdx.x], by); }

const char* words() { return cudaGetErrorString(cudaErrorInvalidDeviceFunction); }
