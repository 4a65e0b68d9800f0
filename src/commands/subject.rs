//! The machine that is judged: this one, a snapshot, or a file tree, with what the command line adds to it.
#![expect(clippy::disallowed_methods, reason = "reads the files that the command line names")]

use crate::checks::Purpose;
use crate::cli::{PurposeArg, SubjectArgs};
use crate::collect::{self, Lists};
use crate::facts::snapshot::{SCHEMA, Snapshot};
use crate::host::{Environment, Host, Live, Rooted};
use crate::knowledge::Knowledge;
use crate::model::assume;
use anyhow::{Context as _, bail};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A snapshot is text of a few hundred KiB; more than this is not one.
const SNAPSHOT_CAP: u64 = 64 << 20;
const ENV_FILE_CAP: u64 = 16 << 20;
/// Seconds that a program has for an answer, where nothing else is said.
const QUESTION: f64 = 5.0;
/// What a tree is judged with when nothing else is said.
const TREE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TREE_HOME: &str = "/root";

pub struct Subject {
    pub facts: Snapshot,
    pub know: Knowledge,
    pub purpose: Purpose,
}

/// # Errors
/// Unreadable input, with what was tried.
pub fn load(args: &SubjectArgs) -> anyhow::Result<Subject> {
    load_with(args, None)
}

/// With a folder that is looked at as a toolkit though nothing names it.
///
/// # Errors
/// As [`load`].
pub fn load_with(args: &SubjectArgs, toolkit: Option<&Path>) -> anyhow::Result<Subject> {
    if args.from.len() > 1 {
        bail!("more than one --from is for `arch-list` only");
    }
    one(args, None, toolkit)
}

fn one(args: &SubjectArgs, for_lists: Option<Lists>, toolkit: Option<&Path>) -> anyhow::Result<Subject> {
    let know = knowledge(args)?;
    let facts = match args.from.first() {
        Some(path) => from_file(path, args)?,
        None => collected(args, for_lists, toolkit)?,
    };
    finish(facts, know, args)
}

/// Every snapshot that was named, or the one machine, with what an arch list is made from. The driver is not asked where `--gpu` says
/// which GPUs count.
///
/// # Errors
/// As [`load`].
pub fn load_all(args: &SubjectArgs, lists: Lists) -> anyhow::Result<Vec<Subject>> {
    if args.from.len() < 2 {
        return Ok(vec![one(args, Some(lists), None)?]);
    }
    args.from
        .iter()
        .map(|path| {
            let facts = from_file(path, args)?;
            finish(facts, knowledge(args)?, args)
        })
        .collect()
}

fn finish(mut facts: Snapshot, know: Knowledge, args: &SubjectArgs) -> anyhow::Result<Subject> {
    assume::software(&mut facts, &know, &args.assume).map_err(anyhow::Error::msg)?;
    assume::gpus(&mut facts, &know, &args.gpu).map_err(anyhow::Error::msg)?;
    let purpose = match args.purpose {
        Some(PurposeArg::Build) => Purpose::Build,
        Some(PurposeArg::Run) => Purpose::Run,
        Some(PurposeArg::Both) => Purpose::Both,
        None if facts.gpu.driver_seen() => Purpose::Both,
        None => Purpose::Build,
    };
    Ok(Subject { facts, know, purpose })
}

/// The tables, with those of `--rules-dir` over them.
///
/// # Errors
/// A folder or a table that cannot be read.
pub fn knowledge(args: &SubjectArgs) -> anyhow::Result<Knowledge> {
    let Some(dir) = &args.rules_dir else { return Ok(Knowledge::embedded()) };
    let mut files = Vec::new();
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read --rules-dir `{}`", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("toml")) {
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            files.push((path.display().to_string(), text));
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("--rules-dir `{}` holds no .toml file", dir.display());
    }
    Ok(Knowledge::with_rules(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))?)
}

fn from_file(path: &Path, args: &SubjectArgs) -> anyhow::Result<Snapshot> {
    let bytes = read_input(path, SNAPSHOT_CAP)?;
    let mut facts = parse_snapshot(&bytes).with_context(|| format!("`{}` is not a snapshot that can be judged", path.display()))?;
    for (name, value) in variables(args)? {
        if let Ok(name) = name.into_string() {
            facts.env.set(&name, value);
        }
    }
    Ok(facts)
}

