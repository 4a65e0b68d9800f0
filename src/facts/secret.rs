//! Which variables and values may hold a secret: such a value never enters a snapshot.

/// Parts of a variable's name that say its value is a secret.
const NAMES: &[&str] = &["TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"];

/// Starts of tokens that their issuers document, each with the least length of a whole one.
const PREFIXES: &[(&str, usize)] = &[
    ("AKIA", 20),
    ("ASIA", 20),
    ("eyJ", 32),
    ("gho_", 20),
    ("ghp_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("hf_", 16),
    ("nvapi-", 20),
    ("pypi-", 20),
    ("sk-", 16),
    ("xoxb-", 20),
    ("xoxp-", 20),
];

/// Whether the name of the variable says that its value is a secret.
pub fn secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    NAMES.iter().any(|word| name.contains(word))
}

/// Whether something in the value looks like a secret: a URL with user and password, a token of a known form, or a long run of
/// letters and digits that is part of no path. Names of devices (`GPU-8a1b…`) and of compilers are none.
pub fn secret_value(value: &str) -> bool {
    url_with_user(value) || value.split(separates_words).any(|word| known_token(word) || random(word))
}

fn separates_words(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | ':' | '"' | '\'' | '(' | ')' | '[' | ']' | '{' | '}' | '@' | '?' | '&')
}

fn url_with_user(value: &str) -> bool {
    value.match_indices("://").any(|(at, mark)| {
        let rest = value.get(at + mark.len()..).unwrap_or_default();
        let host = rest.split(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).next().unwrap_or_default();
        host.contains('@')
    })
}

fn known_token(word: &str) -> bool {
    let word = word.rsplit('=').find(|part| !part.is_empty()).unwrap_or(word);
    let plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    plain && PREFIXES.iter().any(|(start, least)| word.starts_with(start) && word.len() >= *least)
}

/// 32 or more letters and digits in one run (hex or base64). A word with a slash is taken for a path: base64 with a slash in it is
/// caught by its other runs or not at all, which is the price of keeping search paths.
fn random(word: &str) -> bool {
    const LEAST: usize = 32;
    if word.contains('/') {
        return false;
    }
    word.split(['-', '_', '.', '=']).any(|run| {
        let letters = run.bytes().filter(u8::is_ascii_alphabetic).count();
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        run.len() >= LEAST && letters > 0 && digits > 0 && run.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_it() {
        for name in ["CUDA_API_KEY", "TORCH_HUB_TOKEN", "CONDA_PASSWORD", "DS_auth_x", "NVIDIA_CREDENTIALS"] {
            assert!(secret_name(name), "{name}");
        }
        for name in ["CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "LD_LIBRARY_PATH", "NCCL_DEBUG", "MAX_JOBS"] {
            assert!(!secret_name(name), "{name}");
        }
    }

    #[test]
    fn values_that_show_it() {
        for value in [
            "https://user:word@example.org/simple",
            "hf_abcdefghijklmnopqrstuvwx",
            "-DTOKEN=ghp_0123456789abcdefghij0123456789abcdef",
            "x AKIAIOSFODNN7EXAMPLE",
            "0123456789abcdef0123456789abcdef",
            "QWxhZGRpbjpvcGVuIHNlc2FtZQ12345678901234==",
            "sk-abcdef0123456789",
        ] {
            assert!(secret_value(value), "{value}");
        }
        for value in [
            "/usr/local/cuda-12.4",
            "/opt/a0123456789abcdef0123456789abcdef01234567/lib:/usr/lib",
            "8.0;8.6;9.0a+PTX",
            "GPU-8a1b2c3d-0000-1111-2222-333344445555,MIG-8a1b2c3d-0000-1111-2222-333344445555",
            "x86_64-conda_cos6-linux-gnu-gfortran",
            "-march=nocona -mtune=haswell -ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 -ffunction-sections",
            "https://download.example.org/whl/cu124",
            "brand=tesla,driver>=470,driver<471 cuda>=12.4",
            "sk-learn",
            "",
        ] {
            assert!(!secret_value(value), "{value}");
        }
    }
}
