//! Documents in PostgreSQL.

use tokio_postgres::Row as SqlRow;
use windlass_core::store::{DocQuery, Document, SaveDoc, Saved};
use windlass_core::{Result, Timestamp};

use super::session::Session;
use super::sql;

pub(super) async fn load(session: &Session, query: &DocQuery) -> Result<Vec<Document>> {
    let rows = match query {
        DocQuery::One { class, key } => session.all(sql::LOAD_ONE, &[class, key]).await?,
        DocQuery::Class { class, after, limit } => {
            let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
            session.all(sql::LOAD_CLASS, &[class, after, &limit]).await?
        }
    };
    Ok(rows.iter().map(read).collect())
}

/// Writes or removes a document; inside a transaction.
pub(super) async fn save(session: &Session, save: &SaveDoc, now: Timestamp) -> Result<Saved> {
    session.all(sql::SAVE_LOCK, &[&save.class, &save.key]).await?;
    let present = session.one(sql::LOAD_ONE, &[&save.class, &save.key]).await?;
    let present = present.map(|row| row.get::<_, i64>(2).unsigned_abs());
    if present != save.expected {
        return Ok(Saved::Outdated(present));
    }
    let Some(body) = &save.body else {
        session.execute(sql::SAVE_REMOVE, &[&save.class, &save.key]).await?;
        return Ok(Saved::Done(None));
    };
    let version = present.unwrap_or(0) + 1;
    let stored = i64::try_from(version).unwrap_or(i64::MAX);
    session.execute(sql::SAVE, &[&save.class, &save.key, &stored, body, &now.as_millis()]).await?;
    Ok(Saved::Done(Some(version)))
}

fn read(row: &SqlRow) -> Document {
    Document {
        class: row.get(0),
        key: row.get(1),
        version: row.get::<_, i64>(2).unsigned_abs(),
        body: row.get(3),
        updated_at: Timestamp::from_millis(row.get(4)),
    }
}
