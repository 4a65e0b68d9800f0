//! `ds-doctor explain`

use super::output;
use crate::checks::log::filled;
use crate::cli::ExplainArgs;
use crate::exit::Exit;
use crate::knowledge::Knowledge;
use crate::knowledge::problems::Problem;
use crate::knowledge::schema::signatures::Kind;
use crate::logs::Reader;
use crate::text::clean;
use std::io::Write as _;

/// How many pages are offered for words that fit several.
const OFFERED: usize = 5;

/// # Errors
/// When nothing fits what was asked.
pub fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let know = Knowledge::embedded();
    let mut out = output::result(&args.talk)?;
    let by_id: Option<Vec<&Problem>> = args.what.iter().map(|name| know.problem(name.trim())).collect();
    if let Some(problems) = by_id {
        for (index, problem) in problems.iter().enumerate() {
            write!(out, "{}{}", if index > 0 { "\n" } else { "" }, problem.page)?;
        }
        out.flush()?;
        return Ok(Exit::Fine);
    }
    let words = args.what.join(" ");
    if let Some((problem, says)) = meant(&know, &words) {
        writeln!(out, "{}: {}\n", problem.id, clean(&says))?;
        write!(out, "{}", problem.page)?;
        out.flush()?;
        return Ok(Exit::Fine);
    }
    let fitting = best(&know, &words);
    match fitting.as_slice() {
        [] => anyhow::bail!("no problem has the id or the words `{words}`; `ds-doctor list` names all"),
        [only] => write!(out, "{}", only.page)?,
        several => {
            writeln!(out, "{} problems fit these words, best first:", several.len())?;
            for problem in several {
                writeln!(out, "  {:<34} {}", problem.id, problem.summary)?;
            }
            writeln!(out, "ds-doctor explain {}", several[0].id)?;
        }
    }
    out.flush()?;
    Ok(Exit::Fine)
}

/// What a pasted line of a log means, by the signatures: the problem, and what was caught.
fn meant(know: &Knowledge, text: &str) -> Option<(&'static Problem, String)> {
    let reader = Reader::new(know);
    let all = reader.read(text.as_bytes()).matches;
    let strongest = |kind: Kind| all.iter().filter(|one| one.signature.kind() == kind).min_by_key(|one| (one.signature.rank(), one.number));
    let found = reader.cause(text.as_bytes()).or_else(|| strongest(Kind::Consequence).or_else(|| strongest(Kind::Harmless)).cloned())?;
    let problem = know.problem(&found.signature.id)?;
    let says = filled(&found.signature.says, &found.captures).unwrap_or_else(|| problem.summary.to_owned());
    let says = if found.signature.kind() == Kind::Harmless { format!("harmless: {says}") } else { says };
    Some((problem, says))
}

/// Words as they are compared: in lower case, with one blank between them.
fn flat(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Problems of the signatures that know these words from the output of a tool: of a line of their examples, or of a pattern.
fn printed(know: &Knowledge, wanted: &str) -> Vec<&'static Problem> {
    let mut found: Vec<&'static Problem> = Vec::new();
    for signature in know.signatures.signature.iter() {
        let texts = signature.examples.iter().chain(signature.patterns.iter());
        let holds = texts.flat_map(|text| text.lines()).any(|line| flat(line).contains(wanted));
        let problem = know.problem(&signature.id).filter(|_| holds);
        found.extend(problem.filter(|problem| found.iter().all(|known| known.id != problem.id)));
    }
    found
}

/// The problem whose tool alone prints these words; else those whose page holds the text as it stands, what tools print first; else those
/// with most of its words. One that is clearly ahead stands alone.
fn best(know: &Knowledge, text: &str) -> Vec<&'static Problem> {
    let problems = know.problems();
    let wanted = flat(text);
    if wanted.len() < 3 {
        return Vec::new();
    }
    let printed = printed(know, &wanted);
    // A single word is met in many places for many reasons.
    if let ([only], true) = (printed.as_slice(), wanted.contains(' ')) {
        return vec![only];
    }
    let mut whole: Vec<&Problem> = problems.iter().filter(|problem| flat(problem.page).contains(&wanted)).collect();
    if !whole.is_empty() {
        whole.sort_by_key(|problem| printed.iter().all(|known| known.id != problem.id));
        whole.truncate(OFFERED);
        return whole;
    }
    let is_word = |word: &&str| word.len() > 2 && word.chars().any(char::is_alphabetic);
    let split = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-' && c != '.').filter(is_word).map(ToOwned::to_owned).collect()
    };
    let words = split(&wanted);
    let mut scored: Vec<(usize, &Problem)> = problems
        .iter()
        .map(|problem| {
            let page = flat(problem.page);
            (words.iter().filter(|word| page.contains(word.as_str())).count(), problem)
        })
        .filter(|(score, _)| *score * 2 > words.len())
        .collect();
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let ahead = scored.first().zip(scored.get(1)).is_some_and(|((first, _), (second, _))| first > second);
    scored.into_iter().map(|(_, problem)| problem).take(if ahead { 1 } else { OFFERED }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(words: &str) -> Vec<&'static str> {
        best(&Knowledge::embedded(), words).iter().map(|problem| problem.id).collect()
    }

    #[test]
    fn a_fragment_that_one_tool_prints_is_one_page() {
        assert_eq!(ids("unsupported GNU version"), ["gcc-too-new-for-nvcc"]);
        assert_eq!(ids("gcc versions later than 11 are"), ["gcc-too-new-for-nvcc"]);
        assert_eq!(ids("  Unsupported   gnu VERSION!"), ["gcc-too-new-for-nvcc"]);
    }

    #[test]
    fn a_word_of_many_pages_is_a_choice() {
        let several = ids("nvcc");
        assert_eq!(several.len(), OFFERED, "{several:?}");
        assert_eq!(ids("xx"), [""; 0]);
        assert_eq!(ids("qqqqq zzzzz"), [""; 0]);
    }
}
