//! `ds-doctor plan --verify WHEEL`

use super::progress::Progress;
use super::subject::{self, Subject};
use super::{op_subject, output};
use crate::binary::inspect::Depth;
use crate::binary::wheel::wheel as read_wheel;
use crate::checks::ops_wheel::{Expected, findings};
use crate::checks::{Case, Judged, fold, summary};
use crate::cli::{PlanArgs, PlanFormat, SubjectArgs};
use crate::collect::deepspeed;
use crate::exit::Exit;
use crate::finding::{Finding, Severity};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::knowledge::schema::ops::Op;
use crate::model::arch_list::{Format, Item, Reader, Reading, Use, print, read};
use crate::model::assume;
use crate::render::{self, Report, Verdict};
use crate::text::{count, join};
use crate::version::{Dotted, Target};
use anyhow::{Context as _, anyhow, bail};
use std::io::Write as _;
use std::path::Path;

/// # Errors
/// A file that is no wheel of DeepSpeed, unknown ops, no source of archs, or a result that cannot be written.
pub fn run(args: &PlanArgs, path: &Path) -> anyhow::Result<Exit> {
    let build = subject::load(&SubjectArgs { gpu: Vec::new(), ..args.subject.clone() })?;
    let target = match &args.target {
        Some(file) => Some(subject::load(&SubjectArgs { from: vec![file.clone()], ..SubjectArgs::default() })?),
        None => None,
    };
    let know = &build.know;
    let host = subject::host(&args.subject)?;
    let (file, length) = host.open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let progress = Progress::new(args.talk.quiet);
    let (wheel, texts) = read_wheel(&crate::binary::FileAt::new(file, length), &path.into(), Depth::Headers, &|name| {
        progress.say(format!("reading {name}…"))
    })
    .map_err(|error| anyhow!("`{}` is no wheel that can be read: {error}", path.display()))?;
    drop(progress);
    let Some(text) = texts.deepspeed else {
        bail!("`{}` is no wheel of DeepSpeed: it holds no `deepspeed/git_version_info_installed.py`", path.display())
    };
    let (version, built) =
        deepspeed::installed(&text).map_err(|why| anyhow!("`git_version_info_installed.py` of `{}` {why}", path.display()))?;
    let noted = version.or_else(|| wheel.name.as_ref().and_then(|name| name.version.parse::<Dotted>().ok()));
    let version = noted.ok_or_else(|| anyhow!("nothing tells which DeepSpeed `{}` is", path.display()))?;
    let accelerator = if built.accelerator.as_deref() == Some("cpu") && !wants_cuda(know, args, &version) {
        AcceleratorKind::Cpu
    } else {
        AcceleratorKind::Cuda
    };
    let ops = ops(know, args, &version, accelerator, &built.ops)?;
    let cuda = ops.iter().any(|op| know.op_build(op, &version).is_some_and(|build| build.cu > 0));
    let archs = if cuda { archs(args, &build, target.as_ref(), &version)? } else { Vec::new() };
    let expected = Expected { version: &version, accelerator, ops: &ops, archs: &archs };
    let own = Case::new(&build.facts, know, build.purpose, &[]);
    let there = target.as_ref().map(|target| Case::new(&target.facts, &target.know, target.purpose, &[]));
    // Without a target the machine itself is it, and there is nothing to compare its processor with.
    let found = match &there {
        Some(there) => findings(&wheel, &built, &expected, there, Some(&own)),
        None => findings(&wheel, &built, &expected, &own, None),
    };
    let broken = found.iter().any(|finding| finding.severity == Severity::Error);
    let names: Vec<String> = ops.iter().map(|op| op.op.to_string()).collect();
    let what = format!(
        "{} ({}){}",
        join(&names),
        count(names.len(), "op"),
        if archs.is_empty() { String::new() } else { format!(" for {}", print(&archs, Format::List)) }
    );
    let report = Report {
        command: "plan",
        subject: [format!("{} (DeepSpeed {version})", path.display())]
            .into_iter()
            .chain(summary::subject(there.as_ref().unwrap_or(&own)))
            .collect(),
        body: Vec::new(),
        judged: Judged { findings: fold(found), ..Judged::default() },
        verdict: if broken { Verdict::Broken } else { Verdict::Healthy },
        complete: true,
        waived: Vec::new(),
        proves: format!(
            "the wheel holds {what}, and fits torch, CUDA, Python and glibc of {}",
            if there.is_some() { "the target" } else { "this machine" }
        ),
    };
    let mut out = output::result(&args.talk)?;
    match args.format {
        PlanFormat::Json => {
            let result = serde_json::json!({
                "wheel": path.display().to_string(),
                "deepspeed": version.to_string(),
                "ops": names,
                "archs": print(&archs, Format::List),
                "installed_ops": built.ops,
                "torch": built.torch,
                "cuda": built.cuda,
                "accelerator": built.accelerator,
            });
            out.write_all(render::json::Envelope::new(&report, result).text().as_bytes())?;
        }
        _ => render::human::render(&report, output::detail(&args.talk), &mut out)?,
    }
    out.flush()?;
    Ok(if report.judged.findings.iter().map(Finding::weight).max() == Some(Severity::Error) { Exit::Findings } else { Exit::Fine })
}

