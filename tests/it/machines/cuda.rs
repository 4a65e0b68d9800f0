//! CUDA toolkits as NVIDIA, Debian, conda, the HPC SDK and pip lay them out.

use super::machine::Machine;
use super::manifest::{Layout, Part, Toolkit};
use super::release::{Release, compiler_headers, headers, libraries, library_file, nvcc, profile, program};
use ds_doctor::version::Dotted;

const PROGRAMS: [&str; 8] = ["ptxas", "cudafe++", "fatbinary", "nvlink", "cuobjdump", "bin2c", "nvdisasm", "__nvcc_device_query"];

/// The places of one toolkit.
struct Places {
    bin: String,
    cicc: String,
    libdevice: String,
    include: String,
    /// Of the mathematics libraries, where that is another.
    math_include: String,
    lib: String,
    math_lib: String,
    stubs: Option<String>,
}

pub fn install(m: &mut Machine<'_>, kit: &Toolkit) {
    let release = Release::new(m, kit);
    let root = kit.root.as_str();
    let system = if m.tree.machine == super::elf::AARCH64 {
        // Jetson's own toolkit has another name than the one for servers.
        if m.manifest.files.contains_key("/etc/nv_tegra_release") { "aarch64-linux" } else { "sbsa-linux" }
    } else {
        "x86_64-linux"
    };
    let has = |part| kit.parts.as_ref().is_none_or(|parts| parts.contains(&part));
    let places = places(m, kit, system, has(Part::Compiler));
    if kit.layout == Layout::Distribution {
        debian_compiler(m, &release, has(Part::Compiler));
    } else if has(Part::Compiler) {
        m.tree.exec(&format!("{}/nvcc", places.bin), nvcc(m, &release));
        m.tree.file(&format!("{}/nvcc.profile", places.bin), profile(&release));
        for name in PROGRAMS {
            m.tree.exec(&format!("{}/{name}", places.bin), program(m, &release));
        }
        for name in ["link.stub", "prelink.stub"] {
            m.tree.file(&format!("{}/crt/{name}", places.bin), "");
        }
        m.tree.exec(&places.cicc, program(m, &release));
        m.tree.file(&format!("{}/libdevice.10.bc", places.libdevice), b"BC\xc0\xde");
    }
    if has(Part::Compiler) {
        for (name, text) in compiler_headers(&release) {
            m.tree.file(&format!("{}/{name}", places.include), text);
        }
    }
    if has(Part::Headers) {
        for (name, text) in headers(&release) {
            let maths = ["cublas", "curand", "cufft", "cusolver", "cusparse"].iter().any(|start| name.starts_with(start));
            let folder = if maths { &places.math_include } else { &places.include };
            m.tree.file(&format!("{folder}/{name}"), text);
        }
    }
    install_libraries(m, kit, &release, &places, has(Part::Runtime), has(Part::Dev));
    if kit.layout == Layout::Nvidia {
        version_file(m, kit, &release);
    }
    for path in &kit.without {
        m.tree.remove(&format!("{root}/{path}"));
    }
    if kit.ldconfig {
        m.tree.file(&format!("/etc/ld.so.conf.d/988_cuda-{}.conf", release.cuda.major), format!("{root}/targets/{system}/lib\n"));
    }
    if kit.home {
        m.vars.insert("CUDA_HOME".to_owned(), root.to_owned());
    }
    if kit.on_path {
        m.path.push(format!("{root}/bin"));
    }
}

