//! Whether a store finds anything wrong with itself.

use windlass_core::Store;
use windlass_core::store::{Depth, Finding, Severity};

/// Nothing is wrong with a store, but that the tests' server may not wait for the disk.
pub async fn assert_healthy(store: &dyn Store) {
    let findings = store.inspect(Depth::Full).await.unwrap().findings;
    let is_problem = |finding: &&Finding| {
        finding.severity == Severity::Problem && finding.subject != "durability"
    };
    let problems: Vec<_> = findings.iter().filter(is_problem).collect();
    assert!(problems.is_empty(), "{problems:#?}");
}
