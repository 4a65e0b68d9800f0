//! `ds-doctor plan`

use super::subject::Subject;
use super::{op_subject, output, plan_refusal, plan_verify};
use crate::checks::ops_report::{self, Row};
use crate::checks::{Case, judge};
use crate::cli::{PlanArgs, PlanFormat, SubjectArgs};
use crate::exit::Exit;
use crate::facts::snapshot::Snapshot;
use crate::finding::Finding;
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait};
use crate::knowledge::schema::ops::{Op, OpBuild};
use crate::model::arch_list::{self, Format, Item};
use crate::model::arch_plan::{self, Limits, Wish as ArchWish};
use crate::model::assume;
use crate::model::ops::{Can, Wish, prebuild_list};
use crate::model::plan::{self, Ask, Line};
use crate::model::search;
use crate::render::plan::{LeftOut, Plan, Refusal};
use crate::text::join;
use crate::version::{Capability, Target};
use anyhow::{anyhow, bail};
use std::io::Write as _;

/// # Errors
/// Wrong use, unreadable input, an unknown op or release, or a result that cannot be written.
pub fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    if let Some(wheel) = &args.verify {
        return plan_verify::run(args, wheel);
    }
    let made = print(args);
    if made.is_err() && args.format == PlanFormat::Shell {
        // A shell that is fed nothing ends well.
        let mut out = output::result(&args.talk)?;
        out.write_all(b"exit 2\n")?;
        out.flush()?;
    }
    made
}

fn print(args: &PlanArgs) -> anyhow::Result<Exit> {
    if args.source.is_some() && args.subject.root.is_some() {
        bail!("--source is built on the machine that the plan is for: it does not go with --root");
    }
    // `--gpu` names what the wheel is for; the build sees the GPUs that are here.
    let here = SubjectArgs { gpu: Vec::new(), ..args.subject.clone() };
    let subject = op_subject::load(&here, args.source.as_deref(), args.deepspeed.as_deref())?;
    if subject.facts.redacted {
        bail!(
            "names and paths of this snapshot are replaced: a plan made from it would fit no machine (`snapshot --no-redact` keeps them)"
        );
    }
    let plan = make(args, subject)?;
    if args.why {
        for left in &plan.left_out {
            output::note(&args.talk, &format!("{} is left out: {}", left.op, left.why.join("; ")));
        }
    }
    for note in &plan.notes {
        output::note(&args.talk, note);
    }
    for refusal in &plan.refused {
        output::note(&args.talk, &format!("{}: {}", refusal.id, refusal.says));
        for fix in &refusal.fixes {
            output::note(&args.talk, &format!("  fix  {fix}"));
        }
    }
    let text = match args.format {
        PlanFormat::Shell => plan.shell(),
        PlanFormat::Dockerfile => plan.dockerfile(),
        PlanFormat::Json => plan.json(),
    };
    let mut out = output::result(&args.talk)?;
    out.write_all(&text)?;
    out.flush()?;
    Ok(if plan.refused.is_empty() { Exit::Fine } else { Exit::Findings })
}

