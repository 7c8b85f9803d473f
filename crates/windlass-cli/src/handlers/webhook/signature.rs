//! Signatures as the Standard Webhooks have them. A payload only names its secret; the secret itself lies in a
//! file of the worker, and stands in no store, log or error.

use std::path::PathBuf;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

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
    pub(super) host: &'a str,
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
    /// Lines `host NAME` bind it: else whoever submits tasks could have anything signed, by sending it to a
    /// host of their own.
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
        let is_of = |line: &&str| line[HOST.len()..].trim().eq_ignore_ascii_case(message.host);
        if !hosts.is_empty() && !hosts.iter().any(is_of) {
            return Err(format!("the secret {name} is not for {}", message.host));
        }
        let signed = lines.into_iter().map(|line| signature(line, message));
        let signed: Option<Vec<_>> = signed.collect();
        match signed {
            Some(signatures) if !signatures.is_empty() => Ok(signatures.join(" ")),
            _ => Err(format!("the secret {name} is not {PREFIX} and 24 to 64 bytes in base64")),
        }
    }
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

    fn message() -> Message<'static> {
        let body = br#"{"test": 2432232314}"#;
        Message {
            host: "shop.test",
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
            timestamp: 1_614_265_330,
            body,
        }
    }

    fn secrets(text: &str) -> (tempfile::TempDir, Secrets) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shop"), text).unwrap();
        let secrets = Secrets::of(&folder.path().display().to_string());
        (folder, secrets)
    }

    #[test]
    fn the_signature_is_that_of_the_standard() {
        let (_folder, secrets) = secrets(&format!("{SECRET}\n"));
        assert_eq!(secrets.sign("shop", &message()).unwrap(), SIGNED);
    }

    #[test]
    fn every_line_of_a_secret_signs() {
        let other = format!("whsec_{}", STANDARD.encode([7; 32]).trim_end_matches('='));
        let (_folder, secrets) = secrets(&format!("{SECRET}\n\n{other}\n"));
        let signed = secrets.sign("shop", &message()).unwrap();
        assert!(signed.starts_with(&format!("{SIGNED} v1,")), "{signed}");
    }

    #[test]
    fn a_secret_signs_for_its_hosts_only() {
        let (_folder, secrets) = secrets(&format!("host other.test\nhost Shop.test\n{SECRET}"));
        assert_eq!(secrets.sign("shop", &message()).unwrap(), SIGNED);
        let elsewhere = Message { host: "evil.test", ..message() };
        let error = secrets.sign("shop", &elsewhere).unwrap_err();
        assert_eq!(error, "the secret shop is not for evil.test");
    }

    #[test]
    fn no_error_shows_a_secret() {
        for text in ["whsec_c2hvcnQ=", "canary", "whsec_*canary*", ""] {
            let (_folder, secrets) = secrets(text);
            let error = secrets.sign("shop", &message()).unwrap_err();
            assert!(error.contains("shop") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn only_files_of_the_folder_are_secrets() {
        let (folder, secrets) = secrets(SECRET);
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(folder.path().join("deep/shop"), SECRET).unwrap();
        for name in ["", "..", "../shop", "deep/shop", ".hidden", "/etc/passwd", "none", "deep"] {
            assert!(secrets.sign(name, &message()).is_err(), "{name}");
        }
        assert!(
            Secrets::of("").sign("shop", &message()).unwrap_err().contains("--webhook-secrets")
        );
    }
}
