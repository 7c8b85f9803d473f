//! Which `traceparent` is one, by the rules of W3C Trace Context.

/// What one looks like: version, trace, span and flags.
pub(crate) const PATTERN: &str =
    "^(?:[0-9a-e][0-9a-f]|f[0-9a-e])-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$";
/// What looks like one and names no trace, or no span.
pub(crate) const PATTERN_OF_NOTHING: &str = "^..-(?:0{32}|[0-9a-f]{32}-0{16})-";

/// True for a context that others can go on from.
pub(crate) fn is_sound(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { return false };
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_something = |part: &str| part.bytes().any(|byte| byte != b'0');
    is_hex(version, 2)
        && version != "ff"
        && is_hex(trace, 32)
        && is_something(trace)
        && is_hex(span, 16)
        && is_something(span)
        && is_hex(flags, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_a_trace_and_a_span_is_sound() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        assert!(is_sound(&format!("00-{trace}-{span}-01")));
        assert!(is_sound(&format!("cc-{trace}-{span}-00")));
        for wrong in [
            String::new(),
            "x".into(),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}é-{span}-01"),
        ] {
            assert!(!is_sound(&wrong), "{wrong}");
        }
    }
}
