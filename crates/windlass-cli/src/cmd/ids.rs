//! Ids as people give them: whole, or the beginning or end of one.
//!
//! A whole id costs no look-up. Of a part, the newest tasks are searched, and all workers: a part that fits several is
//! refused with candidates, and one that fits none says how far was looked.

use serde_json::Value;

use crate::caller::{Caller, escaped};
use crate::exit::{Code, Done, Failure};
use crate::output::{List, values};
use crate::table::{grouped, plain};

/// Fewest characters of an id that are looked up.
const PART_CHARS_MIN: usize = 6;
/// Characters of a whole id of windlass.
const WHOLE_CHARS: usize = 36;
/// Tasks of one page, and pages that are searched.
const PAGE: usize = 500;
const PAGES_MAX: usize = 20;
/// Most ids that an error names.
const CANDIDATES_MAX: usize = 5;

/// The task that is meant.
pub(super) async fn task(caller: &Caller, given: &str) -> Done<String> {
    if !is_part(given) || has_task(caller, given).await? {
        return Ok(given.to_owned());
    }
    let (mut found, mut searched, mut cursor) = (Vec::new(), 0, None::<String>);
    for _ in 0..PAGES_MAX {
        let from = cursor.as_deref().map(|cursor| format!("&cursor={}", escaped(cursor)));
        let path = format!("/api/v1/tasks?limit={PAGE}{}", from.unwrap_or_default());
        let page: List = caller.get(&path).await?.read()?;
        let tasks = values(&page)?;
        searched += tasks.len();
        found.extend(fitting(&tasks, given));
        cursor = page.next_cursor;
        if cursor.is_none() || found.len() > CANDIDATES_MAX {
            break;
        }
    }
    let where_searched = match cursor {
        Some(_) => format!("the newest {} tasks", grouped(searched as u64)),
        None => String::from("all tasks"),
    };
    one("task", given, found, &where_searched)
}

/// Several tasks.
pub(super) async fn tasks(caller: &Caller, given: Vec<String>) -> Done<Vec<String>> {
    let mut whole = Vec::with_capacity(given.len());
    for id in given {
        whole.push(task(caller, &id).await?);
    }
    Ok(whole)
}

/// The worker that is meant.
pub(super) async fn worker(caller: &Caller, given: &str) -> Done<String> {
    if !is_part(given) {
        return Ok(given.to_owned());
    }
    let workers: List = caller.get("/api/v1/workers").await?.read()?;
    let workers = values(&workers)?;
    if workers.iter().any(|worker| worker["id"] == given) {
        return Ok(given.to_owned());
    }
    one("worker", given, fitting(&workers, given).collect(), "all workers")
}

/// True for what may be a part of an id: long enough, and shorter than an id.
fn is_part(given: &str) -> bool {
    let is_of_id = |c: char| c.is_ascii_hexdigit() || c == '-';
    (PART_CHARS_MIN..WHOLE_CHARS).contains(&given.len()) && given.chars().all(is_of_id)
}

/// True where the part is a whole id: tasks of other programs may have any.
async fn has_task(caller: &Caller, id: &str) -> Done<bool> {
    match caller.get(&format!("/api/v1/tasks/{}", escaped(id))).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.code == Code::NotFound => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The ids that begin or end as given.
fn fitting<'a>(items: &'a [Value], given: &str) -> impl Iterator<Item = String> + 'a {
    let given = given.to_ascii_lowercase();
    let ids = items.iter().filter_map(|item| item["id"].as_str());
    ids.filter(move |id| {
        let id = id.to_ascii_lowercase();
        id.starts_with(&given) || id.ends_with(&given)
    })
    .map(String::from)
}

fn one(what: &str, given: &str, mut found: Vec<String>, searched: &str) -> Done<String> {
    match found.len() {
        0 => {
            let text = format!("no {what} begins or ends with {given} among {searched}");
            Err(Failure::new(Code::NotFound, text))
        }
        1 => Ok(found.remove(0)),
        count => {
            let more = if count > CANDIDATES_MAX { ", …" } else { "" };
            let named: Vec<_> = found.iter().take(CANDIDATES_MAX).map(|id| plain(id)).collect();
            let text = format!("{given} fits several {what}s: {}{more}", named.join(", "));
            Err(Failure::usage(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_can_be_a_part_of_an_id_is_looked_up() {
        assert!(is_part("0190c8") && is_part("0000012c") && is_part("0190c8f0-1234"));
        assert!(!is_part("0190c"), "too short");
        assert!(!is_part("0190c8f0-1234-8000-8000-00000000012c"), "whole");
        assert!(!is_part("order:12345") && !is_part(""));
    }

    #[test]
    fn beginning_and_end_fit_and_the_middle_does_not() {
        let items = [json!({"id": "0190c8f0-12ab"}), json!({"id": "0190c8f0-34CD"})];
        assert_eq!(fitting(&items, "0190c8").count(), 2);
        assert_eq!(fitting(&items, "0-34cd").collect::<Vec<_>>(), ["0190c8f0-34CD"]);
        assert_eq!(fitting(&items, "c8f0-3").count(), 0);
    }

    #[test]
    fn a_part_that_fits_several_is_refused_with_candidates() {
        let found = |count: usize| (0..count).map(|number| format!("task-{number}")).collect();
        assert_eq!(one("task", "0190c8", found(1), "all tasks").unwrap(), "task-0");
        let none = one("task", "0190c8", found(0), "the newest 10,000 tasks").unwrap_err();
        assert_eq!(none.code, Code::NotFound);
        assert!(none.text.contains("newest 10,000"), "{none}");
        let many = one("task", "0190c8", found(6), "all tasks").unwrap_err();
        assert_eq!(many.code, Code::Usage);
        assert!(many.text.contains("task-4, …") && !many.text.contains("task-5"), "{many}");
    }
}