/// The plan, tried on the facts as it grows.
fn make(args: &PlanArgs, mut subject: Subject) -> anyhow::Result<Plan> {
    let source = args.source.as_ref().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone()).into());
    let all = args.ops.iter().any(|op| op == "all");
    let ask = Ask { ops: (!args.ops.is_empty() && !all).then(|| args.ops.clone()), all, wheel: args.wheel, source };
    let mut plan = Plan::default();
    let know = subject.know;
    let facts = &mut subject.facts;

    let meant = args.subject.gpu.iter().map(|text| assume::gpu(text, &know)).collect::<Result<Vec<_>, _>>().map_err(|why| anyhow!(why))?;

    // The accelerator first: it decides which ops there are.
    let line = {
        let case = Case::new(facts, &know, subject.purpose, &[]);
        let (scene, _) = op_subject::ops(&case)?;
        plan.deepspeed = scene.deepspeed.version.to_string();
        let cuda_only = plan::cuda_only(scene, &args.ops).map_err(|why| anyhow!(why))?;
        if let Some(refusal) = plan_refusal::root(&case, scene, cuda_only || !meant.is_empty()) {
            plan.refused.push(refusal);
            return Ok(plan);
        }
        plan.lines.extend(plan::cuda_home(scene));
        plan.lines.extend(plan::surroundings(scene));
        let cpu_ops = ask.ops.as_ref().is_some_and(|names| {
            let set: Vec<&str> = know.deepspeed_ops(&scene.deepspeed.version, scene.accelerator).map(|op| op.op.as_ref()).collect();
            names.iter().all(|name| set.contains(&name.as_str()))
        });
        let line = plan::accelerator(scene);
        match line {
            // What the CPU set has is built there where the variable would kill the import.
            Some(_) if plan::accelerator_kills(scene) && cpu_ops => None,
            Some(_) if plan::accelerator_kills(scene) => {
                plan.refused.push(Refusal {
                    id: "ds-import-needs-gpu",
                    says: format!(
                        "CUDA ops are built without a GPU only with `DS_ACCELERATOR=cuda`, of which DeepSpeed {} dies where triton is installed",
                        scene.deepspeed.version
                    ),
                    fixes: vec!["build in an environment without triton, or take DeepSpeed 0.14.5 or 0.19.8".to_owned()],
                });
                None
            }
            line => line,
        }
    };
    add(facts, &mut plan, line);

    // Then the ops that are wanted, and the archs.
    let (names, list) = {
        let case = Case::new(facts, &know, subject.purpose, &[]);
        let (scene, _) = op_subject::ops(&case)?;
        let list = (scene.accelerator == AcceleratorKind::Cuda).then(|| list(&case, scene, &meant));
        let list = list.transpose();
        // Without a list it is tried as it stands.
        let trial = with_list(facts, list.as_ref().ok().and_then(Option::as_deref));
        let case = Case::new(&trial, &know, subject.purpose, &[]);
        let judged = judge(&case, &|_| true);
        let (scene, states) = op_subject::ops(&case)?;
        let helped = helped(&trial, states);
        let helped = Case::new(&helped, &know, subject.purpose, &[]);
        let (helped_scene, helped_states) = op_subject::ops(&helped)?;
        let rows = ops_report::rows(&helped, helped_scene, helped_states, &judged);
        let can = |name: &str| rows.iter().find(|row| row.state.op.op == name).map_or(Can::No, |row| row.prebuild.can);
        let chosen = plan::choose(scene, states, &ask, &|state| can(&state.op.op)).map_err(|why| anyhow!(why))?;
        let names: Vec<String> = chosen.iter().map(|op| op.op.to_string()).collect();
        plan.left_out = rows.iter().filter(|row| !names.iter().any(|name| *name == *row.state.op.op)).map(left_out).collect();
        if ask.ops.is_none() && !ask.all {
            none_of(&mut plan, &rows, scene.accelerator, list.as_ref().err(), &judged.findings);
        }
        let cuda = chosen.iter().any(|op| know.op_build(op, &scene.deepspeed.version).is_some_and(|build| build.cu > 0));
        if cuda && let Err(refusal) = &list {
            plan.refused.push(refusal.clone());
        }
        plan.ops.clone_from(&names);
        (names, list.ok().flatten())
    };
    if let Some(items) = &list {
        plan.archs = arch_list::print(items, Format::List).split(';').map(str::to_owned).collect();
        let line = plan::list(items);
        add(facts, &mut plan, Some(line));
    }

    // Everything that the chosen ones need, and the whole judged once more.
    let lines = {
        let case = Case::new(facts, &know, subject.purpose, &[]);
        let (scene, states) = op_subject::ops(&case)?;
        let chosen: Vec<&Op> = states.iter().map(|state| state.op).filter(|op| names.iter().any(|name| *name == *op.op)).collect();
        plan::wishes(&know, scene, &chosen)
    };
    for line in lines {
        add(facts, &mut plan, Some(line));
    }
    let lines = {
        let case = Case::new(facts, &know, subject.purpose, &[]);
        let (_, states) = op_subject::ops(&case)?;
        plan::helps(states)
    };
    for line in lines {
        add(facts, &mut plan, Some(line));
    }
    let case = Case::new(facts, &know, subject.purpose, &[]);
    let judged = judge(&case, &|_| true);
    let (scene, states) = op_subject::ops(&case)?;
    let rows = ops_report::rows(&case, scene, states, &judged);
    let wanted: Vec<&Row<'_, '_>> = rows.iter().filter(|row| row.state.wish != Wish::No).collect();
    for reason in wanted.iter().flat_map(|row| &row.prebuild.why) {
        plan_refusal::add(&mut plan, reason, &judged.findings);
    }
    for row in &wanted {
        if let Some(by) = row.state.archs.narrowed_by.as_ref().filter(|_| row.state.build.is_some_and(|build| build.cu > 0)) {
            let says = format!("{by} takes archs out of the list for good, and {} behind it would be built without them", row.state.op.op);
            let fixes = vec![format!("plan two wheels, one without {by}, or a list that {by} takes whole")];
            plan_refusal::add_words(&mut plan, "ds-arch-list-leak", says, fixes);
        }
        if row.state.archs.bf16 == Some(false) && row.state.archs.kept.iter().any(|item| item.target.capability.major >= 8) {
            let note = "an arch below 8.0 beside newer ones turns the BF16 kernels off in every op".to_owned();
            if !plan.notes.contains(&note) {
                plan.notes.push(note);
            }
        }
    }
    let front = plan::front(scene, &ask).unwrap_or_else(|lack| {
        // Of the environment that will get an assumed torch nothing is known.
        if case.environment_of_torch("packages").is_ok() {
            plan.refused.push(plan_refusal::lack(&case, scene, &lack));
        }
        plan::Front::Pip
    });
    plan_refusal::fold(&mut plan);
    // async_io and gds take pin_memory with them.
    let forced: Vec<String> = wanted.iter().map(|row| row.state.op.op.to_string()).filter(|op| !names.contains(op)).collect();
    plan.left_out.retain(|left| !forced.contains(&left.op));
    plan.ops.extend(forced);
    let built: Vec<(&Op, &OpBuild)> = wanted.iter().filter_map(|row| Some((row.state.op, row.state.build?))).collect();
    let ninja = search::starts(case.facts, "ninja").is_some() && scene.does(DeepSpeedTrait::NinjaOptIn);
    // Ops that share sources (transformer and stochastic_transformer, async_io and gds) are built one after another: ninja compiles what they
    // share anew, since the command differs. Run with torch 2.11.
    let targets = list.as_ref().map_or(1, Vec::len);
    let jobs = plan::jobs(case.facts, &know, &scene.deepspeed.version, &built, targets);
    let threads = scene.deepspeed.version.at_least(&[0, 13, 3]) && built.iter().any(|(_, build)| build.cu > 0);
    plan.lines.extend(ninja.then(|| plan::ninja(case.facts)).flatten());
    plan.lines.extend(jobs.lines(ninja, threads));
    plan.lines.extend(plan::commands(scene, &ask, front));
    plan.seconds = cost(&know, scene, &built);
    Ok(plan)
}

