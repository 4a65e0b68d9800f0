#!/usr/bin/env bash
# The doctor on a machine with an NVIDIA GPU: under five minutes, no network, nothing written but a temporary folder.
#
#   tests/gpu/run.sh [DS-DOCTOR]
#
# DS-DOCTOR is the built program (default: target/release, then target/debug, then PATH). nvcc is on PATH or below CUDA_HOME; python3 with torch is
# used where it is there. First what must be healthy, then faults that must be found. Ends with a table.
# Exit code: 0 everything as expected, 1 something was not, 2 not run (no GPU, no program, no toolkit).
# Conditions are called by name.
# shellcheck disable=SC2317
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

quit() { printf '%s\n' "$1" >&2; exit 2; }

# ---- what it needs ----

gpu=
for sign in /proc/driver/nvidia/version /dev/dxg /dev/nvhost-gpu; do
    [ -e "$sign" ] && gpu=$sign
done
[ -n "$gpu" ] || quit 'no GPU: not run'

doctor=${1:-}
if [ -z "$doctor" ]; then
    for candidate in "$root/target/release/ds-doctor" "$root/target/debug/ds-doctor" "$(command -v ds-doctor || true)"; do
        [ -x "$candidate" ] && doctor=$candidate && break
    done
fi
[[ -n $doctor && -x $doctor ]] || quit 'no ds-doctor: not run (build it, or name it: tests/gpu/run.sh PATH)'
doctor=$(cd "$(dirname "$doctor")" && pwd)/$(basename "$doctor")

nvcc=${CUDA_HOME:+$CUDA_HOME/bin/nvcc}
[ -x "${nvcc:-}" ] || nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || quit 'no nvcc: not run'
command -v cc >/dev/null || quit 'no C compiler: not run'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# Its cache is not the user's, and what it leaves behind is seen.
export XDG_CACHE_HOME=$work/cache TMPDIR=$work/tmp
mkdir "$TMPDIR"
unset CUDA_VISIBLE_DEVICES TORCH_CUDA_ARCH_LIST

# ---- the rows ----

rows=()
failed=0
# row NAME RESULT DETAIL
row() {
    rows+=("$(printf '%-34s %-8s %5s  %s' "$1" "$2" "${took}s" "$3")")
    if [ "$2" = FAILED ]; then
        failed=1
        printf -- '---- %s: FAILED\n' "$1"
        sed 's/^/    /' "$work/out" "$work/err" 2>/dev/null | head -60
    fi
}

# run COMMAND...: its output in $work/out and $work/err, its exit code in $code, its seconds in $took.
code=0
took=0
run() {
    local begin=$SECONDS
    timeout 150 "$@" >"$work/out" 2>"$work/err"
    code=$?
    took=$((SECONDS - begin))
}

says() { tr -d ' \n' <"$work/out" | grep -qF "$1"; }
finds() { says "\"id\":\"$1\""; }
number_of_gpus() { tr -d ' \n' <"$work/out" | grep -o '"ordinal":' | wc -l; }

# expect NAME DETAIL CONDITION...: the condition holds.
expect() {
    local name=$1 detail=$2
    shift 2
    if "$@"; then row "$name" ok "$detail"; else row "$name" FAILED "expected: $detail (exit $code)"; fi
}

# ---- what must be healthy ----

printf -- '---- versions\n'
"$doctor" --version
"$nvcc" --version | tail -2
cat /proc/driver/nvidia/version 2>/dev/null
command -v nvidia-smi >/dev/null && nvidia-smi -L

printf -- '---- probe\n'
run "$doctor" probe --no-cache -v
cat "$work/out"
run "$doctor" probe --format json
gpus=$(number_of_gpus)
proven() { [ "$code" = 0 ] && says '"toolchain":"proven"' && says '"execution":"proven"'; }
expect 'probe on every GPU' "$gpus GPUs, toolchain and execution proven" proven

printf -- '---- nccl\n'
run "$doctor" nccl
cat "$work/out"
if grep -q 'nccl-not-found' "$work/out"; then row nccl skipped 'no libnccl here'; else expect nccl 'all operations right' [ "$code" = 0 ]; fi

