//! Statements through a pooler that gives a connection for one transaction at a time.
//!
//! Nothing may be left in a session there, since the next transaction may meet another one: settings
//! are made for each transaction, and statements have no name. All of it travels in one packet, so
//! that it costs no round trip.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::session::Values;

/// How a transaction begins. What the server or the role has as the default may be another level: `SET LOCAL`
/// would come too late for the transaction that it is in.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

pub(super) struct Pooled {
    /// Makes the settings of a transaction.
    settings: String,
    is_in_transaction: AtomicBool,
    /// One statement with what belongs around it at a time.
    turn: Mutex<()>,
}

impl Pooled {
    /// Makes these settings (`SET …;`) for each transaction.
    pub(super) fn new(settings: &str) -> Self {
        let settings = settings.replace("SET ", "SET LOCAL ");
        Self { settings, is_in_transaction: AtomicBool::new(false), turn: Mutex::default() }
    }

    /// Begins a transaction and makes its settings.
    fn begin(&self, step: &str) -> String {
        format!("{step}; {}", self.settings)
    }

    /// Runs a statement and reads all of its rows.
    pub(super) async fn all(
        &self,
        client: &Client,
        text: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Error> {
        let typed = typed(text, values);
        self.around(client, client.query_typed(text, &typed)).await
    }

    /// Runs a statement; answers how many rows it changed.
    pub(super) async fn execute(
        &self,
        client: &Client,
        text: &str,
        values: Values<'_>,
    ) -> Result<u64, Error> {
        let typed = typed(text, values);
        self.around(client, client.execute_typed(text, &typed)).await
    }

    /// Begins, commits or rolls back; anything else is run as it is.
    pub(super) async fn control(&self, client: &Client, step: &str) -> Result<(), Error> {
        match step {
            step if step.starts_with("BEGIN") => {
                let step = if step == "BEGIN" { BEGIN } else { step };
                client.batch_execute(&self.begin(step)).await?;
                self.is_in_transaction.store(true, Ordering::Relaxed);
                Ok(())
            }
            "COMMIT" | "ROLLBACK" => {
                self.is_in_transaction.store(false, Ordering::Relaxed);
                client.batch_execute(step).await
            }
            step => client.batch_execute(step).await,
        }
    }

    /// Puts a transaction with its settings around a statement, unless there is one.
    async fn around<T>(
        &self,
        client: &Client,
        statement: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if self.is_in_transaction.load(Ordering::Relaxed) {
            return statement.await;
        }
        let _turn = self.turn.lock().await;
        let begin = self.begin(BEGIN);
        // Sent in this order, at once; after a failed statement the commit is a rollback.
        let (begun, answer, committed) = tokio::join!(
            biased;
            client.batch_execute(&begin),
            statement,
            client.batch_execute("COMMIT"),
        );
        begun?;
        let answer = answer?;
        committed.map(|()| answer)
    }
}

/// Values with the types that the statement gives them by its first cast of each.
fn typed<'v>(text: &str, values: Values<'v>) -> Vec<(&'v (dyn ToSql + Sync), Type)> {
    let of = |(at, value): (usize, &&'v (dyn ToSql + Sync))| (*value, type_of(text, at + 1));
    values.iter().enumerate().map(of).collect()
}

fn type_of(text: &str, number: usize) -> Type {
    let cast = format!("${number}::");
    let name = text.split(&cast).nth(1).unwrap_or_default();
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '[' && c != ']');
    match &name[..end.unwrap_or(name.len())] {
        "bool" => Type::BOOL,
        "int2" => Type::INT2,
        "int4" => Type::INT4,
        "int8" => Type::INT8,
        "text" => Type::TEXT,
        "bytea" => Type::BYTEA,
        "bool[]" => Type::BOOL_ARRAY,
        "int2[]" => Type::INT2_ARRAY,
        "int4[]" => Type::INT4_ARRAY,
        "int8[]" => Type::INT8_ARRAY,
        "text[]" => Type::TEXT_ARRAY,
        "bytea[]" => Type::BYTEA_ARRAY,
        _ => Type::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sql::TEXTS;
    use super::*;

    #[test]
    fn every_value_of_every_statement_has_a_type() {
        for text in TEXTS {
            let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("--")).collect();
            let body = lines.join("\n");
            for number in (1..=30).filter(|number| {
                let name = format!("${number}");
                body.match_indices(&name).any(|(at, _)| {
                    !body[at + name.len()..].starts_with(|c: char| c.is_ascii_digit())
                })
            }) {
                assert_ne!(type_of(&body, number), Type::UNKNOWN, "${number} in {text}");
            }
        }
    }
}
