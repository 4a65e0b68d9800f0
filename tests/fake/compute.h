/* The kernels of kernels/ on the CPU, by name, as their comments describe them; apart from the doctor's own reference. After script.h.

   KERNEL              what starting it answers (KERNEL.act: what happens at the start; N.KERNEL: on device N)
   KERNEL.sync         what waiting for it answers
   KERNEL.wrong        the 32-bit word of the result whose lowest bit is flipped (N.KERNEL.wrong: on device N) */

/* ldexp is one of the few functions on doubles that the C library itself has. */
extern double ldexp(double, int);

static double power(int exponent) { return ldexp(1, exponent); }

/* To a whole number, ties to even: what is below the unit falls off a double of this size. */
static double whole(double x) {
    volatile double big = x + 6755399441055744.0;
    return big - 6755399441055744.0;
}

static double decode(unsigned bits, int mantissa, int exponent) {
    int bias = (1 << (exponent - 1)) - 1, field = (bits & 0x7fff) >> mantissa;
    double tail = (bits & ((1u << mantissa) - 1)) * power(-mantissa);
    double value = field ? (1 + tail) * power(field - bias) : tail * power(1 - bias);
    return bits >> 15 ? -value : value;
}

/* Overflow is not met: the inputs are small. */
static unsigned encode(double value, int mantissa, int exponent) {
    int bias = (1 << (exponent - 1)) - 1, e = 1 - bias;
    unsigned sign = 0;
    double steps;
    if (value < 0) value = -value, sign = 0x8000;
    while (value >= power(e + 1)) e++;
    steps = whole(value * power(mantissa - e));
    if (steps == power(mantissa + 1)) steps /= 2, e++;
    if (steps < power(mantissa)) return sign | (unsigned)steps; /* subnormal */
    return sign | (unsigned)(e + bias) << mantissa | ((unsigned)steps - (1u << mantissa));
}

static void fused(const unsigned short *in, unsigned short *out, unsigned n, int mantissa, int exponent) {
    for (unsigned i = 0; i < n; i++) {
        double a = decode(in[i], mantissa, exponent), b = decode(in[n + i], mantissa, exponent), c = decode(in[2 * n + i], mantissa, exponent);
        out[i] = (unsigned short)encode(a * b + c, mantissa, exponent);
    }
}

/* 0, or 1 for a kernel that it does not know. */
static int compute(const char *kernel, const void *in, void *out, unsigned n, unsigned blocks, unsigned threads) {
    const unsigned *words = in;
    unsigned *result = out;
    if (strcmp(kernel, "ds_vector_add") == 0) {
        for (unsigned i = 0; i < n; i++) ((float *)out)[i] = ((const float *)in)[i] + ((const float *)in)[n + i];
    } else if (strcmp(kernel, "ds_reduce") == 0) {
        for (unsigned i = 0; i < n; i++) result[i / threads] += words[i];
    } else if (strcmp(kernel, "ds_atomics") == 0) {
        for (unsigned i = 0; i < n; i++) result[words[i] & 255]++;
    } else if (strcmp(kernel, "ds_fp16") == 0) {
        fused(in, out, n, 10, 5);
    } else if (strcmp(kernel, "ds_bf16") == 0) {
        fused(in, out, n, 7, 8);
    } else if (strcmp(kernel, "ds_tensor") == 0) {
        for (unsigned tile = 0; tile < n; tile++) {
            const unsigned short *a = (const unsigned short *)in + 512 * tile, *b = a + 256;
            for (unsigned at = 0; at < 256; at++) {
                double sum = 0;
                for (unsigned k = 0; k < 16; k++) sum += decode(a[at / 16 * 16 + k], 10, 5) * decode(b[k * 16 + at % 16], 10, 5);
                ((float *)out)[256 * tile + at] = (float)sum;
            }
        }
    } else if (strcmp(kernel, "ds_cooperative") == 0) {
        for (unsigned i = 0; i < n; i++) result[i] = words[(i + threads) % n];
        result[n] += blocks;
    } else if (strcmp(kernel, "ds_copy") == 0) {
        memcpy(out, in, 16 * (size_t)n);
    } else {
        return 1;
    }
    return 0;
}

/* Starts a kernel on a device: the script's answer, or the computed result, spoilt where the script says so. */
static int started(const char *kernel, int device, const void *in, void *out, unsigned n, unsigned blocks, unsigned threads) {
    char key[128], value[64];
    int code = call(kernel, device);
    if (code) return code;
    if (compute(kernel, in, out, n, blocks, threads)) return 500; /* NOT_FOUND */
    snprintf(key, sizeof key, "%d.%s.wrong", device, kernel);
    if (lookup(key, value, sizeof value)) ((unsigned *)out)[strtoul(value, NULL, 10)] ^= 1;
    snprintf(key, sizeof key, "%s.wrong", kernel);
    if (lookup(key, value, sizeof value)) ((unsigned *)out)[strtoul(value, NULL, 10)] ^= 1;
    return 0;
}

/* The code that waiting for the kernel started last answers. */
static int waited(const char *kernel) {
    char key[128];
    snprintf(key, sizeof key, "%s.sync", kernel);
    return (int)number(key, 0);
}
