# How the machines of faults.toml are made. Sourced by sh in a mount namespace of its own; LAB, ROOM, VENV and SITE are set.

layers=0
# layer TARGET LOWER...: TARGET shows the folders on top of each other, the first in front. Writable; the originals stay as they are.
layer() {
    to=$1
    shift
    layers=$((layers + 1))
    mkdir -p "$to" "$ROOM/layers/$layers/upper" "$ROOM/layers/$layers/work"
    lower=$(printf ':%s' "$@")
    mount -t overlay overlay -o "lowerdir=${lower#:},upperdir=$ROOM/layers/$layers/upper,workdir=$ROOM/layers/$layers/work" "$to"
}
# toolkit RELEASE: a whole one in /opt/cuda-RELEASE
toolkit() {
    case $1 in
    12.4) layer /opt/cuda-12.4 "$LAB/full-cu124/cuda-12.4" ;;
    13.0) layer /opt/cuda-13.0 "$LAB/full-cu130/nvidia/cu13" ;;
    13.2) # its own programs and runtime; the libraries beside them are 13.0's, which is the same for what is asked here
        layer /opt/cuda-13.2 "$LAB/pip-cu132/nvidia/cu13" "$LAB/full-cu130/nvidia/cu13"
        ;;
    esac
}
# pip_toolkit: what `pip install nvidia-cuda-nvcc …==13.0.*` makes of the environment that has torch
pip_toolkit() { layer "$SITE" "$LAB/pip-cu130" "$SITE"; }
# deepspeed_source: DeepSpeed's sources in $ROOM/deepspeed. Its setup.py and op builders are as released; the two files of fused_lion are
# replaced by the small extension, which compiles in seconds.
deepspeed_source() {
    layer "$ROOM/deepspeed" "$LAB/deepspeed-source"
    cp "$OP/small.cpp" "$ROOM/deepspeed/csrc/lion/fused_lion_frontend.cpp"
    cp "$OP/small_kernel.cu" "$ROOM/deepspeed/csrc/lion/multi_tensor_lion.cu"
}
# debian: this very system with Debian's CUDA 11.8 packages installed, in $ROOM/root
debian() {
    mkdir -p "$ROOM/root"
    cd "$ROOM/root"
    mkdir proc dev sys tmp opt root
    for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$dir"; done
    for dir in proc dev sys; do mount --rbind "/$dir" "$dir"; done
    layer usr "$LAB/deb-cuda118/usr" /usr
    layer etc "$LAB/deb-cuda118/etc" /etc
}
# without_wrapper: Debian's CUDA 11.8 as a toolkit of NVIDIA's layout: the plain nvcc, and no script beside it that picks a fitting gcc
without_wrapper() {
    home=$ROOM/root/opt/cuda-11.8
    own=$ROOM/root/usr/lib/nvidia-cuda-toolkit
    mkdir -p "$home/bin" "$home/nvvm/bin" "$home/include"
    cp -a "$own/bin/nvcc" "$own/bin/crt" "$home/bin/"
    for program in cudafe++ fatbinary nvlink ptxas; do cp -a "$ROOM/root/usr/bin/$program" "$home/bin/"; done
    cp -a "$own/bin/cicc" "$home/nvvm/bin/"
    cp -a "$own/libdevice" "$home/nvvm/"
    cp "$LAB/full-cu124/cuda-12.4/bin/nvcc.profile" "$home/bin/"
    for header in crt cuda.h cuda_fp16.h cuda_fp16.hpp cuda_runtime.h cuda_runtime_api.h cublas_v2.h; do
        ln -s "/usr/include/$header" "$home/include/$header"
    done
    ln -s /usr/lib/x86_64-linux-gnu "$home/lib64"
    rm "$ROOM/root/usr/bin/nvcc"
}
