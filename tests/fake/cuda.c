/* A fake libcuda.so.1. Keys beside those of script.h: version (as CUDA_VERSION: 12040), count (of devices), N.name, N.bus.
   Device memory is host memory, and a stream is always done. -DWITHOUT_<function> leaves a function out. */

#define SCRIPT "FAKE_CUDA"
#include "script.h"

/* The device whose context is current; for the keys of a single device (`1.cuMemAlloc_v2 2`). */
static int current = -1;

static int text(int device, const char *what, char *out, int size, const char *otherwise) {
    char key[64], value[256];
    snprintf(key, sizeof key, "%d.%s", device, what);
    snprintf(out, (size_t)size, "%s", lookup(key, value, sizeof value) ? value : otherwise);
    return 0;
}

#define ASK(function, device) do { int code = call(#function, device); if (code) return code; } while (0)

#ifndef WITHOUT_cuDriverGetVersion
int cuDriverGetVersion(int *version) {
    int code = call("cuDriverGetVersion", -1);
    if (code == 0) *version = (int)number("version", 12040);
    return code;
}
#endif

#ifndef WITHOUT_cuInit
int cuInit(unsigned flags) {
    return flags == 0 ? call("cuInit", -1) : 1;
}
#endif

#ifndef WITHOUT_cuDeviceGetCount
int cuDeviceGetCount(int *count) { ASK(cuDeviceGetCount, -1); *count = (int)number("count", 1); return 0; }
#endif

int cuDeviceGet(int *device, int ordinal) {
    ASK(cuDeviceGet, ordinal);
    if (ordinal < 0 || ordinal >= (int)number("count", 1)) return 101;
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *out, int size, int device) { ASK(cuDeviceGetName, device); return text(device, "name", out, size, "NVIDIA Fake"); }

int cuDeviceGetPCIBusId(char *out, int size, int device) {
    char bus[32];
    ASK(cuDeviceGetPCIBusId, device);
    snprintf(bus, sizeof bus, "0000:%02x:00.0", 0x18 + device);
    return text(device, "bus", out, size, bus);
}

/* A context is the address of its device's number. */
static int devices[64];

int cuDevicePrimaryCtxRetain(void **context, int device) {
    ASK(cuDevicePrimaryCtxRetain, device);
    devices[device % 64] = device;
    *context = &devices[device % 64];
    return 0;
}

int cuCtxSetCurrent(void *context) {
    current = context ? *(int *)context : -1;
    ASK(cuCtxSetCurrent, current);
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags) { (void)flags; ASK(cuStreamCreate, current); *stream = devices; return 0; }

int cuStreamQuery(void *stream) { (void)stream; ASK(cuStreamQuery, current); return 0; }

int cuMemAlloc_v2(unsigned long long *at, size_t size) {
    ASK(cuMemAlloc_v2, current);
    void *memory = malloc(size);
    if (!memory) return 2;
    *at = (unsigned long long)(size_t)memory;
    return 0;
}

int cuMemFree_v2(unsigned long long at) { ASK(cuMemFree_v2, current); free((void *)(size_t)at); return 0; }

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { ASK(cuMemcpyHtoD_v2, current); memcpy((void *)(size_t)to, from, size); return 0; }

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { ASK(cuMemcpyDtoH_v2, current); memcpy(to, (void *)(size_t)from, size); return 0; }

int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t size) { ASK(cuMemsetD8_v2, current); memset((void *)(size_t)to, value, size); return 0; }
