/* What the fake libraries share: they answer from a text file of `KEY VALUE` lines, named by a variable, or fixed with -DSCRIPT_PATH for a
   process that gets no variables. The first line of a key counts.

   FUNCTION            what every call of it answers (a number; 0 or absent: success)
   N.FUNCTION          the same for device N
   FUNCTION.act        what happens first: crash, abort, hang, exit, print TEXT, flood
   N.FUNCTION.act      the same for device N */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int lookup(const char *key, char *value, size_t size) {
#ifdef SCRIPT_PATH
    const char *path = SCRIPT_PATH;
#else
    const char *path = getenv(SCRIPT);
#endif
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    size_t length = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static unsigned long long number(const char *key, unsigned long long otherwise) {
    char value[64];
    return lookup(key, value, sizeof value) ? strtoull(value, NULL, 10) : otherwise;
}

/* The act of a function, then its code. `device` below 0: none. */
static int call(const char *function, int device) {
    char key[128], value[256], own[128];
    snprintf(key, sizeof key, "%s.act", function);
    snprintf(own, sizeof own, "%d.%s.act", device, function);
    if ((device >= 0 && lookup(own, value, sizeof value)) || lookup(key, value, sizeof value)) {
        if (strcmp(value, "crash") == 0) *(volatile int *)0 = 1;
        if (strcmp(value, "abort") == 0) abort();
        if (strcmp(value, "hang") == 0) for (;;) pause();
        if (strcmp(value, "exit") == 0) exit(3);
        if (strcmp(value, "flood") == 0) for (;;) if (write(1, key, sizeof key) < 0) _exit(4);
        if (strncmp(value, "print ", 6) == 0) { puts(value + 6); fflush(stdout); }
    }
    if (device >= 0) {
        snprintf(key, sizeof key, "%d.%s", device, function);
        if (lookup(key, value, sizeof value)) return atoi(value);
    }
    return (int)number(function, 0);
}
