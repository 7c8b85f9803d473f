//! Who calls: settled by the gate before a handler runs, and asked by it what concerns queues.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use windlass_core::store::{Filter, GetParams, Parts as TaskParts};
use windlass_core::{Error, QueueName, TaskId};

use super::token::{Glob, Scope, Token};
use crate::app::Shared;
use crate::problem::{Outcome, Problem, Slug};

/// How a request came here; rides on it. One without was let in by nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// From this process: whoever can open the store may do everything in it anyway.
    Operator,
    /// Through a socket that asks for a token as soon as there is one in the store.
    Open,
    /// Through a socket that always asks for a token.
    Closed,
}

/// Who calls; rides on the request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// The operator, or whoever can reach a server that asks for no token.
    Local,
    /// Who has this token.
    Token(Arc<Token>),
}

impl Caller {
    /// Its name in timelines and in the audit.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Local => "local".into(),
            Self::Token(token) => format!("token {} ({})", token.id, token.name),
        }
    }

    /// The id of its token; nothing where it has none.
    pub(crate) fn token_id(&self) -> &str {
        match self {
            Self::Local => "",
            Self::Token(token) => &token.id,
        }
    }

    /// The problem of a token without this scope.
    pub(super) fn check_scope(&self, scope: Scope) -> Outcome<()> {
        match self {
            Self::Token(token) if !token.has(scope) => {
                let text = format!("this needs a token with the scope {scope}");
                Err(Problem::new(Slug::Forbidden, text))
            }
            Self::Token(_) | Self::Local => Ok(()),
        }
    }

    /// True when there are queues that it may not see.
    pub(crate) fn is_limited(&self) -> bool {
        match self {
            Self::Local => false,
            Self::Token(token) => !token.queues.is_empty(),
        }
    }

    /// The patterns of the queues that it may see; nothing where these are all.
    pub(crate) fn patterns(&self) -> Option<String> {
        match self {
            Self::Token(token) if !token.queues.is_empty() => {
                Some(token.queues.iter().map(Glob::as_str).collect::<Vec<_>>().join(","))
            }
            Self::Token(_) | Self::Local => None,
        }
    }

    /// True for a queue that it may see.
    pub(crate) fn reaches(&self, queue: &QueueName) -> bool {
        match self {
            Self::Local => true,
            Self::Token(token) => token.reaches(queue.as_str()),
        }
    }

    /// The problem of a queue that it may not see.
    pub(crate) fn check_queue(&self, queue: &QueueName) -> Outcome<()> {
        if self.reaches(queue) {
            return Ok(());
        }
        Err(Problem::new(Slug::Forbidden, "this token is for other queues"))
    }

    /// The problem of a filter that may find tasks of queues that it may not see.
    pub(crate) fn check_filter(&self, filter: &Filter) -> Outcome<()> {
        match &filter.queue {
            Some(queue) => self.check_queue(queue),
            None if self.is_limited() => {
                let text = "this token is for some queues only: name one of them as queue";
                Err(Problem::new(Slug::Forbidden, text))
            }
            None => Ok(()),
        }
    }

    /// The problem of tasks that are in queues that it may not see. Those that are not there are fine.
    pub(crate) async fn check_tasks(&self, shared: &Shared, ids: &[TaskId]) -> Outcome<()> {
        if !self.is_limited() {
            return Ok(());
        }
        let params = GetParams { ids: ids.to_vec(), parts: TaskParts::NONE };
        let found = shared.store().get(params).await?;
        found.into_iter().flatten().try_for_each(|task| self.check_queue(&task.queue))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Outcome<Self> {
        let nobody = || Error::internal("a request reached its handler without passing the gate");
        Ok(parts.extensions.get::<Self>().cloned().ok_or_else(nobody)?)
    }
}
