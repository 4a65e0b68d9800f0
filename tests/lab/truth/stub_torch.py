"""A torch that is nothing but its own build code: the real cpp_extension.py of a release, over a machine made up by the question.

What cpp_extension asks of the rest of torch (its CUDA release, the visible devices, the archs it was built for) comes from the
question; everything it decides itself is the release's own code.
"""

import contextlib
import io
import logging
import os
import pathlib
import sys
import tempfile
import types
import warnings

_code = {}
_real = {}
_homes = {}
_scratch = tempfile.TemporaryDirectory(prefix="truth-")
sys.dont_write_bytecode = True


def fake_cuda_home(release, build=None):
    """A folder whose bin/nvcc answers like nvcc of `release` (13.0) and `build` (13.0.88)."""
    build = build or release + ".0"
    if build not in _homes:
        home = pathlib.Path(_scratch.name, "cuda-" + build)
        (home / "bin").mkdir(parents=True)
        (home / "lib64").mkdir()
        nvcc = home / "bin" / "nvcc"
        nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{build}'\n")
        nvcc.chmod(0o755)
        _homes[build] = str(home)
    return _homes[build]


@contextlib.contextmanager
def environment(values):
    """The process environment is exactly `values` inside."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(values)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def usr_local_cuda(there):
    """/usr/local/cuda exists or not, whatever this machine has."""
    real = os.path.exists
    os.path.exists = lambda p: there if p == "/usr/local/cuda" else real(p)
    try:
        yield
    finally:
        os.path.exists = real


class Said(logging.Handler):
    """Collects what torch prints, warns and logs: it must neither reach stdout nor be lost."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.text = io.StringIO()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def __enter__(self):
        logging.getLogger().addHandler(self)
        self.catch = warnings.catch_warnings(record=True)
        self.warned = self.catch.__enter__()
        warnings.simplefilter("always")
        self.out = contextlib.ExitStack()
        self.out.enter_context(contextlib.redirect_stdout(self.text))
        self.out.enter_context(contextlib.redirect_stderr(self.text))
        return self

    def __exit__(self, *error):
        self.out.__exit__(*error)
        self.catch.__exit__(*error)
        logging.getLogger().removeHandler(self)
        self.lines += [str(w.message) for w in self.warned if not issubclass(w.category, DeprecationWarning)]
        self.lines += self.text.getvalue().splitlines()


def _package(name, path=None, **members):
    module = types.ModuleType(name)
    if path is not None:
        module.__path__ = [str(path)]
    module.__dict__.update(members)
    return module


def install(sources, release, cuda="12.4", hip=None, compiled=None, devices=(), torch_archs=None):
    """Puts `torch` of `release` into sys.modules and returns its cpp_extension, run anew under the present environment.

    devices: capabilities of the visible GPUs, [[8, 6], …]. torch_archs: what torch.cuda.get_arch_list() answers.
    """
    root = pathlib.Path(sources, "torch-" + release, "torch")
    if not root.is_dir():
        raise FileNotFoundError(root)
    for name in [m for m in sys.modules if m == "torch" or m.startswith("torch.")]:
        del sys.modules[name]
    devices = [tuple(d) for d in devices]
    archs = torch_archs if torch_archs is not None else sorted({f"sm_{a}{b}" for a, b in devices})
    if compiled is None:
        compiled = cuda is not None or hip is not None
    local = "+cu" + cuda.replace(".", "") if cuda else "+cpu"
    version = _package("torch.version", cuda=cuda, hip=hip, rocm=hip, xpu=None, __version__=release + local)
    initialized = bool(devices)
    gpu = _package(
        "torch.cuda",
        is_available=lambda: bool(devices),
        device_count=lambda: len(devices),
        get_device_capability=lambda i=0: devices[i],
        get_device_properties=lambda i=0: types.SimpleNamespace(major=devices[i][0], minor=devices[i][1]),
        get_arch_list=lambda: list(archs),
        is_initialized=lambda: initialized,
        _is_compiled=lambda: compiled,
        _is_in_bad_fork=lambda: False,
    )
    members = {
        "torch.version": version,
        "torch.cuda": gpu,
        "torch._C": _package("torch._C", _GLIBCXX_USE_CXX11_ABI=True),
        "torch.xpu": _package("torch.xpu", _is_compiled=lambda: False, get_arch_list=lambda: []),
        "torch.backends": _package("torch.backends", mps=types.SimpleNamespace(is_built=lambda: False)),
        "torch.distributed": _package("torch.distributed", is_available=lambda: False, is_initialized=lambda: False),
        "torch.monitor": _package("torch.monitor", _WaitCounter=None),
        "torch.utils": _package("torch.utils", root / "utils"),
        "torch._utils_internal": _package("torch._utils_internal", get_file_path=lambda *p: str(root.parent.joinpath(*p))),
    }
    torch = _package("torch", root, __version__=release + local, __file__=str(root / "__init__.py"))
    sys.modules["torch"] = torch
    for name, module in members.items():
        sys.modules[name] = module
        setattr(torch, name.split(".")[1], module)
    # The release's other real modules (hipify's tables, the vendored packaging) do not depend on the question: read once.
    known = _real.get(release, {})
    sys.modules.update(known)
    for name, module in known.items():
        parent, child = name.rsplit(".", 1)
        setattr(sys.modules[parent], child, module)
    path = root / "utils" / "cpp_extension.py"
    if path not in _code:
        _code[path] = compile(path.read_bytes(), str(path), "exec")
    extension = _package("torch.utils.cpp_extension", __file__=str(path), __package__="torch.utils")
    sys.modules["torch.utils.cpp_extension"] = torch.utils.cpp_extension = extension
    exec(_code[path], extension.__dict__)
    made = {"torch", "torch.utils.cpp_extension", *members}
    _real[release] = {n: m for n, m in sys.modules.items() if n.startswith("torch.") and n not in made}
    return extension


def serve(answers):
    """JSON lines: {"ask": name, …} in; {"ok": …, "said": […]} or {"error": {"type", "text"}, "said": […]} out, in order."""
    import json

    for line in sys.stdin:
        if not line.strip():
            continue
        question = json.loads(line)
        with Said() as said:
            try:
                # The keys of a question are the parameters of its answer; an unknown one is a mistake of the asker.
                result = {"ok": answers[question.pop("ask")](**question)}
            except Exception as error:
                parts = [str(a) for a in error.args]
                result = {"error": {"type": type(error).__name__, "text": str(error), "args": parts}}
        result["said"] = said.lines
        print(json.dumps(result), flush=True)
