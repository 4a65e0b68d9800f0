//! What is run: each kernel's input, made at random from a seed, and what it must give, computed here on the host.

use super::About;
use super::reference::{Draw, bf16, fp16, round_to, small};
use crate::facts::kernel::KernelVerdict;
use crate::version::Capability;

/// Threads of a block.
const BLOCK: u32 = 256;
/// Threads of a block where there is less to do, so that all multiprocessors have some of it.
const NARROW: u32 = 64;

pub const COPY: &str = "copy";

/// One kernel of `kernels/`.
pub struct Kernel {
    pub name: &'static str,
    /// The function in the compiled code.
    pub symbol: &'static str,
    /// The first compute capability that has what it tries.
    since: Capability,
    /// Its blocks wait for each other.
    pub cooperative: bool,
    /// The work: from a seed, for this GPU; the last number is the bytes to copy.
    pub job: fn(u64, &About, u64) -> Job,
}

/// In the order in which they are run: what everything needs comes first.
pub const KERNELS: &[Kernel] = &[
    kernel("vector-add", "ds_vector_add", 0, vector_add),
    kernel("reduce", "ds_reduce", 0, reduce),
    kernel("atomics", "ds_atomics", 0, atomics),
    kernel("fp16", "ds_fp16", 53, |seed, _, _| fused(seed, fp16::MANTISSA, fp16::EXPONENT)),
    kernel("bf16", "ds_bf16", 80, |seed, _, _| fused(seed, bf16::MANTISSA, bf16::EXPONENT)),
    kernel("tensor", "ds_tensor", 70, tensor),
    Kernel { cooperative: true, ..kernel("cooperative", "ds_cooperative", 60, cooperative) },
    kernel(COPY, "ds_copy", 0, copy),
];

const fn kernel(name: &'static str, symbol: &'static str, since: u32, job: fn(u64, &About, u64) -> Job) -> Kernel {
    Kernel { name, symbol, since: Capability::from_sm(since), cooperative: false, job }
}

impl Kernel {
    /// Why this GPU cannot run it.
    pub fn lacking(&self, gpu: &About) -> Option<String> {
        if gpu.capability < self.since {
            return Some(format!("needs compute capability {}", self.since));
        }
        (self.cooperative && !gpu.cooperative).then(|| "the driver offers no cooperative launch".to_owned())
    }
}

/// One run of a kernel.
pub struct Job {
    pub n: u32,
    pub blocks: u32,
    pub threads: u32,
    pub input: Vec<u8>,
    /// Bytes of the result; it begins with what is expected.
    pub output: usize,
    expected: Expected,
    /// Bytes of one value, and how it is shown.
    width: usize,
    show: fn(&[u8]) -> String,
}

enum Expected {
    Values(Vec<u8>),
    /// The input itself.
    Input,
}

impl Job {
    /// Compares every bit.
    pub fn judge(&self, out: &[u8]) -> KernelVerdict {
        let expected = match &self.expected {
            Expected::Values(values) => values,
            Expected::Input => &self.input,
        };
        let out = out.get(..expected.len()).unwrap_or_default();
        if out == expected {
            return KernelVerdict::Passed;
        }
        let pairs = || expected.chunks_exact(self.width).zip(out.chunks_exact(self.width));
        let wrong = pairs().filter(|(expected, got)| expected != got).count();
        let first = pairs().enumerate().find(|(_, (expected, got))| expected != got);
        let (index, expected, got) = first.map_or((0, String::new(), String::new()), |(at, (e, g))| (at, (self.show)(e), (self.show)(g)));
        KernelVerdict::Wrong { wrong: wrong as u64, of: pairs().count() as u64, index: index as u64, expected, got }
    }
}

fn bytes<T, const N: usize>(values: impl IntoIterator<Item = T>, to: fn(T) -> [u8; N]) -> Vec<u8> {
    values.into_iter().flat_map(to).collect()
}

fn number<const N: usize>(bytes: &[u8], from: fn([u8; N]) -> String) -> String {
    bytes.try_into().map(from).unwrap_or_default()
}

fn show_u32(bytes: &[u8]) -> String {
    number(bytes, |b| u32::from_ne_bytes(b).to_string())
}

fn show_f32(bytes: &[u8]) -> String {
    number(bytes, |b| format!("{:?}", f32::from_ne_bytes(b)))
}

fn show_bits(bytes: &[u8]) -> String {
    number(bytes, |b| format!("{:#06x}", u16::from_ne_bytes(b)))
}

