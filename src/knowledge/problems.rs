//! Every problem id, what it names, and its page: `rules/problems.toml` and `rules/explain/`, embedded by build.rs.

/// One row of the problem table.
#[derive(Debug, Clone, Copy)]
pub struct Problem {
    pub id: &'static str,
    pub topic: &'static str,
    /// `error`, `warning` or `info`; where a check can choose between two, the usual one.
    pub severity: &'static str,
    /// Where it can be recognised: `environment`, `binary`, `probe`, `log`.
    pub seen_in: &'static [&'static str],
    pub summary: &'static str,
    /// Other names that `explain` and `--only` accept.
    pub aliases: &'static [&'static str],
    /// The page that `explain` prints, in Markdown.
    pub page: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/problems.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_of_its_problem_and_has_the_sections_people_look_for() {
        for problem in PROBLEMS {
            assert!(problem.page.starts_with(&format!("# {}\n", problem.id)), "{}", problem.id);
            for section in ["## What it is", "## Why it breaks", "## How to see it yourself", "## Fix", "## Sources"] {
                assert!(problem.page.contains(&format!("\n{section}\n")), "{}: {section}", problem.id);
            }
        }
    }
}
