/* A fake libcuda.so.1, which computes on the CPU. Keys beside those of script.h, device.h and compute.h:

   version             as CUDA_VERSION: 12040
   N.bus               0000:18:00.0
   ptx                 the newest PTX that it compiles, 83 for 8.3 (any)

   A cubin for it is a real one, or a text file `cubin 90`. A stream is always done. -DWITHOUT_FUNCTION leaves out a function that says so below; any other is
   left out by another name, -DFUNCTION=NAME. */

#define SCRIPT "FAKE_CUDA"
#include "script.h"
#include "device.h"
#include "compute.h"

struct module { int binary; };
struct function { struct module *module; char name[64]; };

static int current = -1;      /* the device whose context is current, for the keys of a single device */
static int devices[MOST];     /* a context is the address of its device's number */
static char last[64];         /* the kernel started last */

#define ANSWER(function, device) do { int code = call(#function, device); if (code) return code; } while (0)

#ifndef WITHOUT_cuDriverGetVersion
int cuDriverGetVersion(int *version) {
    int code = call("cuDriverGetVersion", -1);
    if (code == 0) *version = (int)number("version", 12040);
    return code;
}
#endif

#ifndef WITHOUT_cuInit
int cuInit(unsigned flags) {
    int seen[MOST], count, code;
    if (flags != 0) return 1;
    ANSWER(cuInit, -1);
    count = visible(seen);
    /* One bad GPU among those that are visible is enough. */
    for (int at = 0; at < count; at++) {
        code = (int)number(key_of(seen[at], "cuInit"), 0);
        if (code) return code;
    }
    return count == 0 ? 100 : 0;
}
#endif

#ifndef WITHOUT_cuDeviceGetCount
int cuDeviceGetCount(int *count) {
    int seen[MOST];
    ANSWER(cuDeviceGetCount, -1);
    *count = visible(seen);
    return 0;
}
#endif

int cuDeviceGet(int *device, int ordinal) {
    ANSWER(cuDeviceGet, device_of(ordinal));
    if (device_of(ordinal) < 0) return 101;
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
    char value[128];
    ANSWER(cuDeviceGetName, device_of(device));
    snprintf(name, (size_t)size, "%s", lookup(key_of(device_of(device), "name"), value, sizeof value) ? value : "NVIDIA Fake");
    return 0;
}

int cuDeviceGetPCIBusId(char *bus, int size, int device) {
    char value[32];
    ANSWER(cuDeviceGetPCIBusId, device_of(device));
    if (!lookup(key_of(device_of(device), "bus"), value, sizeof value)) snprintf(value, sizeof value, "0000:%02x:00.0", 0x18 + device_of(device));
    snprintf(bus, (size_t)size, "%s", value);
    return 0;
}

static void bytes_of_uuid(const char *text, unsigned char *out) {
    int digits = 0;
    memset(out, 0, 16);
    for (text += 4; *text && digits < 32; text++) {
        if (*text == '-') continue;
        out[digits / 2] |= (unsigned char)((*text <= '9' ? *text - '0' : *text - 'a' + 10) << (digits % 2 ? 0 : 4));
        digits++;
    }
}

int cuDeviceGetUuid(unsigned char *out, int device) {
    char uuid[64];
    ANSWER(cuDeviceGetUuid, device_of(device));
    uuid_of(device_of(device), "uuid", uuid, sizeof uuid);
    bytes_of_uuid(uuid, out);
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char *out, int device) {
    char uuid[64];
    ANSWER(cuDeviceGetUuid_v2, device_of(device));
    if (!lookup(key_of(device_of(device), "instance"), uuid, sizeof uuid)) uuid_of(device_of(device), "uuid", uuid, sizeof uuid);
    bytes_of_uuid(uuid, out);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ANSWER(cuDeviceGetAttribute, device_of(device));
    *value = attribute_of(device_of(device), attribute);
    return *value < 0;
}

int cuGetErrorName(int code, const char **name) {
    *name = name_of(code);
    return *name == NULL;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    ANSWER(cuDevicePrimaryCtxRetain, device_of(device));
    devices[device_of(device)] = device_of(device);
    *context = &devices[device_of(device)];
    return 0;
}

