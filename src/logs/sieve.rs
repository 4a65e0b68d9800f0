//! Many words looked for at once, faster than an automaton can step.
//!
//! An automaton takes one dependent load a byte. Here every second position is looked at alone: the four bytes there, hashed, are one byte of
//! a table that stays in the second cache, and no look waits for the one before. A word of five letters or more has four of its bytes at an
//! even position wherever it stands, so none is missed (one of four letters is known by the last three of them and any byte after); what the
//! table lets through is looked up and compared. A word is known by those of its bytes that builds print least ([`Common`]), and the hash is
//! one under which what they print most is not taken for those.

/// A word that has four of its bytes at an even position wherever it stands.
const FIVE: usize = 5;
const BITS: u32 = 18;
/// Positions that are looked at before the first question whether one was a hit.
const STEPS: usize = 8;
const STRIDE: usize = 2 * STEPS;

pub struct Sieve {
    /// Not 0 where four bytes of a word may be, by their hash.
    table: Box<[u8; 1 << BITS]>,
    factor: u32,
    /// Where the places of four bytes begin, by their hash; the next free slot after a taken one. Its size is a power of two.
    slots: Vec<Slot>,
    places: Vec<Place>,
    words: Vec<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Slot {
    gram: u32,
    /// Among the places; [`FREE`] where the slot is.
    first: u32,
}

const FREE: u32 = u32::MAX;

/// Four bytes, and the word that has them so far behind its beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    gram: u32,
    word: usize,
    offset: usize,
}

impl Sieve {
    /// Words of fewer than four bytes are never found.
    pub fn new<'w>(words: impl IntoIterator<Item = &'w str>, common: &Common) -> Self {
        let words: Vec<Vec<u8>> = words.into_iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut places = Vec::new();
        for (word, bytes) in words.iter().enumerate() {
            if let [_, b, c, d] = *bytes.as_slice() {
                places.extend(gram(bytes, 0).map(|gram| Place { gram, word, offset: 0 }));
                places.extend((0..=u8::MAX).map(|after| Place { gram: u32::from_le_bytes([b, c, d, after]), word, offset: 1 }));
                continue;
            }
            // Five bytes hold the two positions of which one is even.
            let windows = bytes.windows(FIVE).enumerate();
            let Some((at, _)) = windows.min_by_key(|(_, window)| common.of(window, 0).saturating_add(common.of(window, 1))) else {
                continue;
            };
            places.extend([at, at + 1].into_iter().filter_map(|offset| gram(bytes, offset).map(|gram| Place { gram, word, offset })));
        }
        places.sort_unstable();
        let (factor, table) = table(&places, common);
        let mut slots = vec![Slot { gram: 0, first: FREE }; (2 * places.len()).next_power_of_two()];
        let mut last = None;
        for (at, place) in places.iter().enumerate() {
            if last.replace(place.gram) == Some(place.gram) {
                continue;
            }
            let free = probe(slots.len(), place.gram).find(|slot| slots.get(*slot).is_some_and(|slot| slot.first == FREE));
            if let (Some(slot), Ok(first)) = (free.and_then(|slot| slots.get_mut(slot)), u32::try_from(at)) {
                *slot = Slot { gram: place.gram, first };
            }
        }
        Self { table, factor, slots, places, words }
    }

    /// Where a word stands that ends after `from`, as its start and end; not before another on an earlier line.
    pub fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        let mut at = from & !1;
        while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk::<{ STRIDE + 2 }>) {
            let gram = |step: usize| u32::from_le_bytes([block[2 * step], block[2 * step + 1], block[2 * step + 2], block[2 * step + 3]]);
            let mut any = 0;
            for step in 0..STEPS {
                any |= self.table[hash(gram(step), self.factor)];
            }
            if any != 0 {
                for step in 0..STEPS {
                    if self.table[hash(gram(step), self.factor)] != 0
                        && let Some((_, start, stop)) = self.here(text, at + 2 * step, gram(step)).next()
                    {
                        return Some((start, stop));
                    }
                }
            }
            at += STRIDE;
        }
        (at..text.len()).step_by(2).find_map(|at| self.here(text, at, last(text, at)?).next()).map(|(_, start, stop)| (start, stop))
    }

    /// The number of each word in the text, in no order and as often as it is there.
    pub fn each(&self, text: &[u8], mut found: impl FnMut(usize)) {
        for at in (0..text.len()).step_by(2) {
            if let Some(gram) = last(text, at).filter(|gram| self.table.get(hash(*gram, self.factor)) != Some(&0)) {
                self.here(text, at, gram).for_each(|(word, ..)| found(word));
            }
        }
    }

    /// The words that have these four bytes here: number, start and end.
    fn here(&self, text: &[u8], at: usize, gram: u32) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut taken = probe(self.slots.len(), gram).map_while(|slot| self.slots.get(slot).filter(|slot| slot.first != FREE));
        let first = taken.find(|slot| slot.gram == gram).map_or(self.places.len(), |slot| slot.first as usize);
        let same = self.places.get(first..).unwrap_or_default().iter().take_while(move |place| place.gram == gram);
        same.filter_map(move |place| {
            let (start, word) = (at.checked_sub(place.offset)?, self.words.get(place.word)?);
            text.get(start..)?.starts_with(word).then_some((place.word, start, start + word.len()))
        })
    }
}

