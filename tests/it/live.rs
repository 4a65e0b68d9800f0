//! What only a running machine shows: locks that are held, mounts, free space. Each finding beside what the system itself does in that
//! place: a program that does not start, a file that cannot be made, a lock of torch's own code.

use crate::util::{BINARY, Doctor, Output, lab, program, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In a namespace of its own, with a file system of these options on the first argument, what the second says, then the doctor.
const MOUNTED: &str = r#"mount -t tmpfs -o "$OPTIONS" tmpfs "$AT" && eval "$TRUTH"; exec "$DOCTOR" "$@""#;

pub fn trials() -> Vec<Trial> {
    let mounts = || program("unshare").and_then(|_| venv_maker()).and_then(|python| namespaces().map(|()| python));
    vec![
        trial_with("live::a_cache_mounted_noexec", mounts(), |python| {
            let venv = Venv::new(&python);
            let truth = r#"cp /bin/true "$AT/x" && ! "$AT/x" 2>/dev/null && echo refused >&2"#;
            let found = venv.mounted("noexec", &venv.at("ext"), truth, &[("TORCH_EXTENSIONS_DIR", &venv.at("ext"))]);
            assert!(found.stderr.contains("refused"), "{found:?}");
            assert_eq!(ids(&found), ["tmp-noexec"], "{found:?}");
            // Compilers write there, and nothing is loaded from there.
            let found = venv.mounted("noexec", &venv.at("tmp"), truth, &[("TMPDIR", &venv.at("tmp"))]);
            assert!(found.stderr.contains("refused") && ids(&found).is_empty(), "{found:?}");
        }),
        trial_with("live::a_read_only_cache", mounts(), |python| {
            let venv = Venv::new(&python);
            let env = [("TORCH_EXTENSIONS_DIR", venv.at("ext/below"))];
            let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
            let found = venv.mounted("ro", &venv.at("ext"), r#"! mkdir "$AT/below" 2>/dev/null && echo refused >&2"#, &env);
            assert!(found.stderr.contains("refused") && found.stdout.contains("Errno 30"), "{found:?}");
            assert_eq!(ids(&found), ["cache-permission"], "{found:?}");
        }),
        trial_with("live::a_small_temporary_folder", mounts(), |python| {
            let venv = Venv::new(&python);
            let truth = r#"! head -c 50000000 /dev/zero > "$AT/x" 2>/dev/null && echo refused >&2; rm "$AT/x""#;
            let found = venv.mounted("size=40m", &venv.at("tmp"), truth, &[("TMPDIR", &venv.at("tmp"))]);
            assert!(found.stderr.contains("refused"), "{found:?}");
            assert_eq!(ids(&found), ["disk-full-tmp"], "{found:?}");
        }),
        trial_with("live::a_containers_shared_memory", mounts(), |python| {
            let venv = Venv::new(&python);
            let found = venv.mounted_for("run", "size=64m", "/dev/shm", ":", &[]);
            assert_eq!(ids(&found), ["shm-too-small"], "{found:?}");
            let found = venv.mounted_for("run", "size=1g", "/dev/shm", ":", &[]);
            assert!(ids(&found).is_empty(), "{found:?}");
        }),
        trial_with("live::a_cache_of_somebody_else", mounts().and_then(not_root_can_be_played), |python| {
            let venv = Venv::new(&python);
            let folder = venv.folder.path().join("home/.cache/torch_extensions/py_tag");
            fs::create_dir_all(&folder).unwrap();
            // The tag of this torch, whose folder cannot be written; the root can.
            let tag = folder.with_file_name(format!("{}_cu124", venv.tag));
            fs::create_dir(&tag).unwrap();
            fs::set_permissions(&tag, fs::Permissions::from_mode(0o555)).unwrap();
            let found = venv.as_nobody();
            fs::set_permissions(&tag, fs::Permissions::from_mode(0o777)).unwrap();
            assert_eq!(ids(&found), ["cache-permission"], "{found:?}");
            assert!(ids(&venv.as_nobody()).is_empty());
        }),
        trial_with("live::a_toolkit_in_a_closed_folder", venv_maker().and_then(not_root_can_be_played), |python| {
            let venv = Venv::new(&python);
            let (closed, home) = (venv.at("closed"), venv.at("closed/cuda"));
            fs::create_dir_all(venv.folder.path().join("closed/cuda/bin")).unwrap();
            fs::copy("/bin/true", venv.folder.path().join("closed/cuda/bin/nvcc")).unwrap();
            let link = venv.folder.path().join("link");
            std::os::unix::fs::symlink(&closed, &link).unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
            for home in [closed.clone(), home, venv.at("link/cuda")] {
                let found = venv.as_nobody_with("cuda-home-wrong,no-nvcc", &[("CUDA_HOME", &home)]);
                assert_eq!(ids(&found), ["cuda-home-wrong"], "{found:?}");
                let says = found.stdout.replace(&closed, "CLOSED");
                assert!(says.contains("permission denied: `CLOSED` is closed to this user"), "{says}");
                assert!(says.contains("bin/nvcc: Permission denied") && !says.contains("install"), "{says}");
            }
        }),
        trial_with(
            "live::locks_of_torchs_own_code",
            lab("torch-sources/torch-2.11.0").and_then(|lab| Ok((lab, venv_maker()?))),
            |(lab, python)| {
                locks(&lab, &python);
            },
        ),
        trial_with(
            "live::temporary_folders_that_nvcc_refuses",
            lab("full-cu130/nvidia/cu13").and_then(|lab| Ok((lab, venv_maker()?))),
            |(toolkit, python)| temporary(&toolkit, &python),
        ),
    ]
}

fn venv_maker() -> Result<PathBuf, String> {
    ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from).into_iter().find(|path| path.exists()).ok_or("no python3".to_owned())
}

fn namespaces() -> Result<(), String> {
    let tried = Doctor::new(["-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]).program("unshare").run();
    if tried.code == Some(0) { Ok(()) } else { Err("no user namespace with mounts".to_owned()) }
}

/// Permissions do not bind root: the test gives them up.
fn not_root_can_be_played(python: PathBuf) -> Result<PathBuf, String> {
    if rustix::process::geteuid().is_root() { Ok(python) } else { Err("not root, so nobody else can be played".to_owned()) }
}

/// A virtual environment with the files of a torch 2.6 in it, and a ninja.
struct Venv {
    folder: tempfile::TempDir,
    /// `py311`
    tag: String,
}

impl Venv {
    fn new(python: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("venv");
        let made = Command::new(python).args(["-m", "venv", "--without-pip"]).arg(&prefix).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let say = "import sysconfig, sys; print(sysconfig.get_path('purelib')); print('py%d%d' % sys.version_info[:2])";
        let said = Command::new(prefix.join("bin/python3")).args(["-c", say]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let (site, tag) = said.trim().split_once('\n').unwrap();
        let put = |path: &str, text: &str| {
            let at = Path::new(site).join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        };
        put("torch/__init__.py", "");
        put("torch/version.py", "__version__ = '2.6.0+cu124'\ncuda = '12.4'\nhip = None\ngit_version = 'x'\n");
        for (name, version) in [("torch", "2.6.0"), ("setuptools", "75.0.0")] {
            put(&format!("{name}-{version}.dist-info/METADATA"), &format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"));
            put(&format!("{name}-{version}.dist-info/RECORD"), "");
        }
        for name in ["ext", "tmp", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::copy("/bin/true", prefix.join("bin/ninja")).unwrap();
        Self { tag: tag.to_owned(), folder }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Only what these tests are about: compilers and toolkits of this machine are its own affair.
    fn check(&self, purpose: &str) -> [String; 8] {
        ["check", "--static", "--format", "json", "--for", purpose, "--only", "cache,missing-ninja"].map(str::to_owned)
    }

    fn doctor(&self, program: &str) -> Doctor {
        let path = format!("{}:/usr/bin:/bin", self.at("venv/bin"));
        Doctor::new([]).program(program).env("PATH", path).env("HOME", self.at("home")).env("VIRTUAL_ENV", self.at("venv"))
    }

    fn mounted(&self, options: &str, at: &str, truth: &str, env: &[(&str, &str)]) -> Output {
        self.mounted_for("build", options, at, truth, env)
    }

    fn mounted_for(&self, purpose: &str, options: &str, at: &str, truth: &str, env: &[(&str, &str)]) -> Output {
        let mut doctor = self.doctor("unshare").args(["-rm", "/bin/sh", "-c", MOUNTED, "sh"]).args(self.check(purpose));
        for (name, value) in env.iter().chain(&[("OPTIONS", options), ("AT", at), ("TRUTH", truth), ("DOCTOR", BINARY)]) {
            doctor = doctor.env(name, value);
        }
        doctor.run()
    }

    /// As a user to whom nothing here belongs but the cache's root.
    fn as_nobody(&self) -> Output {
        self.as_nobody_with("cache,missing-ninja", &[])
    }

    fn as_nobody_with(&self, only: &str, env: &[(&str, &str)]) -> Output {
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        open(self.folder.path(), 0o755);
        let cache = self.folder.path().join("home/.cache/torch_extensions");
        if cache.exists() {
            open(&cache, 0o777);
        }
        let copy = self.folder.path().join("doctor");
        fs::copy(BINARY, &copy).unwrap();
        let mut check = self.check("build");
        check[7] = only.to_owned();
        let mut doctor = self.doctor("setpriv").args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(copy).args(check);
        for (name, value) in env {
            doctor = doctor.env(name, *value);
        }
        doctor.run()
    }
}

/// Ids of the findings, states not counted.
fn ids(out: &Output) -> Vec<String> {
    let json: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let all = json["findings"].as_array().unwrap().iter();
    all.filter(|one| one["severity"] != "info").map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Takes the lock as torch does, says so, and waits.
const HOLD: &str = r"
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location('file_baton', sys.argv[1])
baton = importlib.util.module_from_spec(spec)
spec.loader.exec_module(baton)
lock = baton.FileBaton(sys.argv[2])
assert lock.try_acquire(), 'somebody has it'
print('held', flush=True)
if len(sys.argv) > 3:
    time.sleep(100)
lock.release()
";

fn locks(torch: &Path, python: &Path) {
    let venv = Venv::new(python);
    let op = PathBuf::from(venv.at("home")).join(format!(".cache/torch_extensions/{}_cu124/my_op", venv.tag));
    fs::create_dir_all(&op).unwrap();
    let lock = op.join("lock");
    let hold = |wait: bool| {
        let mut command = Command::new(python);
        command.args(["-c", HOLD]).arg(torch.join("torch/utils/file_baton.py")).arg(&lock).args(wait.then_some("wait"));
        command.stdout(Stdio::piped()).process_group(0).spawn().unwrap()
    };
    let judge = || {
        let out = venv.doctor(BINARY).args(venv.check("build")).run();
        let json: Value = serde_json::from_str(&out.stdout).unwrap();
        let undecided = json["undecided"].as_array().unwrap().iter().any(|one| one["id"] == "stale-jit-lock");
        (ids(&out), undecided, out)
    };
    let mut holder = hold(true);
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let (found, _, out) = judge();
    assert!(found.is_empty(), "a lock that is held: {out:?}");

    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(lock.exists(), "torch leaves it behind");
    let (found, undecided, out) = judge();
    // Where this machine cannot tell (a volume of a container), no answer is the right one.
    if undecided {
        assert!(found.is_empty(), "{out:?}");
        fs::remove_file(&lock).unwrap();
    } else {
        assert_eq!(found, ["stale-jit-lock"], "{out:?}");
        let json: Value = serde_json::from_str(&out.stdout).unwrap();
        let text = json["findings"][0]["fixes"].to_string();
        assert!(text.contains(lock.to_str().unwrap()), "{text}");
        let refused = hold(false).wait_with_output().unwrap();
        assert!(!refused.status.success(), "torch waits for it for ever");
        fs::remove_file(&lock).unwrap();
    }
    assert!(hold(false).wait().unwrap().success() && !lock.exists());
    assert!(judge().0.is_empty());
}

fn temporary(toolkit: &Path, python: &Path) {
    let venv = Venv::new(python);
    fs::write(venv.at("k.cu"), "__global__ void k() {}\n").unwrap();
    fs::write(venv.at("file"), "").unwrap();
    // An empty value makes nvcc fail too, but it leaves its files in the root folder then.
    for value in [venv.at("tmp"), venv.at("none"), venv.at("file")] {
        let mut nvcc = Command::new(toolkit.join("bin/nvcc"));
        nvcc.args(["-c", "k.cu", "-o", "k.o"]).current_dir(venv.folder.path()).env("TMPDIR", &value);
        let compiled = nvcc.output().unwrap();
        let out = venv.doctor(BINARY).args(venv.check("build")).env("TMPDIR", &value).env("CUDA_HOME", toolkit).run();
        let said = ids(&out).contains(&"tmpdir-broken".to_owned());
        assert_eq!(said, !compiled.status.success(), "`{value}`: {out:?}\n{}", String::from_utf8_lossy(&compiled.stderr));
    }
}