/// An op is asked for that only the CUDA set has, or GPUs are.
fn wants_cuda(know: &Knowledge, args: &PlanArgs, version: &Dotted) -> bool {
    let cpu = |name: &String| know.deepspeed_ops(version, AcceleratorKind::Cpu).any(|op| op.op == **name);
    !args.subject.gpu.is_empty() || args.ops.iter().any(|name| name != "all" && !cpu(name))
}

fn ops<'k>(
    know: &'k Knowledge,
    args: &PlanArgs,
    version: &Dotted,
    accelerator: AcceleratorKind,
    noted: &std::collections::BTreeMap<String, bool>,
) -> anyhow::Result<Vec<&'k Op>> {
    let set: Vec<&Op> = know
        .deepspeed_ops(version, accelerator)
        .filter(|op| know.op_build(op, version).is_some_and(|build| build.cpp + build.cu > 0))
        .collect();
    if args.ops.iter().any(|name| name == "all") {
        return Ok(set);
    }
    if args.ops.is_empty() {
        let chosen: Vec<&Op> = set.into_iter().filter(|op| noted.get(op.op.as_ref()) == Some(&true)).collect();
        if chosen.is_empty() {
            bail!("the wheel holds no op; name those that it must hold (`--ops fused_adam,cpu_adam`)");
        }
        return Ok(chosen);
    }
    args.ops
        .iter()
        .map(|name| match set.iter().find(|op| op.op == **name) {
            Some(op) => Ok(*op),
            None => Err(anyhow!(op_subject::unknown_op(know, version, name))),
        })
        .collect()
}

/// The GPUs that are asked for, the target's, or TORCH_CUDA_ARCH_LIST.
fn archs(args: &PlanArgs, build: &Subject, target: Option<&Subject>, version: &Dotted) -> anyhow::Result<Vec<Item>> {
    let know = &build.know;
    let mut items = Vec::new();
    for text in &args.subject.gpu {
        let (_, capability, _) = assume::gpu(text, know).map_err(anyhow::Error::msg)?;
        items.push(Item::sass(Target::plain(capability)));
    }
    if items.is_empty()
        && let Some(text) = build.facts.env.text("TORCH_CUDA_ARCH_LIST")
    {
        return match read(know, &Reader::DeepSpeed(Some(version), Use::Prebuild), Some(&text)) {
            Ok(Reading::List(items)) => Ok(items),
            Ok(_) => bail!("TORCH_CUDA_ARCH_LIST holds no list"),
            Err(refusal) => bail!("TORCH_CUDA_ARCH_LIST cannot be read: {}", refusal.message),
        };
    }
    if items.is_empty() {
        let devices = target.unwrap_or(build).facts.gpu.devices.value().map_or(&[][..], Vec::as_slice);
        items.extend(devices.iter().filter_map(|device| device.capability).map(|capability| Item::sass(Target::plain(capability))));
    }
    items.sort_unstable();
    items.dedup();
    if items.is_empty() {
        bail!(
            "which archs the wheel must hold is not said: name the GPUs (`--gpu h100`), a target with GPUs (`--target`), or set TORCH_CUDA_ARCH_LIST"
        );
    }
    Ok(items)
}
