//! Tokens: make one, see which there are, revoke one. The secret is told once, by the answer to its making.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use windlass_core::store::{DocQuery, SaveDoc, Saved};
use windlass_core::{Clock, SystemClock, Timestamp};

use super::Name;
use crate::access::Caller;
use crate::access::keyring;
use crate::access::token::{CLASS, Glob, Scope, Token, Wish};
use crate::app::Shared;
use crate::audit::{self, Deed};
use crate::body;
use crate::fields::{Field, MEMBERS_MAX, Object};
use crate::form::rule::given;
use crate::form::{Entry, Form, Sort, entry};
use crate::openapi::call::{Call, Group, Takes, answer};
use crate::problem::{Outcome, Problem, Slug};
use crate::query::RawQuery;
use crate::wire::words::Time;
use crate::wire::{Deleted, Json, List};

/// Most tokens, revoked ones included: all of them are in the memory of every server.
const TOKENS_MAX: usize = 1_000;
/// Most patterns of one token.
const QUEUES_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 64;

/// A token in an answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Token")]
struct Shown<'a> {
    id: &'a str,
    name: &'a str,
    #[schemars(with = "Vec<String>")]
    scopes: &'a [Scope],
    /// Only these; all when empty.
    #[schemars(with = "Vec<String>")]
    queues: &'a [Glob],
    rate: Option<u32>,
    #[schemars(with = "Time")]
    created_at: Timestamp,
    #[schemars(with = "Option<Time>")]
    revoked_at: Option<Timestamp>,
    /// The whole of it; told once.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

impl<'a> Shown<'a> {
    fn new(token: &'a Token, text: Option<&'a str>) -> Self {
        Self {
            id: &token.id,
            name: &token.name,
            scopes: &token.scopes,
            queues: &token.queues,
            rate: token.rate,
            created_at: token.created_at,
            revoked_at: token.revoked_at,
            token: text,
        }
    }
}

const TOKEN_ID: [Entry; 1] = [entry("id", Sort::Text, "The id of a token")];
const PURGE: [Entry; 1] = [entry("purge", Sort::Flag, "Also forgets that there was one")];

/// A token to make.
const WISH: Form = Form::new(
    "TokenWish",
    &[
        entry("name", Sort::Plain, "For people, 1 to 64 bytes of plain text"),
        entry("scopes", Sort::List { of: &SCOPE, least: 1, most: MEMBERS_MAX }, "What it allows"),
        entry(
            "queues",
            Sort::List { of: &Sort::Glob, least: 1, most: QUEUES_MAX },
            "Only these; `*` stands for anything",
        ),
        entry(
            "rate",
            Sort::Count { least: 1, most: u32::MAX },
            "Requests a second; any number if absent",
        ),
    ],
)
.needs(&["name", "scopes"])
.with(|| {
    let is_admin = json!({ "properties": { "scopes": { "contains": { "const": "admin" } } } });
    vec![json!({ "not": { "allOf": [given(&["queues"]), is_admin] } })]
});
const SCOPE: Sort = Sort::OneOf(&["read", "submit", "work", "operate", "admin"]);

