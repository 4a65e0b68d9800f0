"""Does rules/ops.toml say what DeepSpeed's own builders say? ops_check.py TORCH_SOURCES DEEPSPEED_SOURCES [RELEASE...]

Each release's real code is asked by ops_says.py, in a process of its own, about every op of both accelerators; what the rows of the table
foretell is compared with the answer, name by name, flag by flag, gate by gate.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

here = pathlib.Path(__file__).parent
rules = here.parents[2] / "rules"

# As ops_says.py asks.
CAPABILITIES = ["5.0", "6.0", "7.0", "7.5", "8.0", "9.0", "12.0"]
TRITONS = ["1.0.0", "1.1.1", "2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.3.1", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.6.0"]
NVCC, TORCH = "12.4", "2.5.1"

# Headers of the C and C++ libraries, of Linux and of the compiler: there wherever a compiler is.
SYSTEM = """assert.h cpuid.h dlfcn.h errno.h fcntl.h float.h immintrin.h inttypes.h limits.h math.h omp.h pthread.h sched.h semaphore.h
    signal.h stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h sys/ioctl.h sys/mman.h sys/stat.h sys/time.h sys/types.h time.h
    unistd.h x86intrin.h""".split()


def numbers(text):
    return tuple((int(n) for n in (text + ".0.0").split(".")[:3]))


def holds(versions, version):
    """A range of rules/: comparators with an operator each, joined by commas."""
    found = numbers(version)
    for part in versions.split(","):
        operator = part.strip().rstrip("0123456789.")
        wanted = numbers(part.strip()[len(operator) :])
        if not {">=": found >= wanted, ">": found > wanted, "<=": found <= wanted, "<": found < wanted, "=": found == wanted}[operator]:
            return False
    return True


class Table:
    def __init__(self):
        self.ops = tomllib.loads((rules / "ops.toml").read_text())
        self.deepspeed = tomllib.loads((rules / "deepspeed.toml").read_text())

    def row(self, table, release, **key):
        rows = [r for r in self.ops[table] if all(r[k] == v for k, v in key.items()) and holds(r["deepspeed"], release)]
        if len(rows) > 1:
            raise LookupError(f"{table}: {len(rows)} rows for {key} of {release}")
        return rows[0] if rows else None

    def standard(self, part, release):
        fits = lambda row, key, version: key not in row or holds(row[key], version)
        for row in self.deepspeed["standard"]:
            if row["part"] == part and holds(row["deepspeed"], release) and fits(row, "cuda", NVCC) and fits(row, "torch", TORCH):
                return f"-std=c++{row['standard']}"

    def does(self, trait, release):
        return any(r["trait"] == trait and holds(r["deepspeed"], release) for r in self.deepspeed["does"])

    def flags(self, name, own, part, release):
        if name is None:
            return []
        flags = [self.standard(part, release) if f == "{std}" else f for f in self.row("flags", release, set=name)["flags"]]
        # DeepSpeed adds the macro of BF16 last of all.
        last = [f for f in flags if f == "{bf16}"]
        return [f for f in flags if f != "{bf16}"] + own + last


def foretold(table, op, release, accelerator):
    """What the table's rows say of an op, in the form of ops_says.py."""
    key = dict(op=op["op"], accelerator=accelerator)
    build = table.row("build", release, **key) or {}
    gate = table.row("gate", release, **key) or {}
    major = lambda capability: int(capability.split(".")[0])
    standard = f"-std=c++{build['torch_2_0_standard']}" if "torch_2_0_standard" in build else None
    cxx = table.flags(build.get("cxx"), build.get("cxx_own", []), "host", release)
    says = {
        "class": op["class"],
        "variable": op["variable"],
        "module": op["module"],
        "kind": build.get("extension"),
        "cpp": build.get("cpp"),
        "cu": build.get("cu"),
        "headers": sorted(build.get("headers", [])),
        "cxx": cxx,
        "nvcc": table.flags(build.get("nvcc"), build.get("nvcc_own", []), "nvcc", release),
        "link": build.get("link", []),
        "jit_link": build.get("jit_link", build.get("link", [])),
        "torch_2_0_standard": standard or next((f for f in cxx if f.startswith("-std")), None),
        "kept": [c for c in CAPABILITIES if major(c) >= gate.get("keeps", 0)],
        "needs_gpu": gate.get("gpu_at_build", False),
        "needs_variables": gate.get("variables", []),
    }
    if not table.does("two-digit-capabilities", release) and "keeps" in gate:
        # 12.0 is read as 1.
        says["kept"] = [c for c in says["kept"] if len(c) == 3]
    if "torch_at_build" in gate and not holds(gate["torch_at_build"], "2.0.1"):
        # async_io of the CPU set dies of it.
        says["torch_2_0_standard"] = False
    right_torch = "torch" not in gate or holds(gate["torch"], TORCH)
    gpu = [c for c in CAPABILITIES if major(c) >= gate.get("capability", 0)] if right_torch else []
    old = [c for c in gpu if {None: True, "ampere": major(c) < 8, "gpu": False}[gate.get("cuda11")]]
    ignores = table.does("ignores-detection-for-evoformer" if op["op"] == "evoformer_attn" else "ignores-detection", release)
    platforms = gate.get("platforms", ["linux", "macos", "windows"])
    cutlass = gate.get("cutlass")
    says["gates"] = {
        "gpu": gpu,
        "old_nvcc": old,
        "old_torch_cuda": old,
        "ignored": right_torch and ("capability" not in gate or ignores),
        "no_cutlass": right_torch and cutlass is None,
        "found_cutlass": right_torch and cutlass in (None, "search"),
        "magic_cutlass": right_torch and cutlass in (None, "path-or-word", "word", "search"),
        "win32": right_torch and "windows" in platforms,
        "darwin": right_torch and "macos" in platforms,
        "no_cuda_home": right_torch and not gate.get("cuda_home", False),
        "functions": sorted(f.split(":")[::-1] for f in gate.get("functions", [])),
    }
    if "triton" in gate:
        says["gates"]["triton"] = [v for v in TRITONS if v.rsplit(".", 1)[0] in gate["triton"]] if right_torch else []
    if not right_torch:
        says["gates"]["old_torch"] = True
    return says


