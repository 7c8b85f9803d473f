//! Asks every store of this crate for every rule.

mod subjects;

mod memory {
    use windlass_testkit::MemorySubject;

    windlass_testkit::conformance!(MemorySubject);
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use crate::subjects::SqliteSubject;

    windlass_testkit::conformance!(SqliteSubject);
}
