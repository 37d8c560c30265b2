//! A small seeded generator (splitmix64): the same seed gives the same run on every machine.

use uuid::Uuid;

#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Both ends included.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + (self.next() % (to - from + 1) as u64) as i64
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// `Some` so many times in a hundred.
    pub fn maybe<T>(&mut self, chance: u64, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
        if self.percent(chance) { Some(make(self)) } else { None }
    }
}

/// The id of a numbered thing. Scattered, so that the order of ids is not that of the numbers.
pub fn numbered(kind: u64, number: u64) -> Uuid {
    let mut random = Random::new(kind << 48 ^ number);
    let (high, low) = (random.next(), random.next());
    Uuid::from_u128((u128::from(high) << 64) | u128::from(low))
}
