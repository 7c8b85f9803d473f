//! What answers where there is no path: a problem with a hint, or a page for browsers.

use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use windlass_core::limits::clip;

use super::root::HTML;
use super::table::Route;
use crate::app::Shared;
use crate::problem::{Problem, Slug};

/// Where the API is.
const PREFIX: &str = "/api/v1";
/// Other places where people look for it.
const OTHER_PREFIXES: [&str; 4] = ["/api/v1", "/api", "/v1", ""];

pub(super) async fn no_path(
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.contains("text/html")) {
        let page = include_str!("../page/no-path.html");
        let head = [(CONTENT_TYPE, HTML), (CACHE_CONTROL, "no-cache"), (VARY, "accept")];
        return (StatusCode::NOT_FOUND, head, page).into_response();
    }
    let path = clip(uri.path(), 256);
    let text = match meant(path, shared.routes()) {
        Some(meant) => format!("no path {path:?}; did you mean {meant}?"),
        None => format!("no path {path:?}"),
    };
    Problem::new(Slug::NotFound, text).into_response()
}

/// The path of the API that ends as this one does.
fn meant(path: &str, routes: &[Route]) -> Option<String> {
    let path = path.trim_end_matches('/');
    let tails = OTHER_PREFIXES.iter().filter_map(|prefix| path.strip_prefix(prefix));
    let full = tails.map(|tail| format!("{PREFIX}{tail}"));
    full.into_iter().find(|full| routes.iter().any(|route| fits(&route.path, full)))
}

/// True for a path that a template such as `/api/v1/tasks/{id}` stands for.
fn fits(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(part), Some(word)) if part == word => {}
            (Some(part), Some(word)) if part.starts_with('{') && !word.is_empty() => {}
            (_, _) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_stands_for_paths_of_its_form() {
        assert!(fits("/api/v1/tasks", "/api/v1/tasks"));
        assert!(fits("/api/v1/tasks/{id}/cancel", "/api/v1/tasks/a/cancel"));
        assert!(!fits("/api/v1/tasks/{id}", "/api/v1/tasks"));
        assert!(!fits("/api/v1/tasks/{id}", "/api/v1/tasks/"));
        assert!(!fits("/api/v1/tasks", "/api/v1/tasks/a"));
    }
}
