//! Randomness that is passed in, so that a decision can be repeated from its seed.

/// A seeded source of chance.
#[derive(Debug, Clone)]
pub struct Dice(fastrand::Rng);

impl Dice {
    /// Dice that always fall the same way for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Dice that nobody can predict; for production.
    pub fn thrown() -> Self {
        Self(fastrand::Rng::new())
    }

    /// A number in `0.0 ..= 1.0`.
    pub fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// A number in `-1.0 ..= 1.0`.
    pub fn signed_unit(&mut self) -> f64 {
        self.unit().mul_add(2.0, -1.0)
    }
}