fn vector_add(seed: u64, _: &About, _: u64) -> Job {
    let n = 1 << 16;
    let mut draw = Draw(seed);
    // Magnitudes whose sums are never subnormal, so that flags which flush those to zero change nothing.
    let values: Vec<f32> = (0..2 * n).map(|_| draw.float(24, -10, 10) as f32).collect();
    let (a, b) = values.split_at(n);
    let sums = a.iter().zip(b).map(|(a, b)| a + b);
    let expected = Expected::Values(bytes(sums, f32::to_ne_bytes));
    let input = bytes(values.iter().copied(), f32::to_ne_bytes);
    Job { n: n as u32, blocks: n as u32 / BLOCK, threads: BLOCK, input, output: 4 * n, expected, width: 4, show: show_f32 }
}

fn reduce(seed: u64, _: &About, _: u64) -> Job {
    let n = 1 << 16;
    let mut draw = Draw(seed ^ 1);
    let values: Vec<u32> = (0..n).map(|_| draw.next() as u32).collect();
    let sums: Vec<u32> = values.chunks(BLOCK as usize).map(|block| block.iter().fold(0u32, |sum, v| sum.wrapping_add(*v))).collect();
    let output = 4 * sums.len();
    let expected = Expected::Values(bytes(sums, u32::to_ne_bytes));
    Job { n, blocks: n / BLOCK, threads: BLOCK, input: bytes(values, u32::to_ne_bytes), output, expected, width: 4, show: show_u32 }
}

fn atomics(seed: u64, _: &About, _: u64) -> Job {
    let n = 1 << 16;
    let mut draw = Draw(seed ^ 2);
    // Half of them meet in few counters, so that many additions collide.
    let values: Vec<u32> = (0..n).map(|_| draw.next() as u32).map(|v| if v >> 31 == 0 { v & !0xf8 } else { v }).collect();
    let mut counts = vec![0u32; 256];
    for value in &values {
        if let Some(count) = counts.get_mut((value & 0xff) as usize) {
            *count += 1;
        }
    }
    let expected = Expected::Values(bytes(counts, u32::to_ne_bytes));
    Job {
        n,
        blocks: n / BLOCK,
        threads: BLOCK,
        input: bytes(values, u32::to_ne_bytes),
        output: 4 * 256,
        expected,
        width: 4,
        show: show_u32,
    }
}

/// `a * b + c` in a 16-bit format. The exact result fits a double: it is rounded once, as the GPU does.
fn fused(seed: u64, mantissa: u32, exponent: u32) -> Job {
    let n = 1 << 14;
    let mut draw = Draw(seed ^ 3);
    let mut operand = |low, high| -> Vec<f64> { (0..n).map(|_| draw.float(mantissa + 1, low, high)).collect() };
    let (a, b, c) = (operand(-4, 4), operand(-4, 4), operand(-6, 6));
    let round = |value: f64| round_to(value, mantissa, exponent);
    let results = a.iter().zip(&b).zip(&c).map(|((a, b), c)| round(a * b + c));
    let expected = Expected::Values(bytes(results, u16::to_ne_bytes));
    let input = bytes(a.iter().chain(&b).chain(&c).map(|v| round(*v)), u16::to_ne_bytes);
    Job { n, blocks: n / NARROW, threads: NARROW, input, output: 2 * n as usize, expected, width: 2, show: show_bits }
}

fn tensor(seed: u64, _: &About, _: u64) -> Job {
    const SIDE: usize = 16;
    const TILE: usize = SIDE * SIDE;
    let tiles = 256;
    let mut draw = Draw(seed ^ 4);
    let values: Vec<i32> = (0..tiles * 2 * TILE).map(|_| small(draw.next())).collect();
    let products = values.chunks(2 * TILE).flat_map(|pair| {
        let (a, b) = pair.split_at(TILE);
        (0..TILE).map(move |at| {
            let (row, column) = (at / SIDE, at % SIDE);
            let left = a.iter().skip(row * SIDE).take(SIDE);
            let right = b.iter().skip(column).step_by(SIDE);
            left.zip(right).map(|(a, b)| a * b).sum::<i32>() as f32
        })
    });
    let expected = Expected::Values(bytes(products, f32::to_ne_bytes));
    let input = bytes(values.iter().map(|v| round_to(f64::from(*v), fp16::MANTISSA, fp16::EXPONENT)), u16::to_ne_bytes);
    // A warp for each tile, in a block of its own, so that all multiprocessors have some.
    Job { n: tiles as u32, blocks: tiles as u32, threads: 32, input, output: 4 * tiles * TILE, expected, width: 4, show: show_f32 }
}

