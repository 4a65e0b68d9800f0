//! From the text of a table to its rows, with the place of what is wrong.

use super::{Fault, List, Row, RulesError, Str};
use serde::{Deserialize, de::DeserializeOwned};
use std::borrow::Cow;
use std::ops::Range;

/// The defaults of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// For every row without a `source` of its own.
    source: Option<String>,
    /// For every row without a `checked` of its own.
    checked: Option<toml::Spanned<String>>,
}

/// A file being read.
pub struct Page<'a> {
    pub file: &'a str,
    pub text: &'a str,
    pub meta: &'a Meta,
}

/// # Errors
/// What the TOML reader or a row's types refuse.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, RulesError> {
    toml::from_str(text).map_err(|error| {
        let span = error.span();
        RulesError {
            file: file.to_owned(),
            line: span.as_ref().map(|s| line_at(text, s.start)),
            row: None,
            key: span.as_ref().and_then(|s| key_at(text, s.start)),
            why: error.message().to_owned(),
        }
    })
}

impl Page<'_> {
    /// # Errors
    /// A default `checked` that is no month.
    pub fn check_meta(&self) -> Result<(), RulesError> {
        match &self.meta.checked {
            Some(checked) if !is_month(checked.get_ref()) => {
                let line = Some(line_at(self.text, checked.span().start));
                let why = format!("`{}` is not a month such as `2026-11`", checked.get_ref());
                Err(RulesError { file: self.file.to_owned(), line, row: Some("meta".to_owned()), key: Some("checked".to_owned()), why })
            }
            _ => Ok(()),
        }
    }

    /// Gives each row its defaults and judges it alone and beside the one before.
    ///
    /// # Errors
    /// A row without source or date, one that fails its own check, one that stands twice or out of order.
    pub fn settle<R: Row>(&self, table: &str, rows: Vec<toml::Spanned<R>>) -> Result<List<R>, RulesError> {
        let mut settled: Vec<R> = Vec::with_capacity(rows.len());
        for spanned in rows {
            let span = spanned.span();
            let mut row = spanned.into_inner();
            let label = format!("{table} {}", row.label());
            let refuse = |fault: Fault| RulesError {
                file: self.file.to_owned(),
                line: Some(self.line_of_key(&span, fault.key)),
                row: Some(label.clone()),
                key: Some(fault.key.to_owned()),
                why: fault.why,
            };
            let (source, checked) = row.provenance();
            inherit(source, self.meta.source.as_deref());
            inherit(checked, self.meta.checked.as_ref().map(|checked| checked.get_ref().as_str()));
            if source.trim().is_empty() {
                return Err(refuse(Fault::new("source", "is missing: every row says where it comes from")));
            }
            if checked.is_empty() {
                return Err(refuse(Fault::new("checked", "is missing: every row says when its source was looked at")));
            }
            if !is_month(checked) {
                let why = format!("`{checked}` is not a month such as `2026-11`");
                return Err(refuse(Fault::new("checked", why)));
            }
            row.check().map_err(refuse)?;
            if let Some(before) = settled.last() {
                let place = RulesError {
                    file: self.file.to_owned(),
                    line: Some(line_at(self.text, span.start)),
                    row: Some(label),
                    key: None,
                    why: String::new(),
                };
                match before.key().cmp(&row.key()) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return Err(RulesError { why: "stands twice".to_owned(), ..place }),
                    std::cmp::Ordering::Greater => {
                        return Err(RulesError { why: format!("is out of order: it belongs before {table} {}", before.label()), ..place });
                    }
                }
            }
            settled.push(row);
        }
        Ok(Cow::Owned(settled))
    }

    /// The line of `key` in the row that starts at `span`, else the row's first line.
    fn line_of_key(&self, span: &Range<usize>, key: &str) -> usize {
        let first = line_at(self.text, span.start);
        let rest = self.text.get(span.start..).unwrap_or_default();
        // A row is `[[table]]` and the lines up to the next header, or an inline table on one line.
        let lines = rest.lines().enumerate().take_while(|(n, line)| *n == 0 || !(line.starts_with('[') || rest.starts_with('{')));
        let found = lines
            .filter(|(_, line)| line.strip_prefix(key).is_some_and(|after| after.trim_start().starts_with('=')))
            .map(|(n, _)| n)
            .next();
        first + found.unwrap_or(0)
    }
}

fn inherit(value: &mut Str, default: Option<&str>) {
    if let (true, Some(default)) = (value.is_empty(), default) {
        *value = Cow::Owned(default.to_owned());
    }
}

/// Adds `rows` to `table`, replacing those with the same key, and keeps the order.
pub fn overlay<R: Row>(table: &mut List<R>, rows: List<R>) {
    for row in rows.into_owned() {
        let table = table.to_mut();
        match table.binary_search_by(|old| old.key().cmp(&row.key())) {
            Ok(at) => {
                if let Some(old) = table.get_mut(at) {
                    *old = row;
                }
            }
            Err(at) => table.insert(at, row),
        }
    }
}

fn is_month(text: &str) -> bool {
    let Some((year, month)) = text.split_once('-') else { return false };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    year.len() == 4 && digits(year) && month.len() == 2 && digits(month) && matches!(month.parse(), Ok(1..=12))
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
}

/// The key whose value, or which itself, stands at `offset`.
fn key_at(text: &str, offset: usize) -> Option<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let here = text.get(offset..)?;
    let own: String = here.chars().take_while(|c| word(*c)).collect();
    if !own.is_empty() && here.get(own.len()..)?.trim_start().starts_with('=') {
        return Some(own);
    }
    let before = text.get(..offset)?;
    let line = before.rsplit('\n').next()?;
    let (left, _) = line.rsplit_once('=')?;
    let key: String = left.trim_end().chars().rev().take_while(|c| word(*c)).collect();
    if key.is_empty() { None } else { Some(key.chars().rev().collect()) }
}
