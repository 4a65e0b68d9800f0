//! Wheels: real ones, made ones, and ones that are made to do harm.

use super::{ids, inspect, json, says};
use crate::util::{Doctor, lab, trial, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("inspect::wheel_names_its_op_that_lacks_a_target", one_op),
        trial("inspect::wheels_that_are_made_to_do_harm", harm),
        trial("inspect::a_wheel_cut_anywhere", cut),
        trial("inspect::a_damaged_member_shuts_the_gate", damaged_member),
        trial_with("inspect::real_wheels", lab("wheels"), |wheels| real(&wheels)),
        trial_with("inspect::a_large_member_that_streams_by_is_what_the_file_is", lab("torch-venv"), |venv| streamed(&venv)),
        trial_with("inspect::a_wheel_is_judged_where_it_would_lie", lab("torch-venv"), |venv| installed(&venv)),
    ]
}

fn sample(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/fatbin").join(name)).unwrap()
}

fn zip_of(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

const METADATA: &[u8] = b"Metadata-Version: 2.1\nName: ops\nVersion: 1.0\nRequires-Dist: torch\n\nText\n";
const WHEEL: &[u8] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n";

/// A wheel with these members and its metadata.
fn wheel(folder: &Path, name: &str, members: &[(&str, &[u8])]) -> PathBuf {
    let mut record: String = members.iter().map(|(name, content)| format!("{name},,{}\n", content.len())).collect();
    record.push_str("ops-1.0.dist-info/METADATA,,\nops-1.0.dist-info/WHEEL,,\nops-1.0.dist-info/RECORD,,\n");
    let mut all = members.to_vec();
    all.extend([
        ("ops-1.0.dist-info/METADATA", METADATA),
        ("ops-1.0.dist-info/WHEEL", WHEEL),
        ("ops-1.0.dist-info/RECORD", record.as_bytes()),
    ]);
    let path = folder.join(name);
    fs::write(&path, zip_of(&all, CompressionMethod::Deflated)).unwrap();
    path
}

/// Unpacking takes its time in a build for tests.
const SLOW: std::time::Duration = std::time::Duration::from_secs(300);

const NAME: &str = "ops-1.0-cp311-cp311-linux_x86_64.whl";

fn one_op() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (sample("cu135_size.o"), sample("cu124_all.o"));
    let path = wheel(folder.path(), NAME, &[("ops/__init__.py", b""), ("ops/adam.o", &one), ("ops/lamb.o", &other)]);
    let report = json(inspect(&path).args(["--expect", "9.0a"]), 0);
    assert_eq!(report["result"]["files"].as_array().unwrap().len(), 2);
    let report = json(inspect(&path).args(["--expect", "8.0;9.0a"]), 1);
    assert_eq!(ids(&report), ["binary-lacks-arch"]);
    let title = report["findings"][0]["title"].as_str().unwrap();
    assert_eq!(title, format!("`ops/lamb.o` of `{NAME}` has no `sm_80`"));
    let report = json(inspect(&path), 0);
    let own = &report["result"]["wheels"][0];
    assert_eq!((own["package"].as_str(), own["tags"][0].as_str()), (Some("ops"), Some("cp311-cp311-linux_x86_64")));
    assert_eq!(own["record"], serde_json::json!({ "missing": [], "unlisted": [] }));
    // What DeepSpeed's setup wrote is read too.
    let built = b"version='0.19.8'\ninstalled_ops={'fused_adam': True, 'async_io': False}\naccelerator_name='cuda'\ntorch_info={'version': '2.6', 'cuda_version': '12.4'}\n";
    let path = wheel(
        folder.path(),
        "deepspeed-0.19.8-py3-none-any.whl",
        &[("deepspeed/git_version_info_installed.py", built), ("deepspeed/ops/x.o", &one)],
    );
    let report = json(inspect(&path), 0);
    assert_eq!(report["result"]["wheels"][0]["deepspeed"]["ops"], serde_json::json!({ "fused_adam": true, "async_io": false }));
    // No binary at all.
    let path = wheel(folder.path(), "pure-1.0-py3-none-any.whl", &[("pure.py", b"x = 1\n")]);
    assert_eq!(ids(&json(inspect(&path).args(["--expect", "8.0"]), 1)), ["binary-lacks-device-code"]);
    json(inspect(&path), 0);
}

