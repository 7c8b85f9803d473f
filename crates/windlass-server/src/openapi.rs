//! The OpenAPI 3.1 document, made of the table of routes, the forms that are read and the types that are
//! answered. Nothing in it is written twice, so nothing in it can be out of date.

pub(crate) mod call;
mod problems;
mod schema;

use std::collections::BTreeMap;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use self::call::{Answer, Call, Given, Takes};
use self::problems::Refusals;
use crate::access::Need;
use crate::body::BATCH_BYTES_MAX;
use crate::form::Entry;
use crate::routes::Route;
use crate::wire::words::ProblemForm;

const ABOUT: &str = "Tasks, queues, workers and dead letters of windlass, the same on every store.\n\n\
    Times are RFC 3339 in UTC with three decimals. Durations go in as `\"30s\"`, `\"7d\"`, `\"PT30S\"` or a \
    number of seconds, and come out as seconds. A field that is null counts as absent; parameters and fields \
    that are not listed are refused, with the nearest that exists. A list is `{data, next_cursor}`; a page may \
    be short, and only a null cursor is the end. Every failure is an RFC 9457 problem.\n\n\
    On loopback no token is asked for until one is made; from then on, and on every other address, each \
    request needs one, with the scope that is told at each call.";

/// Where schemas are kept in the document.
const SCHEMAS: &str = "#/components/schemas";

/// The document of these routes.
pub(crate) fn document(routes: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
    });
    let mut builder = Builder {
        generator: settings.into_generator(),
        forms: Map::new(),
        refusals: Refusals::default(),
    };
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let operation = builder.operation(route);
        let method = route.method.as_str().to_ascii_lowercase();
        paths.entry(&route.path).or_default().insert(method, operation);
    }
    let Builder { mut generator, forms, refusals } = builder;
    generator.subschema_for::<ProblemForm>();
    let mut schemas = generator.take_definitions(true);
    schemas.extend(forms);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "windlass",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A task queue that starts with one command and does not lose a task",
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" }
        },
        "servers": [{ "url": "/" }],
        "tags": call::Group::ALL.map(|group| json!({ "name": group.name(), "description": group.about() })),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": refusals.into_responses(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`Authorization: Bearer wl_<id>_<secret>`"
                },
                "api_key": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-API-Key",
                    "description": "The same token in another header"
                }
            }
        }
    })
}

struct Builder {
    generator: SchemaGenerator,
    /// The schemas of what is sent.
    forms: Map<String, Value>,
    refusals: Refusals,
}

impl Builder {
    fn operation(&mut self, route: &Route) -> Value {
        let Route { call, need, .. } = route;
        let mut operation = json!({
            "operationId": route.operation_id(),
            "tags": [route.group().name()],
            "summary": call.summary,
            "responses": self.responses(route),
        });
        if !call.details.is_empty() {
            operation["description"] = call.details.into();
        }
        let parameters = self.parameters(call);
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = self.body(call) {
            operation["requestBody"] = body;
        }
        operation["security"] = security(*need);
        operation
    }

    fn parameters(&mut self, call: &Call) -> Vec<Value> {
        let mut parameters = Vec::new();
        let mut add = |place: &str, entry: &Entry| {
            let mut parameter = json!({
                "name": entry.name,
                "in": place,
                "description": entry.what,
                "schema": schema::parameter(&entry.sort),
            });
            if place == "path" {
                parameter["required"] = true.into();
            }
            parameters.push(parameter);
        };
        call.path.iter().for_each(|entry| add("path", entry));
        call.query.iter().copied().flatten().for_each(|entry| add("query", entry));
        call.headers.iter().for_each(|entry| add("header", entry));
        parameters
    }

    fn body(&mut self, call: &Call) -> Option<Value> {
        let (content, is_required) = match call.takes {
            Takes::Nothing => return None,
            Takes::Empty => {
                let schema = json!({ "type": "object", "additionalProperties": false });
                (json!({ "application/json": { "schema": schema } }), false)
            }
            Takes::Json(form) => {
                let schema = schema::form(form, &mut self.forms);
                (json!({ "application/json": { "schema": schema } }), true)
            }
            Takes::Batch(form) => {
                // The answer tells of each whether it could be read: any list is taken.
                schema::form(form, &mut self.forms);
                let items = json!({
                    "description": format!("Each a `{}`; what is not is answered with its own problem.", form.name),
                });
                let list = json!({ "type": "array", "items": items });
                let lines = json!({
                    "type": "string",
                    "description": format!("A `{}` in each line, at most {BATCH_BYTES_MAX} bytes in all.", form.name),
                });
                let content = json!({
                    "application/json": { "schema": list },
                    "application/x-ndjson": { "schema": lines },
                });
                (content, true)
            }
        };
        Some(json!({ "required": is_required, "content": content }))
    }

    fn responses(&mut self, route: &Route) -> Map<String, Value> {
        let mut responses = Map::new();
        for Answer { status, what, given } in route.call.answers {
            let (media, schema) = match given {
                Given::Json(schema) => ("application/json", schema(&mut self.generator).to_value()),
                Given::Text(media) => (*media, json!({ "type": "string" })),
            };
            let mut response = json!({
                "description": what,
                "headers": problems::request_id(),
                "content": { media: { "schema": schema } },
            });
            if *status == 201 && route.call.has_location {
                response["headers"]["Location"] =
                    json!({ "description": "Where it is", "schema": { "type": "string" } });
            }
            responses.insert(status.to_string(), response);
        }
        for (status, reference) in self.refusals.of(route) {
            responses.insert(status.to_string(), reference);
        }
        responses
    }
}

/// A token of either sort; none where the server asks for none.
fn security(need: Need) -> Value {
    match need.scope() {
        None => json!([]),
        Some(scope) => json!([{ "bearer": [scope] }, { "api_key": [scope] }, {}]),
    }
}
