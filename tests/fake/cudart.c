/* A fake libcudart.so for the objects that nvcc makes: it takes the registered kernels by their names and computes on the CPU. Keys beside those
   of script.h, device.h and compute.h: runtime, driver (13000); asks 1: no device where libcuda.so.1 is of an older major release than the
   runtime, as with the real one. It has the functions of releases 11 to 13. */

#define SCRIPT "FAKE_CUDART"
#include "script.h"
#include "device.h"
#include "compute.h"
#include <dlfcn.h>

struct dim3 { unsigned x, y, z; };
struct registered { const void *host; char name[64]; };

static struct registered kernels[64];
static int registered, current = -1, sticky;
static char last[64];
static struct { struct dim3 grid, block; size_t shared; void *stream; } pushed;

#define ANSWER(function) do { int code = call(#function, current); if (code) return sticky = code; } while (0)

/* An error that a kernel left behind is answered by every later call. */
#define AFTER(function) do { if (sticky) return sticky; ANSWER(function); } while (0)

void **__cudaRegisterFatBinary(void *wrapper) {
    static void *handle;
    handle = wrapper;
    call("__cudaRegisterFatBinary", -1);
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) { (void)handle; return 0; }

void __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name, int limit, void *tid, void *bid, void *block,
                            void *grid, int *warp) {
    (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    if (registered == 64) return;
    kernels[registered].host = host;
    snprintf(kernels[registered].name, sizeof kernels[registered].name, "%s", name);
    registered++;
}

unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, void *stream) {
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}

int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, void *stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *(void **)stream = pushed.stream;
    return 0;
}

static struct registered *of(const void *host) {
    for (int at = 0; at < registered; at++) {
        if (kernels[at].host == host) return &kernels[at];
    }
    return NULL;
}

static int launch(struct registered *kernel, struct dim3 grid, struct dim3 block, void **arguments, int cooperative) {
    if (!kernel) return 98; /* cudaErrorInvalidDeviceFunction */
    if (cooperative != (strcmp(kernel->name, "ds_cooperative") == 0)) return 720;
    snprintf(last, sizeof last, "%s", kernel->name);
    sticky = started(kernel->name, current, *(void **)arguments[0], *(void **)arguments[1], *(unsigned *)arguments[2], grid.x, block.x);
    return sticky;
}

int __cudaGetKernel(struct registered **kernel, const void *host) {
    *kernel = of(host);
    return *kernel ? 0 : 98;
}

int cudaLaunchKernel(const void *host, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, void *stream) {
    AFTER(cudaLaunchKernel);
    return shared || stream ? 1 : launch(of(host), grid, block, arguments, 0);
}

int __cudaLaunchKernel(struct registered *kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, void *stream) {
    AFTER(cudaLaunchKernel);
    return shared || stream ? 1 : launch(kernel, grid, block, arguments, 0);
}

int cudaLaunchCooperativeKernel(const void *host, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, void *stream) {
    AFTER(cudaLaunchCooperativeKernel);
    return shared || stream ? 1 : launch(of(host), grid, block, arguments, 1);
}

int cudaRuntimeGetVersion(int *version) { *version = (int)number("runtime", 13000); return call("cudaRuntimeGetVersion", -1); }
int cudaDriverGetVersion(int *version) { *version = (int)number("driver", 13000); return call("cudaDriverGetVersion", -1); }

static int driver_is_too_old(void) {
    int (*ask)(int *) = NULL, version = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver) *(void **)&ask = dlsym(driver, "cuDriverGetVersion");
    return !ask || ask(&version) || (unsigned long long)version / 1000 < number("runtime", 13000) / 1000;
}

int cudaGetDeviceCount(int *count) {
    int devices[MOST];
    ANSWER(cudaGetDeviceCount);
    if (number("asks", 0) && driver_is_too_old()) return sticky = 35;
    *count = visible(devices);
    return *count == 0 ? 100 : 0;
}

int cudaSetDevice(int ordinal) {
    current = device_of(ordinal);
    ANSWER(cudaSetDevice);
    return current < 0 ? 101 : 0;
}

int cudaDeviceGetAttribute(int *value, int attribute, int ordinal) {
    AFTER(cudaDeviceGetAttribute);
    *value = attribute_of(device_of(ordinal), attribute);
    return *value < 0;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    AFTER(cudaMemGetInfo);
    *free_bytes = bytes_of(current, "free");
    *total = bytes_of(current, "total");
    return 0;
}

int cudaMalloc(void **at, size_t bytes) { AFTER(cudaMalloc); *at = malloc(bytes); return *at ? 0 : 2; }
int cudaFree(void *at) { free(at); return sticky; }
int cudaMemset(void *at, int value, size_t bytes) { AFTER(cudaMemset); memset(at, value, bytes); return 0; }

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    AFTER(cudaMemcpy);
    if (kind != 1 && kind != 2) return 21; /* cudaErrorInvalidMemcpyDirection */
    memcpy(to, from, bytes);
    return 0;
}

int cudaDeviceSynchronize(void) {
    AFTER(cudaDeviceSynchronize);
    return sticky = waited(last);
}

int cudaGetLastError(void) { return sticky; }

const char *cudaGetErrorName(int code) {
    const char *name = name_of(code);
    return name ? name : "unrecognized error code";
}
