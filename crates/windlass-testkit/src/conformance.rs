//! The rules that every store keeps, one test each.
//!
//! `windlass_testkit::conformance!(MySubject);` asks a store for all of them. A rule is a function
//! of a [`crate::Scene`]; its name says what must hold. The list in [`crate::conformance!`] is the
//! table of contents, and a test keeps it complete.

#![expect(missing_docs, reason = "the name of a rule is the rule")]

pub mod batches;
pub mod broadcast;
pub mod bytes;
pub mod cancel;
pub mod change;
pub mod claim;
pub mod counters;
pub mod documents;
pub mod events;
pub mod expire;
pub mod fencing;
pub mod held;
pub mod history;
pub mod idempotency;
pub mod identity;
pub mod lead;
pub mod life;
pub mod list;
pub mod presence;
pub mod profile;
pub mod promote;
pub mod prune;
pub mod races;
pub mod repeats;
pub mod unique;
pub mod wait;

/// Asks a store for every rule, or for those of some topics (`conformance!(MySubject; claim, races)`): one test each,
/// in a module for each topic.
#[macro_export]
macro_rules! conformance {
    ($subject:ty) => {
        $crate::conformance! {
            $subject;
            life, claim, fencing, repeats, expire, identity, held, promote, cancel,
            change, unique, idempotency, prune, lead, batches, races, counters,
            list, documents, bytes, history, presence, wait, broadcast, events, profile
        }
    };
    ($subject:ty; $($topic:ident),+) => {
        $($crate::topic! { $topic of $subject })+

        #[test]
        fn every_listed_exception_is_a_rule() {
            $crate::conformance::check_exceptions::<$subject>();
        }
    };
}

/// Requires that a subject lists no rule as skipped that does not exist: nobody would notice.
pub fn check_exceptions<S: crate::Subject>() {
    for name in S::skipped_rules() {
        let (topic, rule) = name.split_once("::").unwrap();
        let contents = include_str!("conformance.rs");
        let (_, rules) = contents.split_once(&format!("$subject; {topic} {{")).unwrap();
        let (rules, _) = rules.split_once('}').unwrap();
        assert!(rules.contains(&format!(" {rule},\n")), "no rule is called {name}");
    }
}

