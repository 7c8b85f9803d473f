//! Every path of the server and what answers it: one file for each group of routes.

mod audit;
mod bulk;
mod dlq;
mod metrics;
mod pull;
mod queues;
mod root;
mod stats;
mod submit;
mod table;
mod task;
mod tasks;
mod tokens;
mod workers;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use windlass_core::limits::clip;

pub use table::Route;
pub(crate) use table::Routes;

use crate::access::Need;
use crate::access::token::Scope;
use crate::app::Shared;
use crate::problem::{Problem, Slug};

/// All routes, each with what it asks of its caller.
pub(crate) fn all(shared: &Shared) -> Routes {
    use Need::{Everywhere, InQueues, Nothing};
    use Scope::{Admin, Operate, Read, Submit, Work};
    let routes = Routes::new(shared)
        .under("/api/v1")
        .get("/tasks", InQueues(Read), tasks::list)
        .post("/tasks", InQueues(Submit), submit::one)
        .post("/tasks/batch", InQueues(Submit), submit::batch)
        .post("/tasks/bulk", InQueues(Operate), bulk::change)
        .get("/tasks/count", InQueues(Read), tasks::count)
        .get("/tasks/{id}", InQueues(Read), task::show)
        .delete("/tasks/{id}", InQueues(Operate), task::delete)
        .get("/tasks/{id}/events", InQueues(Read), task::events)
        .post("/tasks/{id}/cancel", InQueues(Operate), task::cancel)
        .post("/tasks/{id}/retry", InQueues(Operate), task::retry)
        .post("/tasks/{id}/snooze", InQueues(Operate), task::snooze)
        .get("/queues", InQueues(Read), queues::list)
        .get("/queues/{queue}", InQueues(Read), queues::show)
        .post("/queues/{queue}/pause", InQueues(Operate), queues::pause)
        .post("/queues/{queue}/resume", InQueues(Operate), queues::resume)
        .post("/queues/{queue}/purge", InQueues(Operate), queues::purge)
        .get("/workers", Everywhere(Read), workers::list)
        .get("/workers/{id}", Everywhere(Read), workers::show)
        .delete("/workers/{id}", InQueues(Work), pull::leave)
        .post("/workers/{id}/heartbeat", InQueues(Work), pull::heartbeat)
        .post("/workers/{id}/pause", Everywhere(Operate), workers::pause)
        .post("/workers/{id}/resume", Everywhere(Operate), workers::resume)
        .post("/workers/{id}/drain", Everywhere(Operate), workers::drain)
        .post("/leases", InQueues(Work), pull::lease)
        .post("/results", InQueues(Work), pull::results)
        .get("/dlq", InQueues(Read), dlq::list)
        .delete("/dlq", InQueues(Operate), dlq::purge)
        .post("/dlq/retry", InQueues(Operate), dlq::retry)
        .get("/stats", Everywhere(Read), stats::show)
        .get("/autoscale", InQueues(Read), metrics::autoscale)
        .get("/tokens", Everywhere(Admin), tokens::list)
        .post("/tokens", Everywhere(Admin), tokens::create)
        .delete("/tokens/{id}", Everywhere(Admin), tokens::revoke)
        .get("/audit", Everywhere(Admin), audit::list);
    // The names that the first design document gave to some of these.
    let routes = routes
        .under("/admin")
        .get("/health", Everywhere(Read), root::readyz)
        .get("/workers", Everywhere(Read), workers::list)
        .get("/queues", InQueues(Read), queues::list)
        .get("/dlq", InQueues(Read), dlq::list)
        .delete("/dlq", InQueues(Operate), dlq::purge)
        .post("/dlq/retry", InQueues(Operate), dlq::retry);
    routes
        .under("")
        .get("/metrics", Everywhere(Read), metrics::show)
        .get("/healthz", Nothing, root::healthz)
        .get("/readyz", Nothing, root::readyz)
        .get("/version", Nothing, root::version)
        .get("/", Nothing, root::page)
        .get("/page.css", Nothing, root::css)
        .get("/page.js", Nothing, root::js)
        .fallback(no_path, no_method)
}

/// What a worker tells on a port of its own.
pub(crate) fn of_worker(shared: &Shared) -> Routes {
    Routes::new(shared)
        .get("/metrics", Need::Everywhere(Scope::Read), metrics::show)
        .get("/healthz", Need::Nothing, root::healthz)
        .get("/readyz", Need::Nothing, root::readyz)
        .get("/version", Need::Nothing, root::version)
        .fallback(no_path, no_method)
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
