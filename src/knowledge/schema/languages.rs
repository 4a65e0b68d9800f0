//! The table of `languages.toml`: what tools print in other languages.

use super::{Fault, List, Str, words};

record! {
    /// A message of a tool in the languages that its catalogues have.
    pub struct Phrase {
        /// As signatures know it. `%s`, once at most, stands for any text, here and in the others.
        pub english: Str,
        pub other: List<Str>,
        /// For each of the others what [`word`] says. Not written in a table: build.rs finds them, as it does those of signatures.
        #[serde(skip)]
        pub words: List<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Phrase, Str, |p| p.english.clone(), p.english.to_string(), {
    let holes = |text: &Str| text.matches("%s").count();
    let unlike = |other: &&Str| holes(other) != holes(&p.english) || parts(other).0.trim().is_empty() && parts(other).1.trim().is_empty();
    match () {
        () if p.other.is_empty() => Err(Fault::new("other", "is empty")),
        () if holes(&p.english) > 1 => Err(Fault::new("english", "has more than one `%s`")),
        () => match p.other.iter().find(|other| unlike(other) || word(other).is_none()) {
            Some(other) => Err(Fault::new("other", format!("`{other}`: other holes than the English, or no word to look for"))),
            None => Ok(()),
        },
    }
});

/// Before and after the hole; without a hole the second is empty.
pub fn parts(text: &str) -> (&str, &str) {
    text.split_once("%s").unwrap_or((text, ""))
}

/// What a line must hold to have this phrase in it, as it stands there before quotes are made plain.
pub fn word(text: &str) -> Option<String> {
    let (before, after) = parts(text);
    [before, after].into_iter().filter_map(words::longest_of).max_by_key(String::len)
}

impl Phrase {
    /// Finds [`Phrase::words`].
    pub fn find_words(&mut self) {
        self.words = self.other.iter().map(|other| Str::from(word(other).unwrap_or_default())).collect();
    }
}

tables! {
    /// All phrases.
    LanguageTables in "languages.toml" {
        phrase: Phrase,
    }
    whole: |t| {
        let mut all: Vec<&Str> = t.phrase.iter().flat_map(|phrase| phrase.other.iter()).collect();
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Fault::new("phrase", format!("has two rows for `{}`", pair[0]))),
            None => Ok(()),
        }
    }
}
