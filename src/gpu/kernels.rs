//! The probe's kernels: the library that was built for them is loaded, and run.

use super::loader;
use super::protocol::Trouble;
use crate::facts::kernel::Loaded;
use crate::facts::raw::HostPath;

/// Loads `library` after the libraries `first`, and says what the loader took for both.
pub fn load(library: &HostPath, first: &[HostPath]) -> Result<Loaded, Trouble> {
    let before = loader::mapped();
    for path in first {
        loader::bind(path, true)?;
    }
    loader::bind(library, false)?;
    let taken = loader::mapped().into_iter().filter(|path| !before.contains(path));
    Ok(Loaded { libraries: taken.map(HostPath::from).collect() })
}
