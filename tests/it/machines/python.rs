//! Pythons and the packages in them.

use super::machine::Machine;
use super::manifest::{Python, PythonKind};
use super::system::Style;

/// An installed Python, by its prefix.
pub struct Installed {
    prefix: String,
    /// `3.11.2`
    pub version: String,
    /// Where pip puts packages.
    pub site: String,
}

pub fn series(version: &str) -> String {
    let mut numbers = version.split('.');
    format!("{}.{}", numbers.next().unwrap(), numbers.next().unwrap())
}

/// The distribution's own Python, or a further one of it.
pub fn of_system(m: &mut Machine<'_>, version: &str, headers: bool) {
    let short = series(version);
    let style = m.system.style;
    let first = !m.pythons.iter().any(|python| python.prefix == "/usr");
    let lib = if style == Style::RedHat { "lib64" } else { "lib" };
    let stdlib = format!("/usr/{lib}/python{short}");
    m.tree.exec(&format!("/usr/bin/python{short}"), m.tree.program().say([version]).bytes());
    if first {
        m.tree.link("/usr/bin/python3", &format!("python{short}"));
    }
    standard_library(m, &stdlib, version, style != Style::Debian);
    if headers {
        python_h(m, &format!("/usr/include/python{short}"), version);
    }
    let major: u32 = m.system.python.split('.').nth(1).unwrap().parse().unwrap();
    if style != Style::RedHat && major >= 11 {
        m.tree.file(
            &format!("{stdlib}/EXTERNALLY-MANAGED"),
            "[externally-managed]\nError=To install Python packages system-wide, try the system's packages.\n",
        );
    }
    let (packaged, site) = match style {
        Style::Debian => ("/usr/lib/python3/dist-packages".to_owned(), format!("/usr/local/lib/python{short}/dist-packages")),
        Style::RedHat => (format!("/usr/lib/python{short}/site-packages"), format!("/usr/local/lib64/python{short}/site-packages")),
        Style::Alpine => (format!("/usr/lib/python{short}/site-packages"), format!("/usr/lib/python{short}/site-packages")),
    };
    m.tree.folder(&packaged);
    if !m.manifest.without.iter().any(|part| part == "setuptools") {
        package(m, &packaged, "setuptools", m.system.setuptools);
    }
    m.pythons.push(Installed { prefix: "/usr".to_owned(), version: version.to_owned(), site });
}

fn standard_library(m: &Machine<'_>, stdlib: &str, version: &str, whole: bool) {
    m.tree.file(&format!("{stdlib}/os.py"), "");
    m.tree.folder(&format!("{stdlib}/lib-dynload"));
    let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
    if minor < 12 {
        m.tree.file(&format!("{stdlib}/distutils/__init__.py"), "");
        // Debian packages the rest apart.
        if whole {
            m.tree.file(&format!("{stdlib}/distutils/core.py"), "");
        }
    }
}

fn python_h(m: &Machine<'_>, folder: &str, version: &str) {
    m.tree.file(&format!("{folder}/Python.h"), "#ifndef Py_PYTHON_H\n#define Py_PYTHON_H\n#endif\n");
    m.tree.file(&format!("{folder}/patchlevel.h"), format!("/* Version as a string */\n#define PY_VERSION              \"{version}\"\n"));
}

/// A package by its metadata, with the folder that is imported.
pub fn package(m: &Machine<'_>, site: &str, name: &str, version: &str) {
    let file = name.replace('-', "_");
    metadata(m, site, &file, name, version, &[]);
    if name == "setuptools" {
        m.tree.file(&format!("{site}/pkg_resources/__init__.py"), "");
        let major: u32 = version.split('.').next().unwrap().parse().unwrap();
        if major >= 82 {
            m.tree.remove(&format!("{site}/pkg_resources"));
        }
    }
    if !name.starts_with("nvidia") {
        m.tree.file(&format!("{site}/{file}/__init__.py"), "");
    }
}

