//! Likely mistakes in handlers, and that the compiler says what is wrong. The texts are those of the
//! toolchain in `rust-toolchain.toml`; after a change: `TRYBUILD=overwrite cargo test -p windlass-mistakes`.

#[test]
fn mistakes_in_handlers_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
