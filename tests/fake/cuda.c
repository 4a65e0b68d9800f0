/* A fake libcuda.so.1. Keys beside those of script.h: version (as CUDA_VERSION: 12040). -DWITHOUT_<function> leaves a function out. */

#define SCRIPT "FAKE_CUDA"
#include "script.h"

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
