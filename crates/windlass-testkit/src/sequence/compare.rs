//! Comparing everything that two stores show of themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_core::history::Entry;
use windlass_core::store::{
    AUDIT, Audit, DocQuery, Filter, GetParams, ListOrder, ListParams, Parts, QueueRecord,
    WorkerRecord,
};
use windlass_core::{Result, Store, TaskId, TaskRecord};

use super::side::{Agreed, Sides, same};
use super::step::{Pick, Step};

/// How long a lost worker is remembered for sure.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// Without queues that are empty: when these are forgotten is a store's own affair.
fn in_use(mut queues: Vec<QueueRecord>) -> Vec<QueueRecord> {
    queues.retain(|queue| queue.is_paused || queue.counts.total() > 0);
    queues
}

impl Sides {
    /// Compares every record, queue and worker.
    pub(super) async fn compare_all(&mut self) -> Agreed {
        self.compare_records().await?;
        let queues = in_use(self.store().queues().await.map_err(told)?);
        same("queues", queues, in_use(self.oracle.queues().await.map_err(told)?))?;
        self.compare_workers().await
    }

    /// Compares everything there is, before and after what is over is removed.
    pub(super) async fn compare_at_the_end(&mut self) -> Agreed {
        self.compare_lists(Filter::default()).await?;
        self.compare_documents().await?;
        self.take(Step::Sleep(REMEMBERED)).await?;
        self.take(Step::Seek(0)).await?;
        self.take(Step::Prune(Pick::Newest)).await?;
        self.take(Step::Expire(Pick::Newest)).await?;
        self.take(Step::Promote(Pick::Newest)).await?;
        self.compare_all().await?;
        self.compare_lists(Filter::default()).await
    }

    async fn compare_records(&mut self) -> Agreed {
        let params = GetParams { ids: self.ids(), parts: Parts::ALL };
        let subject = self.store().get(params.clone()).await.map_err(told)?;
        let oracle = self.oracle.get(params).await.map_err(told)?;
        same("records", subject.len(), oracle.len())?;
        for pair in subject.into_iter().zip(oracle) {
            match pair {
                (Some(subject), Some(oracle)) => self.compare_record(subject, oracle)?,
                (subject, oracle) => same("a record that one side has", subject, oracle)?,
            }
        }
        Ok(())
    }

    fn compare_record(&self, mut subject: TaskRecord, mut oracle: TaskRecord) -> Agreed {
        let id = subject.id.clone();
        let ours = self.translated(&subject);
        let theirs = oracle.history.entries().to_vec();
        same(&format!("the timeline of {id}"), ours, theirs)?;
        subject.epoch = subject.epoch.map(|epoch| self.translate(&id, epoch));
        subject.history = Default::default();
        oracle.history = Default::default();
        same("a record", subject, oracle)
    }

    /// The timeline of a record of the subject, in the oracle's epochs.
    fn translated(&self, record: &TaskRecord) -> Vec<Entry> {
        let mut entries = record.history.entries().to_vec();
        for run in entries.iter_mut().filter_map(|entry| entry.run.as_mut()) {
            run.epoch = self.translate(&record.id, run.epoch);
        }
        entries
    }

    async fn compare_workers(&mut self) -> Agreed {
        let subject = self.store().workers().await.map_err(told)?;
        let oracle = self.oracle.workers().await.map_err(told)?;
        let now = self.now().await;
        // One that is gone for longer may be forgotten or not.
        let remembered = |records: Vec<WorkerRecord>| -> Vec<_> {
            let recent =
                |record: &WorkerRecord| !record.is_gone || now.since(record.beat_at) < REMEMBERED;
            records.into_iter().filter(recent).collect()
        };
        same("workers", remembered(subject), remembered(oracle))
    }

    async fn now(&mut self) -> windlass_core::Timestamp {
        let inspection = self.oracle.inspect(windlass_core::store::Depth::Ping).await;
        inspection.unwrap().now
    }

