"""Do the drivers still answer what was read in torch's and DeepSpeed's sources by hand? check.py TORCH_SOURCES DEEPSPEED_SOURCES

known.jsonl: "want" is the whole answer, "error" a part of the error's text, "each" some keys of each op's answer.
"""

import json
import pathlib
import subprocess
import sys

import ops_check

here = pathlib.Path(__file__).parent


def holds(case, answer):
    if "error" in case:
        return case["error"] in answer.get("error", {}).get("text", "")
    if "ok" not in answer:
        return False
    if "each" in case:
        ok = answer["ok"]
        return len(ok) == len(case["each"]) and all(all(o.get(k, "absent") == v for k, v in w.items()) for o, w in zip(ok, case["each"]))
    return answer["ok"] == case["want"]


cases = [json.loads(line) for line in (here / "known.jsonl").read_text().splitlines()]
failed = 0
for who in ("torch", "deepspeed"):
    asked = [c for c in cases if c["says"] == who]
    run = subprocess.run(
        [sys.executable, here / f"{who}_says.py", sys.argv[1]],
        input="".join(json.dumps(c["q"]) + "\n" for c in asked),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if len(answers) != len(asked):
        sys.exit(f"{who}: {len(asked)} questions, {len(answers)} answers: {run.stderr}")
    for case, answer in zip(asked, answers):
        if not holds(case, answer):
            failed += 1
            print(f"{json.dumps(case)}\n  answered {json.dumps(answer)}", file=sys.stderr)
# And does the table of ops say what the builders say?
agree, differ = ops_check.check(sys.argv[1], sys.argv[2])
print("".join(line + "\n" for line in differ), end="", file=sys.stderr)
failed += len(differ)
print(f"truth: {len(cases) + agree + len(differ) - failed} passed, {failed} failed")
sys.exit(failed != 0)
