//! Every path of the server and what answers it: one file for each group of routes.

mod bulk;
mod dlq;
mod pull;
mod queues;
mod root;
mod stats;
mod submit;
mod task;
mod tasks;
mod workers;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::routing::{get, post};
use windlass_core::limits::clip;

use crate::app::Shared;
use crate::problem::{Problem, Slug};

/// All routes.
pub(crate) fn all() -> Router<Shared> {
    let api = Router::new()
        .route("/tasks", get(tasks::list).post(submit::one))
        .route("/tasks/batch", post(submit::batch))
        .route("/tasks/bulk", post(bulk::change))
        .route("/tasks/count", get(tasks::count))
        .route("/tasks/{id}", get(task::show).delete(task::delete))
        .route("/tasks/{id}/events", get(task::events))
        .route("/tasks/{id}/cancel", post(task::cancel))
        .route("/tasks/{id}/retry", post(task::retry))
        .route("/tasks/{id}/snooze", post(task::snooze))
        .route("/queues", get(queues::list))
        .route("/queues/{queue}", get(queues::show))
        .route("/queues/{queue}/pause", post(queues::pause))
        .route("/queues/{queue}/resume", post(queues::resume))
        .route("/queues/{queue}/purge", post(queues::purge))
        .route("/workers", get(workers::list))
        .route("/workers/{id}", get(workers::show).delete(pull::leave))
        .route("/workers/{id}/heartbeat", post(pull::heartbeat))
        .route("/workers/{id}/pause", post(workers::pause))
        .route("/workers/{id}/resume", post(workers::resume))
        .route("/workers/{id}/drain", post(workers::drain))
        .route("/leases", post(pull::lease))
        .route("/results", post(pull::results))
        .route("/dlq", get(dlq::list).delete(dlq::purge))
        .route("/dlq/retry", post(dlq::retry))
        .route("/stats", get(stats::show));
    // The names that the first design document gave to some of these.
    let admin = Router::new()
        .route("/health", get(root::readyz))
        .route("/workers", get(workers::list))
        .route("/queues", get(queues::list))
        .route("/dlq", get(dlq::list).delete(dlq::purge))
        .route("/dlq/retry", post(dlq::retry));
    Router::new()
        .nest("/api/v1", api)
        .nest("/admin", admin)
        .route("/healthz", get(root::healthz))
        .route("/readyz", get(root::readyz))
        .route("/version", get(root::version))
        .route("/", get(root::page))
        .route("/page.css", get(root::css))
        .route("/page.js", get(root::js))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
}

/// Requests that wait: they see to it themselves that what they change is driven to its end, and stop
/// waiting when their client has gone.
const WAITING: [&str; 2] = ["/api/v1/leases", "/api/v1/results"];

/// True for a request that may be dropped at any time.
pub(crate) fn is_droppable(method: &Method, path: &str) -> bool {
    method.is_safe() || WAITING.contains(&path)
}

/// The name in a path, without its escapes.
struct Name(String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let unreadable = |_| Problem::new(Slug::NotFound, "the path is not valid text");
        let Path(name) = Path::from_request_parts(parts, state).await.map_err(unreadable)?;
        Ok(Self(name))
    }
}

async fn no_path(uri: Uri) -> Problem {
    Problem::new(Slug::NotFound, format!("no path {:?}", clip(uri.path(), 256)))
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    let text = format!("{} does not take {}", clip(uri.path(), 256), clip(method.as_str(), 32));
    Problem::new(Slug::MethodNotAllowed, text)
}
