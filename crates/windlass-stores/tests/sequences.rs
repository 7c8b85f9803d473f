//! Compares every store of this crate with the memory store in random sequences.

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod subjects;

/// The memory store against itself: the sequences themselves must be sound.
mod memory {
    use windlass_testkit::MemorySubject;

    windlass_testkit::sequences!(MemorySubject);
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use crate::subjects::SqliteSubject;

    windlass_testkit::sequences!(SqliteSubject);
}

#[cfg(feature = "postgres")]
mod postgres {
    use crate::subjects::PostgresSubject;

    windlass_testkit::sequences!(PostgresSubject);
}

#[cfg(feature = "postgres")]
mod pgbouncer {
    use crate::subjects::PgBouncerSubject;

    windlass_testkit::sequences!(PgBouncerSubject);
}

#[cfg(feature = "redis")]
mod redis {
    use crate::subjects::RedisSubject;

    windlass_testkit::sequences!(RedisSubject);
}

#[cfg(feature = "redis")]
mod redis_cluster {
    use crate::subjects::ClusterSubject;

    windlass_testkit::sequences!(ClusterSubject);
}

#[cfg(feature = "redis")]
mod asynq {
    use crate::subjects::AsynqSubject;

    windlass_testkit::sequences!(AsynqSubject);
}

#[cfg(feature = "redis")]
mod asynq_cluster {
    use crate::subjects::AsynqClusterSubject;

    windlass_testkit::sequences!(AsynqClusterSubject);
}

#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid {
    use crate::subjects::HybridSubject;

    windlass_testkit::sequences!(HybridSubject);
}

#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid_pair {
    use crate::subjects::HybridPairSubject;

    windlass_testkit::sequences!(HybridPairSubject);
}

/// The rights that the documentation asks for are enough for whatever is done in whatever order.
#[cfg(feature = "redis")]
mod redis_documented_user {
    use crate::subjects::RedisUserSubject;

    windlass_testkit::sequences!(RedisUserSubject);
}

#[cfg(feature = "redis")]
mod asynq_documented_user {
    use crate::subjects::AsynqUserSubject;

    windlass_testkit::sequences!(AsynqUserSubject);
}

#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid_documented_user {
    use crate::subjects::HybridUserSubject;

    windlass_testkit::sequences!(HybridUserSubject);
}