def once(flags):
    return list(dict.fromkeys(flags))


def said(answer):
    """An answer of ops_says.py in the form of the table."""
    headers = set()
    for header in answer["headers"]:
        if header in SYSTEM or ("." not in header and "/" not in header):
            continue
        # CUTLASS comes whole.
        headers.add("cutlass/cutlass.h" if header.startswith("cutlass/") else header)
    old = answer["cxx_torch_2_0"]
    gates = {k: v if isinstance(v, list) else v is True for k, v in answer["gates"].items()}
    jit = answer["jit_link"]
    return {
        "class": answer["class"],
        "variable": answer["variable"],
        "module": answer["module"],
        "kind": answer["kind"],
        "cpp": sum(s.endswith(".cpp") for s in answer["sources"]),
        "cu": sum(s.endswith(".cu") for s in answer["sources"]),
        "headers": sorted(headers),
        "cxx": answer["cxx"],
        "nvcc": [f.replace("-DGPU_ARCH=90", "-DGPU_ARCH={gpu}") for f in answer["nvcc"]],
        "link": once(answer["link"]),
        # Without CCL_ROOT one op says so instead.
        "jit_link": once(jit) if isinstance(jit, list) else ["-lccl", "-L{ccl}/lib"],
        "torch_2_0_standard": next((f for f in old if f.startswith("-std")), None) if isinstance(old, list) else False,
        "kept": answer["kept"],
        "needs_gpu": bool(answer["error_without_gpu"]) and not answer["error"],
        "needs_variables": [] if isinstance(jit, list) else ["CCL_ROOT"],
        "gates": gates,
    }


def differences(want, got, path=""):
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted({*want, *got}):
            yield from differences(want.get(key), got.get(key), f"{path}.{key}" if path else key)
    elif want != got:
        yield f"{path}: the table says {want}, the builder {got}"


def check(torch_sources, sources, releases=()):
    """How many ops agree, and one line for each difference."""
    table = Table()
    good, bad = 0, []
    there = sorted((p.name.removeprefix("deepspeed-") for p in pathlib.Path(sources).glob("deepspeed-*")), key=numbers)
    for release in releases or there:
        for accelerator in ("cuda", "cpu"):
            run = subprocess.run(
                [sys.executable, here / "ops_says.py", torch_sources, sources, release, accelerator], capture_output=True, text=True
            )
            if run.returncode:
                bad.append(f"{release} {accelerator}: {run.stderr.splitlines()[-1:]}")
                continue
            truth = json.loads(run.stdout)
            rows = {r["op"]: r for r in table.ops["op"] if r["accelerator"] == accelerator and holds(r["deepspeed"], release)}
            for name in sorted({*rows, *truth}):
                if name not in rows or name not in truth:
                    bad.append(f"{release} {accelerator} {name}: {'not in the table' if name in truth else 'the release has no such op'}")
                    continue
                gate = table.row("gate", release, op=name, accelerator=accelerator) or {}
                # One builder dies of every path, the question's own included.
                if gate.get("cutlass") == "word" and "PosixPath" in (truth[name]["error"] or ""):
                    good += 1
                    continue
                if truth[name]["error"]:
                    bad.append(f"{release} {accelerator} {name}: {truth[name]['error']}")
                    continue
                found = list(differences(foretold(table, rows[name], release, accelerator), said(truth[name])))
                good += not found
                bad += [f"{release} {accelerator} {name}: {line}" for line in found]
    return good, bad


if __name__ == "__main__":
    good, bad = check(sys.argv[1], sys.argv[2], sys.argv[3:])
    print("\n".join(bad), file=sys.stderr)
    print(f"truth: {good} passed, {len(bad)} failed")
    sys.exit(bool(bad))
