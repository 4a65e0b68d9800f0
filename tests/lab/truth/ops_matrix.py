"""Does `ds-doctor ops` say what DeepSpeed's own builders say? ops_matrix.py DOCTOR LAB RELEASE

The builders of the release run over many machines: real toolkits, compilers and link tests of this one, a torch that is nothing but its own
build code, GPUs made up. Each op's `is_compatible`, what becomes of a pre-build and of a build at first use before a compiler runs, the
flags and the archs are compared with a row of `ops --format json` about the same machine.
"""

import contextlib
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
import stub_torch  # noqa: E402

# Reasons that show before a compiler runs.
BUILDER = {
    "torch-nvcc-mismatch-major",
    "torch-nvcc-mismatch-minor",
    "arch-list-malformed",
    "arch-list-unset-no-gpu",
    "gpu-too-old-for-software",
    "ds-kernels-missing",
    "ds-op-incompatible",
    "cutlass-missing",
    "triton-version",
    "libaio-missing",
    "libaio-not-detected",
    "libaio-too-old",
    "cufile-missing",
    "no-nvcc",
    "cuda-home-unset",
    "cuda-home-wrong",
    "cpu-only-torch",
}


def machines(scratch):
    """Rows: what the environment, torch, GPUs and triton are."""
    lib, cutlass = scratch / "aio", scratch / "cutlass"
    for name, functions in (("new", ("io_submit", "io_pgetevents")), ("old", ("io_submit",))):
        folder = lib / name
        folder.mkdir(parents=True)
        (folder / "aio.c").write_text("".join(f"void {f}(void) {{}}\n" for f in functions))
        nodes = {"new": "LIBAIO_0.4 { io_submit; }; LIBAIO_0.5 { io_pgetevents; };", "old": "LIBAIO_0.4 { io_submit; };"}[name]
        (folder / "map").write_text(nodes)
        command = ["gcc", "-shared", "-fPIC", f"-Wl,--version-script={folder}/map", "-o", folder / "libaio.so", folder / "aio.c"]
        subprocess.run(command, check=True)
    for name, log in (("good", "## 3.1.0\n"), ("old", "## 2.11\n"), ("plain", None)):
        folder = cutlass / name
        (folder / "include" / "cutlass").mkdir(parents=True)
        (folder / "include" / "cutlass" / "cutlass.h").touch()
        if log:
            (folder / "CHANGELOG.md").write_text(log)
    base = {"torch": "2.5.1", "cuda": "12.4", "nvcc": "12.4", "gpus": [], "triton": None, "env": {"TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX", "DS_ACCELERATOR": "cuda"}}

    def row(name, env=None, **more):
        made = {**base, **more, "name": name, "env": {**base["env"], **(env or {})}}
        made["env"] = {k: str(v) for k, v in made["env"].items() if v is not None}
        return made

    rows = [row("plain"), row("no list", {"TORCH_CUDA_ARCH_LIST": None}), row("no accelerator named", {"DS_ACCELERATOR": None})]
    for gpu in ("5.2", "6.1", "7.0", "7.5", "8.0", "8.6", "9.0", "12.0"):
        rows.append(row(f"gpu {gpu}", gpus=[gpu]))
        rows.append(row(f"gpu {gpu}, no list", {"TORCH_CUDA_ARCH_LIST": None}, gpus=[gpu]))
    rows.append(row("two gpus", {"TORCH_CUDA_ARCH_LIST": None, "DS_ACCELERATOR": None}, gpus=["8.0", "9.0"]))
    rows.append(row("two gpus, numbers of two digits", {"TORCH_CUDA_ARCH_LIST": None}, gpus=["8.0", "12.0"]))
    for text in ("", "7.0;8.0", "6.0", "5.2;6.1", "7.0 7.5", "8.0;", "8.0  9.0", "Ampere", "9.0a", "8.0,9.0", "8.0;8.0+PTX", "8", "native"):
        for gpus in ([], ["8.0"]):
            rows.append(row(f"list `{text}`, {len(gpus)} gpus", {"TORCH_CUDA_ARCH_LIST": text}, gpus=gpus))
    for cuda, nvcc, torch in (("12.4", "13.0", "2.5.1"), ("13.0", "13.0", "2.11.0"), ("13.0", "13.2", "2.11.0"), ("13.0", "12.4", "2.11.0"), ("12.1", "12.4", "2.1.2")):
        for gpus in ([], ["9.0"]):
            rows.append(row(f"nvcc {nvcc} under torch {torch} of {cuda}, {len(gpus)} gpus", torch=torch, cuda=cuda, nvcc=nvcc, gpus=gpus))
    rows.append(row("minors differ, check skipped", {"DS_SKIP_CUDA_CHECK": "1"}, torch="2.11.0", cuda="13.0", nvcc="13.2"))
    rows.append(row("detection ignored", {"DS_IGNORE_CUDA_DETECTION": "1"}, gpus=["5.2"]))
    for triton in ("3.2.0", "3.6.0"):
        rows.append(row(f"triton {triton}", triton=triton, gpus=["9.0"]))
    for name in ("new", "old"):
        rows.append(row(f"libaio {name}", {"LIBRARY_PATH": lib / name}))
        rows.append(row(f"libaio {name} by LDFLAGS", {"LDFLAGS": f"-L{lib / name}"}))
    rows.append(row("libaio and a C++ compiler", {"LIBRARY_PATH": lib / "new", "CC": "g++"}))
    rows.append(row("libaio, CPU set", {"LIBRARY_PATH": lib / "new", "DS_ACCELERATOR": "cpu"}))
    for name in ("good", "old", "plain"):
        rows.append(row(f"cutlass {name}", {"CUTLASS_PATH": cutlass / name}, gpus=["9.0"]))
    rows.append(row("cutlass nowhere", {"CUTLASS_PATH": scratch / "none"}))
    rows.append(row("cutlass by word", {"CUTLASS_PATH": "DS_IGNORE_CUTLASS_DETECTION"}))
    rows.append(row("cutlass of Python", {"CUTLASS_PATH": "DS_USE_CUTLASS_PYTHON_BINDINGS"}))
    rows.append(row("cutlass found by search", {"CUTLASS_HOME": cutlass / "good"}, gpus=["9.0"]))
    rows.append(row("all ops in one build", {"DS_BUILD_OPS": "1", "TORCH_CUDA_ARCH_LIST": "5.2;7.0;8.0"}, together=True))
    rows.append(row("all ops in one build, cutlass there", {"DS_BUILD_OPS": "1", "TORCH_CUDA_ARCH_LIST": "6.0;8.0+PTX", "CUTLASS_PATH": cutlass / "good"}, together=True, gpus=["9.0"]))
    return rows