fn gram(text: &[u8], at: usize) -> Option<u32> {
    text.get(at..)?.first_chunk::<4>().map(|four| u32::from_le_bytes(*four))
}

/// The same where only three bytes are left, which can be the end of a word of four.
fn last(text: &[u8], at: usize) -> Option<u32> {
    match *text.get(at..)? {
        [b, c, d] => Some(u32::from_le_bytes([b, c, d, 0])),
        _ => gram(text, at),
    }
}

/// The place in the table.
const fn hash(gram: u32, factor: u32) -> usize {
    (gram.wrapping_mul(factor) >> (32 - BITS)) as usize
}

/// The first is that of the golden ratio, the others are as good; all are odd.
const FACTORS: [u32; 8] = [0x9e37_79b1, 0x85eb_ca6b, 0xc2b2_ae35, 0x27d4_eb2f, 0x1656_67b1, 0xcc9e_2d51, 0x2c1b_3c6d, 0x297a_2d39];

/// The factor under which what builds print most stops the search least, and the table for it.
fn table(places: &[Place], common: &Common) -> (u32, Box<[u8; 1 << BITS]>) {
    let mut best: Option<(u64, u32, Box<[u8; 1 << BITS]>)> = None;
    let mut table = Box::new([0; 1 << BITS]);
    for factor in FACTORS {
        places.iter().for_each(|place| table[hash(place.gram, factor)] = 1);
        let stops: u64 =
            common.grams.iter().filter(|(gram, _)| table[hash(*gram, factor)] != 0).map(|(_, number)| u64::from(*number)).sum();
        if best.as_ref().is_none_or(|(least, ..)| stops < *least) {
            let other = best.replace((stops, factor, table));
            table = other.map_or_else(|| Box::new([0; 1 << BITS]), |(_, _, table)| table);
        }
        table.fill(0);
    }
    best.map_or((1, table), |(_, factor, table)| (factor, table))
}

/// The slots in which these four bytes can be, in their order.
fn probe(slots: usize, gram: u32) -> impl Iterator<Item = usize> {
    let first = hash(gram, FACTORS[0]);
    (0..slots).map(move |step| (first + step) & (slots - 1))
}

/// How often builds print four bytes in a row, as far as they do often.
pub struct Common {
    /// In a MiB.
    grams: Vec<(u32, u32)>,
    /// By hash; of several under one hash the highest.
    by_hash: Box<[u32; 1 << BITS]>,
}

impl Common {
    pub fn new() -> Self {
        let rows = include_str!("sieve/common.txt").lines().filter_map(|line| line.split_once(':'));
        let rows = rows.filter_map(|(number, grams)| Some((number.parse::<u32>().ok()?, grams)));
        let grams = rows.flat_map(|(number, grams)| grams.split_whitespace().filter_map(read).map(move |gram| (gram, number)));
        let (grams, mut by_hash): (Vec<_>, _) = (grams.collect(), Box::new([0; 1 << BITS]));
        for (gram, number) in &grams {
            let known = &mut by_hash[hash(*gram, FACTORS[0])];
            *known = (*known).max(*number);
        }
        Self { grams, by_hash }
    }

    /// At most as often in a MiB.
    fn of(&self, text: &[u8], at: usize) -> u32 {
        gram(text, at).map_or(0, |gram| self.by_hash[hash(gram, FACTORS[0])])
    }
}

/// Four bytes as `common.txt` writes them.
fn read(text: &str) -> Option<u32> {
    let (mut bytes, mut rest) = (Vec::with_capacity(4), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push(u8::try_from(16 * digit(high)? + digit(low)?).ok()?);
                after
            }
            (byte, after) => {
                bytes.push(*byte);
                after
            }
        };
    }
    bytes.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests;
