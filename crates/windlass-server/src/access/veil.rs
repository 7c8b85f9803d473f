//! Tokens that stand where they do not belong, such as in a path that somebody has pasted one into: nothing
//! that is told or logged shows them.

use std::borrow::Cow;

use super::token::PREFIX;

/// A secret, or the rest of one, has at least so many letters; names that happen to begin like a token have fewer.
const SECRET_LETTERS_MIN: usize = 16;

/// The text with stars in place of the secret of every token in it.
pub(crate) fn veiled(text: &str) -> Cow<'_, str> {
    let mut veiled = String::new();
    let mut rest = text;
    while let Some((start, end)) = find_secret(rest) {
        veiled.push_str(&rest[..start]);
        veiled.push_str("***");
        rest = &rest[end..];
    }
    if veiled.is_empty() {
        return Cow::Borrowed(text);
    }
    veiled.push_str(rest);
    Cow::Owned(veiled)
}

/// Where the first secret begins and ends.
fn find_secret(text: &str) -> Option<(usize, usize)> {
    let length = |text: &str| text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let begin = format!("{PREFIX}_");
    text.match_indices(&begin).find_map(|(at, _)| {
        let id = at + begin.len();
        let secret = id + length(&text[id..]) + 1;
        let is_parted = text.as_bytes().get(secret - 1) == Some(&b'_');
        let end = secret + length(text.get(secret..).filter(|_| is_parted)?);
        (end - secret >= SECRET_LETTERS_MIN).then_some((secret, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, shown: &str) {
        assert_eq!(veiled(text), shown);
    }

    #[test]
    fn secrets_are_veiled_and_names_are_not() {
        let secret = "0f".repeat(32);
        check("", "");
        check("no task wl_", "no task wl_");
        check("no queue \"wl_mail_low\"", "no queue \"wl_mail_low\"");
        check("wl_mail_é wl_é_x wl_a-b", "wl_mail_é wl_é_x wl_a-b");
        check(&format!("no task wl_001122334455_{secret}"), "no task wl_001122334455_***");
        check(&format!("wl_a_{secret}, wl_b_{secret}/x"), "wl_a_***, wl_b_***/x");
    }
}
