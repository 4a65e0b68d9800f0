//! The DeepSpeed whose ops are asked for: the installed one, a source tree, or a release that is not installed yet.

use super::subject::{self, Subject};
use crate::checks::{Case, OpsOf};
use crate::cli::SubjectArgs;
use crate::collect;
use crate::facts::observed::Observed;
use crate::knowledge::Knowledge;
use crate::model::assume;
use crate::version::Dotted;
use anyhow::{anyhow, bail};
use std::path::Path;

/// # Errors
/// Unreadable input; an unknown release, with the near ones; a source tree that is none, or of another release.
pub fn load(args: &SubjectArgs, source: Option<&Path>, deepspeed: Option<&str>) -> anyhow::Result<Subject> {
    let mut named = args.clone();
    let asked = match deepspeed {
        Some(text) => Some(text.parse::<Dotted>().map_err(|error| anyhow!("--deepspeed: {error}"))?),
        None => None,
    };
    if source.is_none() {
        named.assume.extend(deepspeed.map(|release| format!("deepspeed={release}")));
    }
    let mut subject = subject::load(&named)?;
    if let Some(version) = &asked {
        known(&subject.know, version, "--deepspeed")?;
    }
    if let Some(folder) = source {
        if !args.from.is_empty() {
            bail!("--source is read on the machine that is judged: it does not go with --from");
        }
        let host = subject::host(args)?;
        let (tree, builders) = collect::ops::source(&*host, folder).map_err(|why| anyhow!("--source: {why}"))?;
        if let Some(version) = asked.filter(|version| version.semver() != tree.version.semver()) {
            bail!("--source: `{}` is DeepSpeed {}, and --deepspeed asks for {version}", folder.display(), tree.version);
        }
        known(&subject.know, &tree.version, "--source")?;
        if let Observed::Seen { value } = &mut subject.facts.ops {
            value.builders.push(builders);
            value.cutlass.extend(["cutlass", "../cutlass"].iter().filter_map(|name| collect::ops::place(&*host, &folder.join(name))));
        }
        assume::deepspeed(&mut subject.facts, tree);
    }
    Ok(subject)
}

fn known(know: &Knowledge, version: &Dotted, option: &str) -> anyhow::Result<()> {
    match know.deepspeed_release(version) {
        Ok(()) => Ok(()),
        Err(near) if near.is_empty() => bail!("{option}: there is no DeepSpeed {version} in the tables"),
        Err(near) => bail!("{option}: there is no DeepSpeed {version}; near it: {}", near.join(", ")),
    }
}

/// What to say of an op that the release does not have.
pub fn unknown_op(know: &Knowledge, version: &Dotted, name: &str) -> String {
    if know.op_names().contains(name) {
        return format!("--ops: DeepSpeed {version} has no op `{name}` for this accelerator");
    }
    match know.near_op(name) {
        Some(near) => format!("--ops: there is no op `{name}`; near it: {near}"),
        None => format!("--ops: there is no op `{name}`; `ds-doctor ops` lists them"),
    }
}

/// The ops, where there is a DeepSpeed that can be judged.
///
/// # Errors
/// What is missing, and what to do about it.
pub fn ops<'c, 'a>(case: &'c Case<'a>) -> anyhow::Result<&'c OpsOf<'a>> {
    if let Ok(Some(deepspeed)) = case.deepspeed()
        && let Observed::Failed { why } = &deepspeed.built
    {
        bail!("which ops DeepSpeed was installed with cannot be read: {why}");
    }
    match case.ops() {
        Ok(Some(ops)) => Ok(ops),
        Ok(None) => bail!(
            "no DeepSpeed is installed in the interpreter that is judged; name a release (`--deepspeed 0.19.8`) or a source tree (`--source DIR`)"
        ),
        Err(missing) => bail!("the ops cannot be judged: {} {}", missing.topic, missing.why),
    }
}
