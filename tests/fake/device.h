/* The devices that the fake driver and the fake runtime show. After script.h.

   count                                      devices of the machine (1)
   N.name .uuid .capability .processors .cooperative .total .free .clock .width        of device N; free in MB, clock in kHz, width in bits
   N.instance                                 the UUID of the one MIG instance of it

   CUDA_VISIBLE_DEVICES is applied: numbers, and UUIDs as `GPU-…` or `MIG-…`. */

enum { MOST = 16 };

static const char *key_of(int device, const char *what) {
    static char key[128];
    snprintf(key, sizeof key, "%d.%s", device, what);
    return key;
}

static void uuid_of(int device, const char *what, char *out, size_t size) {
    if (!lookup(key_of(device, what), out, size)) snprintf(out, size, "GPU-%08d-0000-0000-0000-000000000000", device);
}

/* Fills in the numbers of the visible devices; how many. */
static int visible(int *devices) {
    int count = (int)number("count", 1), found = 0;
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    char copy[1024], *item, *rest;
    if (!mask) {
        for (; found < count && found < MOST; found++) devices[found] = found;
        return found;
    }
    snprintf(copy, sizeof copy, "%s", mask);
    for (item = strtok_r(copy, ",", &rest); item && found < MOST; item = strtok_r(NULL, ",", &rest)) {
        int device = -1;
        if (strncmp(item, "GPU-", 4) == 0 || strncmp(item, "MIG-", 4) == 0) {
            for (int at = 0; at < count; at++) {
                char uuid[64];
                uuid_of(at, item[0] == 'M' ? "instance" : "uuid", uuid, sizeof uuid);
                if (strncmp(uuid, item, strlen(item)) == 0) device = at;
            }
        } else {
            device = atoi(item);
        }
        if (device < 0 || device >= count) break;
        devices[found++] = device;
    }
    return found;
}

/* The number of the device that this process calls so, or -1. */
static int device_of(int ordinal) {
    int devices[MOST], count = visible(devices);
    return ordinal >= 0 && ordinal < count ? devices[ordinal] : -1;
}

/* By the numbers of CUdevice_attribute, which are those of cudaDeviceAttr; -1 for one that is not known here. */
static int attribute_of(int device, int attribute) {
    int sm = (int)number(key_of(device, "capability"), 90);
    switch (attribute) {
        case 16: return (int)number(key_of(device, "processors"), 4);
        case 36: return (int)number(key_of(device, "clock"), 2619000);
        case 37: return (int)number(key_of(device, "width"), 5120);
        case 75: return sm / 10;
        case 76: return sm % 10;
        case 95: return (int)number(key_of(device, "cooperative"), 1);
        default: return -1;
    }
}

static size_t bytes_of(int device, const char *what) {
    return (size_t)number(key_of(device, what), 8000) << 20;
}

/* Names of the codes that tests use, in the driver's way of writing. */
static const char *name_of(int code) {
    switch (code) {
        case 0: return "CUDA_SUCCESS";
        case 1: return "CUDA_ERROR_INVALID_VALUE";
        case 2: return "CUDA_ERROR_OUT_OF_MEMORY";
        case 34: return "CUDA_ERROR_STUB_LIBRARY";
        case 35: return "CUDA_ERROR_INSUFFICIENT_DRIVER";
        case 46: return "CUDA_ERROR_DEVICE_UNAVAILABLE";
        case 100: return "CUDA_ERROR_NO_DEVICE";
        case 101: return "CUDA_ERROR_INVALID_DEVICE";
        case 209: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
        case 214: return "CUDA_ERROR_ECC_UNCORRECTABLE";
        case 221: return "CUDA_ERROR_JIT_COMPILER_NOT_FOUND";
        case 222: return "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
        case 700: return "CUDA_ERROR_ILLEGAL_ADDRESS";
        case 719: return "CUDA_ERROR_LAUNCH_FAILED";
        case 802: return "CUDA_ERROR_SYSTEM_NOT_READY";
        case 803: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
        case 804: return "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
        case 999: return "CUDA_ERROR_UNKNOWN";
        default: return NULL;
    }
}
