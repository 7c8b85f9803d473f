//! A SQLite file beside the journals.

use std::path::Path;

use super::super::ground::Ground;

struct Sqlite {
    url: String,
}

pub(in super::super) fn lay(folder: &Path) -> Box<dyn Ground> {
    Box::new(Sqlite { url: format!("sqlite:{}", folder.join("tasks.db").display()) })
}

impl Ground for Sqlite {
    fn url(&self) -> String {
        self.url.clone()
    }
}