/// Seconds of processor time, of what was measured.
fn cost(know: &crate::knowledge::Knowledge, scene: &crate::model::ops::Scene<'_>, built: &[(&Op, &OpBuild)]) -> Option<u64> {
    let mut all = 0;
    for (op, _) in built {
        all += u64::from(know.op_cost(&op.op, &scene.deepspeed.version)?.seconds);
    }
    Some(all)
}

fn add(facts: &mut Snapshot, plan: &mut Plan, line: Option<Line>) {
    if let Some(line) = line {
        plan::apply(facts, &line);
        plan.lines.push(line);
    }
}

fn left_out(row: &Row<'_, '_>) -> LeftOut {
    let why: Vec<String> = match row.prebuild.why.as_slice() {
        [] if row.prebuild.can == Can::Unknown => {
            row.prebuild.unknown.iter().map(|missing| format!("not known: {} {}", missing.topic, missing.why)).collect()
        }
        [] => vec!["not asked for".to_owned()],
        why => why.iter().map(|reason| format!("{}: {}", reason.id, reason.says)).collect(),
    };
    LeftOut { op: row.state.op.op.to_string(), why }
}

/// Where no op was named and none can be built, or none with code for GPUs: what they all fail of. What can be built is noted.
fn none_of(plan: &mut Plan, rows: &[Row<'_, '_>], accelerator: AcceleratorKind, list: Option<&Refusal>, findings: &[Finding]) {
    // What DeepSpeed's own list would meet is not the cause where no list is there at all.
    const ARCHS: &[&str] = &["nvcc-dropped-arch", "arch-list-unset-no-gpu", "arch-list-malformed", "gpu-too-old-for-software"];

    let real: Vec<&Row<'_, '_>> = rows.iter().filter(|row| row.state.build.is_some_and(|build| build.cpp + build.cu > 0)).collect();
    let kernels = |row: &&&Row<'_, '_>| accelerator == AcceleratorKind::Cpu || row.state.build.is_some_and(|build| build.cu > 0);
    let meant: Vec<&Row<'_, '_>> = real.iter().filter(kernels).copied().collect();
    let common = plan_refusal::common(&meant);
    for reason in common.iter().filter(|reason| list.is_none() || !ARCHS.contains(&reason.id)) {
        plan_refusal::add(plan, reason, findings);
    }
    if plan.refused.is_empty() && meant.iter().all(|row| row.prebuild.can == Can::No) {
        plan.refused.extend(list.cloned());
    }
    let failing: Vec<&&Row<'_, '_>> = real.iter().filter(|row| row.prebuild.can != Can::Yes).collect();
    if plan.refused.is_empty() && failing.len() == real.len() {
        plan_refusal::add_words(plan, "ds-op-incompatible", "no op can be built here; `--why` says of each why".to_owned(), Vec::new());
    }
    if plan.refused.is_empty() && !failing.is_empty() {
        let names: Vec<String> = failing.iter().map(|row| row.state.op.op.to_string()).collect();
        plan.notes.push(format!(
            "{} cannot be built here and {} left out; `--why` tells why",
            join(&names),
            if names.len() == 1 { "is" } else { "are" }
        ));
    }
}

