/* Stands for the library that the probe builds, with the interface of kernels/probe.h; it computes on the CPU. Keys beside those of script.h,
   device.h and compute.h: abi.

   -DACT_crash, -DACT_hang: what its loading does; -DUNDEFINED: it uses a function that nothing defines; -DUSES: it uses cudaFree. */

#define SCRIPT "FAKE_CUDART"
#include "script.h"
#include "device.h"
#include "compute.h"

#include "../../kernels/probe.h"

#ifdef UNDEFINED
extern int ds_of_nobody(void);
int ds_use(void) { return ds_of_nobody(); }
#endif

#ifdef USES
extern int cudaFree(void *);
int ds_use(void) { return cudaFree(0); }
#endif

static int current = -1;

__attribute__((constructor)) static void loading(void) {
#ifdef ACT_crash
    fputs("about to crash\n", stderr);
    *(volatile int *)0 = 1;
#endif
#ifdef ACT_hang
    for (;;) pause();
#endif
}

static int fail(struct ds_failure *failure, const char *name, int code) {
    snprintf(failure->call, sizeof failure->call, "%s", name);
    failure->code = code;
    snprintf(failure->name, sizeof failure->name, "%s", name_of(code) ? name_of(code) : "");
    return -1;
}

#define ANSWER(function) do { int code = call(#function, current); if (code) return fail(failure, #function, code); } while (0)

int ds_probe_abi(void) { return (int)number("abi", DS_PROBE_ABI); }

int ds_probe_open(int ordinal, struct ds_device *device, struct ds_failure *failure) {
    int devices[MOST];
    ANSWER(cudaGetDeviceCount);
    device->count = visible(devices);
    current = device_of(ordinal);
    if (current < 0) return fail(failure, "cudaGetDeviceCount", 100);
    ANSWER(cudaSetDevice);
    device->runtime = 13000;
    device->driver = 13000;
    device->capability = 10 * attribute_of(current, 75) + attribute_of(current, 76);
    device->processors = attribute_of(current, 16);
    device->cooperative = attribute_of(current, 95);
    device->free_bytes = bytes_of(current, "free");
    device->total_bytes = bytes_of(current, "total");
    return 0;
}

int ds_probe_run(const char *kernel, const void *in, size_t in_bytes, void *out, size_t out_bytes, unsigned n, unsigned blocks,
                 unsigned threads, unsigned repeats, double *seconds, struct ds_failure *failure) {
    int code;
    (void)in_bytes;
    memset(out, 0, out_bytes);
    code = started(kernel, current, in, out, n, blocks, threads);
    if (code) return fail(failure, "cudaLaunchKernel", code);
    code = waited(kernel);
    if (code) return fail(failure, "cudaDeviceSynchronize", code);
    if (repeats) *seconds = 0.001 * repeats;
    return 0;
}
