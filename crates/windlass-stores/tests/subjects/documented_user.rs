//! The users of the server that the documentation describes: their rules are read out of its pages, so that a rule
//! that lacks something fails tests.

use windlass_testkit::RedisServer;

const PASSWORD: &str = "a-password-of-tests";
const RULE: &str = "ACL SETUSER windlass ";

/// Makes a user by the rule of a page, and returns a URL with it. `name` is what all keys begin with there; it is
/// replaced by the prefix of a test.
fn url_of_user(page: &str, name: &str, prefix: &str) -> String {
    let server = RedisServer::shared();
    let rule = page.lines().find_map(|line| line.strip_prefix(RULE));
    let rule = rule.expect("the page should have a rule for the user `windlass`");
    let word = |word: &str| match word.chars().next() {
        Some('~' | '&') => word.replace(name, prefix),
        _ => word.replace("PASSWORD", PASSWORD),
    };
    let words: Vec<_> = rule.split_whitespace().map(word).collect();
    let mut command = vec!["ACL", "SETUSER", prefix];
    command.extend(words.iter().map(String::as_str));
    assert_eq!(server.operate(&command).unwrap(), "+OK\r\n", "{rule}");
    format!("redis://{prefix}:{PASSWORD}@127.0.0.1:{}/?prefix={prefix}", server.port())
}

/// Checks that the server has refused nothing to this user: what only helps, such as showing a worker, fails silently.
pub(crate) fn assert_not_denied(user: &str) {
    let denied = RedisServer::shared().operate(&["ACL", "LOG", "9"]).unwrap();
    let is_user = denied.contains(&format!("\r\n{user}\r\n"));
    assert!(std::thread::panicking() || !is_user, "{denied}");
}

macro_rules! user {
    ($(#[$doc:meta])* $name:ident, $page:literal, $begins_with:literal) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl $name {
            pub(crate) fn shared() -> Self {
                Self
            }

            pub(crate) fn url(&self, prefix: &str) -> String {
                let page = include_str!(concat!("../../../../docs/", $page));
                url_of_user(page, $begins_with, prefix)
            }

            pub(crate) fn ports(&self) -> Vec<u16> {
                RedisServer::shared().ports()
            }
        }
    };
}

user!(
    /// The user of docs/redis.md.
    StreamsUser, "redis.md", "wl"
);
user!(
    /// The user of docs/asynq.md.
    AsynqUser, "asynq.md", "asynq"
);

/// The URL of a broker with the user of docs/hybrid.md.
#[cfg(feature = "postgres")]
pub(crate) fn broker_url(prefix: &str) -> String {
    url_of_user(include_str!("../../../../docs/hybrid.md"), "wl", prefix)
}
