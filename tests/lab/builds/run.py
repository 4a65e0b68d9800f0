"""Real builds, each broken by one fault: does the doctor foresee it, does the build fail as foreseen, does the repair make it pass?

run.py [--only ROW]... [--slow] [--doctor PROGRAM] [--jobs N] [--keep-log FOLDER] [--list]

faults.toml holds the rows, machine.sh the pieces of a machine, op/ the extension that is built. Each row runs in a mount namespace of its
own, so its machine is gone when it ends, whatever happens. docs/lab.md explains the columns.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[2]
LAB = pathlib.Path(os.environ.get("DS_DOCTOR_LAB") or pathlib.Path.home() / ".cache/ds-doctor-lab").resolve()
KEYS = {"name", "fault", "slow", "lab", "venv", "machine", "env", "build", "flags", "predict", "among", "fails", "hangs", "limit",
        "repair", "exports", "person", "by_hand", "advice", "shown", "na", "chroot"}


class Deviation(Exception):
    """What happened is not what the row says."""


# ---- inside: one row, in its own mount namespace ----


class Row:
    def __init__(self, row, doctor, room):
        self.row, self.room, self.doctor = row, room, doctor
        self.log = []
        self.venv = LAB / row.get("venv", "torch-venv")
        self.site = self.venv / "lib/python3.11/site-packages"
        self.names = {"LAB": str(LAB), "ROOM": str(room), "VENV": str(self.venv), "SITE": str(self.site), "OP": str(HERE / "op")}
        self.env = {
            "HOME": f"{room}/home", "PATH": f"{self.venv}/bin:/usr/bin:/bin", "TMPDIR": f"{room}/tmp", "LC_ALL": "C.UTF-8",
            "TORCH_EXTENSIONS_DIR": f"{room}/cache", "MAX_JOBS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": f"{LAB}/wheels", "PIP_ROOT_USER_ACTION": "ignore",
        }
        # Where the build runs, and how the commands see that place and the doctor.
        self.root = pathlib.Path(f"{room}/root") if row.get("chroot") else None
        if self.root:
            self.place, self.names["WORK"] = self.root / "build", "/build/op"
            self.env = {"HOME": "/root", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        else:
            self.place = pathlib.Path(f"{room}/build")
            self.names["WORK"] = f"{self.place}/op"

    def fill(self, text):
        return re.sub(r"\$(\w+)", lambda name: self.names.get(name[1], name[0]), text)

    def make(self):
        """The machine of the row, on file systems that nobody else sees."""
        subprocess.run(["mount", "-t", "tmpfs", "lab", self.room], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "lab", "/opt"], check=True)
        for folder in ("home", "tmp", "build"):
            (self.room / folder).mkdir()
        script = f". '{HERE}/machine.sh'\n{self.row.get('machine', '')}"
        done = subprocess.run(["sh", "-euc", script], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": self.env["HOME"], **self.names},
                              capture_output=True, text=True)
        if done.returncode:
            raise Deviation(f"the machine could not be made: {done.stderr.strip()}")
        if self.root:
            self.place.mkdir(exist_ok=True)
        for name, value in self.row.get("env", {}).items():
            if value == "":
                self.env.pop(name, None)
            else:
                self.env[name] = self.fill(value)
        # The doctor is on PATH, so that what it prints can be pasted as it stands.
        tools = self.root / "usr/bin" if self.root else self.room / "tools"
        tools.mkdir(exist_ok=True)
        shutil.copy(self.doctor, tools / "ds-doctor")
        if not self.root:
            self.env["PATH"] += f":{tools}"

    def sh(self, script, limit=None):
        """(exit status, or None where it hung and was interrupted; all it said)"""
        limit = limit or self.row.get("limit", 120)
        shell = [shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin"), self.root, "/bin/dash", "-c"] if self.root else ["sh", "-c"]
        child = subprocess.Popen([*shell, script], env=self.env, cwd=self.place, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            out, status = child.communicate(timeout=limit)[0], child.returncode
        except subprocess.TimeoutExpired:
            # As Ctrl-C does it: the traceback tells where it hung.
            os.killpg(child.pid, signal.SIGINT)
            status = None
            try:
                out = child.communicate(timeout=10)[0]
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out = child.communicate()[0]
        text = out.decode(errors="replace")
        self.log.append(f"$ {script}\n{text}[{status}]\n")
        return status, text

    def ask(self, words, before=""):
        """The doctor's JSON."""
        status, text = self.sh(f"{before}ds-doctor {words} --format json 2>/dev/null", 60)
        try:
            return json.loads(text)
        except ValueError:
            raise Deviation(f"`ds-doctor {words}` gave no JSON (exit {status}): {text[-300:]}") from None

    def build(self, before=""):
        """The real build, from clean folders; `before` is shell text in front of it."""
        clean = [self.place] if self.row.get("hangs") else [self.place, self.room / "cache"]
        for folder in clean:
            subprocess.run(f"rm -rf {folder}/*", shell=True, check=True)
        shutil.copytree(HERE / "op", self.place / "op")
        flags = self.row.get("flags", "")
        op = "deepspeed/ops/lion/fused_lion_op"
        command = {
            "jit": f"python -u $WORK/jit.py {flags}",
            "setup": f"cd $WORK && python setup.py -q build_ext --inplace && python load.py small.*.so",
            # DeepSpeed's own setup, with the sources of one op replaced by the small ones (machine.sh).
            "deepspeed": f"cd $ROOM/deepspeed && rm -rf build {op}* && python setup.py -q build_ext --inplace && python $OP/load.py {op}.*.so",
            "wheel": f"cd $ROOM/deepspeed && rm -rf build dist && python -m pip wheel --no-deps -w dist . && "
            f"python -m zipfile -e dist/*.whl dist/x && python $OP/load.py dist/x/{op}.*.so",
            "program": "cd $WORK && nvcc -arch=sm_80 -cudart shared main.cpp small_kernel.cu -o main && ./main",
            # The nvcc that torch would run.
            "program-of-home": 'cd $WORK && "$CUDA_HOME/bin/nvcc" -arch=sm_80 -cudart shared main.cpp small_kernel.cu -o main && ./main',
        }[self.row["build"]]
        command = self.fill(command)
        return self.sh(before + command, self.row.get("hangs"))

    # (a) the doctor, before the build
    def predict(self, before="", want=None):
        want = self.row["predict"] if want is None else want
        said = self.ask("check --static", before)
        roots = [finding for finding in said["findings"] if not finding["caused_by"] and finding["severity"] in ("error", "warning")]
        ids = [finding["id"] for finding in roots]
        if ids != want:
            raise Deviation(f"predicted {ids}, not {want}")
        return said

    # (b) the build fails as predicted
    def fail(self, before=""):
        status, text = self.build(before)
        wanted = self.row["fails"]
        if self.row.get("hangs") and status is not None:
            raise Deviation(f"it did not hang: exit {status}: {text[-300:]}")
        if status == 0:
            raise Deviation("the build passed")
        line = next((line for line in text.splitlines() if re.search(self.fill(wanted), line)), None)
        if line is None:
            raise Deviation(f"no line matches {wanted!r} (exit {status}): {text[-600:]}")
        return line.strip()

    def passes(self, before, how):
        status, text = self.build(before)
        if status != 0 or "loaded " not in text:
            raise Deviation(f"after {how} the build fails (exit {status}): {text[-600:]}")

    # (c) the repairs
    def exports(self, words):
        if "--gpu" in words and "exports" not in self.row["repair"]:
            # A list is never guessed.
            plain = self.sh("ds-doctor fix --print-exports 2>/dev/null")[1]
            if plain.strip():
                raise Deviation(f"without --gpu it exports {plain.strip()}")
        return self.exported(f"ds-doctor fix{words} --print-exports")

    def exported(self, command):
        """What the command prints makes the build pass, silences the doctor, and is needed to the last variable."""
        text = self.sh(f"{command} 2>/dev/null")[1]
        names = re.findall(r"^(?:export|unset) ([A-Za-z_]\w*)", text, re.M)
        person = self.row.get("person", [])
        if sorted(names) != sorted(self.row["exports"] + person):
            raise Deviation(f"`{command}` exports {names}, not {self.row['exports'] + person}: {text}")
        before = f'eval "$({command} 2>/dev/null)"; '
        self.passes(before, f"`{command}`")
        self.predict(before, [])
        # Without its only variable the environment is the one that the build has already failed in.
        for name in names if len(names) > 1 else []:
            old = self.env.get(name)
            back = f"unset {name}; " if old is None else f"export {name}='{old}'; "
            if name in person:
                # Not for the build: the `nvcc` that is typed is the one that builds.
                own = self.sh(f"{before}command -v nvcc")[1]
                if own.strip() != self.sh(f'{before}printf %s "$CUDA_HOME/bin/nvcc"')[1] or own == self.sh(f"{before}{back}command -v nvcc")[1]:
                    raise Deviation(f"`{name}` is exported and makes no difference to a person")
            elif self.build(before + back)[0] == 0:
                raise Deviation(f"`{name}` is exported and not needed: the build passes without it")
        return "; ".join(f"`{line.rstrip(';')}`" for line in text.splitlines())

    def commands(self, words):
        """What `fix` prints for a person, pasted: commands and exports, no prose."""
        steps = self.ask(f"fix{words}")["result"]["steps"]
        printed = self.sh(f"ds-doctor fix{words} 2>/dev/null")[1]
        lines = [line.strip() for line in printed.split("taken together:")[0].splitlines() if line.startswith("  ")]
        if len(lines) != len(steps):
            raise Deviation(f"{len(steps)} steps, printed {lines}")
        paste = [line for line, step in zip(lines, steps) if step["fix"]["action"] != "advice"]
        if not paste:
            raise Deviation(f"nothing to paste in {lines}")
        exports = [line for line in paste if line.startswith(("export ", "unset "))]
        for line in paste:
            if line in exports:
                continue
            status, text = self.sh(line, 180)
            if status != 0:
                raise Deviation(f"`{line}` failed: {text[-300:]}")
        before = "".join(re.sub(r"\s{2,}# .*", "", line) + "; " for line in exports)
        shown = "; ".join(re.sub(r"\s{2,}# .*", "", line) for line in paste)
        self.passes(before, f"`{shown}`")
        self.predict(before, [])
        return f"`{shown}`"

    def by_hand(self, _words):
        """Advice in prose, done by hand: the text must say it, and doing it must help."""
        texts = json.dumps([finding["fixes"] for finding in self.ask("fix")["findings"]], ensure_ascii=False)
        if not re.search(self.row["advice"], texts):
            raise Deviation(f"no advice `{self.row['advice']}` in {texts}")
        printed = self.sh(f"ds-doctor fix --print-exports 2>/dev/null")[1]
        if printed.strip():
            raise Deviation(f"exports {printed.strip()}")
        self.passes(self.fill(self.row["by_hand"]) + "\n", "the advice")
        return f"by hand: {self.row['shown']}"

    def overlay(self, words):
        """`fix` names it; `unasked`: it has a simpler cure, and the overlay is one too."""
        steps = self.ask("fix")["result"]["steps"]
        named = ["ds-doctor", "overlay", "create"] in [step["fix"].get("argv") for step in steps]
        if named == ("unasked" in words):
            raise Deviation(f"`fix` {'names' if named else 'does not name'} the overlay: {steps}")
        status, text = self.sh("ds-doctor overlay create")
        if status != 0:
            raise Deviation(f"`overlay create` failed: {text[-600:]}")
        how = self.exported('ds-doctor fix --print-exports --overlay "$HOME/.local/share/ds-doctor/overlay"')
        status, text = self.sh("ds-doctor overlay remove")
        home = pathlib.Path(f"{self.root or ''}{self.env['HOME']}")
        if status != 0 or (home / ".local/share/ds-doctor/overlay").exists():
            raise Deviation(f"`overlay remove` failed: {text[-600:]}")
        return f"`ds-doctor overlay create`; {how}"

    def short(self, text):
        for path, name in ((str(self.site), "…/site-packages"), (str(self.venv), "…"), (str(self.room), "…"), (str(LAB), "…")):
            text = text.replace(path, name)
        return text

    def run(self):
        """The cells of the table."""
        self.make()
        said = self.predict()
        cells = {"predicted": ", ".join(self.row["predict"]) or "nothing: healthy"}
        if not self.row["predict"]:
            if said["verdict"] not in ("healthy", "warnings"):
                raise Deviation(f"the verdict is {said['verdict']}")
            self.passes("", "nothing")
            return cells | {"failed": "does not fail", "fixed": "nothing to fix"}
        cells["failed"] = self.short(self.fail())
        fixed = []
        for repair in self.row.get("repair", []):
            kind, _, words = repair.partition(" ")
            how = getattr(self, kind.replace("-", "_"))(f" {words}" if words else "")
            fixed.append(self.short(how))
        return cells | {"fixed": "; ".join(dict.fromkeys(fixed)) if fixed else f"n/a: {self.row['na']}"}


