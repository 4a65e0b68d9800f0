//! A snapshot that can be shown to strangers: names of people, hosts and homes replaced, in values only.
//!
//! Secrets never enter a snapshot in the first place; this is about names. The same name becomes the same word everywhere, so that
//! paths still fit each other.

use super::snapshot::Snapshot;
use serde_json::Value;

/// Names that would give nothing away, and whose replacement would make a snapshot unreadable.
const HARMLESS: &[&str] =
    &["root", "user", "ubuntu", "home", "nobody", "runner", "vscode", "jovyan", "ec2-user", "opt", "usr", "tmp", "var", "lib"];

/// Replaces user names, home folders and the host's name in every text of the snapshot.
///
/// # Errors
/// Only when the facts cannot be written as JSON, which would be our own fault.
pub fn redact(facts: &Snapshot, host: &str) -> serde_json::Result<Snapshot> {
    let mut json = serde_json::to_value(facts)?;
    let mut words: Vec<(String, String)> = people(facts, &json).into_iter().map(|name| (name, "user".to_owned())).collect();
    for part in [host, host.split('.').next().unwrap_or_default()] {
        if part.len() > 2 && !HARMLESS.contains(&part) && part != "localhost" {
            words.push((part.to_owned(), "host".to_owned()));
        }
    }
    words.extend(device_ids(&json).into_iter().zip(0..).map(|(id, number)| (id.clone(), format!("{}{number:08x}", &id[..4]))));
    replace(&mut json, &words);
    let mut clean: Snapshot = serde_json::from_value(json)?;
    clean.redacted = true;
    Ok(clean)
}

/// User names: the folder after `/home/` and `/Users/` wherever it occurs, the last part of HOME, and cluster variables.
fn people(facts: &Snapshot, json: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |name: &str| {
        if name.len() > 1 && !HARMLESS.contains(&name) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    if let Some(home) = facts.env.text("HOME") {
        add(home.rsplit('/').next().unwrap_or_default());
    }
    visit(json, &mut |text| {
        for marker in ["/home/", "/Users/", "/scratch/", "/users/"] {
            for after in text.split(marker).skip(1) {
                add(after.split(['/', ':', '"', ' ']).next().unwrap_or_default());
            }
        }
    });
    // Longest first, so that `ann-lee` is not replaced as `ann`.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}

/// GPU and MIG UUIDs name one machine: each becomes a number of the same kind, so that a mask still fits the devices.
fn device_ids(json: &Value) -> Vec<String> {
    let mut ids = Vec::new();
    visit(json, &mut |text| {
        for word in text.split([',', ' ', '/']) {
            let uuid = ["GPU-", "MIG-"].iter().any(|kind| word.starts_with(kind)) && word.len() > 12 && word.is_ascii();
            if uuid && !ids.iter().any(|known| known == word) {
                ids.push(word.to_owned());
            }
        }
    });
    ids
}

fn visit(json: &Value, look: &mut dyn FnMut(&str)) {
    match json {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| visit(item, look)),
        Value::Object(fields) => fields.values().for_each(|value| visit(value, look)),
        _ => {}
    }
}

/// Values only: a field's name is ours.
fn replace(json: &mut Value, words: &[(String, String)]) {
    match json {
        Value::String(text) => {
            for (name, word) in words {
                *text = replace_word(text, name, word);
            }
        }
        // Bytes that are not UTF-8: a path nobody can read is worth less than the name it may hold.
        Value::Array(items) if !items.is_empty() && items.iter().all(|item| item.as_u64().is_some_and(|n| n < 256)) && items.len() > 3 => {
            *json = Value::String("(bytes)".to_owned());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, words)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace(value, words)),
        _ => {}
    }
}

/// Whole words only: `ann` is not taken out of `annotations`.
fn replace_word(text: &str, name: &str, word: &str) -> String {
    let part_of_word = |c: char| c.is_alphanumeric();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let whole = !before.chars().next_back().or_else(|| out.chars().next_back().filter(|_| before.is_empty())).is_some_and(part_of_word)
            && !after.chars().next().is_some_and(part_of_word);
        out.push_str(before);
        out.push_str(if whole { word } else { name });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_go_and_paths_still_fit() {
        let mut facts = Snapshot::default();
        facts.env.set("HOME", "/home/ann");
        facts.env.set("CUDA_HOME", "/home/ann/cuda-12.4");
        facts.env.set("PATH", "/home/ann/bin:/data/ann-lee/x:/opt/annotations:/home/bob/bin");
        facts.notes.push("cannot list /mnt/gpu17.example.org/x".to_owned());
        let clean = redact(&facts, "gpu17.example.org").unwrap();
        assert_eq!(clean.env.text("CUDA_HOME").unwrap(), "/home/user/cuda-12.4");
        assert_eq!(clean.env.text("PATH").unwrap(), "/home/user/bin:/data/user-lee/x:/opt/annotations:/home/user/bin");
        assert_eq!(clean.notes, ["cannot list /mnt/host/x"]);
        assert!(clean.redacted);
    }

    #[test]
    fn root_keeps_its_paths() {
        let mut facts = Snapshot::default();
        facts.env.set("HOME", "/root");
        facts.env.set("PATH", "/root/bin:/usr/bin");
        assert_eq!(redact(&facts, "localhost").unwrap().env.text("PATH").unwrap(), "/root/bin:/usr/bin");
    }
}
