//! Who holds back the server's vacuum: transactions that stay open, prepared ones, replication slots.

use std::time::Duration;

use windlass_core::Result;
use windlass_core::store::{Finding, Severity};

use super::super::session::Session;
use super::super::sql;
use super::{finding, within_limits};

/// An open transaction that is older holds back vacuum for good.
const PROBLEM_S: i64 = 300;
/// Younger ones come and go; one that is still there after so long is held.
const HELD_S: i64 = 2;
/// How many are named.
const NAMED_MAX: usize = 5;

/// One of them, as the server shows it.
struct Holder {
    sort: String,
    who: String,
    age_s: Option<i64>,
    behind: Option<i64>,
    doing: Option<String>,
    /// Stays the same as long as the transaction does.
    number: Option<String>,
    is_ours: bool,
}

impl Holder {
    fn is_transaction(&self) -> bool {
        self.number.is_some()
    }

    /// True when a second look must tell whether it stays.
    fn may_pass(&self) -> bool {
        self.is_transaction() && self.age_s.is_none_or(|age_s| age_s < HELD_S)
    }
}

/// Whoever keeps dead rows from being cleared away: claims slow down behind it.
pub(super) async fn findings(session: &Session) -> Result<Vec<Finding>> {
    let mut holders = look(session).await?;
    if holders.iter().any(Holder::may_pass) {
        tokio::time::sleep(Duration::from_secs(HELD_S.unsigned_abs())).await;
        let later = look(session).await?;
        let is_same =
            |one: &Holder, other: &Holder| one.who == other.who && one.number == other.number;
        let stays = |one: &Holder| {
            !one.is_transaction() || holders.iter().any(|earlier| is_same(one, earlier))
        };
        holders = later.into_iter().filter(stays).collect();
    }
    Ok(holders.iter().take(NAMED_MAX).map(told).collect())
}

/// Each look is a transaction of its own: within one, the server shows the same again.
async fn look(session: &Session) -> Result<Vec<Holder>> {
    let rows = within_limits(session, session.all(sql::INSPECT_HOLDERS, &[])).await?;
    let read = |row: &tokio_postgres::Row| Holder {
        sort: row.get(0),
        who: row.get(1),
        age_s: row.get(2),
        behind: row.get(3),
        doing: row.get(4),
        number: row.get(5),
        is_ours: row.get(6),
    };
    Ok(rows.iter().map(read).collect())
}

fn told(holder: &Holder) -> Finding {
    let is_hidden = holder.is_transaction() && holder.age_s.is_none();
    let severity = match holder.age_s {
        Some(PROBLEM_S..) => Severity::Problem,
        _ => Severity::Warning,
    };
    let mut advice = match holder.sort.as_str() {
        "transaction" if holder.is_ours => {
            "it seems to be windlass's own, which end by themselves: look again in a minute".into()
        }
        "transaction" => String::from(
            "end it there, or `SELECT pg_terminate_backend(PID)`; \
             idle_in_transaction_session_timeout keeps such from staying",
        ),
        "prepared transaction" => "ROLLBACK PREPARED or COMMIT PREPARED it".into(),
        _ => "if no replica needs it: SELECT pg_drop_replication_slot(NAME)".into(),
    };
    if is_hidden {
        advice.push_str("; GRANT pg_read_all_stats to this role and it is told since when");
    }
    let age = match holder.age_s {
        Some(age_s) => format!(", open for {age_s} s"),
        None if is_hidden => format!(", open for {HELD_S} s or more"),
        None => String::new(),
    };
    let behind = holder.behind.map(|count| format!(", {count} transactions back"));
    let doing = holder.doing.as_deref().unwrap_or("what it does is hidden from this role");
    let (sort, who, behind) = (&holder.sort, &holder.who, behind.unwrap_or_default());
    let text = format!("a {sort} holds back vacuum: {who}{age}{behind}; {doing}");
    finding(severity, "vacuum", text, &advice)
}
