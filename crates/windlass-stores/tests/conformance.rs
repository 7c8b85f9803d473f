//! Asks every store of this crate for every rule.

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
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

#[cfg(feature = "postgres")]
mod postgres {
    use crate::subjects::PostgresSubject;

    windlass_testkit::conformance!(PostgresSubject);
}

#[cfg(feature = "postgres")]
mod pgbouncer {
    use crate::subjects::PgBouncerSubject;

    windlass_testkit::conformance!(PgBouncerSubject);
}

#[cfg(feature = "redis")]
mod redis {
    use crate::subjects::RedisSubject;

    windlass_testkit::conformance!(RedisSubject);
}

#[cfg(feature = "redis")]
mod redis_cluster {
    use crate::subjects::ClusterSubject;

    windlass_testkit::conformance!(ClusterSubject);
}

#[cfg(feature = "redis")]
mod asynq {
    use crate::subjects::AsynqSubject;

    windlass_testkit::conformance!(AsynqSubject);
}

#[cfg(feature = "redis")]
mod asynq_cluster {
    use crate::subjects::AsynqClusterSubject;

    windlass_testkit::conformance!(AsynqClusterSubject);
}

#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid {
    use crate::subjects::HybridSubject;

    windlass_testkit::conformance!(HybridSubject);
}

#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid_pair {
    use crate::subjects::HybridPairSubject;

    windlass_testkit::conformance!(HybridPairSubject);
}
