/* A fake libnvidia-ml.so.1. Keys beside those of script.h:

   count, driver, nvml, cuda                           of the system
   N.name .capability .total .free .uuid .bus .minor .compute-mode .persistence       of device N (capability as 90 for 9.0)
   N.mig (0 or 1), N.pending, N.places                 MIG mode and the number of places; without N.mig the device has no MIG
   N.I.uuid, N.I.name, N.I.total                       the instance in place I; a place without uuid is empty

   -DWITHOUT_<function> leaves a function out, as an older driver does. */

#define SCRIPT "FAKE_NVML"
#include "script.h"

enum { NOT_SUPPORTED = 3, INVALID_ARGUMENT = 2, NOT_FOUND = 6, MOST = 16 };

/* A handle points into here: devices, then the MIG instances of each. */
static struct unit { int device, instance; } units[MOST][1 + MOST];

static const char *key_of(struct unit *u, const char *what) {
    static char key[128];
    if (u->instance < 0) snprintf(key, sizeof key, "%d.%s", u->device, what);
    else snprintf(key, sizeof key, "%d.%d.%s", u->device, u->instance, what);
    return key;
}

static int text(const char *key, char *out, unsigned size, const char *otherwise) {
    char value[256];
    snprintf(out, size, "%s", lookup(key, value, sizeof value) ? value : otherwise);
    return 0;
}

#define DEVICE(function, u) do { int code = call(#function, (u)->device); if (code) return code; } while (0)
#define SYSTEM(function) do { int code = call(#function, -1); if (code) return code; } while (0)

#ifndef WITHOUT_nvmlInit_v2
int nvmlInit_v2(void) { SYSTEM(nvmlInit_v2); return 0; }
#endif

int nvmlShutdown(void) { SYSTEM(nvmlShutdown); return 0; }

#ifndef WITHOUT_nvmlSystemGetDriverVersion
int nvmlSystemGetDriverVersion(char *out, unsigned size) { SYSTEM(nvmlSystemGetDriverVersion); return text("driver", out, size, "550.144.03"); }
#endif

#ifndef WITHOUT_nvmlSystemGetNVMLVersion
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { SYSTEM(nvmlSystemGetNVMLVersion); return text("nvml", out, size, "12.550.144.03"); }
#endif

#ifndef WITHOUT_nvmlSystemGetCudaDriverVersion_v2
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    SYSTEM(nvmlSystemGetCudaDriverVersion_v2);
    *version = (int)number("cuda", 12040);
    return 0;
}
#endif

int nvmlDeviceGetCount_v2(unsigned *count) { SYSTEM(nvmlDeviceGetCount_v2); *count = (unsigned)number("count", 0); return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct unit **out) {
    int code = call("nvmlDeviceGetHandleByIndex_v2", (int)index);
    if (code) return code;
    if (index >= MOST || index >= number("count", 0)) return INVALID_ARGUMENT;
    *out = &units[index][0];
    (*out)->device = (int)index;
    (*out)->instance = -1;
    return 0;
}

int nvmlDeviceGetName(struct unit *u, char *out, unsigned size) {
    DEVICE(nvmlDeviceGetName, u);
    return text(key_of(u, "name"), out, size, "NVIDIA Fake");
}

int nvmlDeviceGetCudaComputeCapability(struct unit *u, int *major, int *minor) {
    int sm = (int)number(key_of(u, "capability"), 90);
    DEVICE(nvmlDeviceGetCudaComputeCapability, u);
    *major = sm / 10;
    *minor = sm % 10;
    return 0;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo(struct unit *u, struct memory *out) {
    DEVICE(nvmlDeviceGetMemoryInfo, u);
    out->total = number(key_of(u, "total"), 1000);
    out->free = number(key_of(u, "free"), 900);
    return 0;
}

#ifndef WITHOUT_nvmlDeviceGetMemoryInfo_v2
int nvmlDeviceGetMemoryInfo_v2(struct unit *u, struct memory_v2 *out) {
    DEVICE(nvmlDeviceGetMemoryInfo_v2, u);
    if (out->version != (sizeof *out | 2 << 24)) return 25; /* ARGUMENT_VERSION_MISMATCH */
    out->total = number(key_of(u, "total"), 1000);
    out->free = number(key_of(u, "free"), 900);
    return 0;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetUUID
int nvmlDeviceGetUUID(struct unit *u, char *out, unsigned size) {
    char otherwise[64];
    DEVICE(nvmlDeviceGetUUID, u);
    snprintf(otherwise, sizeof otherwise, "GPU-%08d-0000-0000-0000-000000000000", u->device);
    return text(key_of(u, "uuid"), out, size, otherwise);
}
#endif

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

#ifndef WITHOUT_nvmlDeviceGetPciInfo_v3
int nvmlDeviceGetPciInfo_v3(struct unit *u, struct pci *out) {
    char otherwise[32];
    DEVICE(nvmlDeviceGetPciInfo_v3, u);
    memset(out, 0, sizeof *out);
    snprintf(otherwise, sizeof otherwise, "00000000:%02X:00.0", 0x1A + u->device);
    return text(key_of(u, "bus"), out->bus_id, sizeof out->bus_id, otherwise);
}
#endif

int nvmlDeviceGetMinorNumber(struct unit *u, unsigned *out) {
    DEVICE(nvmlDeviceGetMinorNumber, u);
    *out = (unsigned)number(key_of(u, "minor"), (unsigned long long)u->device);
    return 0;
}

int nvmlDeviceGetComputeMode(struct unit *u, unsigned *out) {
    DEVICE(nvmlDeviceGetComputeMode, u);
    *out = (unsigned)number(key_of(u, "compute-mode"), 0);
    return 0;
}

int nvmlDeviceGetPersistenceMode(struct unit *u, unsigned *out) {
    DEVICE(nvmlDeviceGetPersistenceMode, u);
    *out = (unsigned)number(key_of(u, "persistence"), 1);
    return 0;
}

#ifndef WITHOUT_nvmlDeviceGetMigMode
int nvmlDeviceGetMigMode(struct unit *u, unsigned *current, unsigned *pending) {
    unsigned mode = (unsigned)number(key_of(u, "mig"), 9);
    DEVICE(nvmlDeviceGetMigMode, u);
    if (mode == 9) return NOT_SUPPORTED;
    *current = mode;
    *pending = (unsigned)number(key_of(u, "pending"), mode);
    return 0;
}
#endif

int nvmlDeviceGetMaxMigDeviceCount(struct unit *u, unsigned *count) {
    DEVICE(nvmlDeviceGetMaxMigDeviceCount, u);
    *count = (unsigned)number(key_of(u, "places"), 7);
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct unit *u, unsigned index, struct unit **out) {
    char value[128];
    struct unit *found = &units[u->device][1 + index % MOST];
    DEVICE(nvmlDeviceGetMigDeviceHandleByIndex, u);
    found->device = u->device;
    found->instance = (int)index;
    if (!lookup(key_of(found, "uuid"), value, sizeof value)) return NOT_FOUND;
    *out = found;
    return 0;
}
