"""What torch's own build code answers: torch_says.py TORCH_SOURCES < questions.jsonl > answers.jsonl

{"ask": "cuda_home", "torch": "2.5.1", "env": {…}, "cuda": "12.4", "usr_local_cuda": false}
    -> CUDA_HOME as cpp_extension has it after import (null: None); "cuda": null is a CPU-only torch; "devices" as below
{"ask": "arch_flags", "torch": "2.5.1", "list": "8.0;9.0+PTX", "devices": [[8, 6]], "torch_archs": ["sm_86"], "cflags": []}
    -> the -gencode flags; "list": null leaves TORCH_CUDA_ARCH_LIST unset
{"ask": "cuda_check", "torch": "2.11.0", "cuda": "13.0", "nvcc": "13.2", "build": "13.2.78", "compiler": "g++", "version": "15.1.0"}
    -> null, or the error of a setup build; warnings are in "said"
{"ask": "supported_archs", "torch": "2.5.1", "candidates": ["8.0", …]} -> those that the list may hold, also as X+PTX
"""

import sys

import stub_torch

SOURCES = sys.argv[1]


def cuda_home(torch, env, cuda="12.4", hip=None, compiled=None, devices=(), usr_local_cuda=False):
    with stub_torch.environment(env), stub_torch.usr_local_cuda(usr_local_cuda):
        return stub_torch.install(SOURCES, torch, cuda, hip, compiled, devices).CUDA_HOME


def arch_flags(torch, list, devices=(), torch_archs=None, cflags=None, cuda="12.4"):
    env = {"PATH": "/nonexistent"}
    if list is not None:
        env["TORCH_CUDA_ARCH_LIST"] = list
    with stub_torch.environment(env):
        extension = stub_torch.install(SOURCES, torch, cuda, devices=devices, torch_archs=torch_archs)
        return extension._get_cuda_arch_flags(cflags)


def cuda_check(torch, cuda, nvcc, compiler, version, build=None):
    with stub_torch.environment({"PATH": "/usr/bin:/bin", "CUDA_HOME": stub_torch.fake_cuda_home(nvcc, build)}):
        extension = stub_torch.install(SOURCES, torch, cuda)
        return extension._check_cuda_version(compiler, extension.TorchVersion(version))


def supported_archs(torch, candidates):
    def accepted(arch):
        try:
            return bool(arch_flags(torch, arch))
        except ValueError:
            return False

    return [arch for arch in candidates if accepted(arch) and accepted(arch + "+PTX")]


stub_torch.serve({f.__name__: f for f in (cuda_home, arch_flags, cuda_check, supported_archs)})
