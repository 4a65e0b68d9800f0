#!/usr/bin/env bash
# DeepSpeed's wheels, built by the commands that `ds-doctor plan` prints and by nothing else, without a GPU: plan.sh DOCTOR LAB
#
# 0.19.8 with four ops for 8.0;9.0+PTX and 0.18.9 with cpu_adam alone; then each is held against what was asked for, and against more.
set -euo pipefail
doctor=$(realpath "$1") lab=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/stubs"
# PyPI's toolkit has no stub; that of a driver package serves the linker as well.
ln -s "$lab/deb-driver/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so" "$work/stubs/libcuda.so"
run() { env -i HOME="$work" PATH="$lab/torch-venv/bin:/usr/bin:/bin" CUDA_HOME="$lab/full-cu130/nvidia/cu13" "$@"; }
with=(TORCH_CUDA_ARCH_LIST="8.0;9.0+PTX" CPATH="$lab/deb-libaio/usr/include" LIBRARY_PATH="$lab/deb-libaio/usr/lib/x86_64-linux-gnu:$work/stubs")
ops=fused_adam,cpu_adam,utils,async_io
cp -r "$lab/deepspeed-source" "$work/source"

mkdir "$work/new" "$work/old"
(cd "$work/new" && run "${with[@]}" "$doctor" plan --ops "$ops" --wheel --source "$work/source" | env -i HOME="$work" PATH=/usr/bin:/bin bash)
(cd "$work/old" && run "$doctor" plan --ops cpu_adam --wheel --deepspeed 0.18.9 | run bash)

verify() { run "${with[@]}" "$doctor" plan --verify "$@"; }
fails() {
    local id=$1 said
    shift
    if said=$(verify "$@"); then echo "should have failed: $*" >&2 && exit 1; fi
    grep -q "error\[$id\]" <<<"$said" || { echo "no $id: $said" >&2 && exit 1; }
}
verify "$work"/new/dist/deepspeed-0.19.8*.whl --ops "$ops"
verify "$work"/old/dist/deepspeed-0.18.9*.whl --ops cpu_adam
fails wheel-lacks-op "$work"/new/dist/deepspeed-0.19.8*.whl --ops "$ops,fused_lamb"
fails binary-lacks-arch "$work"/new/dist/deepspeed-0.19.8*.whl --ops "$ops" --gpu h100 --gpu b200
