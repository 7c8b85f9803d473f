//! Comparison of JSON texts by what they mean.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Deepest nesting that is compared; deeper texts are the same only byte by byte.
const DEPTH_MAX: u32 = 64;

/// True when both texts are the same bytes, or JSON that differs only in spaces, in the order of members, and in how
/// strings are escaped. Numbers are compared as they are written: 1 and 1.0 differ, and no digit is lost.
pub fn is_same_json(one: &[u8], other: &[u8]) -> bool {
    let parse = |text| serde_json::from_slice::<&RawValue>(text).ok();
    one == other
        || parse(one).zip(parse(other)).is_some_and(|(one, other)| is_same(one, other, DEPTH_MAX))
}

fn is_same(one: &RawValue, other: &RawValue, depth_left: u32) -> bool {
    let (one, other) = (one.get(), other.get());
    let first = |text: &str| text.bytes().next();
    if one == other {
        return true;
    }
    if first(one) != first(other) || depth_left == 0 {
        return false;
    }
    match first(one) {
        Some(b'{') => {
            let members = |text| serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok();
            members(one).zip(members(other)).is_some_and(|(one, other)| {
                one.len() == other.len()
                    && one.iter().zip(&other).all(|((key, value), (other_key, other_value))| {
                        key == other_key && is_same(value, other_value, depth_left - 1)
                    })
            })
        }
        Some(b'[') => {
            let items = |text| serde_json::from_str::<Vec<&RawValue>>(text).ok();
            items(one).zip(items(other)).is_some_and(|(one, other)| {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(&other)
                        .all(|(one, other)| is_same(one, other, depth_left - 1))
            })
        }
        Some(b'"') => {
            let text = |text| serde_json::from_str::<String>(text).ok();
            text(one).zip(text(other)).is_some_and(|(one, other)| one == other)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_meaning_is_the_same() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [ true , null ], "a" : 1 }"#),
            (r#""\u00e9\/""#, "\"é/\""),
            ("12345678901234567890123", " 12345678901234567890123 "),
            ("not json", "not json"),
        ] {
            assert!(is_same_json(one.as_bytes(), other.as_bytes()), "{one} {other}");
        }
    }

    #[test]
    fn another_meaning_is_not_the_same() {
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
            ("[1,2]", "[2,1]"),
            ("1", "1.0"),
            ("12345678901234567890123", "12345678901234567890124"),
            ("\"a\"", "\"b\""),
            ("null", "false"),
            ("not json", "not  json"),
            ("{", "{ "),
        ] {
            assert!(!is_same_json(one.as_bytes(), other.as_bytes()), "{one} {other}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = |depth: usize, space: &str| {
            format!("{}{space}1{}", "[".repeat(depth), "]".repeat(depth))
        };
        assert!(is_same_json(deep(60, "").as_bytes(), deep(60, " ").as_bytes()));
        assert!(!is_same_json(deep(100, "").as_bytes(), deep(100, " ").as_bytes()));
    }
}