def home(lab, nvcc):
    return {"12.4": lab / "full-cu124/cuda-12.4", "13.0": lab / "full-cu130/nvidia/cu13", "13.2": lab / "pip-cu132/nvidia/cu13"}[nvcc]


def python(lab, triton):
    return {None: lab / "truth-python", "3.2.0": lab / "torch26-venv", "3.6.0": lab / "torch-venv"}[triton] / "bin/python"


def environment(row, lab, folder):
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "DS_NVCC_THREADS": "4", "CUDA_HOME": str(home(lab, row["nvcc"]))}
    return {**env, **row["env"]}


def doctor(program, lab, release, row, folder):
    args = [program, "ops", "--format", "json", "--deepspeed", release, "--python", python(lab, row["triton"])]
    args += ["--assume", f"torch={row['torch']}+cu{row['cuda'].replace('.', '')}"]
    for gpu in row["gpus"]:
        args += ["--gpu", gpu]
    run = subprocess.run(args, capture_output=True, text=True, env=environment(row, lab, folder), cwd=folder)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{row['name']}: {run.stderr}")
    return json.loads(run.stdout)["result"]


@contextlib.contextmanager
def world(row, lab, root, accelerator, folder):
    """The builders of the release, imported anew on this machine."""
    for name in [m for m in sys.modules if m.split(".")[0] in ("op_builder", "accelerator", "deepspeed", "triton", "dskernels", "cutlass", "cutlass_library")]:
        del sys.modules[name]
    devices = [tuple(map(int, gpu.split("."))) for gpu in row["gpus"]]
    before = os.getcwd()
    os.chdir(folder)
    try:
        with stub_torch.environment(environment(row, lab, folder)):
            stub_torch.install(lab / "torch-sources", row["torch"], row["cuda"], devices=devices)
            # setup.py and ds_report make no context.
            sys.modules["torch.cuda"].is_initialized = lambda: False
            for name, members in (("ninja", {}), ("psutil", {"Process": lambda: types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=0))}), ("cpuinfo", {"get_cpu_info": lambda: {"arch": "X86_64", "flags": ["avx2"]}})):
                module = types.ModuleType(name)
                module.__dict__.update(members)
                sys.modules[name] = module
            for name in ("dskernels", "cutlass", "cutlass_library"):
                sys.modules[name] = None
            sys.modules["triton"] = types.SimpleNamespace(__version__=row["triton"]) if row["triton"] else None
            for name in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"):
                sys.modules[name] = types.ModuleType(name)
            sys.modules["deepspeed.accelerator"] = importlib.import_module("accelerator")
            sys.modules["deepspeed.accelerator.abstract_accelerator"] = importlib.import_module("accelerator.abstract_accelerator")
            kind = importlib.import_module(f"accelerator.{accelerator}_accelerator")
            real = importlib.import_module("accelerator.real_accelerator")
            real.ds_accelerator = getattr(kind, accelerator.upper() + "_Accelerator")()
            yield importlib.import_module("op_builder.all_ops").ALL_OPS
    finally:
        os.chdir(before)


def attempt(question):
    try:
        return question(), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".splitlines()[0]


