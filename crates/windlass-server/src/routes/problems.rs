//! What each problem means and what to do about it: the page to which the `type` of a problem leads. Its text is
//! `docs/problems.md`.

use std::fmt::Write;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use windlass_core::limits::clip;

use super::Name;
use super::root::HTML;
use crate::form::{Entry, Sort, entry};
use crate::openapi::call::{Call, Group, page as shown};
use crate::problem::{Outcome, Problem, Slug};

const TEXT: &str = include_str!("problems.md");

const SLUG: [Entry; 1] = [entry("slug", Sort::Text, "The last part of the `type` of a problem")];

pub(super) const ALL: Call = Call {
    group: Group::Pages,
    id: "problems",
    summary: "What all problems mean",
    answers: &[shown("A page", HTML)],
    ..Call::PLAIN
};

pub(super) const ONE: Call = Call {
    group: Group::Pages,
    id: "problem",
    summary: "What a problem means, and what to do about it",
    path: &SLUG,
    answers: &[shown("A page", HTML)],
    ..Call::PLAIN
};

/// All problems.
pub(super) async fn all() -> Response {
    let each: String = slugs().iter().map(|slug| article(slug)).collect();
    page("Problems", &each)
}

/// One problem.
pub(super) async fn one(Name(name): Name) -> Outcome<Response> {
    let known = slugs().into_iter().find(|slug| *slug == name);
    let none = || Problem::new(Slug::NotFound, format!("no problem {:?}", clip(&name, 64)));
    Ok(page(&name, &article(known.ok_or_else(none)?)))
}

/// Every word once, in the order of the code.
fn slugs() -> Vec<&'static str> {
    let mut words: Vec<_> = Slug::ALL.iter().map(|slug| slug.as_str()).collect();
    words.dedup();
    words
}

fn page(title: &str, content: &str) -> Response {
    let page = include_str!("../page/problems.html");
    let page = page.replace("{title}", title).replace("{content}", content);
    ([(CONTENT_TYPE, HTML), (CACHE_CONTROL, "no-cache")], page).into_response()
}

/// A problem by its word: the facts from the code, the explanation from the text.
fn article(slug: &str) -> String {
    let mut html =
        format!("<article id=\"{slug}\"><h2><a href=\"/problems/{slug}\">{slug}</a></h2>");
    for known in Slug::ALL.iter().filter(|known| known.as_str() == slug) {
        let _ = write!(html, "<p class=\"fact\"><b>{}</b> {}</p>", known.status(), known.title());
    }
    for part in section(slug).unwrap_or_default().split("\n\n").map(str::trim) {
        if !part.is_empty() {
            let _ = write!(html, "<p>{}</p>", inline(part));
        }
    }
    html + "</article>"
}

/// What the text says of a problem.
fn section(slug: &str) -> Option<&'static str> {
    let (_, rest) = TEXT.split_once(&format!("\n## {slug}\n"))?;
    Some(rest.split("\n## ").next().unwrap_or(rest))
}

/// Code and links of a paragraph; everything else is text.
fn inline(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut html = String::new();
    for (at, piece) in escaped.split('`').enumerate() {
        let _ = if at % 2 == 1 {
            write!(html, "<code>{piece}</code>")
        } else {
            write!(html, "{}", without_links(piece))
        };
    }
    html
}

/// Pages that links name are not all served: their words stay.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let (words, after) = link.split_once("](").unwrap_or((link, ")"));
        plain.push_str(before);
        plain.push_str(words);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain.replace("**", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_explained_and_nothing_else() {
        let mut explained: Vec<_> =
            TEXT.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let mut known = slugs();
        explained.sort_unstable();
        known.sort_unstable();
        assert_eq!(explained, known);
        for slug in known {
            let text = section(slug).unwrap();
            assert!(text.contains("**What to do:**"), "{slug} has no advice");
        }
    }

    #[test]
    fn the_text_and_the_code_agree_on_the_statuses() {
        for slug in Slug::ALL {
            let status = slug.status().as_u16().to_string();
            let first = section(slug.as_str()).unwrap().trim().lines().next().unwrap();
            assert!(first.contains(&status), "{}: {first}", slug.as_str());
        }
    }

    #[test]
    fn a_page_shows_text_as_text() {
        assert_eq!(inline("a `<b>` [c](d.md) **e** & f"), "a <code>&lt;b&gt;</code> c e &amp; f");
    }
}
