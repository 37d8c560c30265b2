//! Chance that can be repeated: one number decides what a run submits and when it breaks things.
//!
//! Invariant: the same seed and the same name give the same numbers on every machine.
//! Absent: secrecy. Ids made here are unique, not unguessable.

use uuid::Uuid;

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Seed {
        Seed(seed)
    }

    /// The seed in `WINDLASS_FAULT_SEED`, or a fresh one; print it, so that it can be given again.
    pub fn from_environment() -> u64 {
        match std::env::var("WINDLASS_FAULT_SEED") {
            Ok(text) => text.parse().expect("WINDLASS_FAULT_SEED is a whole number"),
            Err(_) => Uuid::new_v4().as_u64_pair().0,
        }
    }

    /// A stream of its own for somebody with this name.
    pub fn of(&self, name: &str) -> Seed {
        let mut own = self.clone();
        for byte in name.bytes() {
            own.0 = own.next() ^ u64::from(byte);
        }
        own
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // A stream without end is no iterator to be collected.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// An id.
    pub fn id(&mut self) -> Uuid {
        let bytes = (u128::from(self.next()) << 64) | u128::from(self.next());
        uuid::Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_name_repeat_themselves_and_differ_from_others() {
        let ids = |seed: u64, name: &str| {
            let mut own = Seed::new(seed).of(name);
            [own.id(), own.id()]
        };
        assert_eq!(ids(7, "a"), ids(7, "a"));
        assert_ne!(ids(7, "a"), ids(7, "b"));
        assert_ne!(ids(7, "a"), ids(8, "a"));
    }
}