/// The rules of a topic.
#[doc(hidden)]
#[macro_export]
macro_rules! topic {
    (life of $subject:ty) => {
        $crate::rules! { $subject; life {
                every_row_of_the_table_can_be_walked,
                a_promote_moves_only_what_waits_for_its_time,
                a_claim_takes_only_what_is_pending,
                an_apply_ends_only_what_runs,
                a_leave_gives_back_only_what_runs,
                an_expire_takes_back_only_what_runs,
                a_cancel_of_a_finished_task_is_a_conflict,
                a_rerun_of_a_task_that_waits_or_runs_already_is_a_conflict,
                a_reschedule_of_a_running_or_finished_task_is_a_conflict,
                a_delete_of_a_running_task_is_a_conflict,
                a_prune_removes_only_completed_and_cancelled_tasks,
                a_submit_due_later_is_scheduled_and_any_other_is_pending,
                every_ending_takes_its_task_where_core_decides,
                the_start_of_a_handler_is_told_from_how_long_it_took,
                the_start_of_a_handler_is_not_told_again_for_the_next_run,
                the_start_of_a_handler_is_told_whatever_its_end,
                each_step_of_a_task_is_told_as_its_last_update,
                a_task_runs_one_time_more_than_its_retries,
        } }
    };
    (claim of $subject:ty) => {
        $crate::rules! { $subject; claim {
                tasks_of_one_batch_are_claimed_in_the_order_given,
                tasks_are_claimed_in_the_order_of_becoming_pending,
                a_promoted_task_goes_behind_those_that_were_pending_before,
                a_higher_priority_is_claimed_first,
                claims_at_once_leave_nothing_urgent_behind,
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
                a_claim_stops_at_its_bound_in_bytes,
                a_claim_behind_an_apply_stops_at_its_bound_in_bytes,
                a_claim_gives_no_more_suspects_than_allowed,
                the_bound_on_suspects_counts_over_all_queues_of_a_claim,
                a_claim_behind_an_apply_gives_no_more_suspects_than_allowed,
                one_crash_does_not_make_a_suspect,
        } }
    };
    (fencing of $subject:ty) => {
        $crate::rules! { $subject; fencing {
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
        } }
    };
    (repeats of $subject:ty) => {
        $crate::rules! { $subject; repeats {
                a_repeated_insert_is_new_again_and_stores_nothing_twice,
                one_id_twice_in_a_batch_is_stored_once,
                a_repeated_batch_stores_only_what_is_missing,
                an_insert_over_several_queues_repeated_after_a_failure_stores_every_task_once,
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
        } }
    };
    (expire of $subject:ty) => {
        $crate::rules! { $subject; expire {
                a_lost_workers_tasks_are_pending_again_with_one_crash_more,
                a_crash_spends_no_attempt,
                a_task_survives_just_its_max_crashes,
                a_crash_under_a_cancel_request_is_cancelled_and_not_retried,
                a_crash_under_a_cancel_request_is_cancelled_also_past_max_crashes,
                nobody_is_lost_before_the_lease_is_over,
                a_live_worker_keeps_its_tasks_while_another_is_lost,
                one_beat_renews_everything_that_a_worker_holds,
                a_lease_lasts_as_long_as_its_last_beat_asked_for,
                an_expire_in_small_pieces_gets_to_the_end,
                an_expire_that_is_repeated_counts_no_crash_twice,
                what_a_worker_finished_before_it_was_lost_stays_finished,
                an_expire_tells_when_the_next_lease_runs_out,
                an_expire_does_not_wait_for_a_worker_that_is_gone,
        } }
    };
    (identity of $subject:ty) => {
        $crate::rules! { $subject; identity {
                an_unknown_worker_gets_nothing,
                a_worker_that_was_declared_lost_never_comes_back,
                a_worker_that_held_nothing_is_declared_lost_too,
                a_lost_worker_is_remembered_for_an_hour,
                a_worker_that_is_gone_for_long_is_forgotten,
                a_task_goes_on_naming_its_worker_after_that_is_gone_for_long,
                a_lost_worker_is_not_told_of_after_an_hour,
                a_worker_that_left_never_comes_back,
                an_overdue_worker_gets_nothing_until_it_has_beaten_again,
                a_worker_may_claim_to_the_end_of_its_lease,
                an_overdue_worker_that_beats_before_the_expire_loses_nothing,
                a_lost_workers_beat_renews_nothing,
                a_leave_gives_everything_back_at_once_and_counts_nothing,
                a_leave_under_a_cancel_request_cancels,
                a_leave_that_is_repeated_or_of_an_unknown_worker_is_no_error,
                a_leave_does_not_touch_what_the_worker_had_ended_before,
                a_worker_that_left_is_not_counted_as_crashed_by_a_later_expire,
                the_first_beat_registers_and_later_ones_update_the_card,
        } }
    };
    (held of $subject:ty) => {
        $crate::rules! { $subject; held {
                an_old_lease_that_is_not_named_goes_back_and_counts_nothing,
                a_claim_behind_an_apply_whose_reply_was_lost_goes_back,
                a_lease_that_is_named_stays,
                a_young_lease_stays_although_it_is_not_named,
                a_lease_goes_back_when_it_is_older_than_said_and_not_when_it_is_as_old,
                age_counts_from_the_last_claim_and_not_from_the_submit,
                a_beat_without_held_gives_nothing_back,
                held_says_nothing_about_other_workers_leases,
                a_lease_named_under_an_old_epoch_is_lost_and_the_new_one_unnamed,
                a_named_lease_that_is_not_valid_any_more_is_told_as_lost,
                what_is_given_back_under_a_cancel_request_is_cancelled,
        } }
    };
    (promote of $subject:ty) => {
        $crate::rules! { $subject; promote {
                a_task_scheduled_by_a_delay_is_never_early,
                a_task_scheduled_for_an_instant_is_never_early,
                a_retry_is_never_early,
                a_retry_delay_counts_from_the_end_of_the_run_on_the_stores_clock,
                a_snoozed_task_is_never_early,
                a_rescheduled_task_is_never_early,
                a_fraction_of_a_millisecond_is_waited_for_in_full,
                a_very_long_delay_does_not_overflow_into_the_past,
                promote_takes_retrying_and_scheduled_tasks_alike,
                what_is_due_at_the_same_time_becomes_pending_in_the_order_of_submits,
                promote_changes_no_counter_of_the_task,
                promote_in_small_pieces_takes_the_longest_due_first,
                promote_tells_when_the_next_task_is_due,
                promote_tells_when_the_next_retry_is_due,
                what_is_due_in_a_few_of_many_queues_is_promoted,
        } }
    };
    (cancel of $subject:ty) => {
        $crate::rules! { $subject; cancel {
                a_waiting_task_is_cancelled_at_once_and_never_starts,
                a_running_task_is_asked_to_stop_and_its_worker_is_told,
                a_cancel_request_outlives_the_handle_that_made_it,
                under_a_cancel_request_only_success_is_not_cancelled,
                a_success_under_a_cancel_request_keeps_its_result,
                cancel_claim_and_finish_in_every_order,
                a_cancel_and_a_claim_at_once_agree_on_who_was_first,
                a_cancel_and_a_failure_at_once_never_leave_a_retry,
                a_rerun_forgets_the_cancel_request,
                a_cancel_by_filter_counts_done_and_requested,
        } }
    };
    (change of $subject:ty) => {
        $crate::rules! { $subject; change {
                a_rerun_of_a_finished_task_starts_its_counters_again,
                a_rerun_of_a_waiting_task_runs_it_now_and_keeps_its_counters,
                a_rerun_task_is_kept_its_whole_retention_again,
                a_reschedule_moves_a_waiting_task_to_its_new_time,
                a_reschedule_to_the_past_is_due_at_once,
                a_rescheduled_pending_task_is_not_given_out,
                a_deleted_task_is_gone_from_every_read_and_count,
                a_delete_is_on_record_with_who_and_what,
                a_delete_by_filter_is_on_record_too,
                a_purge_of_a_queue_takes_all_but_what_runs,
                each_task_of_a_change_is_answered_in_the_order_given,
                a_change_only_in_some_states_leaves_the_others_alone,
                a_change_of_some_of_a_batch_leaves_its_neighbours_where_they_stand,
                a_change_by_filter_is_bounded_and_goes_on_from_its_cursor,
                a_change_by_filter_touches_only_what_matches,
                a_change_by_filter_of_some_of_a_batch_leaves_its_neighbours,
                changes_by_filter_made_at_once_change_each_task_once,
                a_task_that_was_deleted_while_it_waited_cannot_be_finished,
        } }
    };
    (unique of $subject:ty) => {
        $crate::rules! { $subject; unique {
                until_finished_a_second_task_is_rejected_with_the_holder_named,
                a_second_task_may_ask_for_the_holder_instead,
                until_finished_a_key_is_held_through_every_unfinished_state,
                until_finished_a_key_is_held_through_crash_leave_and_reschedule,
                until_finished_every_terminal_state_frees_the_key,
                until_finished_a_delete_frees_the_key_in_every_state,
                until_finished_a_pruned_task_leaves_no_key_behind,
                for_a_time_a_key_outlives_every_end_of_a_task_that_has_run,
                for_a_time_a_key_is_freed_by_a_cancel_before_start,
                for_a_time_a_key_is_freed_by_a_delete_in_every_state,
                for_a_time_a_key_outlives_the_pruned_record_of_a_run,
                for_a_time_a_key_is_free_when_the_time_is_over_and_not_before,
                for_a_time_upkeep_frees_no_key_before_its_time,
                for_a_time_a_key_that_is_over_can_be_taken_at_once_without_upkeep,
                a_key_is_freed_only_by_its_owner,
                a_rerun_does_not_take_its_key_again,
                for_a_time_a_rerun_does_not_hold_the_key_longer,
                a_missing_key_is_derived_from_queue_kind_and_payload,
                a_unique_key_counts_within_its_scope,
                two_tasks_of_one_batch_cannot_share_a_unique_key,
        } }
    };
    (idempotency of $subject:ty) => {
        $crate::rules! { $subject; idempotency {
                the_same_request_under_one_key_returns_the_first_task,
                a_different_request_under_one_key_is_told_so,
                options_that_are_not_part_of_the_request_do_not_make_it_different,
                an_idempotency_key_counts_per_kind,
                an_idempotency_key_is_held_in_every_state,
                an_idempotency_key_is_freed_by_a_delete_in_every_state,
                an_idempotency_key_is_freed_by_prune_and_not_before,
                an_idempotency_key_is_free_when_its_record_is_over_pruned_or_not,
                an_idempotency_key_survives_a_rerun,
                the_idempotency_key_is_looked_at_before_the_unique_key,
                a_task_takes_both_keys_or_neither,
                a_refused_submit_leaves_nothing_behind,
                two_requests_of_one_batch_under_one_key_are_one_task,
                of_many_submits_at_once_one_idempotency_key_makes_one_task,
                of_many_submits_at_once_one_unique_key_lets_one_in,
        } }
    };
    (prune of $subject:ty) => {
        $crate::rules! { $subject; prune {
                a_finished_record_is_kept_its_retention_and_not_less,
                reads_hide_a_record_from_the_moment_its_retention_is_over,
                changes_do_not_find_a_record_whose_retention_is_over,
                dead_letters_are_never_pruned_or_hidden,
                unfinished_tasks_are_never_pruned,
                each_task_has_its_own_retention,
                a_record_is_kept_as_long_as_the_report_of_its_end_says,
                a_task_that_is_kept_for_no_time_is_gone_at_its_end,
                retention_counts_from_the_end_and_not_from_the_submit,
                what_expire_and_leave_cancelled_is_pruned_too,
                prune_in_small_pieces_gets_to_the_end,
                tend_in_small_pieces_gets_to_the_end,
                nothing_is_left_behind_by_tasks_that_are_gone,
                a_rerun_leaves_no_result_behind,
                what_is_over_in_a_few_of_many_queues_is_pruned,
        } }
    };
    (lead of $subject:ty) => {
        $crate::rules! { $subject; lead {
                only_one_leads_at_a_time,
                of_many_that_seek_at_once_one_leads,
                followers_learn_when_a_bid_can_succeed,
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
        } }
    };
    (batches of $subject:ty) => {
        $crate::rules! { $subject; batches {
                a_bad_item_of_an_insert_hurts_only_itself,
                a_payload_over_the_limit_is_refused_as_too_large,
                a_refused_item_of_an_apply_hurts_only_itself,
                empty_batches_are_no_error,
                a_large_batch_is_taken_whole,
                reserved_ids_come_in_the_number_asked_for_and_never_twice,
                an_apply_claims_the_next_tasks_in_the_same_trip,
                a_claim_behind_an_apply_sees_what_the_apply_released,
                a_claim_that_fails_behind_an_apply_does_not_undo_it,
                an_unreadable_record_does_not_stop_a_claim,
                an_unreadable_record_does_not_stop_a_promote,
                an_unreadable_record_does_not_stop_an_expire,
                an_unreadable_record_does_not_stop_a_prune,
                an_unreadable_record_does_not_stop_an_apply_or_a_list,
                an_unreadable_record_does_not_stop_a_leave,
                an_unreadable_record_does_not_stop_a_change_by_filter,
                an_unreadable_record_does_not_stop_a_get,
                a_damaged_queue_does_not_stop_claims_from_others,
                a_damaged_queue_does_not_stop_reports_and_beats_of_others,
                a_damaged_queue_does_not_stop_reads_and_upkeep_of_others,
        } }
    };
    (races of $subject:ty) => {
        $crate::rules! { $subject; races {
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
        } }
    };
    (counters of $subject:ty) => {
        $crate::rules! { $subject; counters {
                counters_follow_a_task_through_every_ending,
                counters_follow_a_task_through_every_change,
                counters_follow_a_task_through_crash_leave_and_held,
                counters_do_not_follow_what_was_refused,
                pending_tasks_are_counted_by_priority,
                a_queue_tells_since_when_its_oldest_task_is_pending,
                a_promoted_task_is_pending_since_its_promote,
                queues_are_told_by_name_and_stay_known_when_empty,
                a_queue_that_is_idle_for_long_is_forgotten_until_the_next_insert,
                a_queue_that_is_used_now_and_then_is_not_forgotten,
                counters_equal_states_while_many_work_and_after_the_drain,
                a_close_look_finds_no_problem_after_a_drain,
        } }
    };
    (list of $subject:ty) => {
        $crate::rules! { $subject; list {
                a_list_shows_every_task_once_in_its_order,
                a_list_leaves_out_what_may_be_large,
                each_part_of_a_filter_narrows_a_list,
                each_part_of_a_filter_narrows_a_list_in_every_state,
                a_walk_shows_each_task_once_while_others_come_and_go,
                a_walk_shows_each_task_once_although_it_deletes_what_it_has_seen,
                a_walk_over_very_many_tasks_shows_each_once,
                a_walk_by_state_shows_what_stays_in_it_while_others_leave_it,
                a_walk_by_a_waiting_or_finished_state_shows_what_stays_in_it,
                a_cursor_that_the_store_did_not_make_is_invalid,
                a_cursor_can_be_pasted_into_a_url,
        } }
    };
    (documents of $subject:ty) => {
        $crate::rules! { $subject; documents {
                a_new_document_is_written_once_and_its_version_grows,
                a_write_with_an_outdated_version_changes_nothing,
                a_document_is_removed_under_its_version_only,
                of_many_writers_at_once_one_wins,
                documents_of_a_class_come_by_key_in_pages,
                a_document_comes_back_letter_for_letter,
        } }
    };
    (bytes of $subject:ty) => {
        $crate::rules! { $subject; bytes {
                an_insert_answers_all_that_makes_the_record_that_is_stored,
                payloads_come_back_byte_for_byte,
                results_come_back_byte_for_byte,
                the_largest_payload_and_result_come_back_byte_for_byte,
                a_payload_survives_every_way_back_to_pending,
                a_rerun_wipes_the_result_and_the_next_run_leaves_its_own,
                a_large_request_is_recognised_under_its_idempotency_key,
                an_error_text_comes_back_as_it_was_said,
                an_error_text_over_its_limit_is_cut_and_not_refused,
                a_get_brings_only_the_parts_asked_for_and_keeps_the_order,
        } }
    };
    (history of $subject:ty) => {
        $crate::rules! { $subject; history {
                the_happy_path_is_told_without_an_entry,
                every_ending_but_success_is_told_with_its_run,
                every_failure_keeps_its_error,
                a_crash_is_told_with_the_worker_that_was_lost,
                a_leave_and_a_give_back_are_told_as_released,
                each_change_is_told_with_who_asked,
                a_task_handled_elsewhere_is_pending_again_without_a_trace,
                a_task_that_nobody_handles_says_why_it_waits,
                a_cancel_of_a_run_is_told_as_request_and_as_end,
                every_way_into_cancelled_ends_the_story_with_it,
                a_completion_is_still_told_after_a_rerun,
                snoozes_in_a_row_fold_into_one_entry_with_a_count,
                a_refused_report_leaves_no_entry,
                a_cancel_that_meets_claims_is_never_older_than_the_claim,
                a_rerun_of_all_that_matches_is_never_older_than_an_end,
        } }
    };
    (presence of $subject:ty) => {
        $crate::rules! { $subject; presence {
                a_worker_is_told_its_order_in_every_beat_until_it_changes,
                an_order_to_an_unknown_worker_is_not_found,
                an_order_to_a_worker_that_is_gone_is_not_found,
                a_queue_cannot_be_told_to_drain,
                a_queue_that_is_not_known_yet_is_made_by_an_order,
                a_beat_lists_the_paused_queues_that_its_worker_serves,
                a_beat_tells_the_stores_time,
                a_worker_is_known_with_what_it_holds_until_it_is_gone,
                workers_are_told_by_id,
                the_kinds_of_a_worker_are_kept_as_it_lists_them,
                progress_is_kept_with_its_time_and_starts_anew_with_each_run,
                progress_is_forgotten_when_a_task_is_pending_again,
        } }
    };
    (wait of $subject:ty) => {
        $crate::rules! { $subject; wait {
                a_cancel_request_wakes_the_worker_that_runs_the_task,
                an_order_to_a_worker_wakes_it,
                orders_to_others_wake_no_worker,
                orders_before_the_last_beat_wake_no_worker,
                a_pause_wakes_the_workers_that_serve_the_queue,
                a_pause_wakes_no_worker_that_does_not_serve_the_queue,
                a_pause_before_the_last_beat_wakes_no_worker,
                a_pause_elsewhere_wakes_the_workers_that_serve_the_queue,
                an_insert_wakes_who_waits_for_its_queue,
                an_insert_elsewhere_wakes_who_waits_for_its_queue,
                a_promote_wakes_who_waits,
                a_release_wakes_who_waits,
                a_task_handled_elsewhere_wakes_who_waits,
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
        } }
    };
    (broadcast of $subject:ty) => {
        $crate::rules! { $subject; broadcast {
                messages_reach_all_who_listen_here_and_elsewhere_in_order,
                who_subscribes_later_hears_what_comes_then,
                a_message_that_is_too_long_is_refused_with_all_others,
                who_does_not_read_finds_a_gap_and_holds_up_nobody,
        } }
    };
    (events of $subject:ty) => {
        $crate::rules! { $subject; events {
                every_pause_and_resume_of_a_queue_is_told_in_order_whoever_gives_it,
                an_order_that_a_queue_obeys_already_is_not_told,
                a_worker_is_told_when_it_joins_obeys_and_leaves,
                a_worker_that_is_declared_lost_has_left,
        } }
    };
    (profile of $subject:ty) => {
        $crate::rules! { $subject; profile {
                broadcasts_work_or_are_unsupported_as_the_profile_says,
                the_profile_names_the_store_and_its_limits,
                a_ping_tells_the_stores_time_and_finds_no_problem,
                a_shared_store_shows_the_same_data_everywhere,
                a_dedicated_handle_beats_for_workers_of_the_store,
        } }
    };
}

