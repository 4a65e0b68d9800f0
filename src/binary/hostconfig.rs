//! Which host compilers a toolkit lets through, from its own `crt/host_config.h`.
//!
//! The header is asked like a compiler would ask it: for each version, is an `#error` reached? So no shape of its conditions is
//! taken for granted. Its messages are not read: that of 12.2 names another limit than its condition has.

use super::preprocessor::{Clean, Header, Outcome};

/// Majors that are tried. A limit that is not among them counts as none.
const GCC: std::ops::RangeInclusive<u32> = 4..=40;
const CLANG: std::ops::RangeInclusive<u32> = 3..=60;

/// The majors of one compiler that are let through; the limits themselves are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// None where nothing is too old.
    pub min: Option<u32>,
    /// None where nothing is too new.
    pub max: Option<u32>,
}

/// What a `host_config.h` lets through on 64-bit Linux.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCompilers {
    /// None where the header is not understood.
    pub gcc: Option<Limits>,
    /// None where the header is not understood.
    pub clang: Option<Limits>,
}

/// Asks the text of a `crt/host_config.h` (`host_config.h` itself before CUDA 9.1).
///
/// A text that refuses no compiler at all is not such a header, or not all of it: nothing is known then.
pub fn host_compilers(text: &str) -> HostCompilers {
    let text = Clean::new(text);
    let header = Header::parse(&text);
    if !header.has_error_with("unsupported GNU version") {
        return HostCompilers::default();
    }
    HostCompilers {
        gcc: limits(GCC, |major, minor| header.run(common(&[("__GNUC__", major), ("__GNUC_MINOR__", minor)]))),
        clang: limits(CLANG, |major, minor| {
            // clang calls itself gcc 4.2 as well.
            let itself = [("__clang__", "1"), ("__clang_major__", major), ("__clang_minor__", minor)];
            header.run(common(&itself).chain([("__GNUC__", "4"), ("__GNUC_MINOR__", "2")]))
        }),
    }
}

/// What is defined whenever nvcc runs the host compiler, as far as the header asks for it.
fn common<'m>(compiler: &'m [(&'m str, &'m str)]) -> impl Iterator<Item = (&'m str, &'m str)> {
    const ALWAYS: [(&str, &str); 6] =
        [("__CUDACC__", "1"), ("__cplusplus", "201703L"), ("__linux__", "1"), ("__unix__", "1"), ("__LP64__", "1"), ("__x86_64__", "1")];
    ALWAYS.into_iter().chain(compiler.iter().copied())
}

/// The range of majors that are accepted; none when one is unknown, when all are refused, or when there are gaps.
fn limits(majors: std::ops::RangeInclusive<u32>, ask: impl Fn(&str, &str) -> Outcome) -> Option<Limits> {
    let (first, last) = (*majors.start(), *majors.end());
    let mut accepted = Vec::new();
    for major in majors {
        let text = major.to_string();
        // A major counts when one of its minors does: `3.9` for clang 3.
        let outcome = match ask(&text, "9") {
            Outcome::Refused => ask(&text, "0"),
            other => other,
        };
        match outcome {
            Outcome::Unknown => return None,
            Outcome::Refused => {}
            Outcome::Accepted => accepted.push(major),
        }
    }
    let (lowest, highest) = (*accepted.first()?, *accepted.last()?);
    let gapless = accepted.len() as u32 == highest - lowest + 1;
    let limits = Limits { min: (lowest > first).then_some(lowest), max: (highest < last).then_some(highest) };
    gapless.then_some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(gcc: &str, clang: &str) -> String {
        format!(
            "#if !defined(__HOST_CONFIG_H__)\n#define __HOST_CONFIG_H__\n#if defined(__CUDACC__)\n\
             #if !__NV_NO_HOST_COMPILER_CHECK\n#if defined(__GNUC__)\n\n\
             #if {gcc}\n#error -- unsupported GNU version! can't\n#endif /* {gcc} */\n\
             #if defined(__clang__) && !defined(__APPLE__)\n#if {clang}\n#error -- unsupported clang version!\n#endif\n#endif\n\
             #endif\n#endif\n#endif\n#endif\n"
        )
    }

    const CLANG_RANGE: &str = "(__clang_major__ >= 17) || (__clang_major__ < 3) || ((__clang_major__ == 3) &&  (__clang_minor__ < 3))";

    #[test]
    fn limits_come_from_the_conditions() {
        let found = host_compilers(&header("__GNUC__ > 12", CLANG_RANGE));
        assert_eq!(found.gcc, Some(Limits { min: None, max: Some(12) }));
        assert_eq!(found.clang, Some(Limits { min: None, max: Some(16) }));
        let found = host_compilers(&header("__GNUC__ >= 14 || (__GNUC__ < 6 && !defined(__clang__))", "__clang_major__ < 10"));
        assert_eq!(found.gcc, Some(Limits { min: Some(6), max: Some(13) }));
        assert_eq!(found.clang, Some(Limits { min: Some(10), max: None }));
        let found = host_compilers(&header("__GNUC__ > 4 || (__GNUC__ == 4 && __GNUC_MINOR__ > 8)", "0"));
        assert_eq!(found.gcc, Some(Limits { min: None, max: Some(4) }));
        assert_eq!(found.clang, Some(Limits { min: None, max: None }));
    }

    #[test]
    fn what_is_not_understood_is_not_known() {
        let whole = header("__GNUC__ > 12", CLANG_RANGE);
        for text in ["", "#include \"crt/host_config.h\"\n", &whole[..whole.len() / 2], &header("NEW_GCC(12)", "NEW_CLANG(3)")] {
            assert_eq!(host_compilers(text), HostCompilers::default(), "{text}");
        }
        let found = host_compilers(&header("__GNUC__ > 12", "SOMETHING(__clang_major__)"));
        assert_eq!((found.gcc.and_then(|l| l.max), found.clang), (Some(12), None));
        assert_eq!(host_compilers(&header("__GNUC__ % 2", "0")).gcc, None);
        assert_eq!(host_compilers(&header("__GNUC__ == 9", "1")), HostCompilers::default());
    }
}
