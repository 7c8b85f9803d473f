//! What cargo says of the things that it has built (`--message-format json`).

use std::path::PathBuf;

use serde::Deserialize;

/// Name of the product's executable.
pub(crate) const PRODUCT: &str = "windlass";

/// A thing that cargo has built.
#[derive(Deserialize)]
pub(crate) struct Artifact {
    pub(crate) manifest_path: PathBuf,
    pub(crate) target: Target,
    pub(crate) profile: Profile,
    pub(crate) executable: Option<PathBuf>,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
}

#[derive(Deserialize)]
pub(crate) struct Profile {
    /// Whether it is a program of tests.
    pub(crate) test: bool,
}

/// The thing in a line of cargo's, if it is about one.
pub(crate) fn parse(line: &str) -> Option<Artifact> {
    serde_json::from_str(line).ok()
}

impl Artifact {
    /// The product's executable, if this is it.
    pub(crate) fn product(&self) -> Option<PathBuf> {
        let is_product = self.target.name == PRODUCT && !self.profile.test;
        self.executable.clone().filter(|_| is_product)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const BUILT: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/some/Cargo.toml",
        "target":{"kind":["test"],"name":"windlass"},"profile":{"test":true},"executable":"/w/windlass-1"}"#;

    #[test]
    fn the_product_is_neither_its_tests_nor_its_library() {
        let product = |line: &str| parse(line).unwrap().product();
        let built = BUILT.replace("\"test\":true", "\"test\":false");
        assert_eq!(product(&built), Some(PathBuf::from("/w/windlass-1")));
        assert_eq!(product(BUILT), None);
        assert_eq!(product(&built.replace("\"/w/windlass-1\"", "null")), None);
        assert_eq!(product(&built.replace("\"windlass\"", "\"tour\"")), None);
    }
}
