//! Values of labels: names that submitters choose, so their number must not grow without end.

use std::collections::HashSet;

use parking_lot::RwLock;
use windlass_core::metric::{LABEL_VALUES_MAX, OTHER};

/// The values that are told apart: the first that were met.
#[derive(Default)]
pub(super) struct Bounded(RwLock<HashSet<Box<str>>>);

impl Bounded {
    /// The value to tell: the name itself, or that of all others.
    pub(super) fn label<'v>(&self, name: &'v str) -> &'v str {
        if self.0.read().contains(name) {
            return name;
        }
        let mut known = self.0.write();
        if known.len() >= LABEL_VALUES_MAX && !known.contains(name) {
            return OTHER;
        }
        known.insert(name.into());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_one_value() {
        let bounded = Bounded::default();
        for number in 0..LABEL_VALUES_MAX {
            let name = format!("kind-{number}");
            assert_eq!(bounded.label(&name), name);
        }
        assert_eq!(bounded.label("one-more"), OTHER);
        assert_eq!(bounded.label("kind-7"), "kind-7", "known ones stay");
    }
}
