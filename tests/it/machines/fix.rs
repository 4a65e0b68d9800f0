//! The exports of `fix`, taken by a real shell.

use super::Built;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the exports are said to cure is gone once a shell has taken them, nothing is new that the plan does not name, and a second run
/// has nothing more to say.
pub fn closes(built: &Built) {
    if built.manifest.verdict.as_deref() == Some("unknown") {
        assert_eq!(built.run(&["fix"], "env").code, Some(2), "nothing can be judged, so nothing can be fixed");
        return;
    }
    let told = built.run(&["fix", "--color", "never"], "env").stdout;
    for wanted in &built.manifest.fixes {
        assert!(told.contains(wanted), "the plan does not say `{wanted}`:\n{told}");
    }
    let exports = built.run(&["fix", "--print-exports"], "env");
    let (_, before) = built.live();
    if before.roots.is_empty() {
        assert_eq!((exports.code, exports.stdout.as_str()), (Some(0), ""), "nothing is wrong, and yet: {}", exports.stderr);
        return;
    }
    let out = built.run(&["fix", "--format", "json"], "env");
    let plan: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("no JSON ({e}): {}{}", out.stdout, out.stderr));
    let (by_hand, by_export, remaining) = steps(&plan["result"]);
    let incomplete = !by_hand.is_empty() || !remaining.is_empty();
    assert_eq!(exports.code, Some(i32::from(incomplete)), "{}{}", exports.stdout, exports.stderr);
    assert!(exports.stderr.lines().all(|line| !line.trim_end().ends_with(':')), "a note that says nothing: {}", exports.stderr);
    if by_export.is_empty() {
        assert_eq!(exports.stdout, "", "exports although no step has any");
        return;
    }
    let env = take(built, &exports.stdout);
    built.write_env("fixed", &env);
    let (_, after) = built.check("fixed");
    let tell = |why: &str| {
        let human = built.run(&["check", "--color", "never"], "fixed");
        format!("{why}\nthe exports:\n{}\nafter them:\n{}{}", exports.stdout, human.stdout, human.stderr)
    };
    let stays: BTreeSet<String> = built.manifest.stays.iter().cloned().collect();
    let cured: BTreeSet<String> = by_export.difference(&by_hand).filter(|id| !remaining.contains(*id)).cloned().collect();
    let left: Vec<String> = cured.intersection(&after.ids()).filter(|id| !stays.contains(*id)).cloned().collect();
    assert!(left.is_empty(), "{}", tell(&format!("still there: {left:?}")));
    let named: BTreeSet<String> = [before.ids(), by_hand, by_export, remaining].into_iter().flatten().collect();
    let new: Vec<String> = after.ids().difference(&named).cloned().collect();
    assert!(new.is_empty(), "{}", tell(&format!("new and not named by the plan: {new:?}")));
    let again = built.run(&["fix", "--print-exports"], "fixed");
    assert_eq!(again.stdout, "", "{}", tell("a second run prints exports again"));
    if !incomplete {
        assert!(after.roots.is_empty(), "{}", tell("the plan said that nothing would be left"));
    }
}

/// Ids of steps that are done by hand, of those that are exports, and of what the plan does not cure.
fn steps(plan: &Value) -> (BTreeSet<String>, BTreeSet<String>, BTreeSet<String>) {
    let (mut by_hand, mut by_export) = (BTreeSet::new(), BTreeSet::new());
    for step in plan["steps"].as_array().unwrap() {
        let id = step["id"].as_str().unwrap().to_owned();
        let fix = &step["fix"];
        let of_environment = ["set-env", "unset-env", "prepend-path", "remove-path"].contains(&fix["action"].as_str().unwrap());
        if of_environment && fix["safety"] == "safe" {
            by_export.insert(id)
        } else {
            by_hand.insert(id)
        };
    }
    let remaining = plan["remaining"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    (by_hand, by_export, remaining)
}

/// The environment of a shell after it has taken the exports.
fn take(built: &Built, exports: &str) -> BTreeMap<String, String> {
    std::fs::write(built.at("exports"), exports).unwrap();
    let script = "eval \"$(/bin/cat \"$1\")\"; exec /usr/bin/env -0";
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).arg(built.at("exports")).env_clear().envs(&built.env).current_dir("/");
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let own = |name: &str| ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
    let text = String::from_utf8(out.stdout).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| !own(name)).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