def words(flags):
    simd = {"-D__AVX512__": "{simd}", "-D__AVX256__": "{simd}", "-D__SCALAR__": "{simd}"}
    return sorted({simd.get(flag, flag) for flag in flags if flag})


def truth(ops, row, release, root):
    """What the builders answer, op by op, in the order of a build."""
    cpp = sys.modules["torch.utils.cpp_extension"]
    said = {}
    for name, op in ops.items():
        answer = {}
        keep = dict(os.environ)
        answer["compatible"], answer["raises"] = attempt(lambda: bool(type(op)().is_compatible(verbose=False)))
        given = {}
        cpp.CppExtension = cpp.CUDAExtension = lambda **all: given.update(all) or types.SimpleNamespace(sources=all["sources"])
        if not row.get("together") or answer["compatible"]:
            with contextlib.chdir(root):
                _, answer["builder"] = attempt(lambda: type(op)().builder() and None)
        flags = given.get("extra_compile_args") or {}
        answer["cxx"], answer["nvcc"] = words(flags.get("cxx", [])), words(flags.get("nvcc", []))
        answer["link"] = words(given.get("extra_link_args") or [])
        if not row.get("together"):
            os.environ.clear()
            os.environ.update(keep)
        leaked = dict(os.environ)
        cpp.load = lambda **all: None
        cpp.verify_ninja_availability = lambda: None
        jit = type(op)()
        with contextlib.chdir(root):
            _, answer["jit"] = attempt(lambda: jit.jit_load(verbose=False) and None)
        os.environ.clear()
        os.environ.update(leaked)
        said[name] = answer
    return said


def differences(row, ours, theirs):
    """One line for each thing in which the two differ."""
    later = (("arch-list-malformed", "nvcc fatal"), ("ds-op-incompatible", " includes `"), ("libaio-missing", " includes `"), ("libaio-missing", " links `-laio`"))
    early = lambda way: [w["id"] for w in way["why"] if w["id"] in BUILDER and not any(w["id"] == id and text in w["says"] for id, text in later)]
    # A placeholder that makes an extension of nothing.
    if ours["op"] == "deepspeed_not_implemented":
        return
    if ours["compatible"] != (None if theirs["raises"] else theirs["compatible"]):
        yield f"is_compatible: we say {ours['compatible']}, it {theirs['compatible']} {theirs['raises'] or ''}"
        return
    if ours["compatible"] and "builder" in theirs:
        stops = bool(early(ours["prebuild"]))
        if stops != bool(theirs["builder"]):
            yield f"pre-build: we say {early(ours['prebuild']) or 'it goes on'}, it {theirs['builder'] or 'goes on'}"
        elif not stops and not row["unreadable"]:
            for part in ("cxx", "nvcc", "link"):
                if words(ours["flags"][part]) != theirs[part]:
                    yield f"{part}: ours alone {sorted(set(words(ours['flags'][part])) - set(theirs[part]))}, its alone {sorted(set(theirs[part]) - set(words(ours['flags'][part])))}"
    if row.get("together"):
        return
    stops = bool(early(ours["jit"]))
    if stops != bool(theirs["jit"]) and not LATER.intersection(early(ours["jit"])):
        yield f"first use: we say {early(ours['jit']) or 'it goes on'}, it {theirs['jit'] or 'goes on'}"


# Of a build at first use these show in torch's load(), which is not run here, or when the library is loaded.
LATER = {"torch-nvcc-mismatch-major", "arch-list-unset-no-gpu", "arch-list-malformed", "no-nvcc", "cuda-home-unset"}


def main():
    program, lab, release = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    root = (lab / "deepspeed-ops" / f"deepspeed-{release}").resolve()
    sys.path.insert(0, str(root))
    good, bad = 0, []
    # What the link tests' compilers say is not asked.
    told, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
        folder = pathlib.Path(scratch, "home")
        folder.mkdir()
        for row in machines(pathlib.Path(scratch)):
            ours = doctor(program, lab, release, row, folder)
            with stub_torch.Said(), world(row, lab, root, ours["accelerator"], folder) as ops, open(os.devnull, "w") as null:
                # The link tests redirect the real stream.
                sys.stderr = null
                theirs = truth(ops, row, release, root)
            rows = {op["op"]: op for op in ours["ops"]}
            # What the builders hand on of a list that nvcc refuses is no list.
            row["unreadable"] = any(w["id"] == "arch-list-malformed" for op in ours["ops"] for w in op["prebuild"]["why"])
            for name in sorted({*rows, *theirs}):
                if name not in rows or name not in theirs:
                    bad.append(f"{row['name']}: {name} is {'not ours' if name in theirs else 'not its'}")
                    continue
                found = list(differences(row, rows[name], theirs[name]))
                good += not found
                bad += [f"{row['name']}: {name}: {line}" for line in found]
    os.dup2(told, 2)
    print("\n".join(bad), file=sys.stderr)
    print(f"{release}: {good} rows agree, {len(bad)} differ")
    sys.exit(bool(bad))


main()
