//! Judges a database by what asynq takes for granted: each task in exactly one place, with its hash; each
//! running one with its lease; no lock without an owner; groups known; counters that add up.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::dump::{Content, Dump};
use super::keys::{Keys, QUEUES};
use super::message::TaskMessage;

/// Where a task may lie, apart from groups; also the state that its hash then has.
const PLACES: [&str; 6] = ["pending", "active", "scheduled", "retry", "archived", "completed"];
/// Further keys of a queue.
const OTHERS: [&str; 6] = ["lease", "paused", "groups", "aggregation_sets", "processed", "failed"];

/// Requires a database to be as asynq takes for granted.
pub fn assert_sound(dump: &Dump, when: &str) {
    let complaints = complaints(dump);
    assert!(complaints.is_empty(), "{when}: {complaints:#?}");
}

/// Everything that is not as asynq takes for granted.
pub fn complaints(dump: &Dump) -> Vec<String> {
    let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut complaints = Vec::new();
    for key in dump.0.keys().filter(|key| key.starts_with("asynq:{")) {
        match key["asynq:{".len()..].split_once("}:") {
            Some((queue, part)) => parts.entry(queue).or_default().push(part),
            None => complaints.push(format!("{key} belongs to no queue")),
        }
    }
    let known = dump.members(QUEUES);
    for (queue, parts) in parts {
        if !known.iter().any(|name| name == queue) {
            complaints.push(format!("queue {queue} is not in {QUEUES}"));
        }
        let mut judge = Judge { dump, queue, keys: Keys::of(queue), complaints: &mut complaints };
        judge.queue(&parts);
    }
    complaints
}

struct Judge<'a> {
    dump: &'a Dump,
    queue: &'a str,
    keys: Keys,
    complaints: &'a mut Vec<String>,
}

