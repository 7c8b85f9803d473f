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

/// Where it matters over which connection a call goes, and that the next may go over another: every rule is asked of
/// the same statements without a pooler. Random sequences are done here too. There are no broadcasts behind a pooler,
/// since LISTEN does not work there; `profile` asks that the store says so.
#[cfg(feature = "postgres")]
mod pgbouncer {
    use crate::subjects::PgBouncerSubject;

    windlass_testkit::conformance! {
        PgBouncerSubject;
        claim, fencing, repeats, held, lead, races, wait, profile
    }
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

/// What concerns several queues, and so several slots: every rule is asked of one server, and of a Cluster with
/// the other layout. Random sequences are done here too.
#[cfg(feature = "redis")]
mod asynq_cluster {
    use crate::subjects::AsynqClusterSubject;

    windlass_testkit::rules! {
        AsynqClusterSubject;
        life {
            every_row_of_the_table_can_be_walked,
        }
        claim {
            the_limit_bounds_the_whole_claim,
            quotas_are_served_in_the_order_given,
            a_queue_may_be_named_again_in_one_claim,
            a_claim_takes_nothing_from_queues_that_it_does_not_name,
            a_paused_queue_gives_nothing_while_the_others_go_on,
            a_paused_queue_gives_nothing_to_the_claim_behind_an_apply,
        }
        repeats {
            an_insert_over_several_queues_repeated_after_a_failure_stores_every_task_once,
        }
        presence {
            a_beat_lists_the_paused_queues_that_its_worker_serves,
        }
        wait {
            a_pause_wakes_the_workers_that_serve_the_queue,
            a_pause_elsewhere_wakes_the_workers_that_serve_the_queue,
        }
    }
}

#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid {
    use crate::subjects::HybridSubject;

    windlass_testkit::conformance!(HybridSubject);
}

/// What is claimed, made pending or taken back, and so carried by one of two brokers: what only the ledger knows is
/// asked of it above. Random sequences are done here too.
#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid_pair {
    use crate::subjects::HybridPairSubject;

    windlass_testkit::conformance! {
        HybridPairSubject;
        life, claim, fencing, repeats, expire, held, promote, cancel, change, batches, races, wait, broadcast, events,
        profile
    }
}

/// The rights that the documentation asks for are enough: what differs in its commands, keys or channels.
#[cfg(feature = "redis")]
mod redis_documented_user {
    use crate::subjects::RedisUserSubject;

    windlass_testkit::conformance! {
        RedisUserSubject;
        life, fencing, expire, held, promote, cancel, change, unique, idempotency, prune, lead, batches, counters, list,
        documents, bytes, presence, wait, broadcast, profile
    }
}

#[cfg(feature = "redis")]
mod asynq_documented_user {
    use crate::subjects::AsynqUserSubject;

    windlass_testkit::conformance! {
        AsynqUserSubject;
        life, fencing, expire, held, promote, cancel, change, unique, idempotency, prune, lead, batches, counters, list,
        documents, bytes, presence, wait, broadcast, profile
    }
}

#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid_documented_user {
    use crate::subjects::HybridUserSubject;

    windlass_testkit::conformance! {
        HybridUserSubject;
        life, claim, expire, promote, wait, broadcast, profile
    }
}
