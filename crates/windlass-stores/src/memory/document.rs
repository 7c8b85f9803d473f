//! Documents in memory.

use windlass_core::store::{DocQuery, Document, SaveDoc, Saved};

use super::model::Model;

impl Model {
    pub(super) fn load(&self, query: &DocQuery) -> Vec<Document> {
        match query {
            DocQuery::One { class, key } => {
                self.documents.get(&(class.clone(), key.clone())).cloned().into_iter().collect()
            }
            DocQuery::Class { class, after, limit } => {
                let start = (class.clone(), after.clone().unwrap_or_default());
                self.documents
                    .range(start..)
                    .map(|(_, document)| document)
                    .take_while(|document| document.class == *class)
                    .filter(|document| after.as_ref().is_none_or(|after| document.key > *after))
                    .take(*limit)
                    .cloned()
                    .collect()
            }
        }
    }

    pub(super) fn save(&mut self, save: SaveDoc) -> Saved {
        let slot = (save.class.clone(), save.key.clone());
        let present = self.documents.get(&slot).map(|document| document.version);
        if present != save.expected {
            return Saved::Outdated(present);
        }
        let Some(body) = save.body else {
            self.documents.remove(&slot);
            return Saved::Done(None);
        };
        let version = present.unwrap_or(0) + 1;
        let document =
            Document { class: save.class, key: save.key, version, body, updated_at: self.now() };
        self.documents.insert(slot, document);
        Saved::Done(Some(version))
    }
}
