//! Writes containers of device code with entries of eight bytes: what a reader of headers sees of a real one.

/// One container for each text: targets as nvcc names them, PTX with its version, `sm_80 sm_90a compute_90@8.4`.
pub fn containers<S: AsRef<str>>(texts: &[S]) -> Vec<u8> {
    texts.iter().flat_map(|text| container(text.as_ref())).collect()
}

fn container(text: &str) -> Vec<u8> {
    let entries: Vec<u8> = text.split(' ').flat_map(entry).collect();
    let mut out = 0xBA55_ED50_u32.to_le_bytes().to_vec();
    out.extend([1, 0, 16, 0]);
    out.extend((entries.len() as u64).to_le_bytes());
    out.extend(entries);
    out
}

fn entry(word: &str) -> Vec<u8> {
    let (target, version) = word.split_once('@').unwrap_or((word, "1.8"));
    let (kind, number) = match target.split_once('_').unwrap() {
        ("sm", number) => (2_u16, number),
        ("compute", number) => (1, number),
        other => panic!("{other:?}"),
    };
    let (number, flag) = match (number.strip_suffix('a'), number.strip_suffix('f')) {
        (Some(number), _) => (number, 1_u64 << 20),
        (_, Some(number)) => (number, 1 << 21),
        _ => (number, 0),
    };
    let (major, minor) = version.split_once('.').unwrap();
    let half = |text: &str| text.parse::<u16>().unwrap().to_le_bytes();
    let mut out = [kind.to_le_bytes(), [1, 1]].concat();
    out.extend(64_u32.to_le_bytes());
    out.extend(8_u64.to_le_bytes());
    out.extend([0; 8]);
    out.extend([half(minor), half(major)].concat());
    out.extend(number.parse::<u32>().unwrap().to_le_bytes());
    out.extend([0; 8]);
    out.extend((0x11 | flag).to_le_bytes());
    out.extend([0; 16]);
    out.extend([0xaa; 8]);
    out
}
