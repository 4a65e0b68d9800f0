//! The distribution: os-release, C library, loader cache, gcc, Python, ninja; further compilers, and the driver.

use super::machine::Machine;
use super::manifest::{Clang, Driver, Gcc};

/// How a distribution packages things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Debian,
    RedHat,
    Alpine,
}

/// One release of a distribution.
pub struct Distribution {
    name: &'static str,
    pub style: Style,
    pub id: &'static str,
    like: &'static str,
    version: &'static str,
    pretty: &'static str,
    glibc: &'static str,
    /// In brackets in the C library's own words.
    glibc_package: &'static str,
    pub gcc: &'static str,
    gcc_package: &'static str,
    pub python: &'static str,
    /// Of the package for this Python; empty where the distribution installs none.
    pub setuptools: &'static str,
}

use Style::{Alpine, Debian, RedHat};

macro_rules! systems {
    ($($name:literal $style:ident $id:literal $like:literal $version:literal $pretty:literal
       $glibc:literal $glibc_package:literal $gcc:literal $gcc_package:literal $python:literal $setuptools:literal;)*) => {
        &[$(Distribution {
            name: $name, style: $style, id: $id, like: $like, version: $version, pretty: $pretty, glibc: $glibc,
            glibc_package: $glibc_package, gcc: $gcc, gcc_package: $gcc_package, python: $python, setuptools: $setuptools,
        }),*]
    };
}

const SYSTEMS: &[Distribution] = systems! {
    "debian-11" Debian "debian" "" "11" "Debian GNU/Linux 11 (bullseye)" "2.31" "Debian GLIBC 2.31-13+deb11u11" "10.2.1 20210110" "Debian 10.2.1-6" "3.9.2" "52.0.0";
    "debian-12" Debian "debian" "" "12" "Debian GNU/Linux 12 (bookworm)" "2.36" "Debian GLIBC 2.36-9+deb12u10" "12.2.0" "Debian 12.2.0-14+deb12u1" "3.11.2" "66.1.1";
    "debian-13" Debian "debian" "" "13" "Debian GNU/Linux 13 (trixie)" "2.41" "Debian GLIBC 2.41-12" "14.2.0" "Debian 14.2.0-19" "3.13.5" "78.1.1";
    "ubuntu-18.04" Debian "ubuntu" "debian" "18.04" "Ubuntu 18.04.6 LTS" "2.27" "Ubuntu GLIBC 2.27-3ubuntu1.6" "7.5.0" "Ubuntu 7.5.0-3ubuntu1~18.04" "3.6.9" "39.0.1";
    "ubuntu-20.04" Debian "ubuntu" "debian" "20.04" "Ubuntu 20.04.6 LTS" "2.31" "Ubuntu GLIBC 2.31-0ubuntu9.16" "9.4.0" "Ubuntu 9.4.0-1ubuntu1~20.04.2" "3.8.10" "45.2.0";
    "ubuntu-22.04" Debian "ubuntu" "debian" "22.04" "Ubuntu 22.04.5 LTS" "2.35" "Ubuntu GLIBC 2.35-0ubuntu3.8" "11.4.0" "Ubuntu 11.4.0-1ubuntu1~22.04" "3.10.12" "59.6.0";
    "ubuntu-24.04" Debian "ubuntu" "debian" "24.04" "Ubuntu 24.04.2 LTS" "2.39" "Ubuntu GLIBC 2.39-0ubuntu8.4" "13.3.0" "Ubuntu 13.3.0-6ubuntu2~24.04" "3.12.3" "68.1.2";
    "fedora-41" RedHat "fedora" "" "41" "Fedora Linux 41 (Container Image)" "2.40" "GNU libc" "14.2.1 20250110" "Red Hat 14.2.1-7" "3.13.2" "69.2.0";
    "fedora-43" RedHat "fedora" "" "43" "Fedora Linux 43 (Container Image)" "2.42" "GNU libc" "15.2.1 20250924" "Red Hat 15.2.1-2" "3.14.0" "78.1.1";
    "rhel-8" RedHat "rocky" "rhel centos fedora" "8.10" "Rocky Linux 8.10 (Green Obsidian)" "2.28" "GNU libc" "8.5.0 20210514" "Red Hat 8.5.0-22" "3.6.8" "39.2.0";
    "rhel-9" RedHat "rocky" "rhel centos fedora" "9.5" "Rocky Linux 9.5 (Blue Onyx)" "2.34" "GNU libc" "11.5.0 20240719" "Red Hat 11.5.0-5" "3.9.21" "53.0.0";
    "alpine" Alpine "alpine" "" "3.20.3" "Alpine Linux v3.20" "" "" "13.2.1 20240309" "Alpine 13.2.1_git20240309" "3.12.7" "70.3.0";
};

