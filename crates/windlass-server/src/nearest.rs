//! What a caller may have meant by a name that does not exist.

/// Names longer than this are not worth a guess.
const NAME_BYTES_MAX: usize = 64;

/// Words of other task queues, and what windlass calls the same thing.
const MEANINGS: [(&[&str], &str); 3] = [
    (&["args", "arguments", "data", "body", "params"], "payload"),
    (&["kind", "name", "job", "job_type", "task"], "type"),
    (&["retries", "retry_count", "max_attempts"], "max_retries"),
];

/// The name among `known` that is meant by another word, or that `name` is most likely a slip of.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let lower = name.to_lowercase().replace('-', "_");
    let meant = MEANINGS.iter().find(|(words, _)| words.contains(&lower.as_str()));
    if let Some(known) = meant.and_then(|(_, meant)| known.iter().find(|known| *known == meant)) {
        return Some(known);
    }
    let (steps, best) = known.iter().map(|known| (distance(&lower, known), *known)).min()?;
    (steps <= 2.max(best.len() / 3)).then_some(best)
}

/// How many letters must be added, removed or replaced to make one of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<_> = to.chars().collect();
    let mut row: Vec<_> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(nearest(name, &["type", "queue", "max_retries", "payload"]), expected, "{name}");
    }

    #[test]
    fn a_meaning_that_is_not_allowed_here_is_no_hint() {
        assert_eq!(nearest("data", &["for", "until"]), None);
    }

    #[test]
    fn a_slip_is_known_for_what_was_meant() {
        check("tpye", Some("type"));
        check("queu", Some("queue"));
        check("maxRetries", Some("max_retries"));
        check("max-retries", Some("max_retries"));
        check("pay_load", Some("payload"));
        check("args", Some("payload"));
        check("data", Some("payload"));
        check("body", Some("payload"));
        check("kind", Some("type"));
        check("name", Some("type"));
        check("job", Some("type"));
        check("retries", Some("max_retries"));
        check("colour", None);
        check(&"queue".repeat(100), None);
    }
}
