// Tensor-core multiply (7.0 and newer): out = A * B for n tiles of 16 x 16, A and B row-major in fp16, out in fp32. `in` holds A, then B, tile by
// tile: 512 halves a tile. One warp multiplies one tile.
//
// What a failure proves: the tensor cores, or the code made for them, are wrong: every matrix product in half precision would be. The inputs
// are small integers, so that each sum is exact whatever the order and width in which a generation of tensor cores adds; every bit is compared.
#pragma once

extern "C" __global__ void ds_tensor(const unsigned short *in, float *out, unsigned n) {
    unsigned tile = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (tile >= n) return;
#if __CUDA_ARCH__ >= 700
    const unsigned short *a = in + 512 * tile, *b = a + 256;
    float *d = out + 256 * tile;
    unsigned fa[8], fb[8];
    float fd[8];
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], 16;"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]), "=r"(fa[4]), "=r"(fa[5]), "=r"(fa[6]), "=r"(fa[7])
                 : "l"(a)
                 : "memory");
    asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], 16;"
                 : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3]), "=r"(fb[4]), "=r"(fb[5]), "=r"(fb[6]), "=r"(fb[7])
                 : "l"(b)
                 : "memory");
    asm volatile("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, "
                 "{%24, %24, %24, %24, %24, %24, %24, %24};"
                 : "=f"(fd[0]), "=f"(fd[1]), "=f"(fd[2]), "=f"(fd[3]), "=f"(fd[4]), "=f"(fd[5]), "=f"(fd[6]), "=f"(fd[7])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fa[4]), "r"(fa[5]), "r"(fa[6]), "r"(fa[7]), "r"(fb[0]), "r"(fb[1]),
                   "r"(fb[2]), "r"(fb[3]), "r"(fb[4]), "r"(fb[5]), "r"(fb[6]), "r"(fb[7]), "f"(0.0f));
    asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, 16;"
                 :
                 : "l"(d), "f"(fd[0]), "f"(fd[1]), "f"(fd[2]), "f"(fd[3]), "f"(fd[4]), "f"(fd[5]), "f"(fd[6]), "f"(fd[7])
                 : "memory");
#endif
}