pub fn distribution(name: &str) -> &'static Distribution {
    SYSTEMS.iter().find(|system| system.name == name).unwrap_or_else(|| panic!("no system `{name}`"))
}

/// Everything a fresh installation with compilers has, but for what `without` names.
pub fn install(m: &mut Machine<'_>) {
    let system = m.system;
    let have = |part: &str| !m.manifest.without.iter().any(|name| name == part);
    let like = if system.like.is_empty() { String::new() } else { format!("ID_LIKE=\"{}\"\n", system.like) };
    let text =
        format!("PRETTY_NAME=\"{}\"\nNAME=\"{}\"\nVERSION_ID=\"{}\"\nID={}\n{like}", system.pretty, system.id, system.version, system.id);
    m.tree.file("/usr/lib/os-release", text);
    m.tree.link("/etc/os-release", "../usr/lib/os-release");
    for name in ["bin", "lib", "sbin"] {
        m.tree.folder(&format!("/usr/{name}"));
        m.tree.link(&format!("/{name}"), &format!("usr/{name}"));
    }
    if system.style != Alpine {
        m.tree.folder("/usr/lib64");
        m.tree.link("/lib64", "usr/lib64");
    }
    m.tree.folder("/root");
    m.tree.folder("/tmp");
    m.tree.folder("/usr/local/bin");
    m.tree.plain(m.tree.loader);
    shell(m);
    libraries(m);
    for name in ["make", "ld", "as"] {
        m.tree.plain(&format!("/usr/bin/{name}"));
    }
    if have("gcc") {
        let version = system.gcc.split(' ').next().unwrap().to_owned();
        let without = ["g++", "c++", "cc"].into_iter().filter(|name| !have(name)).map(str::to_owned).collect();
        gcc(m, &Gcc { version, folder: None, conda: None, default: true, without });
    }
    if have("ninja") {
        m.tree.exec("/usr/bin/ninja", m.tree.program().say(["ninja: ", "1.11.1"]).bytes());
        if system.style == RedHat {
            m.tree.link("/usr/bin/ninja-build", "ninja");
        }
    }
    if have("python") {
        super::python::of_system(m, system.python, have("python-headers"));
    }
}

fn shell(m: &mut Machine<'_>) {
    if m.system.style == Alpine {
        m.tree.plain("/usr/bin/busybox");
        for name in ["sh", "env", "which"] {
            m.tree.link(&format!("/usr/bin/{name}"), "busybox");
        }
        return;
    }
    let shell = if m.system.style == Debian { "dash" } else { "bash" };
    m.tree.plain(&format!("/usr/bin/{shell}"));
    m.tree.link("/usr/bin/sh", shell);
    m.tree.plain("/usr/bin/env");
    m.tree.plain("/usr/bin/which");
}

/// The folder of 64-bit libraries.
pub fn libdir(m: &Machine<'_>) -> String {
    match m.system.style {
        Debian => format!("/usr/lib/{}", m.tree.triple()),
        RedHat => "/usr/lib64".to_owned(),
        Alpine => "/usr/lib".to_owned(),
    }
}