pub fn metadata(m: &Machine<'_>, site: &str, file: &str, name: &str, version: &str, requires: &[String]) {
    let folder = format!("{site}/{file}-{version}.dist-info");
    let requires: String = requires.iter().map(|line| format!("Requires-Dist: {line}\n")).collect();
    m.tree.file(
        &format!("{folder}/METADATA"),
        format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}\nA description.\n"),
    );
    m.tree.file(&format!("{folder}/RECORD"), format!("{file}/__init__.py,,\n"));
    m.tree.file(&format!("{folder}/INSTALLER"), "pip\n");
}

pub fn install(m: &mut Machine<'_>, python: &Python) {
    let prefix = python.prefix.as_str();
    let venv = python.kind == PythonKind::Venv;
    let version = match &python.version {
        Some(version) => version.clone(),
        None => of(m, Some(&python.base)).version.clone(),
    };
    let short = series(&version);
    if python.kind == PythonKind::System {
        of_system(m, &version, python.headers);
        return;
    }
    let site = format!("{prefix}/lib/python{short}/site-packages");
    m.tree.folder(&site);
    if venv {
        let base = &python.base;
        m.tree.link(&format!("{prefix}/bin/python3"), &format!("{base}/bin/python{short}"));
        m.tree.link(&format!("{prefix}/lib64"), "lib");
        let visible = python.system_site_packages;
        let text = format!(
            "home = {base}/bin\ninclude-system-site-packages = {visible}\nversion = {version}\nexecutable = {base}/bin/python{short}\ncommand = {base}/bin/python3 -m venv {prefix}\n"
        );
        m.tree.file(&format!("{prefix}/pyvenv.cfg"), text);
    } else {
        m.tree.exec(&format!("{prefix}/bin/python{short}"), m.tree.program().say([version.as_str()]).bytes());
        m.tree.link(&format!("{prefix}/bin/python3"), &format!("python{short}"));
        standard_library(m, &format!("{prefix}/lib/python{short}"), &version, true);
        if python.headers {
            python_h(m, &format!("{prefix}/include/python{short}"), &version);
        }
    }
    m.tree.link(&format!("{prefix}/bin/python"), "python3");
    if python.kind == PythonKind::Conda {
        m.tree.file(&format!("{prefix}/conda-meta/history"), "==> 2025-01-10 10:00:00 <==\n");
        m.tree.file(&format!("{prefix}/conda-meta/python-{version}-h5148396_1_cpython.json"), "{}\n");
        super::system::stdcxx(m, &format!("{prefix}/lib"), "13.2.0");
    }
    let minor: u32 = short.split('.').nth(1).unwrap().parse().unwrap();
    let usual = || {
        let mut all = vec![("pip".to_owned(), "24.0".to_owned())];
        // `python -m venv` leaves it out since 3.12.
        if minor < 12 || !venv {
            all.push(("setuptools".to_owned(), "69.5.1".to_owned()));
        }
        all.into_iter().collect()
    };
    for (name, version) in python.packages.clone().unwrap_or_else(usual) {
        package(m, &site, &name, &version);
    }
    m.tree.exec(&format!("{prefix}/bin/pip"), format!("#!{prefix}/bin/python3\nfrom pip._internal.cli.main import main\n"));
    if python.ninja {
        package(m, &site, "ninja", "1.11.1.4");
        m.tree.exec(&format!("{prefix}/bin/ninja"), m.tree.program().say(["ninja: ", "1.11.1.git.kitware.jobserver-1"]).bytes());
    }
    if python.activate.unwrap_or(matches!(python.kind, PythonKind::Venv | PythonKind::Conda)) {
        m.path.push(format!("{prefix}/bin"));
        match python.kind {
            PythonKind::Venv => drop(m.vars.insert("VIRTUAL_ENV".to_owned(), prefix.to_owned())),
            PythonKind::Conda => drop(m.vars.insert("CONDA_PREFIX".to_owned(), prefix.to_owned())),
            _ => {}
        }
    }
    m.pythons.push(Installed { prefix: prefix.to_owned(), version, site });
}

pub fn of<'a>(m: &'a Machine<'_>, prefix: Option<&str>) -> &'a Installed {
    let wanted = prefix.or_else(|| Some(m.manifest.python.first()?.prefix.as_str())).unwrap_or("/usr");
    m.pythons.iter().find(|python| python.prefix == wanted).unwrap_or_else(|| panic!("no Python at `{wanted}`"))
}