fn harm() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let deflated = |members: &[(&str, &[u8])]| zip_of(members, CompressionMethod::Deflated);
    let outside = put("a-1-py3-none-any.whl", &deflated(&[("../../etc/cron.d/x.so", b"\x7fELF")]));
    says(&inspect(&outside).run(), 2, "leads out of the archive");
    let mut twice = deflated(&[("x1.so", b"a"), ("x2.so", b"b")]);
    let places: Vec<usize> = (0..twice.len() - 5).filter(|at| twice[*at..].starts_with(b"x2.so")).collect();
    places.into_iter().for_each(|at| twice[at + 1] = b'1');
    says(&inspect(&put("b-1-py3-none-any.whl", &twice)).run(), 2, "is in the archive twice");
    // Ten members of a gigabyte of zeros each, said and unsaid.
    let zeros = deflated(&[("bomb.so", &vec![0; 64 << 20])]);
    let entry = (0..zeros.len()).rfind(|at| zeros[*at..].starts_with(b"PK\x01\x02")).unwrap();
    let mut said = zeros.clone();
    said[entry + 24..entry + 28].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    let mut lies = zeros.clone();
    lies[entry + 24..entry + 28].copy_from_slice(&100_u32.to_le_bytes());
    // The first bytes are no library's: it is not unpacked any further.
    says(&inspect(&put("c-1-py3-none-any.whl", &said)).run(), 2, "not an ELF file");
    let mut library = vec![0; 64 << 20];
    library[..5].copy_from_slice(b"\x7fELF\x02");
    let packed = deflated(&[("bomb.so", &library)]);
    let entry = (0..packed.len()).rfind(|at| packed[*at..].starts_with(b"PK\x01\x02")).unwrap();
    for (claim, words) in [(100, "longer or shorter"), (u32::MAX - 1, "too early")] {
        let mut bytes = packed.clone();
        bytes[entry + 24..entry + 28].copy_from_slice(&claim.to_le_bytes());
        says(&inspect(&put("d-1-py3-none-any.whl", &bytes)).run(), 2, words);
    }
    let _ = lies;
    // More than four gigabytes from a hundred kilobytes.
    let mut many = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for n in 0..80 {
        many.start_file(format!("{n}.so"), SimpleFileOptions::default()).unwrap();
        many.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let mut bytes = many.finish().unwrap().into_inner();
    let entries: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"PK\x01\x02")).collect();
    entries.iter().for_each(|at| bytes[at + 24..at + 28].copy_from_slice(&(100_u32 << 20).to_le_bytes()));
    says(&inspect(&put("e-1-py3-none-any.whl", &bytes)).run(), 2, "zip bomb");
    // A count that no file can have.
    let mut count = deflated(&[("x.so", b"a")]);
    let end = count.len() - 22;
    count[end + 8..end + 12].copy_from_slice(&[0xfe, 0xff, 0xfe, 0xff]);
    says(&inspect(&put("f-1-py3-none-any.whl", &count)).run(), 2, "damaged zip file");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "nothing was written beside them");
}

fn cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = wheel(folder.path(), NAME, &[("ops/adam.o", &sample("cu135_size.o"))]);
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 4, 30, 100, whole.len() / 2, whole.len() - 100, whole.len() - 22, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let out = inspect(&path).args(["--expect", "8.0"]).run();
        assert_eq!((out.code, out.signal), (Some(2), None), "{length}: {}", out.stderr);
    }
}

