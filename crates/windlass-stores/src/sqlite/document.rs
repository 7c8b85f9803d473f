//! Documents in SQLite.

use rusqlite::{Connection, Row as SqlRow};
use windlass_core::store::{DocQuery, Document, SaveDoc, Saved};
use windlass_core::{Result, Timestamp};

use super::error::During;
use super::sql;
use super::transaction::Tx;

pub(super) fn load(connection: &Connection, query: &DocQuery) -> Result<Vec<Document>> {
    let name = "read documents";
    match query {
        DocQuery::One { class, key } => {
            let mut statement = connection.prepare_cached(sql::LOAD_ONE).during(name)?;
            let rows = statement.query_map((class, key), read).during(name)?;
            rows.collect::<rusqlite::Result<_>>().during(name)
        }
        DocQuery::Class { class, after, limit } => {
            let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(sql::LOAD_CLASS).during(name)?;
            let rows = statement.query_map((class, after, limit), read).during(name)?;
            rows.collect::<rusqlite::Result<_>>().during(name)
        }
    }
}

impl Tx<'_> {
    pub(super) fn save(&mut self, save: &SaveDoc) -> Result<Saved> {
        let present: Option<u64> =
            self.one(sql::LOAD_ONE, (&save.class, &save.key), |row| row.get(2))?;
        if present != save.expected {
            return Ok(Saved::Outdated(present));
        }
        let Some(body) = &save.body else {
            self.execute(sql::SAVE_REMOVE, (&save.class, &save.key))?;
            return Ok(Saved::Done(None));
        };
        let version = present.unwrap_or(0) + 1;
        let params = (&save.class, &save.key, version, body, self.now.as_millis());
        self.execute(sql::SAVE, params)?;
        Ok(Saved::Done(Some(version)))
    }
}

fn read(row: &SqlRow<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        class: row.get(0)?,
        key: row.get(1)?,
        version: row.get(2)?,
        body: row.get(3)?,
        updated_at: Timestamp::from_millis(row.get(4)?),
    })
}
