//! The table of routes: none gets in without saying what it asks of its caller, and what it does.

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware;
use axum::routing::{MethodRouter, delete, get, post};

use crate::access::Need;
use crate::access::gate::{self, Gate};
use crate::access::token::Scope;
use crate::app::Shared;
use crate::openapi::call::{Call, Group};

/// Where the names stand that the first design document gave to some calls.
pub(super) const ALIASES: &str = "/admin";

/// A route of the server.
#[derive(Clone)]
#[non_exhaustive]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with names in braces for what varies.
    pub path: String,
    /// The scope that a token must have; none where no token is asked for.
    pub scope: Option<Scope>,
    /// What it asks of its caller.
    pub(crate) need: Need,
    /// What it does, reads and answers.
    pub(crate) call: &'static Call,
    /// It is another name of a call.
    is_alias: bool,
}

impl Route {
    /// Its name in programs that are made from the document.
    pub(crate) fn operation_id(&self) -> String {
        if self.is_alias { format!("admin_{}", self.call.id) } else { self.call.id.to_owned() }
    }

    /// The calls among which it is described.
    pub(crate) fn group(&self) -> Group {
        if self.is_alias { Group::Aliases } else { self.call.group }
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({:?})", self.method, self.path, self.need)
    }
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
        call: &'static Call,
        handler: H,
    ) -> Self {
        self.add(Method::GET, path, need, call, get(handler))
    }

    pub(super) fn post<H: Handler<T, Shared>, T: 'static>(
        self,
        path: &str,
        need: Need,
        call: &'static Call,
        handler: H,
    ) -> Self {
        self.add(Method::POST, path, need, call, post(handler))
    }

    pub(super) fn delete<H: Handler<T, Shared>, T: 'static>(
        self,
        path: &str,
        need: Need,
        call: &'static Call,
        handler: H,
    ) -> Self {
        self.add(Method::DELETE, path, need, call, delete(handler))
    }

    fn add(
        mut self,
        method: Method,
        path: &str,
        need: Need,
        call: &'static Call,
        handler: MethodRouter<Shared>,
    ) -> Self {
        let path = format!("{}{path}", self.prefix);
        let gate = Gate { shared: self.shared.clone(), need };
        let guarded = handler.route_layer(middleware::from_fn_with_state(gate, gate::pass));
        self.router = self.router.route(&path, guarded);
        let is_alias = self.prefix == ALIASES;
        self.table.push(Route { method, path, scope: need.scope(), need, call, is_alias });
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