fn damaged_member() {
    let folder = tempfile::tempdir().unwrap();
    let one = sample("cu135_size.o");
    let path = wheel(folder.path(), NAME, &[("ops/adam.o", &one), ("ops/cut.o", &one[..one.len() / 2])]);
    says(&inspect(&path).args(["--expect", "8.0"]).run(), 2, "ops/cut.o");
    // A byte that the checksum notices.
    let path = wheel(folder.path(), NAME, &[("ops/adam.o", &one)]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[200] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    says(&inspect(&path).args(["--expect", "8.0"]).run(), 2, "cannot read");
}

fn real(wheels: &Path) {
    let mut seen = 0;
    for entry in fs::read_dir(wheels).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".whl") {
            continue;
        }
        let report = json(inspect(&path).timeout(SLOW), 0);
        let own = &report["result"]["wheels"][0];
        let mut parts = name.split('-');
        let (package, version) = (parts.next().unwrap().to_lowercase().replace('_', "-"), parts.next().unwrap());
        assert_eq!(own["package"].as_str().unwrap().to_lowercase().replace(['_', '.'], "-"), package);
        assert_eq!(own["version"], version);
        assert_eq!(own["record"], serde_json::json!({ "missing": [], "unlisted": [] }), "{name}");
        let files = report["result"]["files"].as_array().unwrap();
        let of = |start: &str| files.iter().find(|file| file["member"].as_str().unwrap().ends_with(start));
        if name.starts_with("ninja") {
            let ninja = of("/ninja").unwrap();
            assert_eq!(ninja["form"], "executable", "{ninja:#}");
            json(inspect(&path).args(["--max-glibc", "2.17"]), 0);
        }
        if name.starts_with("nvidia_nvvm") {
            assert!(of("/cicc").is_some() && of("libnvvm.so.4").is_some());
        }
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

/// What a file says, without where it lies.
fn said(file: &Value) -> Value {
    let mut file = file.clone();
    for key in ["path", "member", "load"] {
        file.as_object_mut().unwrap().remove(key);
    }
    file
}

fn streamed(venv: &Path) {
    let name = "libtorch_cuda_linalg.so";
    let file = venv.join("lib/python3.11/site-packages/torch/lib").join(name);
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.len() > 40 << 20, "larger than what is held whole");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t-1-py3-none-any.whl");
    fs::write(&path, zip_of(&[(&format!("torch/lib/{name}"), &bytes)], CompressionMethod::Stored)).unwrap();
    let run = |path: &Path| json(inspect(path).arg("--python").arg(venv.join("bin/python")), 0)["result"]["files"][0].clone();
    let (one, other) = (run(&file), run(&path));
    assert_eq!(said(&one), said(&other));
    assert!(one["device_code"]["containers"].as_u64().unwrap() > 0);
    assert_eq!(other["load"]["undefined"], serde_json::json!([]), "{other:#}");
}

fn installed(venv: &Path) {
    let site = venv.join("lib/python3.11/site-packages");
    let folder = tempfile::tempdir().unwrap();
    let module = fs::read(site.join("torch/_C.cpython-311-x86_64-linux-gnu.so")).unwrap();
    // The place of torch's own module is the one from which it finds its libraries.
    let run = |name: &str, member: &str| {
        let path = wheel(folder.path(), name, &[(member, &module)]);
        json(Doctor::new(["inspect"]).arg(&path).arg("--python").arg(venv.join("bin/python")), 0)["result"]["files"][0].clone()
    };
    let file = run(NAME, "torch/_C.cpython-311-x86_64-linux-gnu.so");
    assert_eq!((file["load"]["judged"].as_bool(), &file["load"]["undefined"]), (Some(true), &serde_json::json!([])), "{file:#}");
    let other = run("ops-1.0-cp312-cp312-linux_x86_64.whl", "torch/_C.cpython-312-x86_64-linux-gnu.so");
    assert_eq!(other["load"]["judged"].as_bool(), Some(false), "for another Python");
    // What DeepSpeed wrote down when it was built, against the torch that it would meet.
    let built = |torch: &str, cuda: &str| {
        format!("version='0.19.8'\ninstalled_ops={{'fused_adam': True}}\ntorch_info={{'version': '{torch}', 'cuda_version': '{cuda}'}}\n")
    };
    for (torch, cuda, code) in [("2.6", "12.4", 1), ("2.11", "12.8", 1), ("2.11", "13.0", 0), ("0.0", "0.0", 0)] {
        let text = built(torch, cuda);
        let path =
            wheel(folder.path(), "deepspeed-0.19.8-py3-none-any.whl", &[("deepspeed/git_version_info_installed.py", text.as_bytes())]);
        let report = json(inspect(&path).arg("--python").arg(venv.join("bin/python")), code);
        assert_eq!(ids(&report), vec!["prebuilt-ops-torch-changed"; code as usize], "{torch} {cuda}");
    }
    // A claim about glibc that a member does not hold.
    let library = fs::read(site.join("torch/lib/libc10.so")).unwrap();
    for (tag, found) in [("manylinux_2_5_x86_64", true), ("manylinux_2_34_x86_64", false), ("linux_x86_64", false)] {
        let path = wheel(folder.path(), &format!("ops-1.0-cp311-cp311-{tag}.whl"), &[("torch/lib/libc10.so", &library)]);
        let report = json(inspect(&path).arg("--python").arg(venv.join("bin/python")), 0);
        assert_eq!(ids(&report).contains(&"binary-glibc-too-new".to_owned()), found, "{tag}: {report:#}");
    }
}
