//! Lists written out for their readers.

use super::Item;

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `8.0;9.0+PTX`
    List,
    /// `80-real;90`: an item with PTX has no ending.
    Cmake,
    /// nvcc's flags on one line, separated by spaces.
    Gencode,
    /// `sm_80 sm_90 compute_90`
    Sm,
}

/// The list in this format, in the order given. PTX without SASS has no word of its own in the list format: `9.0+PTX` asks for both.
pub fn print(items: &[Item], format: Format) -> String {
    let number = |item: &Item| item.target.sm().trim_start_matches("sm_").to_owned();
    let words: Vec<String> = items
        .iter()
        .flat_map(|item| match format {
            Format::List => vec![format!("{}{}", item.target, if item.ptx { "+PTX" } else { "" })],
            Format::Cmake => match (item.sass, item.ptx) {
                (true, true) => vec![number(item)],
                (true, false) => vec![format!("{}-real", number(item))],
                (false, true) => vec![format!("{}-virtual", number(item))],
                (false, false) => vec![],
            },
            Format::Gencode => codes(item).map(|code| format!("-gencode=arch={},code={code}", item.target.compute())).collect(),
            Format::Sm => codes(item).collect(),
        })
        .collect();
    words.join(if matches!(format, Format::List | Format::Cmake) { ";" } else { " " })
}

fn codes(item: &Item) -> impl Iterator<Item = String> {
    [item.sass.then(|| item.target.sm()), item.ptx.then(|| item.target.compute())].into_iter().flatten()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn all_formats() {
        let items = [Item::plain(8, 0), Item::with_ptx("9.0a".parse().unwrap())];
        assert_eq!(print(&items, Format::List), "8.0;9.0a+PTX");
        assert_eq!(print(&items, Format::Cmake), "80-real;90a");
        let flags = "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_90a,code=compute_90a";
        assert_eq!(print(&items, Format::Gencode), flags);
        assert_eq!(print(&items, Format::Sm), "sm_80 sm_90a compute_90a");
        assert_eq!(print(&[], Format::List), "");
    }
}