fn places(m: &Machine<'_>, kit: &Toolkit, system: &str, compiler: bool) -> Places {
    let root = kit.root.as_str();
    let below = |path: &str| format!("{root}/{path}");
    let target = |path: &str| below(&format!("targets/{system}/{path}"));
    let usual = |include: String, lib: String| Places {
        bin: below("bin"),
        cicc: below("nvvm/bin/cicc"),
        libdevice: below("nvvm/libdevice"),
        math_include: include.clone(),
        math_lib: lib.clone(),
        stubs: Some(format!("{lib}/stubs")),
        include,
        lib,
    };
    match kit.layout {
        Layout::Nvidia => {
            m.tree.folder(&target("lib"));
            m.tree.link(&below("lib64"), &format!("targets/{system}/lib"));
            if compiler || kit.parts.as_ref().is_none_or(|parts| parts.contains(&Part::Headers)) {
                m.tree.folder(&target("include"));
                m.tree.link(&below("include"), &format!("targets/{system}/include"));
            }
            usual(target("include"), target("lib"))
        }
        Layout::HpcSdk => {
            m.tree.folder(&target("lib"));
            m.tree.folder(&target("include"));
            m.tree.link(&below("lib64"), &format!("targets/{system}/lib"));
            m.tree.link(&below("include"), &format!("targets/{system}/include"));
            let (sdk, version) = root.rsplit_once("/cuda/").expect("the root of an HPC SDK's toolkit is …/cuda/<release>");
            let maths = format!("{sdk}/math_libs/{version}");
            for name in ["include", "lib"] {
                m.tree.folder(&format!("{maths}/targets/{system}/{name}"));
            }
            m.tree.link(&format!("{maths}/include"), &format!("targets/{system}/include"));
            m.tree.link(&format!("{maths}/lib64"), &format!("targets/{system}/lib"));
            for (name, path) in [("bin", "bin"), ("include", "include"), ("lib64", "lib64"), ("nvvm", "nvvm")] {
                m.tree.link(&format!("{sdk}/cuda/{name}"), &format!("{version}/{path}"));
            }
            Places {
                math_include: format!("{maths}/targets/{system}/include"),
                math_lib: format!("{maths}/targets/{system}/lib"),
                ..usual(target("include"), target("lib"))
            }
        }
        Layout::CondaTargets => {
            m.tree.file(&below("conda-meta/history"), "==> 2025-01-10 10:00:00 <==\n");
            usual(target("include"), target("lib"))
        }
        Layout::Conda => {
            m.tree.file(&below("conda-meta/history"), "==> 2025-01-10 10:00:00 <==\n");
            usual(below("include"), below("lib"))
        }
        Layout::Pip => Places { stubs: None, ..usual(below("include"), below("lib")) },
        Layout::Distribution => {
            assert_eq!(root, "/usr", "a distribution's toolkit lies in /usr");
            let lib = super::system::libdir(m);
            Places { stubs: Some(format!("{lib}/stubs")), ..usual("/usr/include".to_owned(), lib) }
        }
    }
}

/// Debian's packages: a script as nvcc, the program and the compilers it takes in a folder of their own.
fn debian_compiler(m: &Machine<'_>, release: &Release, compiler: bool) {
    const OWN: &str = "/usr/lib/nvidia-cuda-toolkit";
    if !compiler {
        return;
    }
    m.tree.exec("/usr/bin/nvcc", format!("#!/bin/sh\n\nexec {OWN}/bin/nvcc \"$@\"\n"));
    m.tree.exec(&format!("{OWN}/bin/nvcc"), nvcc(m, release));
    let libraries = super::system::libdir(m);
    let profile = format!(
        "# Syntax:\n#   name  = <text>   assignment\n#   name += <text>   prepend\n\nNVVMIR_LIBRARY_DIR = {OWN}/libdevice\n\nPATH\t\t+= {OWN}/bin:\n\n#INCLUDES\t+=\n\nLIBRARIES\t=+ $(_SPACE_) -L{libraries}/stubs -L{libraries}\n"
    );
    m.tree.file("/etc/nvcc.profile", profile);
    m.tree.link(&format!("{OWN}/bin/nvcc.profile"), "/etc/nvcc.profile");
    for name in PROGRAMS {
        m.tree.exec(&format!("/usr/bin/{name}"), program(m, release));
    }
    m.tree.link(&format!("{OWN}/bin/crt"), "../../../share/nvidia-cuda-toolkit/crt");
    m.tree.exec(&format!("{OWN}/bin/cicc"), program(m, release));
    m.tree.file(&format!("{OWN}/libdevice/libdevice.10.bc"), b"BC\xc0\xde");
    for (tool, other) in [("gcc", "gcc"), ("g++", "g++")] {
        let mut script = String::from("#!/bin/sh\n\nprog=false\n");
        for (index, major) in (6..=release.gcc_max).rev().enumerate() {
            let word = if index == 0 { "if" } else { "elif" };
            script.push_str(&format!("{word} g++-{major} --version >/dev/null 2>&1; then\n\tprog={other}-{major}\n"));
        }
        script.push_str("else\n\techo \"ERROR: No supported gcc/g++ host compiler found.\" >&2\n\texit 1\nfi\n\nexec $prog \"$@\"\n");
        m.tree.exec(&format!("{OWN}/bin/{tool}"), script);
    }
    m.tree.folder("/usr/lib/cuda/bin");
    m.tree.folder("/usr/lib/cuda/lib64");
    m.tree.link("/usr/lib/cuda/include/cuda.h", "../../../include/cuda.h");
    m.tree.link("/usr/lib/cuda/nvvm/libdevice", "../../nvidia-cuda-toolkit/libdevice");
}

