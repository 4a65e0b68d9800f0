//! The model of `CUDA_VISIBLE_DEVICES` against torch's own reading of it, and DeepSpeed's.

use crate::util::{Doctor, lab, trial_with};
use ds_doctor::facts::gpu::Device;
use ds_doctor::model::visible::visible;
use libtest_mimic::Trial;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Runs the two functions out of torch's source, without torch, as `_device_count_nvml` does; then DeepSpeed's expression. One line of
/// JSON for each mask on stdin: the ordinals, and whether DeepSpeed can read it. torch trips over a lone sign, which is `null`.
const SCRIPT: &str = r#"
import ast, json, os, sys, types
from typing import cast
source = open(sys.argv[1]).read()
uuids = json.loads(sys.argv[2])
wanted = {"_parse_visible_devices", "_transform_uuid_to_ordinals"}
tree = ast.parse(source)
tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in wanted]
torch = types.SimpleNamespace(version=types.SimpleNamespace(hip=None))
space = {"os": os, "torch": torch, "cast": cast}
exec(compile(ast.fix_missing_locations(tree), sys.argv[1], "exec"), space)
for mask in json.load(sys.stdin):
    os.environ["CUDA_VISIBLE_DEVICES"] = mask
    try:
        seen = space["_parse_visible_devices"]()
        if seen and isinstance(seen[0], str):
            seen = space["_transform_uuid_to_ordinals"](seen, uuids)
        else:
            seen = seen[:next((i for i, v in enumerate(seen) if v >= len(uuids)), len(seen))]
    except ValueError:
        seen = None
    try:
        list(map(int, mask.split(",")))
        reads = True
    except ValueError:
        reads = False
    print(json.dumps([seen, reads]))
"#;

pub fn trials() -> Vec<Trial> {
    let source = || {
        let venv = lab("torch-venv")?;
        let found = std::fs::read_dir(venv.join("lib")).map_err(|e| e.to_string())?.flatten();
        let mut files = found.map(|e| e.path().join("site-packages/torch/cuda/__init__.py")).filter(|p| p.is_file());
        let file = files.next().ok_or("torch is not in the lab's venv")?;
        Ok((venv.join("bin/python"), file))
    };
    vec![trial_with("visible::as_torch_and_deepspeed_read_it", source(), |(python, file): (PathBuf, PathBuf)| {
        let uuids = ["GPU-aa11-x", "GPU-aa22-y", "GPU-bb33-z"];
        let devices: Vec<Device> = uuids
            .iter()
            .zip(0..)
            .map(|(uuid, index)| Device {
                index,
                name: Some("NVIDIA A100".to_owned()),
                uuid: Some((*uuid).to_owned()),
                ..Device::default()
            })
            .collect();
        let masks = masks();
        let out = Doctor::new(["-c", SCRIPT])
            .program(python)
            .arg(file)
            .arg(serde_json::to_string(&uuids).unwrap())
            .stdin(serde_json::to_string(&masks).unwrap())
            .run();
        assert_eq!(out.code, Some(0), "{}", out.stderr);
        let answers: Vec<(Option<Vec<usize>>, bool)> = out.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), masks.len());
        let mut compared = 0;
        for (mask, (torch, deepspeed)) in masks.iter().zip(answers) {
            let seen = visible(&devices, Some(OsStr::new(mask)), None);
            assert_eq!(seen.deepspeed_reads, deepspeed, "DeepSpeed, {mask:?}");
            if let Some(torch) = torch {
                let places: Vec<usize> = seen.picks.iter().map(|p| p.device).collect();
                assert_eq!(places, torch, "torch, {mask:?}: {seen:?}");
                compared += 1;
            }
        }
        assert!(compared > 1000, "{compared}");
    })]
}

/// All lists of up to three items out of a set of good and bad ones.
fn masks() -> Vec<String> {
    let items = [
        "0",
        "1",
        "2",
        "3",
        "-1",
        "-0",
        "+1",
        "",
        " ",
        " 2 ",
        "1a",
        "x",
        "1.0",
        "GPU-aa11",
        "GPU-aa",
        "GPU-bb33-z",
        "GPU-zz",
        " GPU-bb",
        "MIG-1",
        "gpu-aa11",
    ];
    let mut masks: Vec<String> = items.iter().map(|i| (*i).to_owned()).collect();
    for first in items {
        for second in items {
            masks.push(format!("{first},{second}"));
            masks.extend(items.iter().map(|third| format!("{first},{second},{third}")));
        }
    }
    masks.extend(["NoDevFiles", "0;1", "0 1", "00", "1_0", ",", "all", "none", "void"].map(str::to_owned));
    masks
}