fn cooperative(seed: u64, gpu: &About, _: u64) -> Job {
    // One block for each multiprocessor: all of them are there at once, and every multiprocessor takes part.
    let blocks = gpu.processors.clamp(2, 4096);
    let n = blocks * BLOCK;
    let mut draw = Draw(seed ^ 5);
    let mut values: Vec<u32> = (0..n).map(|_| draw.next() as u32).collect();
    let input = bytes(values.iter().copied(), u32::to_ne_bytes);
    values.rotate_left(BLOCK as usize);
    let expected = Expected::Values(bytes(values, u32::to_ne_bytes));
    // Behind the values: the counter, and the words through which the blocks exchange them.
    let output = 4 * (2 * n as usize + 1);
    Job { n, blocks, threads: BLOCK, input, output, expected, width: 4, show: show_u32 }
}

fn copy(seed: u64, gpu: &About, most: u64) -> Job {
    let words = (most.min(gpu.free / 64) / 16).max(1);
    let mut draw = Draw(seed ^ 6);
    let mut input = vec![0; 16 * words as usize];
    input.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&draw.next().to_ne_bytes()));
    let blocks = gpu.processors.clamp(1, 4096) * 8;
    let output = input.len();
    Job { n: words as u32, blocks, threads: BLOCK, input, output, expected: Expected::Input, width: 4, show: show_u32 }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn gpu(capability: u32) -> About {
        let capability = Capability::from_sm(capability);
        About { capability, processors: 4, cooperative: true, free: 1 << 24, runtime: None, loaded: None }
    }

    #[test]
    fn a_seed_repeats_the_run_and_another_changes_it() {
        for kernel in KERNELS {
            let job = |seed| (kernel.job)(seed, &gpu(90), 1 << 16);
            assert_eq!(job(7).input, job(7).input, "{}", kernel.name);
            assert_ne!(job(7).input, job(8).input, "{}", kernel.name);
            assert!(job(7).output >= 1, "{}", kernel.name);
        }
    }

    #[test]
    fn one_wrong_value_is_found_and_named() {
        let job = vector_add(1, &gpu(90), 0);
        let Expected::Values(right) = &job.expected else { panic!() };
        assert_eq!(job.judge(right), KernelVerdict::Passed);
        let mut out = right.clone();
        out[4 * 77] ^= 1;
        let KernelVerdict::Wrong { wrong, of, index, expected, got } = job.judge(&out) else { panic!() };
        assert_eq!((wrong, of, index), (1, 1 << 16, 77));
        assert_ne!(expected, got);
        assert!(matches!(job.judge(&[]), KernelVerdict::Wrong { .. }), "nothing at all");
        let job = copy(1, &gpu(90), 1 << 10);
        assert_eq!(job.input.len(), 1 << 10);
        let mut out = job.input.clone();
        *out.last_mut().unwrap() ^= 0x80;
        assert!(matches!(job.judge(&out), KernelVerdict::Wrong { wrong: 1, index: 255, .. }));
    }

    #[test]
    fn what_a_gpu_lacks() {
        let lacks = |sm| KERNELS.iter().filter(|k| k.lacking(&gpu(sm)).is_some()).map(|k| k.name).collect::<Vec<_>>();
        assert_eq!(lacks(52), ["fp16", "bf16", "tensor", "cooperative"]);
        assert_eq!(lacks(61), ["bf16", "tensor"]);
        assert_eq!(lacks(75), ["bf16"]);
        assert_eq!(lacks(120), [""; 0]);
        let without = About { cooperative: false, ..gpu(90) };
        assert_eq!(KERNELS.iter().filter_map(|k| k.lacking(&without)).collect::<Vec<_>>(), ["the driver offers no cooperative launch"]);
    }

    #[test]
    fn the_blocks_cover_the_work() {
        for kernel in KERNELS.iter().filter(|k| k.name != COPY) {
            let job = (kernel.job)(1, &gpu(90), 0);
            let threads = u64::from(job.blocks) * u64::from(job.threads);
            let per_item = if kernel.name == "tensor" { 32 } else { 1 };
            assert_eq!(threads, u64::from(job.n) * per_item, "{}", kernel.name);
        }
    }
}