fn install_libraries(m: &mut Machine<'_>, kit: &Toolkit, release: &Release, places: &Places, runtime: bool, dev: bool) {
    for library in libraries(release.cuda) {
        let (name, version) = (library.0, &library.1);
        let maths = ["cublas", "curand", "cufft", "cusolver", "cusparse"].iter().any(|start| name.starts_with(start));
        let folder = if maths { &places.math_lib } else { &places.lib };
        let soname = format!("lib{name}.so.{version}");
        if runtime {
            let bytes = library_file(m, &library, release.cuda, (release.cuda.major > 11).then_some("$ORIGIN"));
            if kit.layout == Layout::Pip {
                m.tree.file(&format!("{folder}/{soname}"), bytes);
            } else {
                let full = match name {
                    "cudart" | "nvrtc" | "nvJitLink" => release.cudart.clone(),
                    "cublas" | "cublasLt" if release.cublas.is_some() => release.cublas.clone().unwrap_or_default(),
                    _ => format!("{version}.3.1.{}", release.cuda.minor),
                };
                m.tree.file(&format!("{folder}/lib{name}.so.{full}"), bytes);
                m.tree.link(&format!("{folder}/{soname}"), &format!("lib{name}.so.{full}"));
            }
            if kit.ldconfig {
                m.cache(&soname, &format!("{folder}/{soname}"));
            }
            if kit.layout == Layout::CondaTargets {
                let path = folder.strip_prefix(&format!("{}/", kit.root)).unwrap();
                m.tree.link(&format!("{}/lib/{soname}", kit.root), &format!("../{path}/{soname}"));
            }
        }
        if dev && kit.layout != Layout::Pip {
            m.tree.link(&format!("{folder}/lib{name}.so"), &soname);
        }
    }
    if dev {
        for name in ["libcudart_static.a", "libcudadevrt.a"] {
            m.tree.file(&format!("{}/{name}", places.lib), "!<arch>\n");
        }
    }
    if let Some(stubs) = places.stubs.as_ref().filter(|_| dev) {
        for (name, soname) in [("libcuda.so", "libcuda.so.1"), ("libnvidia-ml.so", "libnvidia-ml.so.1")] {
            m.tree.file(&format!("{stubs}/{name}"), m.tree.library(soname).bytes());
        }
    }
}

/// `version.json` from 11.1 on, `version.txt` before.
fn version_file(m: &Machine<'_>, kit: &Toolkit, release: &Release) {
    if !release.from(11, 1) {
        m.tree.file(&format!("{}/version.txt", kit.root), format!("CUDA Version {}\n", release.nvcc));
        return;
    }
    let nvcc: Dotted = release.nvcc.parse().unwrap();
    let label = m.know.releases_of_nvcc(&nvcc).next().map_or_else(|| format!("{}.0", release.cuda), |row| row.label.to_string());
    let text = format!(
        "{{\n   \"cuda\" : {{\n      \"name\" : \"CUDA SDK\",\n      \"version\" : \"{label}\"\n   }},\n   \"cuda_cudart\" : {{\n      \"name\" : \"CUDA Runtime (cudart)\",\n      \"version\" : \"{}\"\n   }},\n   \"cuda_nvcc\" : {{\n      \"name\" : \"CUDA NVCC\",\n      \"version\" : \"{}\"\n   }}\n}}\n",
        release.cudart, release.nvcc
    );
    m.tree.file(&format!("{}/version.json", kit.root), text);
}