/// Makes a test of each rule in a list.
#[doc(hidden)]
#[macro_export]
macro_rules! rules {
    ($subject:ty; $($topic:ident { $($rule:ident,)* })*) => {
        $(
            mod $topic {
                use super::*;
                $(
                    #[test]
                    fn $rule() {
                        $crate::check::<$subject>(
                            concat!(stringify!($topic), "::", stringify!($rule)),
                            |scene| Box::pin($crate::conformance::$topic::$rule(scene)),
                        );
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// A rule that is written but not listed would never be asked.
    #[test]
    fn every_rule_is_in_the_table_of_contents() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
        let contents = include_str!("conformance.rs");
        let (_, topics) = contents.split_once("            $subject;\n").unwrap();
        let (topics, _) = topics.split_once('}').unwrap();
        let topics: Vec<_> = topics.split(',').map(str::trim).collect();
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let topic = path.file_stem().unwrap().to_str().unwrap();
            assert!(topics.contains(&topic), "{topic} is not listed");
            for line in text.lines() {
                let Some(rest) = line.strip_prefix("pub async fn ") else {
                    continue;
                };
                let rule = rest.split('(').next().unwrap();
                let listed = format!(" {rule},\n");
                assert!(contents.contains(&listed), "{path:?}: {rule} is not listed");
            }
        }
    }
}
