"""What DeepSpeed's own builders answer: deepspeed_says.py TORCH_SOURCES < questions.jsonl > answers.jsonl

{"ask": "prebuild", "deepspeed": "0.19.8", "torch": "2.11.0", "cuda": "13.0", "nvcc": "13.0", "ops": ["fused_adam.FusedAdamBuilder"],
 "env": {"TORCH_CUDA_ARCH_LIST": "8.0;9.0"}, "devices": []}
    -> one answer per op, built in that order in one process as setup.py does: {"nvcc_args", "cxx_args", "libraries", "torch_adds" (arch
       flags that torch then appends), "bf16", "list_after"} or {"error"}; "nvcc": null is a machine without a toolkit
{"ask": "jit", …the same…} -> the same of the call that load() would get, and "list_during", TORCH_CUDA_ARCH_LIST at that call
{"ask": "mismatch", "deepspeed", "torch", "cuda", "nvcc", "env"} -> true, or the error of DeepSpeed's version check
{"ask": "default_archs", "deepspeed", "torch", "nvcc"} -> the list used where none is given
"""

import importlib
import os
import pathlib
import sys
import types

import stub_torch

SOURCES = sys.argv[1]
_held = {}


def _gencode(args):
    return [a for a in args if "arch" in a]


class _World:
    """One release of DeepSpeed over one torch, with an nvcc of the given release."""

    def __init__(self, deepspeed, torch, cuda="12.4", nvcc=None, env=None, devices=(), torch_archs=None):
        self.deepspeed = deepspeed
        self.torch = (torch, cuda)
        self.nvcc = nvcc
        self.env = {"PATH": os.environ["PATH"], **(env or {})}
        self.devices, self.archs = devices, torch_archs

    def __enter__(self):
        if self.nvcc:
            self.env.setdefault("CUDA_HOME", stub_torch.fake_cuda_home(self.nvcc))
        self.stack = [stub_torch.environment(self.env), stub_torch.usr_local_cuda(False)]
        for context in self.stack:
            context.__enter__()
        self.extension = stub_torch.install(SOURCES, *self.torch, devices=self.devices, torch_archs=self.archs)
        if not self.nvcc:
            # An nvcc of this very machine must not answer for a machine that has none.
            self.extension.CUDA_HOME = None
        for name in [m for m in sys.modules if m == "op_builder" or m.startswith("op_builder.")]:
            del sys.modules[name]
        root = pathlib.Path(SOURCES, "deepspeed-" + self.deepspeed, "op_builder")
        # The package's own __init__ reflects every builder through the accelerator; only the builders asked for are wanted here.
        package = types.ModuleType("op_builder")
        package.__path__ = [str(root)]
        sys.modules["op_builder"] = package
        sys.modules.setdefault("ninja", types.ModuleType("ninja"))
        self.builder = importlib.import_module("op_builder.builder")
        return self

    def __exit__(self, *error):
        for context in reversed(self.stack):
            context.__exit__(*error)

    def op(self, name):
        module, member = name.rsplit(".", 1)
        return getattr(importlib.import_module("op_builder." + module), member)()


def _each(ops, make):
    answers = []
    for name in ops:
        try:
            answers.append(make(name))
        except Exception as error:
            answers.append({"error": {"type": type(error).__name__, "text": str(error)}})
    return answers


def prebuild(ops, **world):
    with _World(**world) as w:

        def make(name):
            op = w.op(name)
            made = op.builder()
            args = made.extra_compile_args
            if not isinstance(args, dict):
                args = {"cxx": args}
            nvcc = args.get("nvcc")
            return {
                "cuda": nvcc is not None,
                "nvcc_args": nvcc or [],
                "arch_args": _gencode(nvcc or []),
                "cxx_args": args.get("cxx") or [],
                "libraries": made.libraries,
                "torch_adds": w.extension._get_cuda_arch_flags(nvcc) if nvcc is not None else [],
                "bf16": getattr(op, "enable_bf16", None),
                "list_after": os.environ.get("TORCH_CUDA_ARCH_LIST"),
            }

        return _each(ops, make)


def jit(ops, **world):
    with _World(**world) as w:

        def make(name):
            op = w.op(name)
            seen = {}

            def load(name, sources, extra_cflags=None, extra_cuda_cflags=None, extra_ldflags=None, with_cuda=None, **_):
                seen.update(
                    nvcc_args=extra_cuda_cflags,
                    arch_args=_gencode(extra_cuda_cflags),
                    cxx_args=extra_cflags,
                    ldflags=extra_ldflags,
                    with_cuda=with_cuda,
                    list_during=os.environ.get("TORCH_CUDA_ARCH_LIST"),
                )
                # torch up to 2.8 passes its JIT no flags to look at, so user flags never keep it from adding its own.
                release = tuple(int(n) for n in w.torch[0].split(".")[:2])
                given = extra_cuda_cflags if release >= (2, 9) else None
                seen["torch_adds"] = w.extension._get_cuda_arch_flags(given) if extra_cuda_cflags else []

            w.extension.load = load
            w.extension.verify_ninja_availability = lambda: None
            op.is_compatible = lambda verbose=False: True
            op.jit_load(verbose=False)
            seen.update(bf16=getattr(op, "enable_bf16", None), list_after=os.environ.get("TORCH_CUDA_ARCH_LIST"))
            return seen

        return _each(ops, make)


def mismatch(**world):
    with _World(**world) as w:
        return w.builder.assert_no_cuda_mismatch("op")


def default_archs(**world):
    with _World(**world) as w:
        return w.builder.get_default_compute_capabilities()


stub_torch.serve({f.__name__: f for f in (prebuild, jit, mismatch, default_archs)})
