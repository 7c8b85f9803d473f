//! Every path of the server and what answers it: one file for each group of routes.

mod audit;
mod bulk;
mod dlq;
mod docs;
mod events;
mod metrics;
mod no_path;
mod problems;
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

/// All routes, each with what it asks of its caller and a description, which stands beside its handler.
pub(crate) fn all(shared: &Shared) -> Routes {
    use Need::{Everywhere, InQueues, Meanwhile, Nothing};
    use Scope::{Admin, Operate, Read, Submit, Work};
    let routes = Routes::new(shared)
        .under("/api/v1")
        .get("/tasks", InQueues(Read), &tasks::LIST, tasks::list)
        .post("/tasks", InQueues(Submit), &submit::ONE, submit::one)
        .post("/tasks/batch", InQueues(Submit), &submit::BATCH, submit::batch)
        .post("/tasks/bulk", InQueues(Operate), &bulk::CHANGE, bulk::change)
        .get("/tasks/count", InQueues(Read), &tasks::COUNT, tasks::count)
        .get("/tasks/{id}", InQueues(Read), &task::SHOW, task::show)
        .delete("/tasks/{id}", InQueues(Operate), &task::DELETE, task::delete)
        .get("/tasks/{id}/events", InQueues(Read), &task::EVENTS, task::events)
        .post("/tasks/{id}/cancel", InQueues(Operate), &task::CANCEL, task::cancel)
        .post("/tasks/{id}/retry", InQueues(Operate), &task::RETRY, task::retry)
        .post("/tasks/{id}/snooze", InQueues(Operate), &task::SNOOZE, task::snooze)
        .get("/queues", InQueues(Read), &queues::LIST, queues::list)
        .get("/queues/{queue}", InQueues(Read), &queues::SHOW, queues::show)
        .post("/queues/{queue}/pause", InQueues(Operate), &queues::PAUSE, queues::pause)
        .post("/queues/{queue}/resume", InQueues(Operate), &queues::RESUME, queues::resume)
        .post("/queues/{queue}/purge", InQueues(Operate), &queues::PURGE, queues::purge)
        .get("/workers", Everywhere(Read), &workers::LIST, workers::list)
        .get("/workers/{id}", Everywhere(Read), &workers::SHOW, workers::show)
        .delete("/workers/{id}", InQueues(Work), &pull::LEAVE, pull::leave)
        .post("/workers/{id}/heartbeat", InQueues(Work), &pull::HEARTBEAT, pull::heartbeat)
        .post("/workers/{id}/pause", Everywhere(Operate), &workers::PAUSE, workers::pause)
        .post("/workers/{id}/resume", Everywhere(Operate), &workers::RESUME, workers::resume)
        .post("/workers/{id}/drain", Everywhere(Operate), &workers::DRAIN, workers::drain)
        .post("/leases", InQueues(Work), &pull::LEASE_CALL, pull::lease)
        .post("/results", InQueues(Work), &pull::RESULTS, pull::results)
        .get("/dlq", InQueues(Read), &dlq::LIST, dlq::list)
        .delete("/dlq", InQueues(Operate), &dlq::PURGE, dlq::purge)
        .post("/dlq/retry", InQueues(Operate), &dlq::RETRY, dlq::retry)
        .get("/events", InQueues(Read), &events::STREAM, events::stream)
        .get("/stats", Everywhere(Read), &stats::SHOW, stats::show)
        .get("/stats/timeseries", InQueues(Read), &stats::SERIES, stats::series)
        .get("/autoscale", InQueues(Read), &metrics::AUTOSCALE, metrics::autoscale)
        .get("/tokens", Everywhere(Admin), &tokens::LIST, tokens::list)
        .post("/tokens", Everywhere(Admin), &tokens::CREATE, tokens::create)
        .delete("/tokens/{id}", Everywhere(Admin), &tokens::REVOKE, tokens::revoke)
        .get("/audit", Everywhere(Admin), &audit::LIST, audit::list);
    // The names that the first design document gave to some of these.
    let routes = routes
        .under(table::ALIASES)
        .get("/health", Everywhere(Read), &root::READYZ, root::readyz)
        .get("/workers", Everywhere(Read), &workers::LIST, workers::list)
        .get("/queues", InQueues(Read), &queues::LIST, queues::list)
        .get("/dlq", InQueues(Read), &dlq::LIST, dlq::list)
        .delete("/dlq", InQueues(Operate), &dlq::PURGE, dlq::purge)
        .post("/dlq/retry", InQueues(Operate), &dlq::RETRY, dlq::retry);
    routes
        .under("")
        .get("/ws", InQueues(Read), &events::SOCKET, events::socket)
        .get("/metrics", Meanwhile(Read), &metrics::SHOW, metrics::show)
        .get("/api/v1/openapi.json", Nothing, &docs::OPENAPI, docs::openapi)
        .get("/api/docs", Nothing, &docs::PAGE, docs::page)
        .get("/api/docs.css", Nothing, &docs::CSS, docs::css)
        .get("/api/docs.js", Nothing, &docs::JS, docs::js)
        .get("/problems", Nothing, &problems::ALL, problems::all)
        .get("/problems/{slug}", Nothing, &problems::ONE, problems::one)
        .get("/healthz", Nothing, &root::HEALTHZ, root::healthz)
        .get("/readyz", Nothing, &root::READYZ, root::readyz)
        .get("/version", Nothing, &root::VERSION, root::version)
        .get("/", Nothing, &root::PAGE, root::page)
        .get("/page.css", Nothing, &root::CSS, root::css)
        .get("/page.js", Nothing, &root::JS, root::js)
        .fallback(no_path::no_path, no_method)
}

/// What a worker tells on a port of its own.
pub(crate) fn of_worker(shared: &Shared) -> Routes {
    Routes::new(shared)
        .get("/metrics", Need::Meanwhile(Scope::Read), &metrics::SHOW, metrics::show)
        .get("/healthz", Need::Nothing, &root::HEALTHZ, root::healthz)
        .get("/readyz", Need::Nothing, &root::READYZ, root::readyz)
        .get("/version", Need::Nothing, &root::VERSION, root::version)
        .fallback(no_path::no_path, no_method)
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

async fn no_method(method: Method, uri: Uri) -> Problem {
    let text = format!("{} does not take {}", clip(uri.path(), 256), clip(method.as_str(), 32));
    Problem::new(Slug::MethodNotAllowed, text)
}
