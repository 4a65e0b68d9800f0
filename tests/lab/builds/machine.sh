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
