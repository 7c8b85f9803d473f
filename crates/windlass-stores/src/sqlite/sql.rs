//! The statements, each from the file of its name.

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) const $name: &str =
            include_str!(concat!("../../sql/sqlite/", $file, ".sql"));)*

        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$(($file, $name),)*];
    };
}

statements! {
    BEAT = "beat";
    BLOB_ANY = "blob_any";
    BLOB_DELETE = "blob_delete";
    BLOB_GET = "blob_get";
    BLOB_PUT = "blob_put";
    BROADCASTS = "broadcasts";
    BROADCAST_LAST = "broadcast_last";
    CANCEL_REQUEST = "cancel_request";
    CLAIM = "claim";
    CLAIM_PROBE = "claim_probe";
    CLAIM_SIZES = "claim_sizes";
    COMPLETE = "complete";
    EXPIRE_NEXT = "expire_next";
    EXPIRE_ORPHANS = "expire_orphans";
    EXPIRE_WORKERS = "expire_workers";
    FORGET = "forget";
    GET = "get";
    INSERT = "insert";
    INSERT_TWIN = "insert_twin";
    INSPECT_OVERDUE = "inspect_overdue";
    INSPECT_ROWS = "inspect_rows";
    INSPECT_WRITE = "inspect_write";
    KEY_FIND = "key_find";
    KEY_FREE = "key_free";
    KEY_TAKE = "key_take";
    LEAD = "lead";
    LEAD_SET = "lead_set";
    LEAVE = "leave";
    LIST = "list";
    LIST_FLOOR = "list_floor";
    LIST_STATE = "list_state";
    LOAD_CLASS = "load_class";
    LOAD_ONE = "load_one";
    LOCK = "lock";
    ORDER_QUEUE = "order_queue";
    ORDER_WORKER = "order_worker";
    PAUSES = "pauses";
    PAUSE_LAST = "pause_last";
    PLACE = "place";
    PROGRESS = "progress";
    PROMOTE = "promote";
    PROMOTE_NEXT = "promote_next";
    PRUNE = "prune";
    PRUNE_NEXT = "prune_next";
    PUBLISH = "publish";
    PUBLISH_FORGET = "publish_forget";
    QUEUES = "queues";
    QUEUE_OLDEST = "queue_oldest";
    QUEUE_SWEEP_END = "queue_sweep_end";
    QUEUE_SWEEP_MARK = "queue_sweep_mark";
    QUEUE_PAUSED = "queue_paused";
    ROWS_OF_WORKER = "rows_of_worker";
    ROW_BY_ID = "row_by_id";
    ROW_BY_NUMBER = "row_by_number";
    SAVE = "save";
    SAVE_REMOVE = "save_remove";
    SCHEMA = "schema";
    SCHEMA_EXISTS = "schema_exists";
    SCHEMA_VERSION = "schema_version";
    SCHEMA_VERSION_SET = "schema_version_set";
    SEQUENCE_GET = "sequence_get";
    SEQUENCE_SET = "sequence_set";
    TALLY_ADD = "tally_add";
    TALLY_ALL = "tally_all";
    TALLY_CLEAR = "tally_clear";
    TALLY_COUNTED = "tally_counted";
    TEND_BROADCASTS = "tend_broadcasts";
    TEND_KEYS = "tend_keys";
    WORKERS = "workers";
    WORKER_FIND = "worker_find";
    WORKER_NAME = "worker_name";
    WORKER_SWEEP_BEGIN = "worker_sweep_begin";
    WORKER_SWEEP_END = "worker_sweep_end";
    WORKER_SWEEP_TASKS = "worker_sweep_tasks";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rusqlite::StatementStatus;

    use super::*;
    use crate::sqlite::{SqliteOptions, connection, migrate};

    fn migrated() -> rusqlite::Connection {
        let mut connection = connection::open_writer(&SqliteOptions::in_memory()).unwrap();
        migrate::migrate(&mut connection).unwrap();
        connection
    }

    /// How SQLite means to carry a statement out.
    fn plan(connection: &rusqlite::Connection, text: &str) -> String {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
        let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
        let params = rusqlite::params_from_iter(nulls);
        let lines = statement.query_map(params, |row| row.get::<_, String>(3)).unwrap();
        lines.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
    }

    #[test]
    fn every_statement_prepares_against_the_schema() {
        let connection = migrated();
        for (name, text) in ALL {
            connection.prepare(text).unwrap_or_else(|error| panic!("{name}.sql: {error}"));
        }
    }

    #[test]
    fn every_file_is_a_statement_and_every_statement_a_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sql/sqlite");
        let files: BTreeSet<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let named: BTreeSet<_> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(files, named);
    }

    /// Statements that must not slow down as the file grows, and what they walk along.
    const HOT: &[(&str, &str)] = &[
        (CLAIM, "task_pending"),
        (CLAIM_PROBE, "task_pending"),
        (CLAIM_SIZES, "task_pending"),
        (QUEUE_OLDEST, "task_pending"),
        (PROMOTE, "task_due"),
        (PROMOTE_NEXT, "task_due"),
        (PRUNE, "task_expiring"),
        (PRUNE_NEXT, "task_expiring"),
        (ROWS_OF_WORKER, "task_running"),
        (EXPIRE_ORPHANS, "task_running"),
        (EXPIRE_NEXT, "worker_alive"),
        (EXPIRE_WORKERS, "worker_alive"),
        (PAUSES, "queue_paused"),
        (PAUSE_LAST, "queue_paused"),
        (ROW_BY_ID, "task_id"),
        (LIST_STATE, "task_rare"),
    ];

    #[test]
    fn hot_statements_are_prepared_once_whatever_values_they_are_given() {
        let connection = migrated();
        for (text, _) in HOT {
            let mut statement = connection.prepare(text).unwrap();
            for value in 0..3_i64 {
                let values = vec![value; statement.parameter_count()];
                let mut rows = statement.query(rusqlite::params_from_iter(values)).unwrap();
                while rows.next().unwrap().is_some() {}
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{text}");
        }
    }

    #[test]
    fn hot_statements_walk_the_index_made_for_them() {
        let connection = migrated();
        for (text, index) in HOT {
            let plan = plan(&connection, text);
            assert!(plan.contains(index), "not by {index}:\n{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "sorts:\n{plan}");
        }
    }
}