int cuCtxSetCurrent(void *context) {
    current = context ? *(int *)context : -1;
    ANSWER(cuCtxSetCurrent, current);
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    ANSWER(cuStreamCreate, current);
    *stream = devices;
    return 0;
}

int cuStreamQuery(void *stream) {
    (void)stream;
    ANSWER(cuStreamQuery, current);
    return 0;
}

int cuCtxSynchronize(void) {
    ANSWER(cuCtxSynchronize, current);
    return waited(last);
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ANSWER(cuMemGetInfo_v2, current);
    *free_bytes = bytes_of(current, "free");
    *total = bytes_of(current, "total");
    return 0;
}

int cuModuleLoadDataEx(struct module **module, const char *image, unsigned count, int *options, void **values) {
    int sm = (int)number(key_of(current, "capability"), 90), binary = 0, major, minor;
    const char *ptx = strstr(image, ".version ");
    ANSWER(cuModuleLoadDataEx, current);
    if (memcmp(image, "\177ELF", 4) == 0) {
        /* The target stands in e_flags: in the second byte since CUDA 13 (ABI version 8), in the first before. */
        binary = (unsigned char)image[48 + (image[8] >= 8)];
    } else if (sscanf(image, "cubin %d", &binary) != 1) {
        binary = 0;
    }
    if (binary) {
        if (binary / 10 != sm / 10 || binary % 10 > sm % 10) return 209;
    } else if (ptx && sscanf(ptx, ".version %d.%d", &major, &minor) == 2) {
        if ((unsigned)(10 * major + minor) > number("ptx", 999)) {
            for (unsigned at = 0; at < count; at++) {
                if (options[at] == 5) snprintf(values[at], 64, "ptxas application ptx input, line 9; fatal   : too new\n");
            }
            return 222;
        }
        binary = sm;
    } else {
        return 200; /* INVALID_IMAGE */
    }
    *module = malloc(sizeof **module);
    (*module)->binary = binary;
    return 0;
}

int cuModuleUnload(struct module *module) {
    free(module);
    return 0;
}

int cuModuleGetFunction(struct function **function, struct module *module, const char *name) {
    ANSWER(cuModuleGetFunction, current);
    *function = malloc(sizeof **function);
    (*function)->module = module;
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, struct function *function) {
    if (attribute != 6) return 1; /* BINARY_VERSION */
    *value = function->module->binary;
    return 0;
}

int cuMemAlloc_v2(void **at, size_t bytes) {
    ANSWER(cuMemAlloc_v2, current);
    *at = malloc(bytes);
    return *at ? 0 : 2;
}

int cuMemFree_v2(void *at) {
    free(at);
    return 0;
}

int cuMemsetD8_v2(void *at, unsigned char value, size_t bytes) {
    ANSWER(cuMemsetD8_v2, current);
    memset(at, value, bytes);
    return 0;
}

int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) {
    ANSWER(cuMemcpyHtoD_v2, current);
    memcpy(to, from, bytes);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) {
    ANSWER(cuMemcpyDtoH_v2, current);
    memcpy(to, from, bytes);
    return 0;
}

static int launch(struct function *function, unsigned blocks, unsigned threads, void **arguments) {
    snprintf(last, sizeof last, "%s", function->name);
    return started(function->name, current, *(void **)arguments[0], *(void **)arguments[1], *(unsigned *)arguments[2], blocks, threads);
}

int cuLaunchKernel(struct function *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared,
                   void *stream, void **arguments, void **extra) {
    ANSWER(cuLaunchKernel, current);
    if (y != 1 || z != 1 || ty != 1 || tz != 1 || shared || stream || extra) return 1;
    /* Blocks that wait for each other need the other call. */
    if (strcmp(function->name, "ds_cooperative") == 0) return 720;
    return launch(function, x, tx, arguments);
}

int cuLaunchCooperativeKernel(struct function *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                              unsigned shared, void *stream, void **arguments) {
    ANSWER(cuLaunchCooperativeKernel, current);
    if (y != 1 || z != 1 || ty != 1 || tz != 1 || shared || stream) return 1;
    return launch(function, x, tx, arguments);
}
