// Half-precision arithmetic: out[i] = a[i] * b[i] + c[i], rounded once, in fp16 (5.3 and newer) and in bf16 (8.0 and newer). `in` holds a, b
// and c after each other.
//
// What a failure proves: the half-precision units, or the code made for them, are wrong: training in fp16 or bf16 cannot work here. The
// instruction is written out, so that a build's half macros and the toolkit's half headers do not matter: the headers are tried by themselves.
// The values are compared bit by bit. Code for a GPU without the instruction writes zeros; the kernel is not started there.
#pragma once

extern "C" __global__ void ds_fp16(const unsigned short *in, unsigned short *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned short d = 0;
#if __CUDA_ARCH__ >= 530
    asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(d) : "h"(in[i]), "h"(in[n + i]), "h"(in[2 * n + i]));
#endif
    out[i] = d;
}

extern "C" __global__ void ds_bf16(const unsigned short *in, unsigned short *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned short d = 0;
#if __CUDA_ARCH__ >= 800
    asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(d) : "h"(in[i]), "h"(in[n + i]), "h"(in[2 * n + i]));
#endif
    out[i] = d;
}