impl Judge<'_> {
    fn complain(&mut self, text: String) {
        self.complaints.push(format!("{}: {text}", self.queue));
    }

    fn queue(&mut self, parts: &[&str]) {
        let homes = self.homes(parts);
        for (id, places) in &homes {
            match places.as_slice() {
                [place] => self.task(id, place),
                several => self.complain(format!("{id} lies in {several:?}")),
            }
        }
        for id in parts.iter().filter_map(|part| part.strip_prefix("t:")) {
            if !homes.contains_key(id) {
                self.complain(format!("{id} has a hash and lies nowhere"));
            }
        }
        let active: BTreeSet<_> = self.dump.members(&self.keys.key("active")).into_iter().collect();
        let leased: BTreeSet<_> = self.dump.members(&self.keys.key("lease")).into_iter().collect();
        for id in active.symmetric_difference(&leased) {
            self.complain(format!("{id} is active or leased, but not both"));
        }
        self.locks(parts);
        self.counters(parts);
        self.strangers(parts);
    }

    /// Where each task lies, as often as it lies there; groups as `g:` and their name.
    fn homes(&mut self, parts: &[&str]) -> BTreeMap<String, Vec<String>> {
        let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let sets = self.dump.members(&self.keys.key("aggregation_sets"));
        let groups = self.dump.members(&self.keys.key("groups"));
        let grouped: Vec<_> = parts.iter().filter(|part| part.starts_with("g:")).collect();
        for part in PLACES.iter().chain(grouped.iter().copied()) {
            let key = self.keys.key(part);
            if part.starts_with("g:") && !sets.contains(&key) {
                let name = part["g:".len()..].to_owned();
                if !groups.contains(&name) {
                    self.complain(format!("group {name} is not in groups"));
                }
            }
            for id in self.dump.members(&key) {
                homes.entry(id).or_default().push((*part).to_owned());
            }
        }
        for name in groups {
            if self.dump.members(&self.keys.group(&name)).is_empty() {
                self.complain(format!("group {name} is in groups and has no tasks"));
            }
        }
        for set in sets {
            if self.dump.members(&set).is_empty() {
                self.complain(format!("{set} is in aggregation_sets and has no tasks"));
            }
        }
        homes
    }

    /// A task that lies in one place.
    fn task(&mut self, id: &str, place: &str) {
        let fields = self.dump.hash(&self.keys.task(id));
        let Some(message) = fields.get("msg") else {
            return self.complain(format!("{id} lies in {place} and has no message"));
        };
        let Ok(message) = TaskMessage::decode(message.as_slice()) else {
            return self.complain(format!("{id} has a message that Go cannot read"));
        };
        if message.id != id || message.queue != self.queue {
            let (other, queue) = (&message.id, &message.queue);
            self.complain(format!("{id} has the message of {other} in {queue}"));
        }
        if message.timeout == 0 && message.deadline == 0 {
            self.complain(format!("{id} has neither timeout nor deadline"));
        }
        let state = fields.get("state").map(|state| String::from_utf8_lossy(state).into_owned());
        let expected = if place.starts_with("g:") { "aggregating" } else { place };
        if state.as_deref() != Some(expected) {
            self.complain(format!("{id} lies in {place} and says {state:?}"));
        }
        // The inspector archives without a thought of it.
        let may_be_pending = ["pending", "archived"].contains(&place);
        if !may_be_pending && fields.contains_key("pending_since") {
            self.complain(format!("{id} lies in {place} and is pending since some time"));
        }
        if place.starts_with("g:") && !fields.contains_key("group") {
            self.complain(format!("{id} lies in {place} and names no group"));
        }
    }

    fn locks(&mut self, parts: &[&str]) {
        for part in parts.iter().filter(|part| part.starts_with("unique:")) {
            let Some(Content::Text(owner)) = self.dump.0.get(&self.keys.key(part)) else {
                self.complain(format!("{part} is no lock"));
                continue;
            };
            let owner = String::from_utf8_lossy(owner).into_owned();
            let fields = self.dump.hash(&self.keys.task(&owner));
            let Some(message) = fields.get("msg") else {
                self.complain(format!("{part} is held by {owner}, which is gone"));
                continue;
            };
            let named = TaskMessage::decode(message.as_slice()).unwrap_or_default().unique_key;
            if named != self.keys.key(part) {
                self.complain(format!("{part} is held by {owner}, which does not know of it"));
            }
        }
    }

    fn counters(&mut self, parts: &[&str]) {
        let [processed, failed] = ["processed", "failed"].map(|counter| {
            let total = self.dump.number(&self.keys.key(counter));
            let prefix = format!("{counter}:");
            let days = parts.iter().filter(|part| part.starts_with(&prefix));
            let sum: i64 = days.map(|part| self.dump.number(&self.keys.key(part))).sum();
            if sum != total {
                self.complain(format!("{counter} is {total}, its days come to {sum}"));
            }
            total
        });
        if failed > processed {
            self.complain(format!("{failed} failed of {processed} processed"));
        }
    }

    /// Keys that asynq would not know what to do with.
    fn strangers(&mut self, parts: &[&str]) {
        let prefixes = ["t:", "g:", "unique:", "processed:", "failed:"];
        for part in parts {
            let is_known = PLACES.contains(part)
                || OTHERS.contains(part)
                || prefixes.iter().any(|prefix| part.starts_with(prefix));
            if !is_known {
                self.complain(format!("{part} is no key of asynq"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asynq::fixture;

    /// Spoils what a real asynq wrote; exactly one complaint with these words must come of it.
    fn check(words: &str, spoil: impl FnOnce(&mut BTreeMap<String, Content>)) {
        let mut dump = fixture::dump();
        spoil(&mut dump.0);
        let found = complaints(&dump);
        let is_found = found.iter().any(|complaint| complaint.contains(words));
        assert!(is_found, "{words:?} is not among {found:#?}");
    }

    fn remove(key: &str) -> impl FnOnce(&mut BTreeMap<String, Content>) {
        let key = key.to_owned();
        move |keys| assert!(keys.remove(&key).is_some(), "{key}")
    }

    fn set(key: &str, content: Content) -> impl FnOnce(&mut BTreeMap<String, Content>) {
        let key = key.to_owned();
        move |keys| drop(keys.insert(key, content))
    }

    #[test]
    fn what_a_real_asynq_wrote_is_sound() {
        assert_sound(&fixture::dump(), "the fixture");
    }

    #[test]
    fn each_defect_is_found() {
        let text = |text: &str| Content::Text(text.into());
        let list = |ids: &[&str]| Content::List(ids.iter().map(ToString::to_string).collect());
        check("active-1 lies in active and has no message", remove("asynq:{work}:t:active-1"));
        check("active-1 is active or leased, but not both", remove("asynq:{work}:lease"));
        check("active-1 is active or leased, but not both", remove("asynq:{work}:active"));
        check("active-1 has a hash and lies nowhere", remove("asynq:{work}:active"));
        check("group digest-7 is not in groups", remove("asynq:{default}:groups"));
        check("group digest-7 is in groups and has no", remove("asynq:{default}:g:digest-7"));
        check("queue low is not in", set(QUEUES, Content::Set(BTreeSet::new())));
        check("held by gone, which is gone", set("asynq:{low}:unique:kind:", text("gone")));
        check(
            "processed is 3, its days come to 4",
            set("asynq:{work}:processed:2026-11-16", text("1")),
        );
        check("9 failed of 3 processed", set("asynq:{work}:failed", text("9")));
        check("wl is no key of asynq", set("asynq:{work}:wl", text("9")));
        let twice = list(&["pending-2", "pending-2"]);
        check(
            "pending-2 lies in [\"pending\", \"pending\"]",
            set("asynq:{critical}:pending", twice),
        );
        let moved = Content::Scores([("pending-2".to_owned(), 1.0)].into());
        check("pending-2 lies in [\"pending\", \"retry\"]", set("asynq:{critical}:retry", moved));
        check("pending-2 lies in active and says", |keys| {
            let pending = keys.remove("asynq:{critical}:pending").unwrap();
            keys.insert("asynq:{critical}:active".into(), pending);
        });
    }
}
