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
/// the same statements without a pooler. Random sequences are done here too.
#[cfg(feature = "postgres")]
mod pgbouncer {
    use crate::subjects::PgBouncerSubject;

    windlass_testkit::rules! {
        PgBouncerSubject;
        claim {
            tasks_of_one_batch_are_claimed_in_the_order_given,
            tasks_are_claimed_in_the_order_of_becoming_pending,
            a_promoted_task_goes_behind_those_that_were_pending_before,
            a_higher_priority_is_claimed_first,
            only_the_priorities_of_a_quota_are_claimed,
            a_quota_gives_at_most_what_it_says,
            the_limit_bounds_the_whole_claim,
            quotas_are_served_in_the_order_given,
            a_queue_may_be_named_again_in_one_claim,
            a_claim_takes_nothing_from_queues_that_it_does_not_name,
            a_paused_queue_gives_nothing_while_the_others_go_on,
            a_queue_can_be_paused_before_its_first_task,
            a_paused_queue_gives_nothing_to_the_claim_behind_an_apply,
            a_claim_hands_over_everything_that_was_submitted,
            a_claim_counts_an_attempt_and_records_worker_time_and_epoch,
            each_claim_of_a_task_has_a_larger_epoch,
            a_task_is_given_to_one_worker_only_however_many_ask_at_once,
            a_claim_gives_no_more_suspects_than_allowed,
            the_bound_on_suspects_counts_over_all_queues_of_a_claim,
            a_claim_behind_an_apply_gives_no_more_suspects_than_allowed,
            one_crash_does_not_make_a_suspect,
        }
        fencing {
            an_apply_with_an_old_epoch_is_refused_while_the_successor_runs,
            an_apply_with_an_old_epoch_is_refused_while_the_same_worker_runs_it_again,
            an_apply_with_an_old_epoch_is_refused_in_one_batch_with_the_valid_one,
            an_apply_with_an_old_epoch_is_refused_after_a_rerun_runs,
            an_apply_after_an_expire_is_refused_and_not_taken_for_a_repetition,
            an_apply_after_an_expire_to_a_terminal_state_is_refused,
            an_apply_after_a_leave_is_refused,
            an_apply_after_a_give_back_by_held_is_refused,
            an_apply_to_a_task_that_was_given_back_and_cancelled_is_refused,
            an_apply_with_an_epoch_that_was_never_given_is_refused,
            an_apply_to_a_deleted_task_is_refused_as_gone,
            an_apply_to_a_pruned_task_is_refused_as_gone,
            an_apply_to_a_task_that_never_was_is_refused_as_gone,
            an_apply_is_accepted_until_the_worker_is_declared_lost,
            progress_under_an_old_epoch_is_dropped,
            progress_after_the_end_of_a_run_is_dropped,
            only_one_completion_of_a_lease_is_accepted_however_many_come_at_once,
        }
        repeats {
            a_repeated_insert_is_new_again_and_stores_nothing_twice,
            one_id_twice_in_a_batch_is_stored_once,
            a_repeated_batch_stores_only_what_is_missing,
            a_repeated_insert_leaves_a_task_that_has_gone_on_as_it_is,
            a_repeated_insert_does_not_conflict_with_its_own_keys,
            a_repeated_insert_is_new_although_its_key_has_a_new_owner,
            an_insert_repeated_by_many_at_once_is_stored_once,
            a_repeated_apply_is_recognised_after_every_ending,
            a_repeated_apply_is_recognised_whatever_it_says,
            one_lease_twice_in_a_batch_is_applied_once,
            a_repeated_apply_is_recognised_after_its_worker_is_gone,
            a_repeated_apply_is_recognised_after_operators_moved_the_task,
            a_repeated_apply_changes_nothing_while_the_next_run_is_under_way,
        }
        held {
            an_old_lease_that_is_not_named_goes_back_and_counts_nothing,
            a_lease_that_is_named_stays,
            a_young_lease_stays_although_it_is_not_named,
            a_lease_goes_back_when_it_is_older_than_said_and_not_when_it_is_as_old,
            age_counts_from_the_last_claim_and_not_from_the_submit,
            a_beat_without_held_gives_nothing_back,
            held_says_nothing_about_other_workers_leases,
            a_lease_named_under_an_old_epoch_is_lost_and_the_new_one_unnamed,
            a_named_lease_that_is_not_valid_any_more_is_told_as_lost,
            what_is_given_back_under_a_cancel_request_is_cancelled,
        }
        lead {
            only_one_leads_at_a_time,
            of_many_that_seek_at_once_one_leads,
            a_holder_that_seeks_again_gets_its_term_again,
            terms_grow_with_every_new_holding,
            terms_grow_also_after_upkeep_has_cleaned_up,
            a_renewal_keeps_the_term,
            a_renewal_after_the_term_has_run_out_is_refused,
            a_renewal_of_a_resigned_term_is_refused,
            a_resignation_lets_another_lead_at_once,
            a_stale_resignation_or_renewal_does_not_touch_the_new_leader,
            a_promote_in_a_stale_term_is_refused,
            an_expire_in_a_stale_term_is_refused,
            a_prune_in_a_stale_term_is_refused,
            a_tend_in_a_stale_term_is_refused,
            a_stale_term_stays_stale_after_its_successor_is_gone,
            upkeep_in_a_higher_term_makes_every_lower_one_stale,
        }
        races {
            any_two_calls_at_once_on_a_pending_task_are_as_in_some_order,
            any_two_calls_at_once_on_an_overdue_run_are_as_in_some_order,
            any_two_calls_at_once_on_an_overdue_run_under_a_cancel_are_as_in_some_order,
            any_two_calls_at_once_on_a_crashed_task_are_as_in_some_order,
            any_two_calls_at_once_on_a_retrying_task_are_as_in_some_order,
            any_two_calls_at_once_on_a_dead_task_are_as_in_some_order,
            any_three_calls_at_once_on_a_pending_task_are_as_in_some_order,
            any_three_calls_at_once_on_an_overdue_run_are_as_in_some_order,
            any_three_calls_at_once_on_a_crashed_task_are_as_in_some_order,
            any_three_calls_at_once_on_a_retrying_task_are_as_in_some_order,
            at_most_one_completion_of_each_lease_counts_in_a_wild_mix,
        }
        wait {
            a_cancel_request_wakes_the_worker_that_runs_the_task,
            an_order_to_a_worker_wakes_it,
            orders_to_others_wake_no_worker,
            orders_before_the_last_beat_wake_no_worker,
            an_insert_wakes_who_waits_for_its_queue,
            an_insert_elsewhere_wakes_who_waits_for_its_queue,
            a_promote_wakes_who_waits,
            a_release_wakes_who_waits,
            a_crash_wakes_who_waits,
            a_leave_wakes_who_waits,
            a_give_back_by_held_wakes_who_waits,
            a_rerun_wakes_who_waits,
            a_resumed_queue_wakes_who_waits,
            every_one_of_many_that_wait_is_woken,
            a_wait_for_work_without_a_mark_ends_at_once,
            a_wait_in_which_nothing_happens_ends_in_time,
            the_end_of_a_task_ends_a_wait_for_it,
            the_end_of_a_task_told_elsewhere_ends_a_wait_for_it,
            a_cancel_delete_or_crash_to_death_ends_a_wait_for_it,
            a_wait_for_a_task_that_is_gone_ends_at_once,
            a_failure_that_is_retried_does_not_end_a_wait,
            a_wait_that_is_dropped_takes_no_wake_up_from_others,
        }
        broadcast {
            messages_reach_all_who_listen_here_and_elsewhere_in_order,
            who_subscribes_later_hears_what_comes_then,
            a_message_that_is_too_long_is_refused_with_all_others,
            who_does_not_read_finds_a_gap_and_holds_up_nobody,
        }
        profile {
            broadcasts_work_or_are_unsupported_as_the_profile_says,
            the_profile_names_the_store_and_its_limits,
            a_ping_tells_the_stores_time_and_finds_no_problem,
            a_shared_store_shows_the_same_data_everywhere,
            a_dedicated_handle_beats_for_workers_of_the_store,
        }
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
    }
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