pub(super) const LIST: Call = Call {
    group: Group::Access,
    id: "list_tokens",
    summary: "List tokens, without their secrets",
    answers: &[answer::<List<Shown<'static>>>(200, "All tokens, revoked ones included")],
    ..Call::PLAIN
};

/// All tokens, by id; without their secrets and what the store keeps of those.
pub(super) async fn list(State(shared): State<Shared>, query: RawQuery) -> Outcome<Response> {
    query.none()?;
    let tokens = keyring::tokens(&**shared.store()).await?;
    let data = tokens.iter().flatten().map(|token| Shown::new(token, None)).collect();
    Ok(Json(StatusCode::OK, List::whole(data)).into_response())
}

pub(super) const CREATE: Call = Call {
    group: Group::Access,
    id: "create_token",
    summary: "Make a token; its text is told once",
    takes: Takes::Json(&WISH),
    answers: &[answer::<Shown<'static>>(201, "The token, with its text")],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// Makes a token.
pub(super) async fn create(
    State(shared): State<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(request, body::SINGLE_BYTES_MAX).await?;
    let wish = wish(Object::read(&body.bytes, &WISH)?)?;
    if keyring::tokens(&**shared.store()).await?.len() >= TOKENS_MAX {
        let text = format!("there are {TOKENS_MAX} tokens: remove some that are revoked");
        return Err(Problem::new(Slug::StateConflict, text));
    }
    let (token, text) = Token::make(wish, SystemClock.now())?;
    let (key, body) = (token.id.clone(), Some(token.body()));
    let save = SaveDoc { class: CLASS.into(), key, expected: None, body };
    if let Saved::Outdated(_) = shared.store().save(save).await? {
        return Err(Problem::new(Slug::StateConflict, "its id is taken; try again"));
    }
    shared.keyring().renew().await;
    let deed = Deed::to("token-create", format!("token {} ({})", token.id, token.name));
    audit::note(&shared, &caller, deed).await;
    Ok(Json(StatusCode::CREATED, Shown::new(&token, Some(&text))).into_response())
}

pub(super) const REVOKE: Call = Call {
    group: Group::Access,
    id: "revoke_token",
    summary: "Revoke a token",
    path: &TOKEN_ID,
    query: &[&PURGE],
    takes: Takes::Empty,
    answers: &[answer::<Revoked<'static>>(200, "The token, or that it is forgotten")],
    problems: &[Slug::StateConflict],
    ..Call::PLAIN
};

/// A token that is revoked, or forgotten.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "RevokedToken")]
enum Revoked<'a> {
    Shown(Shown<'a>),
    Deleted(Deleted<'a>),
}

/// Makes a token good for nothing; with `purge`, also forgets that there was one.
pub(super) async fn revoke(
    State(shared): State<Shared>,
    caller: Caller,
    Name(id): Name,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    let is_purge = query.read(REVOKE.query)?.flag("purge")?;
    body::none(request).await?;
    let one = DocQuery::One { class: CLASS.into(), key: id.clone() };
    let found = shared.store().load(one).await?.pop();
    let shown = windlass_core::limits::clip(&id, 64);
    let document =
        found.ok_or_else(|| Problem::new(Slug::NotFound, format!("no token {shown:?}")))?;
    let token = Token::read(&id, &document.body);
    let body = match (&token, is_purge) {
        (_, true) => None,
        (Ok(token), false) if token.revoked_at.is_some() => {
            let shown = Revoked::Shown(Shown::new(token, None));
            return Ok(Json(StatusCode::OK, shown).into_response());
        }
        (Ok(token), false) => Some(token.clone().revoked(SystemClock.now()).body()),
        (Err(error), false) => return Err(error.clone().into()),
    };
    let (class, expected) = (CLASS.into(), Some(document.version));
    let save = SaveDoc { class, key: id.clone(), expected, body: body.clone() };
    if let Saved::Outdated(_) = shared.store().save(save).await? {
        return Err(Problem::new(Slug::StateConflict, "somebody else changes it; try again"));
    }
    shared.keyring().renew().await;
    let action = if is_purge { "token-purge" } else { "token-revoke" };
    let name = token.map(|token| format!(" ({})", token.name)).unwrap_or_default();
    audit::note(&shared, &caller, Deed::to(action, format!("token {id}{name}"))).await;
    match body {
        Some(body) => {
            let token = Token::read(&id, &body)?;
            let shown = Revoked::Shown(Shown::new(&token, None));
            Ok(Json(StatusCode::OK, shown).into_response())
        }
        None => {
            let deleted = Revoked::Deleted(Deleted { id: &id, deleted: true });
            Ok(Json(StatusCode::OK, deleted).into_response())
        }
    }
}

fn wish(mut object: Object<'_>) -> Outcome<Wish> {
    let missing = |name| move || Problem::field(name, "is missing");
    let field = object.take("name").ok_or_else(missing("name"))?;
    let name = field.text()?;
    let is_plain = !name.chars().any(char::is_control) && name.trim() == name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_plain {
        return Err(field.refused(format!("a name has 1 to {NAME_BYTES_MAX} bytes of plain text")));
    }
    let field = object.take("scopes").ok_or_else(missing("scopes"))?;
    let mut scopes = field.list()?.iter().map(scope).collect::<Outcome<Vec<_>>>()?;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        return Err(field.refused("name at least one: read, submit, work, operate or admin"));
    }
    let mut queues = Vec::new();
    if let Some(field) = object.take("queues") {
        for item in field.list()? {
            queues.push(Glob::new(&item.text()?).map_err(|error| item.refused(error))?);
        }
        if queues.is_empty() || queues.len() > QUEUES_MAX {
            return Err(field.refused(format!("name 1 to {QUEUES_MAX}, or leave the field out")));
        }
        if scopes.contains(&Scope::Admin) {
            return Err(field.refused("a token with the scope admin is for all queues"));
        }
    }
    let rate = object.take("rate").map(|field| match field.count()? {
        0 => Err(field.refused("must be 1 or more; leave it out for no limit")),
        rate => Ok(rate),
    });
    Ok(Wish { name, scopes, queues, rate: rate.transpose()? })
}

fn scope(field: &Field<'_>) -> Outcome<Scope> {
    field.text()?.parse().map_err(|error| field.refused(error))
}
