//! The table of routes: none gets in without saying what it asks of its caller.

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware;
use axum::routing::{MethodRouter, delete, get, post};

use crate::access::Need;
use crate::access::gate::{self, Gate};
use crate::access::token::Scope;
use crate::app::Shared;

/// A route of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with names in braces for what varies.
    pub path: String,
    /// The scope that a token must have; none where no token is asked for.
    pub scope: Option<Scope>,
}

/// Routes as they come together.
pub(crate) struct Routes {
    shared: Shared,
    prefix: &'static str,
    router: Router<Shared>,
    table: Vec<Route>,
}

impl Routes {
    pub(super) fn new(shared: &Shared) -> Self {
        let (router, table) = (Router::new(), Vec::new());
        Self { shared: shared.clone(), prefix: "", router, table }
    }

    /// The paths that follow stand under this one.
    pub(super) fn under(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    pub(super) fn get<H: Handler<T, Shared>, T: 'static>(
        self,
        path: &str,
        need: Need,
        handler: H,
    ) -> Self {
        self.add(Method::GET, path, need, get(handler))
    }

    pub(super) fn post<H: Handler<T, Shared>, T: 'static>(
        self,
        path: &str,
        need: Need,
        handler: H,
    ) -> Self {
        self.add(Method::POST, path, need, post(handler))
    }

    pub(super) fn delete<H: Handler<T, Shared>, T: 'static>(
        self,
        path: &str,
        need: Need,
        handler: H,
    ) -> Self {
        self.add(Method::DELETE, path, need, delete(handler))
    }

    fn add(
        mut self,
        method: Method,
        path: &str,
        need: Need,
        handler: MethodRouter<Shared>,
    ) -> Self {
        let path = format!("{}{path}", self.prefix);
        let gate = Gate { shared: self.shared.clone(), need };
        let guarded = handler.route_layer(middleware::from_fn_with_state(gate, gate::pass));
        self.router = self.router.route(&path, guarded);
        self.table.push(Route { method, path, scope: need.scope() });
        self
    }

    /// What answers when no path, or no method of it, fits.
    pub(super) fn fallback<P, TP: 'static, M, TM: 'static>(
        mut self,
        no_path: P,
        no_method: M,
    ) -> Self
    where
        P: Handler<TP, Shared>,
        M: Handler<TM, Shared>,
    {
        self.router = self.router.fallback(no_path).method_not_allowed_fallback(no_method);
        self
    }

    /// The router, and the table of what is in it.
    pub(crate) fn build(self) -> (Router<Shared>, Vec<Route>) {
        (self.router, self.table)
    }
}
