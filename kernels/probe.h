// What the two halves of the probe and the doctor that loads them agree on. Plain C types: the doctor finds the functions by name.
#pragma once

#include <stddef.h>

// Raised with every change of what stands below.
#define DS_PROBE_ABI 1

#ifdef __cplusplus
extern "C" {
#endif

// The call of the CUDA runtime that failed, with its code and that code's name.
struct ds_failure {
    char call[40];
    int code;
    char name[60];
};

struct ds_device {
    int runtime;      // cudaRuntimeGetVersion: 13000 for 13.0
    int driver;       // cudaDriverGetVersion
    int count;        // devices that this process sees
    int capability;   // 90 for 9.0
    int processors;   // multiprocessors
    int cooperative;  // 1: blocks of a grid may wait for each other
    unsigned long long free_bytes, total_bytes;
};

int ds_probe_abi(void);

// Makes this device, by its number among those that the process sees, the current one and describes it. 0, or -1 with the failure.
int ds_probe_open(int ordinal, struct ds_device *device, struct ds_failure *failure);

// Runs a kernel once on a copy of `in`; the result, zero before the run, is copied to `out`. With `repeats` the kernel is then run as often
// again, and `seconds` says how long that took. 0, or -1 with the failure.
int ds_probe_run(const char *kernel, const void *in, size_t in_bytes, void *out, size_t out_bytes, unsigned n, unsigned blocks,
                 unsigned threads, unsigned repeats, double *seconds, struct ds_failure *failure);

// The device half: starts one kernel on device memory and gives the runtime's code.
typedef int ds_start(const void *in, void *out, unsigned n, unsigned blocks, unsigned threads);
ds_start ds_vector_add_start, ds_reduce_start, ds_atomics_start, ds_fp16_start, ds_bf16_start, ds_tensor_start, ds_cooperative_start,
    ds_copy_start;

#ifdef __cplusplus
}
#endif
