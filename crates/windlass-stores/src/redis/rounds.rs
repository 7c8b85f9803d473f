//! Going through what a worker holds until nothing is left.

/// Rounds over the pages of what a worker holds, until one has found nothing. A single page may be empty
/// although more follow: of what cannot be read, or has gone on meanwhile.
#[derive(Default)]
pub(super) struct Rounds {
    pub(super) cursor: String,
    has_found: bool,
}

impl Rounds {
    /// Notes a page; true when a whole round has found nothing.
    pub(super) fn is_clean_after(&mut self, next_cursor: String, has_found: bool) -> bool {
        self.has_found |= has_found;
        self.cursor = next_cursor;
        let is_round_over = self.cursor.is_empty();
        is_round_over && !std::mem::take(&mut self.has_found)
    }
}