    /// Compares what a walk through a list shows.
    pub(super) async fn compare_lists(&mut self, filter: Filter) -> Agreed {
        let subject = walk(&*self.store(), filter.clone()).await.map_err(told)?;
        let oracle = walk(&self.oracle, filter.clone()).await.map_err(told)?;
        let ids = |records: &[TaskRecord]| -> Vec<_> {
            records.iter().map(|record| record.id.clone()).collect()
        };
        let (ours, theirs) = (ids(&subject), ids(&oracle));
        match self.capabilities.list_order {
            ListOrder::NewestFirst => same(&format!("a list by {filter:?}"), ours, theirs)?,
            ListOrder::NewestReserved => {
                let reserved = self.ids();
                let place = |id: &TaskId| reserved.iter().position(|other| other == id);
                let mut theirs = theirs;
                theirs.sort_by_key(|id| std::cmp::Reverse(place(id)));
                same(&format!("a list by {filter:?}"), ours, theirs)?;
            }
            ListOrder::StateByState => {
                same("the length of a list", ours.len(), theirs.len())?;
                let set = |ids: Vec<_>| -> BTreeSet<_> { ids.into_iter().collect() };
                same(&format!("a list by {filter:?}"), set(ours), set(theirs))?;
            }
        }
        for record in subject {
            let expected = oracle.iter().find(|other| other.id == record.id);
            if let Some(expected) = expected {
                self.compare_record(record, expected.clone())?;
            }
        }
        Ok(())
    }

    async fn compare_documents(&mut self) -> Agreed {
        let query =
            |class: &str| DocQuery::Class { class: class.into(), after: None, limit: 10_000 };
        let settings = self.store().load(query("setting")).await.map_err(told)?;
        let expected = self.oracle.load(query("setting")).await.map_err(told)?;
        same("documents", settings, expected)?;
        let mut audits = audits(&*self.store(), query(AUDIT)).await.map_err(told)?;
        let mut expected = self::audits(&self.oracle, query(AUDIT)).await.map_err(told)?;
        if self.capabilities.list_order != ListOrder::NewestFirst {
            // Which tasks fall into which piece of a walk goes by the store's own order.
            (audits, expected) = (merged(audits), merged(expected));
        }
        same("the audit", audits, expected)
    }
}

/// The audit in the order of time; its keys are the store's own.
async fn audits(store: &dyn Store, query: DocQuery) -> Result<Vec<Audit>> {
    let documents = store.load(query).await?;
    let read = |body: &str| serde_json::from_str::<Audit>(body).unwrap();
    let mut audits: Vec<_> = documents.iter().map(|found| read(&found.body)).collect();
    audits.sort_by_key(|audit| (audit.at, audit.tasks.clone()));
    Ok(audits)
}

/// The audit of each instant as if all had been done in one call.
fn merged(audits: Vec<Audit>) -> Vec<Audit> {
    let mut merged: Vec<Audit> = Vec::new();
    for audit in audits {
        match merged.last_mut().filter(|last| last.at == audit.at) {
            Some(last) => {
                last.count += audit.count;
                last.tasks.extend(audit.tasks);
                last.tasks.sort();
            }
            None => merged.push(audit),
        }
    }
    for audit in &mut merged {
        audit.tasks.sort();
        // The oracle may have been told of the tasks that a filter had found, in place of the filter.
        audit.subject = None;
    }
    merged
}

pub(super) async fn walk(store: &dyn Store, filter: Filter) -> Result<Vec<TaskRecord>> {
    let mut params = ListParams { filter, limit: 3, cursor: None };
    let mut tasks = Vec::new();
    for _ in 0..10_000 {
        let page = store.list(params.clone()).await?;
        tasks.extend(page.tasks);
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            return Ok(tasks);
        }
    }
    panic!("the list does not come to an end");
}

fn told(error: windlass_core::Error) -> String {
    format!("a read failed: {error:?}")
}
