//! Signatures as the Standard Webhooks have them. A payload only names its secret; the secret itself lies in a
//! file of the worker, and stands in no store, log or error.

use std::path::PathBuf;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use url::Url;

/// With the padding at its end or without.
const EITHER: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const PREFIX: &str = "whsec_";
const HOST: &str = "host ";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const NAME_BYTES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 4 * 1024;

/// The secrets of a worker: a folder with a file each.
pub(super) struct Secrets(Option<PathBuf>);

/// What is signed.
pub(super) struct Message<'a> {
    /// Where it goes.
    pub(super) target: &'a Url,
    pub(super) id: &'a str,
    /// Seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) body: &'a [u8],
}

impl Secrets {
    /// Those in this folder; none when it is empty.
    pub(super) fn of(folder: &str) -> Self {
        Self((!folder.is_empty()).then(|| PathBuf::from(folder)))
    }

    /// The value of `webhook-signature`: one for each secret in its file, so that receivers can change from an
    /// old secret to a new one. Read each time, so that a change counts at once.
    ///
    /// Lines `host TARGET` bind it to scheme, host and port: else whoever submits tasks could have anything
    /// signed, by sending it to a host, or to another service on the same host, of their own.
    pub(super) fn sign(&self, name: &str, message: &Message<'_>) -> Result<String, String> {
        check_name(name)?;
        let Some(folder) = &self.0 else {
            return Err(format!(
                "no secret {name}: the worker has no folder of secrets (--webhook-secrets)"
            ));
        };
        // What the system says of a file may name it, never what is in it.
        let read = |cause| format!("read the secret {name}: {cause}");
        let file = std::fs::File::open(folder.join(name)).map_err(read)?;
        let mut text = String::new();
        let mut bounded = std::io::Read::take(file, FILE_BYTES_MAX);
        std::io::Read::read_to_string(&mut bounded, &mut text).map_err(read)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let (hosts, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with(HOST));
        if hosts.is_empty() {
            let text = "is bound to no target: its file needs a line such as `host shop.example`";
            return Err(format!("the secret {name} {text}"));
        }
        if !hosts.iter().any(|line| is_target(line[HOST.len()..].trim(), message.target)) {
            let target = message.target.origin().ascii_serialization();
            return Err(format!("the secret {name} is not for {target}"));
        }
        let signed = lines.into_iter().map(|line| signature(line, message));
        let signed: Option<Vec<_>> = signed.collect();
        match signed {
            Some(signatures) if !signatures.is_empty() => Ok(signatures.join(" ")),
            _ => Err(format!("the secret {name} is not {PREFIX} and 24 to 64 bytes in base64")),
        }
    }
}

/// True when a secret bound to `bound` may sign for this URL. A scheme, or a port, that is not given is that of
/// HTTPS; `*` is everything.
fn is_target(bound: &str, url: &Url) -> bool {
    let bound = match bound {
        "*" => return true,
        _ if bound.contains("://") => Url::parse(bound),
        _ => Url::parse(&format!("https://{bound}")),
    };
    bound.is_ok_and(|bound| bound.origin() == url.origin())
}

/// Refuses what cannot be the name of a secret, since it names a file.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.starts_with('.')
        || !name.bytes().all(is_plain)
    {
        return Err("secret must be the name of one: letters, digits, - _ and .".into());
    }
    Ok(())
}

/// Nothing when the secret is none.
fn signature(secret: &str, message: &Message<'_>) -> Option<String> {
    let key = EITHER.decode(secret.strip_prefix(PREFIX)?).ok()?;
    if !KEY_BYTES.contains(&key.len()) {
        return None;
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{}.{}.", message.id, message.timestamp).as_bytes());
    mac.update(message.body);
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks, computed by another program (Python's hmac).
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn message(target: &Url) -> Message<'_> {
        let body = br#"{"test": 2432232314}"#;
        Message { target, id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: 1_614_265_330, body }
    }

    fn shop() -> Url {
        Url::parse("https://shop.test/hooks?a=b").unwrap()
    }

    fn secrets(text: &str) -> (tempfile::TempDir, Secrets) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shop"), text).unwrap();
        let secrets = Secrets::of(&folder.path().display().to_string());
        (folder, secrets)
    }

    #[test]
    fn the_signature_is_that_of_the_standard() {
        let (_folder, secrets) = secrets(&format!("host shop.test\n{SECRET}\n"));
        assert_eq!(secrets.sign("shop", &message(&shop())).unwrap(), SIGNED);
    }

    #[test]
    fn every_line_of_a_secret_signs() {
        let other = format!("whsec_{}", STANDARD.encode([7; 32]).trim_end_matches('='));
        let (_folder, secrets) = secrets(&format!("{SECRET}\n\nhost *\n{other}\n"));
        let signed = secrets.sign("shop", &message(&shop())).unwrap();
        assert!(signed.starts_with(&format!("{SIGNED} v1,")), "{signed}");
    }

    #[test]
    fn a_secret_signs_for_its_targets_only() {
        for (bound, url, is_signed) in [
            ("Shop.test", "https://shop.test/hooks", true),
            ("shop.test", "https://shop.test:443/", true),
            ("shop.test", "http://shop.test/", false),
            ("shop.test", "https://shop.test:8443/", false),
            ("shop.test", "https://evil.test/", false),
            ("shop.test:8443", "https://shop.test:8443/", true),
            ("shop.test:8443", "https://shop.test/", false),
            ("http://shop.test:8080", "http://shop.test:8080/a", true),
            ("http://shop.test:8080", "https://shop.test:8080/a", false),
            ("http://[::1]:80", "http://[::1]/", true),
            ("*", "http://anywhere.test:1/", true),
            ("", "https://shop.test/", false),
        ] {
            let (_folder, secrets) = secrets(&format!("host other.test\nhost  {bound}\n{SECRET}"));
            let signed = secrets.sign("shop", &message(&Url::parse(url).unwrap()));
            assert_eq!(signed.is_ok(), is_signed, "{bound} {url} {signed:?}");
        }
        let (_folder, secrets) = secrets(&format!("host shop.test\n{SECRET}"));
        let elsewhere = Url::parse("http://shop.test:8080/").unwrap();
        let error = secrets.sign("shop", &message(&elsewhere)).unwrap_err();
        assert_eq!(error, "the secret shop is not for http://shop.test:8080");
    }

    #[test]
    fn a_secret_without_a_target_signs_nothing() {
        let (_folder, secrets) = secrets(SECRET);
        let error = secrets.sign("shop", &message(&shop())).unwrap_err();
        assert!(error.starts_with("the secret shop is bound to no target"), "{error}");
    }

    #[test]
    fn no_error_shows_a_secret() {
        for text in ["whsec_c2hvcnQ=", "canary", "whsec_*canary*", ""] {
            let (_folder, secrets) = secrets(&format!("host *\n{text}"));
            let error = secrets.sign("shop", &message(&shop())).unwrap_err();
            assert!(error.contains("shop") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn only_files_of_the_folder_are_secrets() {
        let (folder, secrets) = secrets(&format!("host *\n{SECRET}"));
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(folder.path().join("deep/shop"), SECRET).unwrap();
        for name in ["", "..", "../shop", "deep/shop", ".hidden", "/etc/passwd", "none", "deep"] {
            assert!(secrets.sign(name, &message(&shop())).is_err(), "{name}");
        }
        assert!(
            Secrets::of("")
                .sign("shop", &message(&shop()))
                .unwrap_err()
                .contains("--webhook-secrets")
        );
    }
}
