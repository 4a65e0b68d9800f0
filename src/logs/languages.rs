//! Messages in other languages, read as the English ones that signatures know.

use crate::knowledge::schema::languages::{Phrase, parts, word};
use memchr::memmem::{find, rfind};

/// One phrase in one language.
pub struct Foreign<'a> {
    other: (&'a str, &'a str),
    english: (&'a str, &'a str),
    with_hole: bool,
    /// Of which a line holds one where it could have the phrase.
    pub word: String,
}

/// The longest first: `schwerwiegender Fehler:` before `Fehler:`.
pub fn foreign(phrases: &[Phrase]) -> Vec<Foreign<'_>> {
    let mut all: Vec<Foreign<'_>> = Vec::new();
    for phrase in phrases {
        for (at, other) in phrase.other.iter().enumerate() {
            // A row of `--rules-dir` has no words yet.
            let known = phrase.words.get(at).map(ToString::to_string).or_else(|| word(other));
            if let Some(word) = known.filter(|word| !word.is_empty()) {
                all.push(Foreign { other: parts(other), english: parts(&phrase.english), with_hole: other.contains("%s"), word });
            }
        }
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.other.0.len() + one.other.1.len()));
    all
}

impl Foreign<'_> {
    /// Puts the English words in the place of the first such phrase.
    pub fn replace(&self, line: &mut Vec<u8>) {
        let (before, after) = (self.other.0.as_bytes(), self.other.1.as_bytes());
        // Where the hole begins and ends, with the words round it.
        let place = match (self.with_hole, before.is_empty(), after.is_empty()) {
            (false, ..) => find(line, before).map(|at| (at, at + before.len(), at + before.len(), at + before.len())),
            (true, _, true) => find(line, before).map(|at| (at, at + before.len(), line.len(), line.len())),
            (true, true, _) => find(line, after).map(|at| {
                let from = rfind(line.get(..at).unwrap_or_default(), b": ").map_or(0, |colon| colon + 2);
                (from, from, at, at + after.len())
            }),
            // From the longer of the two to the nearest of the other.
            (true, false, false) if before.len() > after.len() => find(line, before).and_then(|from| {
                let inside = from + before.len();
                let end = inside + find(line.get(inside..)?, after)?;
                Some((from, inside, end, end + after.len()))
            }),
            (true, false, false) => find(line, after).and_then(|at| {
                let from = rfind(line.get(..at)?, before)?;
                Some((from, from + before.len(), at, at + after.len()))
            }),
        };
        let Some((from, inside, end, to)) = place else { return };
        let hole = line.get(inside..end).unwrap_or_default().trim_ascii().to_vec();
        let english = [self.english.0.as_bytes(), &hole, self.english.1.as_bytes()].concat();
        line.splice(from..to, english);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::Knowledge;

    fn english(all: &[Foreign<'_>], line: &str) -> String {
        let mut bytes = line.as_bytes().to_vec();
        for one in all {
            if find(&bytes, one.word.as_bytes()).is_some() {
                one.replace(&mut bytes);
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn phrases_become_english() {
        let know = Knowledge::embedded();
        let all = foreign(&know.languages.phrase);
        for (other, wanted) in [
            (
                "x.cpp:1:10: schwerwiegender Fehler: Python.h: Datei oder Verzeichnis nicht gefunden",
                "x.cpp:1:10: fatal error: Python.h: No such file or directory",
            ),
            ("x.cpp:1:10: 致命错误：Python.h：没有那个文件或目录", "x.cpp:1:10: fatal error: Python.h：No such file or directory"),
            ("/usr/bin/ld: 找不到 -lcurand", "/usr/bin/ld: cannot find -lcurand"),
            (
                "/usr/bin/ld: -lcurand が見つかりません: そのようなファイルやディレクトリはありません",
                "/usr/bin/ld: cannot find -lcurand: No such file or directory",
            ),
            ("x.c:(.text+0x9): 对'cuInit'未定义的引用", "x.c:(.text+0x9): undefined reference to `cuInit'"),
            ("x.c:(.text+0x9): référence à \" cuInit \" non définie", "x.c:(.text+0x9): undefined reference to `cuInit'"),
            ("x.c:3:5: 错误：'__m512'不是一个类型名", "x.c:3:5: error: '__m512' does not name a type"),
            ("sh: nvcc: 명령어를 찾을 수 없음", "sh: nvcc: command not found"),
            ("u.c:(.text+0xa): неопределённая ссылка на \"cuInit\"", "u.c:(.text+0xa): undefined reference to `cuInit'"),
            ("all in English", "all in English"),
        ] {
            assert_eq!(english(&all, other), wanted);
        }
    }

    /// Where the English has a hole, what it holds stays.
    #[test]
    fn every_phrase_is_found_by_its_word() {
        let know = Knowledge::embedded();
        let all = foreign(&know.languages.phrase);
        for phrase in know.languages.phrase.iter() {
            for other in phrase.other.iter() {
                let line = english(&all, &format!("x: {}", other.replace("%s", "name")));
                assert!(!line.contains(&other.replace("%s", "name")), "{other}: {line}");
            }
        }
    }
}