def inside(name, doctor, room):
    row = Row(next(row for row in rows() if row["name"] == name), doctor, pathlib.Path(room))
    try:
        answer = {"ok": True} | row.run()
    except Deviation as why:
        answer = {"ok": False, "why": str(why)}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps(answer | {"log": "".join(row.log), "cpu": used.ru_utime + used.ru_stime}))


# ---- outside: all rows, and the table ----


def rows():
    table = tomllib.loads((HERE / "faults.toml").read_text())["row"]
    for row in table:
        if unknown := set(row) - KEYS:
            sys.exit(f"faults.toml: {row.get('name')}: unknown keys {unknown}")
        if row["predict"] and not row.get("repair") and "na" not in row:
            sys.exit(f"faults.toml: {row['name']}: neither a repair nor a reason")
    return table


def why_skipped(row, namespaces):
    """Why this row cannot run here, or nothing."""
    if not namespaces:
        return "no mount namespace can be made here (run as root, or allow user namespaces)"
    missing = [part for part in row["lab"] if not (LAB / ".stamps" / part).exists()]
    if missing:
        return f"the lab has no {', '.join(missing)} (.ci/lab makes it)"
    hidden = [path for path in (HERE, LAB, pathlib.Path(sys.base_prefix)) if path.is_relative_to("/opt")]
    if hidden:
        return f"`{hidden[0]}` lies in /opt, where the machines have their toolkits"
    if pathlib.Path("/proc/driver/nvidia/version").exists():
        return "this machine has a GPU driver, and the faults are those of a machine without"
    return None


