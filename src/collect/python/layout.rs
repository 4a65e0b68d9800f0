//! The shape of one Python installation, from the paths round its program: prefix, base prefix, version, standard library, headers.

use crate::collect::search;
use crate::facts::observed::Observed;
use crate::facts::python::EnvironmentKind;
use crate::facts::raw::HostPath;
use crate::host::{Host, Kind};
use crate::version::Dotted;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Layout {
    pub real: PathBuf,
    pub kind: EnvironmentKind,
    pub prefix: PathBuf,
    /// `None` when the Python a virtual environment was made with is gone.
    pub base: Option<Base>,
    /// Major, minor and whether it is free-threaded.
    pub series: Option<Series>,
    /// What pyvenv.cfg says.
    stated: Option<Dotted>,
    /// pyvenv.cfg says that the base's packages are visible too.
    pub system_packages: bool,
}

#[derive(Debug, Clone)]
pub struct Base {
    pub prefix: PathBuf,
    /// `lib/python3.11`, where it holds `os.py`.
    pub stdlib: Option<PathBuf>,
    /// `lib`, or `lib64` on Fedora and its kin: `sys.platlibdir`.
    pub libdir: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    pub major: u32,
    pub minor: u32,
    pub free_threaded: bool,
}

impl Series {
    /// From `python3.11`, `python3.13t`, `libpython3.11.so.1.0`'s middle: the name of a program or folder.
    pub fn from_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("python")?;
        let (major, rest) = rest.split_once('.')?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (minor, flags) = rest.split_at(digits);
        let known = matches!(flags, "" | "t" | "d" | "m" | "dm" | "td" | "-dbg");
        known.then_some(())?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()?, free_threaded: flags.starts_with('t') })
    }

    /// `python3.13t`: the folder in `lib`.
    pub fn folder(self) -> String {
        format!("python{}.{}{}", self.major, self.minor, if self.free_threaded { "t" } else { "" })
    }

    fn fits(self, version: &Dotted) -> bool {
        (self.major, self.minor) == (version.major(), version.minor())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct VenvConfig {
    home: Option<PathBuf>,
    version: Option<Dotted>,
    system_packages: bool,
}

/// How `sys.prefix` and `sys.base_prefix` come about. Source: Modules/getpath.py and Lib/site.py of CPython 3.11.
pub fn look(host: &dyn Host, executable: &Path) -> Layout {
    let real = host.real_path(executable).unwrap_or_else(|_| executable.to_owned());
    let bin = executable.parent().unwrap_or(Path::new("/"));
    let above = bin.parent().unwrap_or(Path::new("/"));
    // The program's own link is not resolved first: this is what makes a link into a virtual environment of its folder.
    let config = [bin, above].into_iter().find_map(|folder| read_config(host, &folder.join("pyvenv.cfg")));
    let mut series = real.file_name().and_then(|name| Series::from_name(name.to_str()?));
    if series.is_none()
        && let Some(version) = config.as_ref().and_then(|config| config.version.as_ref()).filter(|version| version.parts.len() > 1)
    {
        let free_threaded = host.is_folder(&above.join(format!("lib/python{}t", version.major_minor())));
        series = Some(Series { major: version.major(), minor: version.minor(), free_threaded });
    }
    let home = config.as_ref().and_then(|config| config.home.clone());
    // Of a Python that is gone the climb would end at somebody else's library.
    let starts: Vec<&Path> = [home.as_deref(), real.parent()].into_iter().flatten().filter(|_| host.is_file(&real)).collect();
    let base = starts.iter().find_map(|start| search_up(host, start, &mut series)).or_else(|| {
        // A standard library in an archive, or none: the folder above `bin` is still what Python falls back on.
        let prefix = starts.iter().find(|start| host.is_folder(start))?.parent()?.to_owned();
        Some(Base { prefix, stdlib: None, libdir: "lib" })
    });
    let prefix = match (&config, &base) {
        (Some(_), _) => above.to_owned(),
        (None, Some(base)) => base.prefix.clone(),
        (None, None) => above.to_owned(),
    };
    let kind = match &config {
        Some(_) => EnvironmentKind::Venv,
        None if host.is_folder(&prefix.join("conda-meta")) => EnvironmentKind::Conda,
        None if prefix == Path::new("/usr") => EnvironmentKind::System,
        None => EnvironmentKind::Standalone,
    };
    let stated = config.as_ref().and_then(|config| config.version.clone());
    let system_packages = config.is_none_or(|config| config.system_packages);
    Layout { real, kind, prefix, base, series, stated, system_packages }
}

fn read_config(host: &dyn Host, path: &Path) -> Option<VenvConfig> {
    host.is_file(path).then_some(())?;
    // Python needs no line of it: an empty file makes a virtual environment too.
    let text = host.read_text(path).unwrap_or_default();
    let mut config = VenvConfig { system_packages: true, ..VenvConfig::default() };
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "home" => config.home = search::absolute(host, Path::new(value)),
            // venv writes the first, virtualenv and uv the second, as `3.11.7.final.0` or `3.11.7`.
            "version" | "version_info" if config.version.is_none() => config.version = plain(value),
            "include-system-site-packages" => config.system_packages = value.eq_ignore_ascii_case("true"),
            _ => {}
        }
    }
    Some(config)
}