/// With the folders on search paths that would help any op.
fn helped(facts: &Snapshot, states: &[crate::model::ops::OpState<'_>]) -> Snapshot {
    let mut helped = facts.clone();
    let mut wanted: Vec<crate::model::ops::OpState<'_>> = states.to_vec();
    wanted.iter_mut().for_each(|state| state.wish = Wish::Own);
    for line in plan::helps(&wanted) {
        plan::apply(&mut helped, &line);
    }
    helped
}

fn with_list(facts: &Snapshot, items: Option<&[Item]>) -> Snapshot {
    let mut facts = facts.clone();
    if let Some(items) = items {
        plan::apply(&mut facts, &plan::list(items));
    }
    facts
}

/// What the ops are compiled for: the GPUs that are asked for or seen, else TORCH_CUDA_ARCH_LIST as it stands.
fn list(case: &Case<'_>, scene: &crate::model::ops::Scene<'_>, meant: &[(String, Capability, usize)]) -> Result<Vec<Item>, Refusal> {
    let text = case.facts.env.filled("TORCH_CUDA_ARCH_LIST").is_some();
    let mut wishes: Vec<ArchWish> =
        meant.iter().map(|(name, capability, _)| ArchWish { capability: *capability, from: name.clone() }).collect();
    if wishes.is_empty() && !text {
        let gpus = case.gpus().unwrap_or_default();
        let wish = |device: &crate::facts::gpu::Device| {
            Some(ArchWish { capability: device.capability?, from: device.name.clone().unwrap_or_default() })
        };
        wishes.extend(gpus.into_iter().filter_map(wish));
    }
    if !wishes.is_empty() {
        let plain = |targets: &[Target]| targets.iter().filter(|target| target.suffix.is_none()).map(|target| target.capability).collect();
        let compiler = case.nvcc().ok().flatten().map(|nvcc| plain(&nvcc.targets)).filter(|targets: &Vec<_>| !targets.is_empty());
        let cuda = case.toolkit().ok().flatten().and_then(crate::facts::toolkit::Toolkit::release);
        let reader = scene.torch.and_then(|torch| case.know.torch_arch_values(&torch.version)).map(|row| plain(&row.row.values));
        let made = arch_plan::plan(&wishes, &Limits { compiler, cuda, reader }, arch_plan::Ptx::None, case.know);
        if let Some((wish, why)) = made.dropped.first() {
            let says = format!("{} ({}) gets no code: {why}", wish.capability, wish.from);
            return Err(Refusal { id: "nvcc-too-old-for-gpu", says, fixes: Vec::new() });
        }
        return Ok(made.items.iter().map(|item| Item { target: Target::plain(item.capability), sass: true, ptx: item.ptx }).collect());
    }
    let hint = "name the GPUs (`--gpu h100`), or set TORCH_CUDA_ARCH_LIST".to_owned();
    if !text {
        let says = "no GPU is seen or named, and TORCH_CUDA_ARCH_LIST is unset: what to compile for is not known".to_owned();
        return Err(Refusal { id: "arch-list-unset-no-gpu", says, fixes: vec![hint] });
    }
    match prebuild_list(scene) {
        Ok((items, _)) => Ok(items),
        Err(refusal) => Err(Refusal {
            id: "arch-list-malformed",
            says: format!("TORCH_CUDA_ARCH_LIST cannot be read: {}", refusal.message),
            fixes: vec![hint],
        }),
    }
}
