// The host half of the probe, compiled by the C++ compiler alone, as torch compiles the bindings of an extension: CUDA's headers must be found
// without nvcc's help. Linked with probe.o and libcudart into a library that the doctor loads.
//
// Every call of the CUDA runtime is checked; the first failure is handed back with its name and code. Values are judged by the doctor.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "probe.h"

namespace {

int fail(ds_failure *failure, const char *call, int code) {
    const char *name = cudaGetErrorName(static_cast<cudaError_t>(code));
    std::snprintf(failure->call, sizeof failure->call, "%s", call);
    failure->code = code;
    std::snprintf(failure->name, sizeof failure->name, "%s", name ? name : "");
    return -1;
}

// Gives back what it holds, also after a failure. A failure of cudaFree alone is not kept: it repeats an earlier one.
struct Buffer {
    void *at = nullptr;
    ~Buffer() {
        if (at) cudaFree(at);
    }
};

struct Kernel {
    const char *name;
    ds_start *start;
};

const Kernel kernels[] = {
    {"ds_vector_add", ds_vector_add_start}, {"ds_reduce", ds_reduce_start}, {"ds_atomics", ds_atomics_start},
    {"ds_fp16", ds_fp16_start},             {"ds_bf16", ds_bf16_start},     {"ds_tensor", ds_tensor_start},
    {"ds_cooperative", ds_cooperative_start}, {"ds_copy", ds_copy_start},
};

}  // namespace

// The runtime's function is named first, so that the name can be handed back.
#define CHECKED(call, args)                                                                   \
    do {                                                                                     \
        int code = static_cast<int>(call args);                                            \
        if (code != 0) return fail(failure, #call, code);                                    \
    } while (0)

#define STARTED(call)                                                                        \
    do {                                                                                     \
        int code = call;                                                                     \
        if (code != 0) return fail(failure, "cudaLaunchKernel", code);                       \
    } while (0)

int ds_probe_abi(void) { return DS_PROBE_ABI; }

int ds_probe_open(int ordinal, ds_device *device, ds_failure *failure) {
    int major = 0, minor = 0;
    size_t free_bytes = 0, total_bytes = 0;
    CHECKED(cudaRuntimeGetVersion, (&device->runtime));
    CHECKED(cudaDriverGetVersion, (&device->driver));
    CHECKED(cudaGetDeviceCount, (&device->count));
    CHECKED(cudaSetDevice, (ordinal));
    CHECKED(cudaDeviceGetAttribute, (&major, cudaDevAttrComputeCapabilityMajor, ordinal));
    CHECKED(cudaDeviceGetAttribute, (&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
    CHECKED(cudaDeviceGetAttribute, (&device->processors, cudaDevAttrMultiProcessorCount, ordinal));
    CHECKED(cudaDeviceGetAttribute, (&device->cooperative, cudaDevAttrCooperativeLaunch, ordinal));
    CHECKED(cudaMemGetInfo, (&free_bytes, &total_bytes));
    device->capability = 10 * major + minor;
    device->free_bytes = free_bytes;
    device->total_bytes = total_bytes;
    return 0;
}

int ds_probe_run(const char *kernel, const void *in, size_t in_bytes, void *out, size_t out_bytes, unsigned n, unsigned blocks,
                 unsigned threads, unsigned repeats, double *seconds, ds_failure *failure) {
    ds_start *start = nullptr;
    for (const Kernel &known : kernels) {
        if (std::strcmp(known.name, kernel) == 0) start = known.start;
    }
    if (!start) return fail(failure, kernel, static_cast<int>(cudaErrorInvalidValue));
    Buffer from, to;
    CHECKED(cudaMalloc, (&from.at, in_bytes));
    CHECKED(cudaMalloc, (&to.at, out_bytes));
    CHECKED(cudaMemcpy, (from.at, in, in_bytes, cudaMemcpyHostToDevice));
    CHECKED(cudaMemset, (to.at, 0, out_bytes));
    STARTED(start(from.at, to.at, n, blocks, threads));
    CHECKED(cudaDeviceSynchronize, ());
    CHECKED(cudaMemcpy, (out, to.at, out_bytes, cudaMemcpyDeviceToHost));
    if (repeats > 0) {
        auto begin = std::chrono::steady_clock::now();
        for (unsigned turn = 0; turn < repeats; ++turn) STARTED(start(from.at, to.at, n, blocks, threads));
        CHECKED(cudaDeviceSynchronize, ());
        *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    return 0;
}
