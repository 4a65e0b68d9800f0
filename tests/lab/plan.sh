#!/usr/bin/env bash
# DeepSpeed's wheels, built by the commands that `ds-doctor plan` prints and by nothing else, without a GPU: plan.sh DOCTOR LAB
#
# 0.19.8 with four ops for 8.0;9.0+PTX and 0.18.9 with cpu_adam alone; then each is held against what was asked for, and against more. What
# `inspect` reads out of the built ops is held against NVIDIA's cuobjdump.
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
# Once by bash, once by the plain shell, and each in another environment than the plan was made in.
(cd "$work/old" && run "$doctor" plan --ops cpu_adam --wheel --deepspeed 0.18.9 | env -i HOME="$work" PATH=/usr/bin:/bin sh)
(cd "$work/new" && run "${with[@]}" "$doctor" plan --ops "$ops" --wheel --source "$work/source" | env -i HOME="$work" PATH=/usr/bin:/bin bash)
old=$(echo "$work"/old/dist/deepspeed-0.18.9*.whl) new=$(echo "$work"/new/dist/deepspeed-0.19.8*.whl)

verify() { run "${with[@]}" "$doctor" plan --verify "$@"; }
fails() { # fails ID NAME WHEEL...: the finding is about NAME
    local id=$1 name=$2 said
    shift 2
    if said=$(verify "$@"); then echo "should have failed: $*" >&2 && exit 1; fi
    grep "^error\[$id\]" <<<"$said" | grep -qw "$name" || { echo "no $id about $name: $said" >&2 && exit 1; }
    if [ "$(grep -c '^error\[' <<<"$said")" != 1 ]; then echo "more than $id: $said" >&2 && exit 1; fi
}
verify "$new" --ops "$ops"
verify "$old" --ops cpu_adam
fails wheel-lacks-op fused_lamb "$new" --ops "$ops,fused_lamb"
fails wheel-lacks-op utils "$old" --ops cpu_adam,utils
fails binary-lacks-arch sm_100 "$new" --ops "$ops" --gpu h100 --gpu b200

# Every entry of device code of each built op, by target and number.
mkdir "$work/unpacked"
"$lab/torch-venv/bin/python" -m zipfile -e "$new" "$work/unpacked"
for file in $(cd "$work/unpacked" && find . -name '*.so' | sort); do
    run "$doctor" inspect --format json "$work/unpacked/$file" >"$work/said" || true
    "$lab/torch-venv/bin/python" -c 'import json, sys
code = json.load(sys.stdin)["result"]["files"][0]["device_code"]
for row in code["targets"] if code else []: print(row["entries"], row["target"])' <"$work/said" | sort >"$work/ours"
    # `ELF file    1: name.sm_80.cubin`, `PTX file    1: name.sm_90.ptx`
    { "$lab/device-code/nvidia/cu13/bin/cuobjdump" -lelf -lptx "$work/unpacked/$file" 2>/dev/null || true; } |
        sed -nE -e 's/.*\.(sm_[0-9a-z]+)\.cubin$/\1/p' -e 's/.*\.sm_([0-9a-z]+)\.ptx$/compute_\1/p' | sort | uniq -c | awk '{print $1, $2}' | sort >"$work/theirs"
    diff "$work/ours" "$work/theirs" || { echo "inspect and cuobjdump differ about $file" >&2 && exit 1; }
    echo "$file: $(paste -sd, <"$work/theirs")"
done | tee "$work/compared"
grep -q 'fused_adam.*1 compute_90,1 sm_80,1 sm_90' "$work/compared"
