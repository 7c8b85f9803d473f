//! The statements, each from the file of its name.

use std::sync::LazyLock;

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) const $name: &str =
            include_str!(concat!("../../sql/postgres/", $file, ".sql"));)*

        #[cfg(test)]
        const ALL: &[&str] = &[$($file,)*];

        /// The statements themselves.
        #[cfg(test)]
        pub(super) const TEXTS: &[&str] = &[$($name,)*];
    };
}

statements! {
    APPLIED = "applied";
    ATTACH = "attach";
    AUDIT_NUMBER = "audit_number";
    BEAT = "beat";
    BROKER_DROP = "broker_drop";
    BROKER_GENERATION = "broker_generation";
    BROKER_FRESH = "broker_fresh";
    BROKER_SET = "broker_set";
    BROKER_USE = "broker_use";
    CANCEL_REQUEST = "cancel_request";
    CHANGE_FIND = "change_find";
    CHANGE_LOCK = "change_lock";
    CHANGE_TOP = "change_top";
    CLAIM = "claim";
    CLOCK = "clock";
    CLAIM_PROBE = "claim_probe";
    CLAIM_SNAPSHOTS = "claim_snapshots";
    COUNTED = "counted";
    COUNTS = "counts";
    COUNTS_CLEAR = "counts_clear";
    DETACH = "detach";
    DROP_PROGRESS = "drop_progress";
    DROP_RESULT = "drop_result";
    ENDED = "ended";
    EXPIRE_NEXT = "expire_next";
    EXPIRE_ORPHANS = "expire_orphans";
    EXPIRE_WORKERS = "expire_workers";
    FINISH = "finish";
    FLUSH = "flush";
    FOLD = "fold";
    FORGET = "forget";
    GENERATION_DROP = "generation_drop";
    GENERATION_MAKE = "generation_make";
    GENERATION_OPEN = "generation_open";
    GENERATIONS = "generations";
    GET = "get";
    HELD_BY = "held_by";
    HELD_CANCELS = "held_cancels";
    IDENTITY = "identity";
    INSERT = "insert";
    INSERT_KEYED = "insert_keyed";
    INSERT_OVER_GONE = "insert_over_gone";
    INSERT_ROWS = "insert_rows";
    INSERT_TWINS = "insert_twins";
    INSPECT_COMMIT = "inspect_commit";
    INSPECT_DEAD = "inspect_dead";
    INSPECT_HOLDERS = "inspect_holders";
    INSPECT_ISOLATION = "inspect_isolation";
    INSPECT_LIMITS = "inspect_limits";
    INSPECT_OVERDUE = "inspect_overdue";
    INSPECT_PARTITIONS = "inspect_partitions";
    INSPECT_RIGHTS = "inspect_rights";
    INSPECT_SETTINGS = "inspect_settings";
    INSPECT_SIZES = "inspect_sizes";
    KEY_FIND = "key_find";
    KEY_FREE = "key_free";
    KEY_TAKE = "key_take";
    KEY_TRY = "key_try";
    KEY_WAIT = "key_wait";
    KEYED = "keyed";
    KIND_FIND = "kind_find";
    KIND_MAKE = "kind_make";
    KIND_NAMES = "kind_names";
    LEAD = "lead";
    LEAD_READ = "lead_read";
    LEAD_RENEW = "lead_renew";
    LEAD_RESIGN = "lead_resign";
    LEAD_SET = "lead_set";
    LEAVE = "leave";
    LIST = "list";
    LIST_DEFERRED = "list_deferred";
    LIST_FATE = "list_fate";
    LIST_STRETCH = "list_stretch";
    LOAD_CLASS = "load_class";
    LOAD_ONE = "load_one";
    LOCK_ALL = "lock_all";
    LOST = "lost";
    LOST_NOTED = "lost_noted";
    LOST_RANGES = "lost_ranges";
    MISPLACED = "misplaced";
    NOTIFY = "notify";
    ORDER_QUEUE = "order_queue";
    ORDER_WORKER = "order_worker";
    OUTBOX_DROP = "outbox_drop";
    OUTBOX_FORGET = "outbox_forget";
    OUTBOX_LEFT = "outbox_left";
    OUTBOX_MINE = "outbox_mine";
    PING = "ping";
    PLAIN_CANCEL = "plain_cancel";
    PLAIN_DELETE = "plain_delete";
    PLAIN_RESCHEDULE = "plain_reschedule";
    PROCESS = "process";
    PROGRESS = "progress";
    PROMOTE = "promote";
    PROMOTE_DUE = "promote_due";
    PROMOTE_LATER = "promote_later";
    PROMOTE_NEXT = "promote_next";
    PROMOTE_TWICE = "promote_twice";
    PRUNE_DONE = "prune_done";
    PRUNE_FATES = "prune_fates";
    PRUNE_LOCK = "prune_lock";
    PRUNE_NEXT = "prune_next";
    PRUNE_ROWS = "prune_rows";
    PUBLISH = "publish";
    PUT_DEFERRED = "put_deferred";
    PUT_DELTA = "put_delta";
    PUT_FATE = "put_fate";
    PUT_READY = "put_ready";
    QUEUE_FIND = "queue_find";
    QUEUE_MAKE = "queue_make";
    QUEUE_NAMES = "queue_names";
    QUEUE_COUNTS = "queue_counts";
    QUEUES = "queues";
    QUEUES_PAUSED = "queues_paused";
    QUEUE_SWEEP_END = "queue_sweep_end";
    QUEUE_SWEEP_MARK = "queue_sweep_mark";
    READY_COUNTS = "ready_counts";
    READY_QUEUES = "ready_queues";
    READY_STRETCH = "ready_stretch";
    READY_THERE = "ready_there";
    RESERVE = "reserve";
    REWRITE = "rewrite";
    REWRITE_BEGIN = "rewrite_begin";
    REWRITE_COPY = "rewrite_copy";
    REWRITE_END = "rewrite_end";
    REWRITE_MEND = "rewrite_mend";
    ROW = "row";
    SAVE = "save";
    SAVE_LOCK = "save_lock";
    SAVE_REMOVE = "save_remove";
    SCHEMA = "schema";
    SCHEMA_EXISTS = "schema_exists";
    SCHEMA_LOCK = "schema_lock";
    SCHEMA_MAKE = "schema_make";
    SCHEMA_SCRIPT = "schema_script";
    SCHEMA_VERSION = "schema_version";
    SCHEMA_VERSION_SET = "schema_version_set";
    STAMPS = "stamps";
    TAKE = "take";
    TAKE_DEFERRED = "take_deferred";
    TAKE_DONE = "take_done";
    TAKE_FATE = "take_fate";
    TAKE_HELD = "take_held";
    TAKE_READY = "take_ready";
    TEND_CANCELS = "tend_cancels";
    TEND_KEYS = "tend_keys";
    TEND_OWNER = "tend_owner";
    TEND_VACUUM = "tend_vacuum";
    TERM_LOCK = "term_lock";
    TERM_RAISE = "term_raise";
    TWICE = "twice";
    WAIT_PROBE = "wait_probe";
    WITHIN_COMPLETE = "within_complete";
    WITHIN_SUBMIT = "within_submit";
    WORKERS = "workers";
    WORKERS_GONE = "workers_gone";
    WORKER_SWEEP_BEGIN = "worker_sweep_begin";
    WORKER_SWEEP_DONE = "worker_sweep_done";
    WORKER_SWEEP_END = "worker_sweep_end";
    WORKER_SWEEP_FATE = "worker_sweep_fate";
}

/// A statement as a store with brokers sends it, or as it is sent after damage: it also does what its lines with `--+`
/// say.
fn noting(text: &str) -> String {
    text.replace("--+ ", "")
}

pub(super) static CLAIM_NOTING: LazyLock<String> = LazyLock::new(|| noting(CLAIM));
pub(super) static INSERT_NOTING: LazyLock<String> = LazyLock::new(|| noting(INSERT));
pub(super) static PROMOTE_SOME: LazyLock<String> = LazyLock::new(|| noting(PROMOTE));

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_is_a_statement_and_every_statement_a_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sql/postgres");
        let files: BTreeSet<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let named: BTreeSet<_> = ALL.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(files, named);
    }
}