fn libraries(m: &mut Machine<'_>) {
    let folder = libdir(m);
    let system = m.system;
    if system.style == Alpine {
        m.tree.file(&format!("{folder}/libc.musl-x86_64.so.1"), m.tree.library("libc.musl-x86_64.so.1").bytes());
    } else {
        let minor: u32 = system.glibc.split('.').nth(1).unwrap().parse().unwrap();
        let mut libc = m.tree.library("libc.so.6");
        libc.needed = vec![m.tree.loader.rsplit('/').next().unwrap().to_owned()];
        libc.defines = std::iter::once("GLIBC_2.2.5".to_owned()).chain((3..=minor).map(|n| format!("GLIBC_2.{n}"))).collect();
        let banner = match system.style {
            Debian => format!("GNU C Library ({}) stable release version {}.\n", system.glibc_package, system.glibc),
            _ => format!(
                "GNU C Library ({}) stable release version {}.\nCopyright (C) 2024 Free Software Foundation, Inc.\n",
                system.glibc_package, system.glibc
            ),
        };
        let libc = libc.say([banner]);
        m.tree.exec(&format!("{folder}/libc.so.6"), libc.bytes());
        m.cache("libc.so.6", &format!("{folder}/libc.so.6").replacen("/usr/lib", "/lib", 1));
        for name in ["libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"] {
            m.tree.file(&format!("{folder}/{name}"), m.tree.library(name).bytes());
        }
    }
    stdcxx(m, &folder, system.gcc);
    m.cache("libstdc++.so.6", &format!("{folder}/libstdc++.so.6"));
}

/// libstdc++ as this gcc brings it.
pub fn stdcxx(m: &mut Machine<'_>, folder: &str, gcc: &str) {
    let major: u32 = gcc.split('.').next().unwrap().parse().unwrap();
    // Source: GCC libstdc++ manual, ABI policy.
    let (last, cxxabi) = match major {
        ..=7 => (24, 11),
        8 => (25, 11),
        9 | 10 => (28, 12),
        11 => (29, 13),
        12 => (30, 13),
        13 => (32, 14),
        14 => (33, 15),
        _ => (34, 16),
    };
    let mut library = m.tree.library("libstdc++.so.6");
    library.needed = ["libm.so.6", "libc.so.6", "libgcc_s.so.1"].map(str::to_owned).into();
    library.defines = std::iter::once("GLIBCXX_3.4".to_owned())
        .chain((1..=last).map(|n| format!("GLIBCXX_3.4.{n}")))
        .chain((1..=cxxabi).map(|n| format!("CXXABI_1.3.{n}")))
        .collect();
    m.tree.file(&format!("{folder}/libstdc++.so.6.0.{last}"), library.bytes());
    m.tree.link(&format!("{folder}/libstdc++.so.6"), &format!("libstdc++.so.6.0.{last}"));
}

