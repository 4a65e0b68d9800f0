//! Literals in Python files that a build wrote (`version.py`, `git_version_info_installed.py`, editable finders), read without Python.

/// A value as Python's `ast.literal_eval` would give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    None,
    Bool(bool),
    Int(i64),
    Text(String),
    /// A list or tuple.
    List(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

/// Deeper nesting is refused: no such file has more than two levels.
const DEEPEST: usize = 16;

impl Literal {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Dict(pairs) => pairs.iter().rev().find(|(k, _)| k.text() == Some(key)).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn pairs(&self) -> &[(Self, Self)] {
        match self {
            Self::Dict(pairs) => pairs,
            _ => &[],
        }
    }

    pub fn truthy(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Dict(pairs) => !pairs.is_empty(),
        }
    }
}

/// What a name is bound to at the end of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    Unbound,
    Value(Literal),
    /// Something that only Python could work out.
    Computed,
}

impl Binding {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Value(value) => value.text(),
            _ => None,
        }
    }
}

/// The last assignment to `name` at column 0, with or without an annotation: `cuda: Optional[str] = '12.4'`.
pub fn binding(module: &str, name: &str) -> Binding {
    let mut found = Binding::Unbound;
    let mut at = 0;
    while let Some(rest) = module.get(at..) {
        if let Some(value) = rest.strip_prefix(name).and_then(assigned) {
            found = match parse(value) {
                Some((literal, after)) if ends(after) => Binding::Value(literal),
                _ => Binding::Computed,
            };
        }
        match memchr::memchr(b'\n', rest.as_bytes()) {
            Some(newline) => at += newline + 1,
            None => break,
        }
    }
    found
}

/// The text behind `=`, where what follows the name is an assignment.
fn assigned(after_name: &str) -> Option<&str> {
    let line_end = after_name.find('\n').unwrap_or(after_name.len());
    let equals = after_name.get(..line_end)?.find('=')?;
    let (between, rest) = (after_name.get(..equals)?.trim(), after_name.get(equals + 1..)?);
    let annotation = between.is_empty() || between.starts_with(':');
    (annotation && !rest.starts_with('=')).then_some(rest)
}

/// Nothing but a comment follows on the line.
fn ends(after: &str) -> bool {
    let rest = after.trim_start_matches([' ', '\t', '\r', ';']);
    rest.is_empty() || rest.starts_with(['\n', '#'])
}

/// The literal at the start of the text, and what follows it.
pub fn parse(text: &str) -> Option<(Literal, &str)> {
    value(text, 0)
}

/// Blanks, newlines and comments, as between the items of a bracket.
fn skip(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        match text.strip_prefix('#') {
            Some(comment) => text = comment.find('\n').and_then(|end| comment.get(end..)).unwrap_or_default(),
            None => return text,
        }
    }
}

fn value(text: &str, depth: usize) -> Option<(Literal, &str)> {
    if depth > DEEPEST {
        return None;
    }
    let text = if depth == 0 { text.trim_start_matches([' ', '\t']) } else { skip(text) };
    for (word, literal) in [("None", Literal::None), ("True", Literal::Bool(true)), ("False", Literal::Bool(false))] {
        if let Some(rest) = text.strip_prefix(word)
            && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            return Some((literal, rest));
        }
    }
    let start = text.chars().next()?;
    match start {
        '{' => dict(text.get(1..)?, depth),
        '[' => list(text.get(1..)?, ']', depth),
        '(' => list(text.get(1..)?, ')', depth),
        '\'' | '"' => string(text.get(1..)?, start, false),
        'u' | 'U' => string(text.get(2..)?, quote(text)?, false),
        'r' | 'R' => string(text.get(2..)?, quote(text)?, true),
        '-' | '0'..='9' => {
            let digits = text.len() - text.get(1..)?.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = text.split_at(digits);
            if rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.')) {
                return None;
            }
            Some((Literal::Int(number.parse().ok()?), rest))
        }
        _ => None,
    }
}

/// The quotation mark behind a prefix letter.
fn quote(text: &str) -> Option<char> {
    text.chars().nth(1).filter(|c| matches!(c, '\'' | '"'))
}

