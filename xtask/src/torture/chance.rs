//! Choices by dice.

use windlass_core::dice::Dice;

/// One of these.
pub(crate) fn pick<'a, T>(choices: &'a [T], dice: &mut Dice) -> &'a T {
    let at = (dice.unit() * choices.len() as f64) as usize;
    &choices[at.min(choices.len() - 1)]
}

/// A whole number below this one, or 0.
pub(crate) fn below(dice: &mut Dice, limit: u64) -> u64 {
    ((dice.unit() * limit as f64) as u64).min(limit.saturating_sub(1))
}