/// A gcc. Its driver programs hold the version beside the packager's text, the target in the configure line.
pub fn gcc(m: &mut Machine<'_>, gcc: &Gcc) {
    let major = gcc.version.split('.').next().unwrap();
    let own = gcc.version.as_str() == m.system.gcc.split(' ').next().unwrap();
    let have = |name: &str| !gcc.without.iter().any(|without| without == name);
    let style = m.system.style;
    let (target, strings) = match (style, &gcc.conda, &gcc.folder) {
        (_, Some(_), _) => {
            let target = m.tree.triple().replace("-linux-", "-conda-linux-");
            let strings = vec![gcc.version.clone(), format!("(conda-forge gcc {}-2) ", gcc.version)];
            (target, strings)
        }
        (Debian, None, None) => {
            let package = if own {
                m.system.gcc_package.to_owned()
            } else {
                format!("{} {}-1", m.system.gcc_package.split(' ').next().unwrap(), gcc.version)
            };
            let version = if own { m.system.gcc.to_owned() } else { gcc.version.clone() };
            (m.tree.triple().to_owned(), vec![version, format!("({package}) ")])
        }
        (RedHat, None, None) => {
            let full = if own {
                format!("{} ({})", m.system.gcc, m.system.gcc_package)
            } else {
                format!("{} 20240101 (Red Hat {}-1)", gcc.version, gcc.version)
            };
            (m.tree.triple().replace("-linux-gnu", "-redhat-linux"), vec!["(GCC) ".to_owned(), full])
        }
        (Alpine, None, None) => {
            let package = m.system.gcc_package;
            (m.tree.triple().replace("-linux-gnu", "-alpine-linux-musl"), vec![m.system.gcc.to_owned(), format!("({package}) ")])
        }
        (.., Some(_)) => (m.tree.triple().replace("-linux-gnu", "-pc-linux-gnu"), vec![gcc.version.clone(), "(GCC) ".to_owned()]),
    };
    let configure =
        format!("../src/configure -v --enable-languages=c,c++ --build={target} --host={target} --target={target} --enable-shared");
    let words = strings.iter().map(String::as_str).chain([
        "gcc version %s %s\n",
        "GCC_EXEC_PREFIX",
        "GCC_EXEC_PREFIX=",
        "COMPILER_PATH",
        &configure,
    ]);
    let driver = m.tree.program().say(words).bytes();
    let (bin, inner) = match (&gcc.conda, &gcc.folder) {
        (Some(prefix), _) => (format!("{prefix}/bin"), format!("{prefix}/libexec/gcc/{target}/{}", gcc.version)),
        (_, Some(folder)) => (folder.clone(), format!("{folder}/../libexec/gcc/{target}/{}", gcc.version)),
        _ if style == Debian => {
            let inner = if major.parse::<u32>().unwrap() >= 13 { "libexec" } else { "lib" };
            ("/usr/bin".to_owned(), format!("/usr/{inner}/gcc/{target}/{major}"))
        }
        _ => ("/usr/bin".to_owned(), format!("/usr/libexec/gcc/{target}/{major}")),
    };
    let inner = tidy(&inner);
    m.tree.plain(&format!("{inner}/cc1"));
    if have("g++") {
        m.tree.plain(&format!("{inner}/cc1plus"));
    }
    let mut tools = vec!["gcc"];
    tools.extend(have("g++").then_some("g++"));
    if gcc.conda.is_some() {
        for tool in &tools {
            m.tree.exec(&format!("{bin}/{target}-{tool}"), &driver);
        }
        m.tree.link(&format!("{bin}/{target}-cc"), &format!("{target}-gcc"));
        if have("g++") {
            m.tree.link(&format!("{bin}/{target}-c++"), &format!("{target}-g++"));
        }
        if gcc.default {
            // What conda's packages `gcc` and `gxx` add to those of the target.
            for (plain, tool) in [("gcc", "gcc"), ("cc", "cc"), ("g++", "g++"), ("c++", "c++")] {
                m.tree.link(&format!("{bin}/{plain}"), &format!("{target}-{tool}"));
            }
        }
    } else if style == Debian && gcc.folder.is_none() {
        for tool in &tools {
            m.tree.exec(&format!("{bin}/{target}-{tool}-{major}"), &driver);
            m.tree.link(&format!("{bin}/{tool}-{major}"), &format!("{target}-{tool}-{major}"));
        }
    } else {
        for tool in &tools {
            m.tree.exec(&format!("{bin}/{tool}"), &driver);
        }
        if have("g++") && have("c++") {
            m.tree.link(&format!("{bin}/c++"), "g++");
        }
    }
    if gcc.default && gcc.folder.is_none() && gcc.conda.is_none() {
        for (tool, plain) in [("gcc", "cc"), ("g++", "c++")] {
            if !tools.contains(&tool) {
                continue;
            }
            if style == Debian {
                m.tree.link(&format!("/usr/bin/{tool}"), &format!("{tool}-{major}"));
                if have(plain) {
                    m.tree.link(&format!("/etc/alternatives/{plain}"), &format!("/usr/bin/{tool}"));
                    m.tree.link(&format!("/usr/bin/{plain}"), &format!("/etc/alternatives/{plain}"));
                }
            } else if have(plain) {
                m.tree.link(&format!("/usr/bin/{plain}"), tool);
            }
        }
    }
}

/// `/a/b/../c` is `/a/c`.
fn tidy(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            out.pop();
        } else {
            out.push(part);
        }
    }
    format!("/{}", out.join("/"))
}

/// Debian's clang: a driver that needs LLVM's libraries, whose names carry the version.
pub fn clang(m: &mut Machine<'_>, clang: &Clang) {
    let major = clang.version.split('.').next().unwrap();
    let mut driver = m.tree.program();
    driver.needed =
        vec![format!("libclang-cpp.so.{major}"), format!("libLLVM-{major}.so.1"), "libstdc++.so.6".to_owned(), "libc.so.6".to_owned()];
    m.tree.exec(&format!("/usr/lib/llvm-{major}/bin/clang"), driver.bytes());
    m.tree.link(&format!("/usr/lib/llvm-{major}/bin/clang++"), "clang");
    for name in ["clang", "clang++"] {
        m.tree.link(&format!("/usr/bin/{name}-{major}"), &format!("../lib/llvm-{major}/bin/{name}"));
        m.tree.link(&format!("/usr/bin/{name}"), &format!("{name}-{major}"));
    }
    if clang.default {
        for (plain, tool) in [("cc", "clang"), ("c++", "clang++")] {
            m.tree.link(&format!("/etc/alternatives/{plain}"), &format!("/usr/bin/{tool}"));
            m.tree.link(&format!("/usr/bin/{plain}"), &format!("/etc/alternatives/{plain}"));
        }
    }
}