fn parse_snapshot(bytes: &[u8]) -> anyhow::Result<Snapshot> {
    #[derive(serde::Deserialize)]
    struct Head {
        schema: u32,
        #[serde(default)]
        tool: String,
    }
    let head: Head = serde_json::from_slice(bytes).context("it is no JSON of ours")?;
    if head.schema > SCHEMA {
        let maker = if head.tool.is_empty() { String::new() } else { format!(", made by {}", head.tool) };
        bail!("it has schema {}{maker}, and this program reads up to {SCHEMA}: update ds-doctor", head.schema);
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// `--python`: a path, or a name that PATH finds (in a tree only paths mean anything).
fn python(args: &SubjectArgs) -> anyhow::Result<Option<PathBuf>> {
    let Some(named) = &args.python else { return Ok(None) };
    if args.root.is_some() {
        return Ok(Some(named.clone()));
    }
    match which::which(named) {
        Ok(found) => Ok(Some(found)),
        Err(_) => bail!("--python `{}` is no program, neither as a path nor on PATH", named.display()),
    }
}

fn collected(args: &SubjectArgs, for_lists: Option<Lists>, toolkit: Option<&Path>) -> anyhow::Result<Snapshot> {
    let options = collect::Options {
        timeout: Duration::from_secs_f64(args.timeout.unwrap_or(QUESTION)),
        python: python(args)?,
        toolkit: toolkit.map(Path::to_owned),
        ask_gpu: for_lists.is_none() || args.gpu.is_empty(),
        for_lists,
    };
    let extra = variables(args)?;
    match &args.root {
        Some(root) => {
            let mut env: Environment = [("PATH".into(), TREE_PATH.into()), ("HOME".into(), TREE_HOME.into())].into();
            env.extend(extra);
            let host = Rooted::new(root, env).with_context(|| format!("cannot open --root `{}`", root.display()))?;
            Ok(collect::snapshot(&host, &options))
        }
        None => {
            let mut env = crate::host::Host::env(&Live::new()).clone();
            env.extend(extra);
            Ok(collect::snapshot(&Live::with_env(env), &options))
        }
    }
}

/// This machine with the environment that is judged.
///
/// # Errors
/// As [`load`].
pub fn live(args: &SubjectArgs) -> anyhow::Result<Live> {
    let mut env = crate::host::Host::env(&Live::new()).clone();
    env.extend(variables(args)?);
    Ok(Live::with_env(env))
}

/// What the files of the machine that is judged are read through: a tree under `--root`, else this machine.
///
/// # Errors
/// As [`load`].
pub fn host(args: &SubjectArgs) -> anyhow::Result<Box<dyn Host>> {
    let Some(root) = &args.root else { return Ok(Box::new(live(args)?)) };
    let host = Rooted::new(root, variables(args)?.into_iter().collect());
    Ok(Box::new(host.with_context(|| format!("cannot open --root `{}`", root.display()))?))
}

/// `--env-file`, then `--env` over it.
fn variables(args: &SubjectArgs) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let mut all = Vec::new();
    for path in &args.env_file {
        let bytes = read_input(path, ENV_FILE_CAP)?;
        all.extend(parse_env_file(&bytes).with_context(|| format!("`{}` is no environment", path.display()))?);
    }
    for pair in &args.env {
        all.push(split_pair(pair.as_bytes()).with_context(|| format!("--env `{}` is not KEY=VALUE", pair.display()))?);
    }
    Ok(all)
}

fn split_pair(pair: &[u8]) -> Option<(OsString, OsString)> {
    let at = pair.iter().position(|b| *b == b'=').filter(|at| *at > 0)?;
    let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some((word(&pair[..at]), word(&pair[at + 1..])))
}

/// `env -0`, the JSON of `docker inspect`, or KEY=VALUE lines (blank lines and `#` comments allowed).
fn parse_env_file(bytes: &[u8]) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let parse = |pair: &[u8]| split_pair(pair).with_context(|| format!("`{}` is not KEY=VALUE", String::from_utf8_lossy(pair)));
    if bytes.contains(&0) {
        return bytes.split(|b| *b == 0).filter(|pair| !pair.is_empty()).map(parse).collect();
    }
    if let Some(b'[' | b'{') = bytes.trim_ascii_start().first() {
        let json: serde_json::Value = serde_json::from_slice(bytes)?;
        let one = json.get(0).unwrap_or(&json);
        let list = one.pointer("/Config/Env").or_else(|| one.pointer("/config/Env")).and_then(|env| env.as_array());
        let list = list.context("the JSON has no Config.Env: give the output of `docker inspect`")?;
        return list.iter().filter_map(|pair| pair.as_str()).map(|pair| parse(pair.as_bytes())).collect();
    }
    bytes
        .split(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.trim_ascii().is_empty() && !line.trim_ascii_start().starts_with(b"#"))
        .map(parse)
        .collect()
}

/// A named file, or standard input for `-`.
fn read_input(path: &Path, cap: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut read = || -> std::io::Result<()> {
        if path == Path::new("-") {
            std::io::stdin().lock().take(cap + 1).read_to_end(&mut bytes)?;
        } else {
            std::fs::File::open(path)?.take(cap + 1).read_to_end(&mut bytes)?;
        }
        Ok(())
    };
    read().with_context(|| format!("cannot read `{}`", path.display()))?;
    if bytes.len() as u64 > cap {
        bail!("`{}` is longer than {}", path.display(), crate::text::bytes(cap));
    }
    Ok(bytes)
}

/// The machine's own name, for taking it out of a snapshot.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// The name of the program that started us: a shell, as a rule.
pub fn parent_program() -> Option<String> {
    let parent = std::os::unix::process::parent_id();
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    Some(name.trim().trim_start_matches('-').to_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pairs(text: &[u8]) -> Vec<(String, String)> {
        let all = parse_env_file(text).unwrap();
        all.into_iter().map(|(n, v)| (n.into_string().unwrap(), v.into_string().unwrap())).collect()
    }

    #[test]
    fn environments_in_three_forms() {
        let expected = vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), "x=y z".to_owned())];
        assert_eq!(pairs(b"A=1\n\n# note\nB=x=y z\r\n"), expected);
        assert_eq!(pairs(b"A=1\0B=x=y z\0"), expected);
        assert_eq!(pairs(br#"[{"Config": {"Env": ["A=1", "B=x=y z"]}}]"#), expected);
        assert!(parse_env_file(b"no pair\n").is_err());
        assert!(parse_env_file(b"{\"Env\": 1}").is_err());
    }

    #[test]
    fn snapshots_that_cannot_be_read_say_why() {
        let why = |bytes: &[u8]| format!("{:#}", parse_snapshot(bytes).unwrap_err());
        assert!(why(b"{\"schema\": 99, \"tool\": \"ds-doctor 7.0\"}").contains("update ds-doctor"));
        assert!(why(b"{\"schema\": 1, \"ta").contains("no JSON"));
        assert!(why(b"").contains("no JSON"));
    }
}