def namespace():
    own = ["unshare", "--mount", "--propagation", "private", "--kill-child"]
    return own if os.getuid() == 0 else [*own[:1], "--user", "--map-root-user", *own[1:]]


def one(row, doctor, top):
    room = top / row["name"]
    room.mkdir()
    command = [*namespace(), sys.executable, str(HERE / "run.py"), "--inside", row["name"], "--doctor", doctor, "--room", str(room)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        answer = {"ok": False, "why": f"the driver itself failed: {done.stderr[-800:]}", "log": "", "cpu": 0}
    return answer


def doctor_of(given):
    if given:
        return pathlib.Path(given).resolve()
    built = [path for kind in ("debug", "release") if (path := REPO / "target" / kind / "ds-doctor").exists()]
    if not built:
        sys.exit("no ds-doctor is built: `cargo build`, or name one with --doctor")
    return max(built, key=lambda path: path.stat().st_mtime)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--only", action="append", default=[])
    ask.add_argument("--slow", action="store_true", help="the rows that take minutes, and only them")
    ask.add_argument("--doctor")
    ask.add_argument("--jobs", type=int, default=2)
    ask.add_argument("--keep-log", type=pathlib.Path, help="a folder for what every command of every row said")
    ask.add_argument("--list", action="store_true")
    ask.add_argument("--inside")
    ask.add_argument("--room")
    args = ask.parse_args()
    if args.inside:
        return inside(args.inside, args.doctor, args.room)
    table = [row for row in rows() if row["name"] in args.only or not args.only and bool(row.get("slow")) == args.slow]
    if args.list:
        return print("\n".join(f"{row['name']}: {row['fault']}" for row in table))
    if unknown := set(args.only) - {row["name"] for row in table}:
        sys.exit(f"no row {', '.join(unknown)}")
    doctor = str(doctor_of(args.doctor))
    namespaces = subprocess.run([*namespace(), "sh", "-c", "mount -t tmpfs lab /opt"], capture_output=True).returncode == 0
    passed = failed = skipped = cpu = 0
    start = time.monotonic()
    if args.keep_log:
        args.keep_log.mkdir(parents=True, exist_ok=True)
    # A signal ends the program through the same door, so the folder goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print("| fault | predicted | failed as predicted | fixed by | s of CPU |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="ds-doctor-builds-") as top, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        tasks = []
        for row in table:
            if why := why_skipped(row, namespaces):
                skipped += 1
                print(f"skipped: {row['name']}: {why}")
            else:
                tasks.append((row, pool.submit(one, row, doctor, pathlib.Path(top))))
        for row, task in tasks:
            answer = task.result()
            cpu += answer.get("cpu", 0)
            if args.keep_log:
                (args.keep_log / f"{row['name']}.log").write_text(answer["log"])
            if answer["ok"]:
                passed += 1
                cells = [f"{row['name']}: {row['fault']}", answer["predicted"], f"`{answer['failed']}`", answer["fixed"]]
                print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells), f"| {answer['cpu']:.0f} |", flush=True)
            else:
                failed += 1
                print(f"DEVIATION: {row['name']}: {answer['why']}", flush=True)
    print(f"{time.monotonic() - start:.0f} s, {cpu:.0f} s of processor time")
    print(f"truth: {passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
