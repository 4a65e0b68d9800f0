//! The cures of a problem's page, for where no fact tells which of them fits.

use crate::finding::{Fix, ProblemId};
use crate::knowledge::Knowledge;

/// The page has the rest.
const MOST: usize = 3;

/// The numbered items below `## Fix`, each a choice of its own.
pub fn page_fixes(know: &Knowledge, id: ProblemId) -> Vec<Fix> {
    let Some(problem) = know.problem(id) else { return Vec::new() };
    let number = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
    items(problem.page).into_iter().take(MOST).enumerate().map(|(at, text)| Fix::advice(first_sentence(&text)).or(number(at))).collect()
}

fn items(page: &str) -> Vec<String> {
    let section = page.lines().skip_while(|line| line.trim() != "## Fix").skip(1).take_while(|line| !line.starts_with("## "));
    let mut items: Vec<String> = Vec::new();
    let (mut in_code, mut open) = (false, false);
    for line in section {
        let text = line.trim();
        if text.starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if let (false, Some(first)) = (in_code, item(line)) {
            items.push(first.to_owned());
            open = true;
        } else if !line.starts_with(' ') {
            // A paragraph after the list.
            open = open && line.is_empty();
        } else if let (true, Some(last)) = (open && !text.is_empty(), items.last_mut()) {
            let joint = if in_code && !last.ends_with(':') { "; " } else { " " };
            last.push_str(joint);
            last.push_str(text);
        }
    }
    items
}

/// Up to the first full stop that stands in no code; without it.
fn first_sentence(text: &str) -> String {
    let mut in_code = false;
    let mut last = ' ';
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        in_code ^= c == '`';
        // `e.g. x` goes on.
        let stops = c == '.' && !in_code && text[at + 1..].starts_with(' ') && text[at + 1..].trim_start().starts_with(char::is_uppercase);
        if stops && last != '.' {
            end = at;
            break;
        }
        last = c;
    }
    text[..end].trim_end_matches('.').to_owned()
}

/// `1. text`
fn item(line: &str) -> Option<&str> {
    let (number, text) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::{first_sentence, items};

    #[test]
    fn each_item_is_one_line() {
        let page = "# x\n\n## Fix\n1. First\n   goes on.\n2. Second:\n   ```sh\n   run this\n   ```\n\nNot an item.\n  - nor this\n\n## Messages\n1. no\n";
        assert_eq!(items(page), ["First goes on.", "Second: run this"]);
    }

    #[test]
    fn only_the_first_sentence() {
        assert_eq!(first_sentence("Do `a. B` e.g. so. Then that."), "Do `a. B` e.g. so");
        assert_eq!(first_sentence("Do it."), "Do it");
    }

    #[test]
    fn every_page_has_a_cure_to_show() {
        let without: Vec<&str> = crate::knowledge::problems::PROBLEMS
            .iter()
            .filter(|problem| items(problem.page).is_empty())
            .map(|problem| problem.id)
            .collect();
        assert!(without.len() < 12, "{without:?}");
    }
}
