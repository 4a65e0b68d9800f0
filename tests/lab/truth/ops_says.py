"""What the builders of one release of DeepSpeed say of each op: ops_says.py TORCH_SOURCES DEEPSPEED_SOURCES RELEASE ACCELERATOR

One JSON object on stdout, from the op's name to: "class", "variable", "module", "kind" (of extension that setup.py makes), "sources",
"include_paths", "headers" (what the op's own files include from elsewhere, by the real preprocessor), "cxx", "nvcc", "link" (flags, with
the machine's parts named {cuda}, {march}, {simd}, {threads}, {arch}, {std}, {kernels}), "gates" (what is_compatible asks for, found by
asking it about many machines) and "kept" (what it leaves of an arch list).
"""

import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

import stub_torch

TORCH = ("2.5.1", "12.4")
CAPABILITIES = [(5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (9, 0), (12, 0)]
TRITONS = [None, "1.0.0", "1.1.1", "2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.3.1", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.6.0"]


class Machine:
    """A machine that can be made anew between two questions, since a builder reads it at each."""

    def __init__(self, scratch):
        self.home = scratch / "cuda"
        self.cutlass = scratch / "cutlass"
        (self.home / "bin").mkdir(parents=True)
        (self.home / "lib64").mkdir()
        self.empty = scratch / "empty"
        self.empty.mkdir()
        (self.cutlass / "include" / "cutlass").mkdir(parents=True)
        (self.cutlass / "include" / "cutlass" / "cutlass.h").touch()
        (self.cutlass / "CHANGELOG.md").write_text("## 3.1.0\n")
        nvcc = self.home / "bin" / "nvcc"
        nvcc.write_text('#!/bin/sh\necho "Cuda compilation tools, release $FAKE_NVCC, V$FAKE_NVCC.0"\n')
        nvcc.chmod(0o755)
        self.functions = []
        self.optional = set()

    def environment(self, **more):
        base = {
            "PATH": os.environ["PATH"],
            "CUDA_HOME": str(self.home),
            "CUTLASS_PATH": str(self.cutlass),
            "FAKE_NVCC": "12.4",
            "TORCH_CUDA_ARCH_LIST": "9.0",
        }
        base.update(more)
        return stub_torch.environment({k: v for k, v in base.items() if v is not None})

    def set_gpu(self, capability):
        cuda = sys.modules["torch.cuda"]
        there = capability is not None
        cuda.is_available = lambda: there
        cuda.is_initialized = lambda: there
        cuda.device_count = lambda: int(there)
        cuda.get_device_capability = lambda i=0: capability
        cuda.get_device_properties = lambda i=0: types.SimpleNamespace(major=capability[0], minor=capability[1])


def fake_module(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


def set_triton(version):
    # None in sys.modules makes the import fail, whatever is installed.
    sys.modules["triton"] = None
    if version is not None:
        fake_module("triton", __version__=version)


def load(torch_sources, root, accelerator):
    """The ALL_OPS of the release's own code."""
    stub_torch.install(torch_sources, *TORCH)
    sys.path.insert(0, str(root))
    fake_module("ninja")
    memory = types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=0))
    fake_module("psutil", Process=lambda: memory)
    fake_module("dskernels", library_path=lambda: "{kernels}")
    fake_module("cpuinfo", get_cpu_info=lambda: {"arch": "X86_64", "flags": ["avx2"]})
    set_triton(None)
    fake_module("intel_extension_for_pytorch")
    fake_module("oneccl_bindings_for_pytorch")
    os.cpu_count = lambda: 4
    # Chosen as the release chooses it, but for its detection: 0.12.6 dies in it when DS_ACCELERATOR says cuda.
    if not (root / "accelerator" / f"{accelerator}_accelerator.py").exists():
        return {}
    sys.modules["deepspeed.accelerator"] = importlib.import_module("accelerator")
    sys.modules["deepspeed.accelerator.abstract_accelerator"] = importlib.import_module("accelerator.abstract_accelerator")
    kind = importlib.import_module(f"accelerator.{accelerator}_accelerator")
    real = importlib.import_module("accelerator.real_accelerator")
    real.ds_accelerator = getattr(kind, accelerator.upper() + "_Accelerator")()
    return importlib.import_module("op_builder.all_ops").ALL_OPS


def ask(question):
    """The answer, or the error's type: some builders raise where others say no."""
    try:
        return question()
    except Exception as error:
        return type(error).__name__ + ": " + str(error).splitlines()[0]


def named(flags, machine, root):
    """Flags with this machine's parts replaced by names."""
    if not isinstance(flags, list):
        return flags
    known = {"-march=native": "{march}", "-D__AVX256__": "{simd}", "-DBF16_AVAILABLE": "{bf16}"}
    out = []
    for flag in flags:
        if flag.startswith("-gencode"):
            flag = "{arch}"
        elif flag.startswith("--threads="):
            flag = "{threads}"
        flag = known.get(flag, flag)
        flag = flag.replace(str(machine.home), "{cuda}").replace(str(machine.cutlass), "{cutlass}").replace(str(root) + "/", "")
        flag = flag.replace("deepspeed/{kernels}", "{kernels}")
        if flag and not (flag == "{arch}" and "{arch}" in out):
            out.append(flag)
    return out


def gates(op, machine):
    """What is_compatible depends on."""
    torch = sys.modules["torch"]

    def fits(**env):
        with machine.environment(**env):
            # A builder made anew: some read the environment when they are made.
            return ask(lambda: bool(type(op)().is_compatible(verbose=False)))

    def on(capability, torch_cuda="12.4", **env):
        machine.set_gpu(capability)
        torch.version.cuda = torch_cuda
        try:
            return fits(**env)
        finally:
            machine.set_gpu(None)
            torch.version.cuda = TORCH[1]

    found = {}
    # A triton that suits the op, where one does, so that the other questions are not answered by it.
    suits = []
    for version in TRITONS:
        set_triton(version)
        if fits() is True:
            suits.append(version)
    set_triton(suits[-1] if suits else None)
    if not suits:
        # An op of the days of torch 1.
        set_triton("1.0.0")
        release, torch.__version__ = torch.__version__, "1.13.1"
        found["old_torch"] = fits()
        torch.__version__ = release
    if len(suits) != len(TRITONS):
        found["triton"] = [v for v in suits]
    found["gpu"] = [f"{a}.{b}" for a, b in CAPABILITIES if on((a, b)) is True]
    found["old_torch_cuda"] = [f"{a}.{b}" for a, b in CAPABILITIES if on((a, b), torch_cuda="10.2") is True]
    found["old_nvcc"] = [f"{a}.{b}" for a, b in CAPABILITIES if on((a, b), FAKE_NVCC="10.2") is True]
    found["ignored"] = on((5, 0), DS_IGNORE_CUDA_DETECTION="1")
    found["no_cutlass"] = fits(CUTLASS_PATH=None)
    # A place that only a search finds.
    found["found_cutlass"] = fits(CUTLASS_PATH=None, CUTLASS_HOME=str(machine.cutlass))
    found["magic_cutlass"] = fits(CUTLASS_PATH="DS_IGNORE_CUTLASS_DETECTION")
    real = sys.platform
    for platform in ("win32", "darwin"):
        sys.platform = platform
        found[platform] = fits()
    sys.platform = real
    extension = sys.modules["torch.utils.cpp_extension"]
    home, extension.CUDA_HOME = extension.CUDA_HOME, None
    found["no_cuda_home"] = fits()
    extension.CUDA_HOME = home
    # The functions that it looks for in a library, and whether it minds.
    machine.functions.clear()
    fits()
    tested = sorted({(f, *libraries) for f, libraries in machine.functions})
    found["functions"] = tested
    return found


def headers(sources, include_paths, root, empty, optional):
    """What the preprocessor cannot find of the op's own includes, with the op's folders alone on its path."""
    missing = set()
    # The preprocessor wants one folder at least.
    folders = [*include_paths, empty]
    for source in sources:
        # The preprocessor would take a missing file for one yet to be made.
        if not (root / source).is_file():
            raise FileNotFoundError(root / source)
        command = ["g++", "-x", "c++", "-E", "-M", "-MG", "-nostdinc", "-nostdinc++", "-w", "-undef", "-D__x86_64__", "-D__linux__"]
        command += [f"-D{d}" for d in ("BF16_AVAILABLE", "__AVX256__")] + [f"-I{f}" for f in folders] + [str(root / source)]
        if source.endswith(".cu"):
            command.insert(1, "-D__CUDACC__")
        run = subprocess.run(command, capture_output=True, text=True, cwd=root)
        if run.returncode:
            raise RuntimeError(f"{source}: {run.stderr.splitlines()[:3]}")
        made = run.stdout.replace("\\\n", " ").split(":", 1)[1].split()
        missing.update(h for h in made if not pathlib.Path(h).is_absolute() and not (root / h).exists())
    return sorted(missing - optional)


def optional_headers(root):
    """Of which the sources take one or another, as the compiler finds them."""
    found = set()
    for file in [*root.glob("csrc/**/*.h"), *root.glob("deepspeed/**/*.h")]:
        for block in re.findall(r"#\s*if.*__has_include.*?#\s*endif", file.read_text(errors="replace"), re.DOTALL):
            found.update(re.findall(r"#\s*include\s*<([^>]+)>", block))
    return found


def describe(op, machine, root):
    file = pathlib.Path(sys.modules[type(op).__module__].__file__).relative_to(root)
    kinds = [k.__name__ for k in type(op).__mro__]
    op.jit_mode = False
    op.build_for_cpu = False
    with machine.environment():
        extension = {}

        def seen(kind):
            def make(**given):
                extension.update(kind=kind, **given)
                return types.SimpleNamespace(sources=given["sources"])

            return make

        cpp = sys.modules["torch.utils.cpp_extension"]
        cpp.CppExtension, cpp.CUDAExtension = seen("cpp"), seen("cuda")
        blind = ask(lambda: op.builder() and None)
        extension.clear()
        op = type(op)()
        machine.set_gpu((9, 0))
        error = ask(lambda: op.builder() and None)
        flags = extension.get("extra_compile_args") or {}
        # async_io asks for another standard with a torch before 2.1, by the version's text.
        torch = sys.modules["torch"]
        release, torch.__version__ = torch.__version__, "2.0.1"
        old_cxx = ask(lambda: list(op.cxx_args()))
        torch.__version__ = release
        op_link = ask(lambda: list(op.extra_ldflags()))
        include_paths = extension.get("include_dirs") or ask(op.include_paths)
        sources = ask(lambda: op.strip_empty_entries(op.sources()))
        link = list(extension.get("extra_link_args") or []) + [f"-l{l}" for l in extension.get("libraries") or []]
        folders = [str(root / i) for i in include_paths] if isinstance(include_paths, list) else []
        said = {
            "class": type(op).__name__,
            "file": str(file),
            "kinds": kinds[1:-2],
            "variable": op.BUILD_VAR,
            "module": op.absolute_name(),
            "error": error,
            "error_without_gpu": blind,
            "kind": extension.get("kind"),
            "sources": sources,
            "include_paths": named(folders, machine, root),
            "cxx": named(flags.get("cxx", []), machine, root),
            "cxx_torch_2_0": named(old_cxx, machine, root),
            "nvcc": named(flags.get("nvcc", []), machine, root),
            "link": named(link, machine, root),
            "jit_link": named(op_link, machine, root),
        }
        said["headers"] = headers(sources, [i for i in folders if i.startswith(str(root))], root, machine.empty, machine.optional)
        given = [f"{a}.{b}" for a, b in CAPABILITIES]
        kept = ask(lambda: [".".join(c) if isinstance(c, list) else c for c in op.filter_ccs(list(given))]) if hasattr(op, "filter_ccs") else given
        said["kept"] = kept
    machine.set_gpu(None)
    said["gates"] = gates(op, machine)
    return said


def main():
    torch_sources, sources, release, accelerator = sys.argv[1:]
    root = pathlib.Path(sources, "deepspeed-" + release).resolve()
    with tempfile.TemporaryDirectory(prefix="ops-") as scratch:
        machine = Machine(pathlib.Path(scratch))
        machine.optional = optional_headers(root)
        os.chdir(root)
        with stub_torch.Said() as said, machine.environment():
            ops = load(torch_sources, root, accelerator)
            builder = importlib.import_module("op_builder.builder")
            builder.OpBuilder.has_function = lambda self, funcname, libraries, *a, **k: machine.functions.append((funcname, libraries)) or True
            # The pip and dpkg programs of this machine are not asked.
            answer = {name: describe(op, machine, root) for name, op in sorted(ops.items())}
        json.dump(answer, sys.stdout, indent=1, sort_keys=True)


main()
