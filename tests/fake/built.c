/* Stands for the library that the probe builds. -DACT_crash, -DACT_hang: what its loading does; -DUNDEFINED: it uses a function that nothing
   defines; -DUSES: it uses cudaFree, which a fake libcudart has. */

#include <stdio.h>
#include <unistd.h>

#ifdef UNDEFINED
extern int ds_of_nobody(void);
int ds_use(void) { return ds_of_nobody(); }
#endif

#ifdef USES
extern int cudaFree(void *);
int ds_use(void) { return cudaFree(0); }
#endif

__attribute__((constructor)) static void loading(void) {
#ifdef ACT_crash
    fputs("about to crash\n", stderr);
    *(volatile int *)0 = 1;
#endif
#ifdef ACT_hang
    for (;;) pause();
#endif
}

int ds_probe_abi(void) { return 1; }
