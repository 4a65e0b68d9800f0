//! Numbers for the kernels: random ones, and the 16-bit formats, which Rust does not have.

/// IEEE half precision.
pub mod fp16 {
    pub const MANTISSA: u32 = 10;
    pub const EXPONENT: u32 = 5;
}

/// The upper half of a float.
pub mod bf16 {
    pub const MANTISSA: u32 = 7;
    pub const EXPONENT: u32 = 8;
}

/// SplitMix64: a short generator of which every seed is good (Steele, Lea, Flood, 2014).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of either sign with `digits` significant binary digits, its magnitude from 2^low to 2^high.
    pub fn float(&mut self, digits: u32, low: i32, high: i32) -> f64 {
        let bits = self.next();
        let range = u64::from(high.abs_diff(low)).max(1);
        let exponent = low + i32::try_from((bits >> 32) % range).unwrap_or(0);
        let tail = (bits as u32) & ((1 << (digits - 1)) - 1);
        let mantissa = 1.0 + f64::from(tail) / f64::from(1u32 << (digits - 1));
        let value = mantissa * f64::powi(2.0, exponent);
        if bits >> 63 == 0 { value } else { -value }
    }
}

/// An integer from -8 to 8.
pub fn small(bits: u64) -> i32 {
    (bits % 17) as i32 - 8
}

/// The bits of the nearest number of a 16-bit IEEE format, ties to even; too large becomes infinity. `value` is not NaN.
pub fn round_to(value: f64, mantissa: u32, exponent: u32) -> u16 {
    let sign = u16::from(value.is_sign_negative()) << 15;
    let bias = (1i32 << (exponent - 1)) - 1;
    let infinity = ((1u16 << exponent) - 1) << mantissa;
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return sign;
    }
    // The exponent of the value, not below that of the smallest normal number: subnormals have its spacing.
    let own = (magnitude.to_bits() >> 52) as i32 - 1023;
    let normal = own.max(1 - bias);
    // In units of the last place. Exact: a power of two.
    let steps = (magnitude * f64::powi(2.0, mantissa as i32 - normal)).round_ties_even();
    // A carry into the next power of two comes out right by itself: the fields lie next to each other.
    let fields = (i64::from(normal - (1 - bias)) << mantissa) + steps as i64;
    sign | u16::try_from(fields).map_or(infinity, |fields| fields.min(infinity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(value: f64) -> u16 {
        round_to(value, fp16::MANTISSA, fp16::EXPONENT)
    }

    fn brain(value: f64) -> u16 {
        round_to(value, bf16::MANTISSA, bf16::EXPONENT)
    }

    /// The value of a 16-bit pattern, from its definition.
    fn value(bits: u16, mantissa: u32, exponent: u32) -> f64 {
        let bias = (1i32 << (exponent - 1)) - 1;
        let field = i32::from((bits & 0x7fff) >> mantissa);
        let tail = f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1u32 << mantissa);
        let magnitude = if field == 0 { tail * f64::powi(2.0, 1 - bias) } else { (1.0 + tail) * f64::powi(2.0, field - bias) };
        if bits >> 15 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn every_number_of_the_format_is_itself() {
        for bits in 0..=u16::MAX {
            if bits & 0x7c00 != 0x7c00 {
                assert_eq!(half(value(bits, 10, 5)), bits, "{bits:#06x}");
            }
            if bits & 0x7f80 != 0x7f80 {
                assert_eq!(brain(value(bits, 7, 8)), bits, "{bits:#06x}");
            }
        }
    }

    #[test]
    fn between_two_numbers_the_nearer_counts_and_then_the_even_one() {
        for bits in (0..0x7bffu16).step_by(7) {
            let (low, high) = (value(bits, 10, 5), value(bits + 1, 10, 5));
            let middle = (low + high) / 2.0;
            assert_eq!(half(middle), if bits % 2 == 0 { bits } else { bits + 1 }, "{bits:#06x}");
            assert_eq!((half(middle.next_down()), half(middle.next_up())), (bits, bits + 1));
        }
    }

    #[test]
    fn known_values() {
        for (number, bits) in
            [(1.0, 0x3c00), (-2.0, 0xc000), (65504.0, 0x7bff), (65519.9, 0x7bff), (65520.0, 0x7c00), (1e9, 0x7c00), (6e-8, 1)]
        {
            assert_eq!(half(number), bits, "{number}");
        }
        for (number, bits) in [(1.0, 0x3f80), (3.140_625, 0x4049), (-0.5, 0xbf00), (1e39, 0x7f80)] {
            assert_eq!(brain(number), bits, "{number}");
        }
        // bf16 as the upper half of a float, rounded: another way to the same number.
        let mut draw = Draw(5);
        for _ in 0..20_000 {
            let number = draw.float(24, -30, 30) as f32;
            let bits = number.to_bits();
            let rounded = ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
            assert_eq!(brain(f64::from(number)), rounded, "{number}");
        }
    }

    #[test]
    fn drawn_numbers_are_in_range_and_exact() {
        let mut draw = Draw(1);
        let mut negative = 0;
        for _ in 0..10_000 {
            let number = draw.float(11, -4, 4);
            assert!((0.0625..16.0).contains(&number.abs()), "{number}");
            assert_eq!(value(half(number), 10, 5), number);
            negative += u32::from(number < 0.0);
        }
        assert!((4000..6000).contains(&negative), "{negative}");
        assert!((0..1000).map(small).all(|v| (-8..=8).contains(&v)));
    }
}