fn string(text: &str, quote: char, raw: bool) -> Option<(Literal, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => {
                let rest = text.get(at + 1..)?;
                // A second quotation mark right behind an empty string begins a long string: none of these files has one.
                return if at == 0 && rest.starts_with(quote) { None } else { Some((Literal::Text(out), rest)) };
            }
            '\n' => return None,
            '\\' if !raw => match chars.next()?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                'x' => {
                    let hex = chars.as_str().get(..2)?;
                    out.push(char::from(u8::from_str_radix(hex, 16).ok()?));
                    chars.nth(1);
                }
                c @ ('\\' | '\'' | '"') => out.push(c),
                '\n' => {}
                _ => return None,
            },
            c => out.push(c),
        }
    }
    None
}

fn list(mut text: &str, close: char, depth: usize) -> Option<(Literal, &str)> {
    let mut items = Vec::new();
    loop {
        text = skip(text);
        if let Some(rest) = text.strip_prefix(close) {
            return Some((Literal::List(items), rest));
        }
        let (item, rest) = value(text, depth + 1)?;
        let rest = skip(rest);
        // `('x')` is a string in brackets, `('x',)` a tuple.
        if close == ')' && items.is_empty() && rest.starts_with(')') {
            return Some((item, rest.get(1..)?));
        }
        items.push(item);
        text = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None => rest.starts_with(close).then_some(rest)?,
        };
    }
}

fn dict(mut text: &str, depth: usize) -> Option<(Literal, &str)> {
    let mut pairs = Vec::new();
    loop {
        text = skip(text);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((Literal::Dict(pairs), rest));
        }
        let (key, rest) = value(text, depth + 1)?;
        let (item, rest) = value(skip(rest).strip_prefix(':')?, depth + 1)?;
        pairs.push((key, item));
        let rest = skip(rest);
        text = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None => rest.starts_with('}').then_some(rest)?,
        };
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn one(text: &str) -> Option<Literal> {
        parse(text).filter(|(_, rest)| rest.is_empty()).map(|(literal, _)| literal)
    }

    #[test]
    fn literals() {
        assert_eq!(one("'12.4'"), Some(Literal::Text("12.4".into())));
        assert_eq!(one(r#""a\'b\x41\\""#), Some(Literal::Text("a'bA\\".into())));
        assert_eq!(one("None"), Some(Literal::None));
        assert_eq!(one("-12"), Some(Literal::Int(-12)));
        assert_eq!(one("('x')"), Some(Literal::Text("x".into())));
        assert_eq!(one("('x', )"), Some(Literal::List(vec![Literal::Text("x".into())])));
        let dict = one("{'a': False, # why\n 'b': 1,\n}").unwrap();
        assert_eq!((dict.get("a"), dict.get("b").map(Literal::truthy)), (Some(&Literal::Bool(false)), Some(true)));
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        for text in ["", "Nonesuch", "12.4", "'open", "{'a' 1}", "{'a': f()}", "'''x'''", "1_0", "[1 2]", "'\\q'", "b'x'", "é", "u", "-"] {
            assert_eq!(one(text), None, "{text}");
        }
        assert_eq!(one(&"[".repeat(100_000)), None);
    }

    #[test]
    fn bindings_are_at_column_0_and_the_last_counts() {
        let module = "import x\ncudart = '1'\n cuda = '0'\ncuda = None\ncuda: Optional[str] = '12.4'  # tail\ncuda == '3'\n";
        assert_eq!(binding(module, "cuda").text(), Some("12.4"));
        assert_eq!(binding(module, "hip"), Binding::Unbound);
        assert_eq!(binding("cuda = os.environ['X']\n", "cuda"), Binding::Computed);
        assert_eq!(binding("cuda = '1' + x\n", "cuda"), Binding::Computed);
        assert_eq!(
            binding("cuda = {\n 'a': 1}", "cuda"),
            Binding::Value(Literal::Dict(vec![(Literal::Text("a".into()), Literal::Int(1))]))
        );
    }
}
