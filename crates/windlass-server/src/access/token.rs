//! A token: `wl_<id>_<secret>`, what it allows, and how it is kept. Nothing here does I/O, but for the
//! operating system's random bytes.

use std::fmt;
use std::str::FromStr;

use blake3::Hash;
use serde::{Deserialize, Serialize};
use windlass_core::{Error, ErrorKind, Result, Timestamp};

/// The class of the documents that tokens are kept in.
pub(crate) const CLASS: &str = "token";

pub(crate) const PREFIX: &str = "wl";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// To look.
    Read,
    /// To submit tasks.
    Submit,
    /// To lease tasks and report how they ended.
    Work,
    /// To cancel, retry, snooze, delete, pause, resume, drain and purge.
    Operate,
    /// To make and revoke tokens and to read the audit; and everything else.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Submit, Self::Work, Self::Operate, Self::Admin];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Work => "work",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| Error::invalid("use read, submit, work, operate or admin"))
    }
}

/// Queues by a pattern, in which `*` stands for anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Glob(String);

impl Glob {
    /// Longest pattern.
    const BYTES_MAX: usize = 128;

    /// Reads a pattern: the letters of a queue's name, and stars.
    pub(crate) fn new(text: &str) -> Result<Self> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-*".contains(&byte);
        if text.is_empty() || text.len() > Self::BYTES_MAX || !text.bytes().all(is_fine) {
            let text = "use the name of a queue, with * for anything, as in mail*";
            return Err(Error::invalid(text));
        }
        Ok(Self(text.to_owned()))
    }

    /// The pattern as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// True for a name that it means.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut seen) = (0, 0);
        // Where to go on when what follows the last star does not fit.
        let mut last_star = None;
        while seen < name.len() {
            if pattern.get(at) == Some(&b'*') {
                last_star = Some((at, seen));
                at += 1;
            } else if pattern.get(at) == Some(&name[seen]) {
                (at, seen) = (at + 1, seen + 1);
            } else if let Some((star, from)) = last_star {
                last_star = Some((star, from + 1));
                (at, seen) = (star + 1, from + 1);
            } else {
                return false;
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

/// What is asked of a new token.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) name: String,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) queues: Vec<Glob>,
    pub(crate) rate: Option<u32>,
}

/// A token as the store keeps it: all but the secret.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Token {
    /// The key of its document.
    #[serde(skip)]
    pub(crate) id: String,
    /// What people call it.
    pub(crate) name: String,
    pub(crate) scopes: Vec<Scope>,
    /// Only these queues; all when empty.
    pub(crate) queues: Vec<Glob>,
    /// Requests per second; any number when absent.
    pub(crate) rate: Option<u32>,
    /// The BLAKE3 of the secret, in hexadecimal digits.
    hash: String,
    pub(crate) created_at: Timestamp,
    /// Since when it is good for nothing. It stays on record: were it removed, the last one to be revoked
    /// would leave a server that asks for none.
    pub(crate) revoked_at: Option<Timestamp>,
}

impl Token {
    /// A new token, and the text that is shown once.
    pub(crate) fn make(wish: Wish, now: Timestamp) -> Result<(Self, String)> {
        let mut random = [0; ID_BYTES + SECRET_BYTES];
        getrandom::fill(&mut random)
            .map_err(|cause| Error::new(ErrorKind::Unavailable, "draw a secret").because(cause))?;
        let (id, secret) = random.split_at(ID_BYTES);
        let (id, secret) = (hexadecimal(id), hexadecimal(secret));
        let text = format!("{PREFIX}_{id}_{secret}");
        let Wish { name, scopes, queues, rate } = wish;
        let hash = blake3::hash(secret.as_bytes()).to_hex().to_string();
        let token =
            Self { id, name, scopes, queues, rate, hash, created_at: now, revoked_at: None };
        Ok((token, text))
    }

    /// Reads what the store keeps.
    pub(crate) fn read(id: &str, body: &str) -> Result<Self> {
        // The cause may repeat what it has read: it is left out.
        let read: Self = serde_json::from_str(body)
            .map_err(|_| Error::corrupt(format!("read token {id}: not in our form")))?;
        Ok(Self { id: id.to_owned(), ..read })
    }

    /// What the store keeps.
    pub(crate) fn body(&self) -> String {
        serde_json::to_string(self).expect("a token is plain JSON")
    }

