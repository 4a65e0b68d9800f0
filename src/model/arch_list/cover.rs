//! Whether a list serves a GPU.

use super::Item;
use crate::knowledge::Knowledge;
use crate::version::{Capability, CudaVersion};

/// Whether code of this list, compiled by `cuda` (`None`: not known), runs on the GPU.
pub fn cover(know: &Knowledge, items: &[Item], device: Capability, cuda: Option<CudaVersion>) -> bool {
    items.iter().any(|item| {
        let sass = item.sass && know.runs_on(item.target, device, cuda);
        sass || (item.ptx && know.ptx_serves(item.target, device))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn covering() {
        let know = Knowledge::embedded();
        let covers = |item: Item, device: &str| cover(&know, &[item], device.parse().unwrap(), None);
        let item = |text: &str| Item::sass(text.parse().unwrap());
        assert!(covers(item("8.0"), "8.6") && !covers(item("8.6"), "8.0") && !covers(item("8.0"), "9.0"));
        assert!(covers(Item::with_ptx("8.0".parse().unwrap()), "12.0"));
        assert!(covers(item("9.0a"), "9.0") && !covers(Item::with_ptx("9.0a".parse().unwrap()), "10.0"));
        assert!(covers(item("10.0f"), "10.3") && !covers(item("10.0f"), "12.0"));
        assert!(covers(item("15.0"), "15.2") && !covers(item("8.6"), "8.7"), "by the rule, and by the table of exceptions");
    }
}