const PCI: &str = "0000:18:00.0";

pub fn driver(m: &mut Machine<'_>, driver: &Driver) {
    if driver.wsl {
        wsl(m, driver);
        return;
    }
    let version = &driver.version;
    let library = driver.library_version.as_ref().unwrap_or(version).clone();
    let device = format!("/sys/bus/pci/devices/{PCI}");
    m.tree.file(&format!("{device}/vendor"), "0x10de\n");
    m.tree.file(&format!("{device}/device"), format!("{}\n", driver.device));
    m.tree.file(&format!("{device}/class"), "0x030200\n");
    let holder = if driver.module { Some("nvidia") } else { driver.held_by.as_deref() };
    if let Some(holder) = holder {
        m.tree.link(&format!("{device}/driver"), &format!("../../../../bus/pci/drivers/{holder}"));
    }
    if driver.module {
        let text = format!(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@U16-I3)\nGCC version:  gcc version 12.2.0\n"
        );
        m.tree.file("/proc/driver/nvidia/version", text);
        m.tree.file("/proc/driver/nvidia/params", "DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\nModifyDeviceFiles: 1\n");
        for (index, name) in driver.gpus.iter().enumerate() {
            let bus = format!("0000:{:02x}:00.0", 0x18 + index);
            let text = format!(
                "Model: \t\t {name}\nIRQ:   \t\t 120\nGPU UUID: \t GPU-00000000-0000-0000-0000-00000000000{index}\nBus Location: \t {bus}\nDevice Minor: \t {index}\nGPU Excluded:\t No\n"
            );
            m.tree.file(&format!("/proc/driver/nvidia/gpus/{bus}/information"), text);
        }
        if driver.nodes {
            for index in 0..driver.gpus.len() {
                m.tree.file(&format!("/dev/nvidia{index}"), "");
            }
            for node in ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] {
                m.tree.file(&format!("/dev/{node}"), "");
            }
            for index in 0..driver.gpus.len() {
                m.tree.mode(&format!("/dev/nvidia{index}"), 0o666);
            }
            for node in ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] {
                m.tree.mode(&format!("/dev/{node}"), 0o666);
            }
        }
    }
    if driver.libraries {
        let folder = libdir(m);
        for stem in ["libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so"] {
            let soname = format!("{stem}.1");
            let bytes = m.tree.library(&soname).say([library.as_str()]).bytes();
            m.tree.file(&format!("{folder}/{stem}.{library}"), bytes);
            m.tree.link(&format!("{folder}/{soname}"), &format!("{stem}.{library}"));
            m.cache(&soname, &format!("{folder}/{soname}"));
        }
        m.tree.link(&format!("{folder}/libcuda.so"), "libcuda.so.1");
        m.cache("libcuda.so", &format!("{folder}/libcuda.so"));
        m.tree.plain("/usr/bin/nvidia-smi");
    }
}

fn wsl(m: &mut Machine<'_>, driver: &Driver) {
    m.tree.file("/dev/dxg", "");
    m.tree.file("/proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@build) (gcc (GCC) 11.2.0) #1 SMP\n");
    m.tree.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n");
    m.tree.file("/etc/ld.so.conf.d/ld.wsl.conf", "/usr/lib/wsl/lib\n");
    for name in ["libcuda.so.1.1", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libdxcore.so"] {
        let soname = if name.starts_with("libcuda") { "libcuda.so.1" } else { name };
        m.tree.file(&format!("/usr/lib/wsl/lib/{name}"), m.tree.library(soname).say([driver.version.as_str()]).bytes());
    }
    m.tree.plain("/usr/lib/wsl/lib/nvidia-smi");
    for soname in ["libcuda.so.1", "libnvidia-ml.so.1", "libdxcore.so"] {
        m.cache(soname, &format!("/usr/lib/wsl/lib/{soname}"));
    }
}