/// The numbers alone: `3.11.7` of `3.11.7.final.0` and `3.11.7+`.
fn plain(text: &str) -> Option<Dotted> {
    let dotted: Dotted = text.parse().ok()?;
    let numbers: Vec<String> = dotted.parts.iter().take(3).map(u32::to_string).collect();
    numbers.join(".").parse().ok()
}

/// Climbs to the folder that holds `lib/pythonX.Y/os.py`.
fn search_up(host: &dyn Host, start: &Path, series: &mut Option<Series>) -> Option<Base> {
    // `/bin` and `/lib` are links into `/usr` where there is a Python.
    for prefix in start.ancestors().map(|prefix| if prefix == Path::new("/") { Path::new("/usr") } else { prefix }) {
        for libdir in ["lib", "lib64"] {
            let lib = prefix.join(libdir);
            let candidates = match series {
                Some(series) => vec![*series],
                // Only the library beside `bin` can be taken for that of a program whose name does not tell.
                None if start.parent() == Some(prefix) => series_in(host, &lib),
                None => Vec::new(),
            };
            for candidate in candidates.iter().rev() {
                let stdlib = lib.join(candidate.folder());
                if ["os.py", "os.pyc"].iter().any(|landmark| host.is_file(&stdlib.join(landmark))) {
                    // Of several only Python knows its own.
                    if candidates.len() == 1 {
                        *series = Some(*candidate);
                        return Some(Base { prefix: prefix.to_owned(), stdlib: Some(stdlib), libdir });
                    }
                    return Some(Base { prefix: prefix.to_owned(), stdlib: None, libdir });
                }
            }
        }
    }
    None
}

fn series_in(host: &dyn Host, lib: &Path) -> Vec<Series> {
    let entries = host.list(lib).unwrap_or_default();
    let folders = entries.iter().filter(|entry| entry.kind != Kind::File).filter_map(|entry| entry.name.to_str());
    folders.filter_map(Series::from_name).filter(|series| host.is_file(&lib.join(series.folder()).join("os.py"))).collect()
}

impl Layout {
    /// Whether anything tells its version.
    pub fn known(&self) -> bool {
        self.series.is_some() || self.stated.is_some()
    }

    /// The release down to its third number where some place tells one of this series.
    pub fn version(&self, host: &dyn Host) -> Option<Dotted> {
        match self.series {
            Some(series) => exact(host, series, self.base.as_ref(), self.stated.clone(), &self.real),
            None => self.stated.clone(),
        }
    }
}

fn exact(host: &dyn Host, series: Series, base: Option<&Base>, stated: Option<Dotted>, real: &Path) -> Option<Dotted> {
    let fits = |version: &Dotted| series.fits(version) && version.parts.len() > 2;
    if let Some(stated) = stated.filter(fits) {
        return Some(stated);
    }
    let prefix = base.map(|base| base.prefix.as_path());
    let from_conda = || {
        let entries = host.list(&prefix?.join("conda-meta")).ok()?;
        let names = entries.iter().filter_map(|entry| entry.name.to_str());
        names.filter_map(|name| plain(name.strip_prefix("python-")?.split('-').next()?)).find(fits)
    };
    let from_header = || {
        let text = host.read_text(&include(host, prefix?, series)?.join("patchlevel.h")).ok()?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("#define PY_VERSION ").map(str::to_owned))?;
        plain(line.trim().trim_matches('"')).filter(fits)
    };
    // pyenv and uv name the folder after the release.
    let from_folder = || {
        let name = prefix?.file_name()?.to_str()?;
        let number = name.strip_prefix("cpython-").unwrap_or(name);
        number.starts_with(|c: char| c.is_ascii_digit()).then(|| plain(number)).flatten().filter(fits)
    };
    from_conda()
        .or_else(from_header)
        .or_else(from_folder)
        .or_else(|| super::strings::release(host, real, prefix, series))
        .or_else(|| format!("{}.{}", series.major, series.minor).parse().ok())
}

/// `include/python3.11`, with the ABI flags that 3.7 and older had in the name.
fn include(host: &dyn Host, base: &Path, series: Series) -> Option<PathBuf> {
    include_folders(base, series).into_iter().find(|folder| host.is_folder(folder))
}

fn include_folders(base: &Path, series: Series) -> Vec<PathBuf> {
    let folder = base.join("include").join(series.folder());
    if (series.major, series.minor) < (3, 8) && series.major > 2 {
        let mut old = folder.clone().into_os_string();
        old.push("m");
        return vec![old.into(), folder];
    }
    vec![folder]
}

/// Where `sysconfig.get_path("include")` leads: into the base, also from a virtual environment.
pub fn header(host: &dyn Host, layout: &Layout) -> Observed<HostPath> {
    let Some(base) = &layout.base else {
        return Observed::failed("the Python that this environment was made with is not there");
    };
    let Some(series) = layout.series else {
        return Observed::failed(format!("the version of `{}` is not known", layout.real.display()));
    };
    let folders = include_folders(&base.prefix, series);
    for folder in &folders {
        let path = folder.join("Python.h");
        match host.metadata(&path) {
            Ok(meta) if meta.kind == Kind::File => return Observed::seen(path.into()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Observed::failed(format!("`{}`: {error}", path.display()));
            }
            _ => {}
        }
    }
    Observed::absent(folders.iter().map(|folder| folder.join("Python.h").display().to_string()))
}