    /// The same, good for nothing from now on.
    pub(crate) fn revoked(self, now: Timestamp) -> Self {
        Self { revoked_at: Some(now), ..self }
    }

    /// True for its own secret. Takes as long for every other.
    fn is_opened_by(&self, secret: &str) -> bool {
        // Hashes compare in constant time.
        Hash::from_hex(&self.hash).is_ok_and(|own| own == blake3::hash(secret.as_bytes()))
    }

    /// True when it has this scope.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// True for a queue that it may see.
    pub(crate) fn reaches(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|glob| glob.matches(queue))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

/// A token as someone presents it. Has no `Debug`: it must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Presented {
    id: String,
    secret: String,
}

impl Presented {
    /// Reads the text of a token; nothing when it has another form.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('_');
        let (prefix, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let is_ours = prefix == PREFIX
            && parts.next().is_none()
            && id.len() == 2 * ID_BYTES
            && secret.len() == 2 * SECRET_BYTES
            && id.bytes().chain(secret.bytes()).all(|byte| byte.is_ascii_hexdigit());
        is_ours.then(|| Self { id: id.into(), secret: secret.into() })
    }

    /// Which token it says it is.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// True when it is this one, and still good.
    pub(crate) fn opens(&self, token: &Token) -> bool {
        token.id == self.id && token.is_opened_by(&self.secret) && token.revoked_at.is_none()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        let queues = vec![Glob::new("mail*").unwrap()];
        Wish { name: "ann".into(), scopes: vec![Scope::Read], queues, rate: None }
    }

    #[test]
    fn only_its_own_text_opens_a_token_and_none_once_it_is_revoked() {
        let (token, text) = Token::make(wish(), Timestamp::default()).unwrap();
        let (_, other) = Token::make(wish(), Timestamp::default()).unwrap();
        let kept = Token::read(&token.id, &token.body()).unwrap();
        let presented = Presented::read(&text).unwrap();
        assert!(presented.opens(&kept));
        assert!(!Presented::read(&other).unwrap().opens(&kept));
        let secret_of_another = format!("wl_{}_{}", token.id, other.rsplit_once('_').unwrap().1);
        assert!(!Presented::read(&secret_of_another).unwrap().opens(&kept));
        let revoked = Token { revoked_at: Some(Timestamp::default()), ..kept };
        assert!(!presented.opens(&revoked));
    }

    #[test]
    fn what_is_kept_or_shown_of_a_token_is_not_its_secret() {
        let (token, text) = Token::make(wish(), Timestamp::default()).unwrap();
        let secret = text.rsplit_once('_').unwrap().1;
        assert!(!token.body().contains(secret));
        assert!(!format!("{token:?}").contains(&token.hash));
    }

    #[test]
    fn a_text_of_another_form_is_no_token() {
        let (_, text) = Token::make(wish(), Timestamp::default()).unwrap();
        assert!(Presented::read(&text).is_some());
        for other in ["", "wl", "wl__", "wl_a_b", "wl_0011aabbccdd_", &text[1..], &text[3..]] {
            assert!(Presented::read(other).is_none(), "{other}");
        }
        assert!(Presented::read(&format!("{text}_")).is_none());
        assert!(Presented::read(&format!("{text}0")).is_none());
        assert!(Presented::read(&text.replace("wl_", "xl_")).is_none());
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (glob, name, is_meant) in [
            ("mail", "mail", true),
            ("mail", "mails", false),
            ("mail*", "mail", true),
            ("mail*", "mail.high", true),
            ("mail*", "email", false),
            ("*mail", "email", true),
            ("*", "anything", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a**", "a", true),
        ] {
            assert_eq!(Glob::new(glob).unwrap().matches(name), is_meant, "{glob} {name}");
        }
        for glob in ["", "a b", "{a}", "é", "[ab]"] {
            assert!(Glob::new(glob).is_err(), "{glob}");
        }
    }

    #[test]
    fn admin_has_every_scope_and_no_other_has_two() {
        for given in Scope::ALL {
            let wish = Wish { scopes: vec![given], ..wish() };
            let (token, _) = Token::make(wish, Timestamp::default()).unwrap();
            for asked in Scope::ALL {
                assert_eq!(token.has(asked), given == asked || given == Scope::Admin);
            }
        }
    }
}