capabilities='import torch; print(";".join(sorted({"%d.%d" % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}, key=lambda c: [int(p) for p in c.split(".")])))'
if torchs=$(python3 -c "$capabilities" 2>/dev/null) && [ -n "$torchs" ]; then
    run "$doctor" arch-list
    expect 'arch-list against torch' "$torchs" [ "$(cat "$work/out")" = "$torchs" ]
else
    took=0
    torchs=
    row 'arch-list against torch' skipped 'no python3 with a torch that sees a GPU'
fi

printf -- '---- check\n'
run "$doctor" check
cat "$work/out"
expect check 'nothing at or above error' [ "$code" = 0 ]

# ---- faults that must be found ----

printf -- '---- faults\n'
run env CUDA_VISIBLE_DEVICES=99 "$doctor" check --static --for run --format json
expect 'mask: no such GPU' cuda-visible-devices-mask finds cuda-visible-devices-mask

run env CUDA_VISIBLE_DEVICES=99 "$doctor" probe --no-ops --format json
expect 'mask: no GPU is run on' 'execution not proven' says '"execution":"not-proven"'

if [ "$gpus" -gt 1 ]; then
    run env CUDA_VISIBLE_DEVICES=$((gpus - 1)) "$doctor" probe --no-ops --format json
    one() { proven && [ "$(number_of_gpus)" = 1 ]; }
    expect 'mask: the last GPU alone' 'one GPU, proven' one
else
    took=0
    row 'mask: the last GPU alone' skipped 'one GPU'
fi

release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
case $release in
    11.*) soname=libcudart.so.11.0 ;;
    *) soname=libcudart.so.${release%%.*} ;;
esac
mkdir "$work/wrong"
echo 'int nothing_of_cuda;' >"$work/wrong.c"
cc -shared -fPIC -Wl,-soname,"$soname" -o "$work/wrong/$soname" "$work/wrong.c"
run env LD_LIBRARY_PATH="$work/wrong${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$doctor" check --format json
impostor() { finds libcudart-impostor || finds ld-library-path-overrides-torch-libs; }
expect "a wrong $soname first" 'libcudart-impostor or ld-library-path-overrides-torch-libs' impostor

mkdir "$work/old"
printf 'count 1\nversion 11000\n0.name Old\n0.capability 90\n' >"$work/old/script"
if cc -shared -fPIC -Wl,-soname,libcuda.so.1 -DSCRIPT_PATH="\"$work/old/script\"" -o "$work/old/libcuda.so.1" "$root/tests/fake/cuda.c"; then
    run env LD_LIBRARY_PATH="$work/old${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$doctor" probe --no-ops --format json
    expect 'a driver library of CUDA 11.0' driver-too-old finds driver-too-old
else
    took=0
    row 'a driver library of CUDA 11.0' FAILED 'tests/fake/cuda.c does not compile'
fi

# Code for 7.5 alone runs on no newer GPU; with PTX the driver compiles it.
oldest=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -V | head -1)
oldest=${oldest:-${torchs%%;*}}
if [ -n "$oldest" ] && [ "${oldest%%.*}" -ge 8 ]; then
    run env TORCH_CUDA_ARCH_LIST=7.5 "$doctor" probe --no-ops --format json
    expect 'no code for the GPU' no-kernel-image finds no-kernel-image
    run env TORCH_CUDA_ARCH_LIST=7.5+PTX "$doctor" probe --no-ops --format json
    if finds ptx-newer-than-driver; then
        row 'PTX only' ok 'the driver is older than the PTX: ptx-newer-than-driver'
    else
        expect 'PTX only' 'compiled by the driver, execution proven' says '"execution":"proven"'
    fi
else
    took=0
    row 'PTX only' skipped "needs GPUs of 8.0 and newer (${oldest:-unknown})"
fi

ls -A "$TMPDIR" >"$work/out"
: >"$work/err"
took=0
expect 'nothing left behind' 'an empty temporary folder' [ ! -s "$work/out" ]

# ---- the table ----

printf '\n%-34s %-8s %6s  %s\n' row result time detail
printf '%s\n' "${rows[@]}"
printf '%s s in all\n' "$SECONDS"
exit "$failed"
