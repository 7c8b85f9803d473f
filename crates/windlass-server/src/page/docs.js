// The page at `/api/docs`: reads openapi.json and shows it. What it is told is set as text, never as markup.
"use strict";

const METHODS = ["get", "post", "delete"];
// Beyond this, a schema is told by its name only.
const DEPTH_MAX = 4;
const find = (id) => document.getElementById(id);
let api;

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

// Text with `code`, [links](to) and paragraphs.
function prose(text, tag) {
  return text.split("\n\n").map((paragraph) => {
    const made = element(tag);
    for (const piece of paragraph.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\))/)) {
      const link = /^\[`?([^\]`]+)`?\]\((\/[^)]*)\)$/.exec(piece);
      if (link) {
        const anchor = element("a", "", element("code", "", link[1]));
        anchor.href = link[2];
        made.append(anchor);
      } else if (piece.startsWith("`")) made.append(element("code", "", piece.slice(1, -1)));
      else made.append(piece);
    }
    return made;
  });
}

function resolve(thing) {
  if (!thing?.$ref) return thing;
  return thing.$ref.slice(2).split("/").reduce((at, name) => at[name], api);
}

const nameOf = (schema) => schema.$ref?.split("/").pop();

// What a schema is, in few words.
function sort(schema) {
  if (schema === true || schema === undefined || Object.keys(schema).length === 0) return "any JSON";
  const name = nameOf(schema);
  const inner = resolve(schema);
  if (inner.title) return inner.title;
  if (inner.enum) return inner.enum.map((word) => JSON.stringify(word)).join(" | ");
  if (inner.const !== undefined) return JSON.stringify(inner.const);
  if (name && inner.properties) return name;
  const ways = inner.anyOf || inner.oneOf;
  if (ways && !inner.properties) return [...new Set(ways.map(sort))].join(" | ");
  const types = [inner.type].flat().filter(Boolean);
  return types.map((type) => {
    if (type === "array") return `[${sort(inner.items)}]`;
    if (type === "object" && inner.additionalProperties?.type) return `{name: ${sort(inner.additionalProperties)}}`;
    if (type === "object" && inner.patternProperties) return "{name: integer}";
    if (inner.format === "date-time" && type === "string") return "time";
    if (inner.minimum !== undefined && inner.maximum !== undefined && type !== "null") {
      return `${type} ${inner.minimum}–${inner.maximum.toLocaleString("en")}`;
    }
    return type;
  }).join(" | ") || "any JSON";
}

// The fields of an object, and of what is in it.
function fields(schema, depth, isSent) {
  const inner = resolve(schema);
  if (!inner || depth > DEPTH_MAX) return null;
  if (inner.properties) {
    const list = element("div", "fields");
    for (const [name, field] of Object.entries(inner.properties)) {
      // That null counts as absent is said once, above.
      const told = isSent ? sort(field).replace(/ \| null$/, "") : sort(field);
      const line = element("div", "", element("code", "", name), " ", element("span", "sort", told));
      if (isSent && inner.required?.includes(name)) line.append(" ", element("span", "needed", "needed"));
      const about = field.description || resolve(field)?.description;
      if (about) line.append(" ", element("span", "", ...prose(about, "span")));
      const more = fields(field, depth + 1, isSent);
      if (more) line.append(more);
      list.append(line);
    }
    return list;
  }
  if (inner.items) return fields(inner.items, depth, isSent);
  for (const way of inner.anyOf || inner.oneOf || []) {
    const more = fields(way, depth, isSent);
    if (more) return more;
  }
  return null;
}

function foldedSchema(schema, isSent) {
  const inside = fields(schema, 0, isSent);
  if (!inside) return [element("span", "sort", sort(schema))];
  const folded = element("details", "schema", element("summary", "", sort(schema)), inside);
  folded.open = isSent;
  return [folded];
}

function table(rows) {
  const body = element("tbody", "", ...rows.map((cells) => element("tr", "", ...cells.map((cell) => {
    return element("td", "", ...[cell].flat());
  }))));
  return element("div", "wide", element("table", "", body));
}

// A value that fits, for an example.
function example(schema, name, depth) {
  const inner = resolve(schema);
  const known = {
    id: "ID", task_id: "ID", worker_id: "WORKER", epoch: "1", type: "email.send", queue: "mail", name: "ann", note: "halfway",
    key: "order-7", for: "1h", after: "30s", wait: "20s", error: "no such address", payload: { to: "ann@example.org" },
    ids: ["ID"], queues: ["mail"], scopes: ["read"], action: "cancel", retry_all: true, result: { sent: true },
    worker: { name: "mailer" },
  };
  if (name in known) return known[name];
  if (inner.enum) return inner.enum[0];
  const way = (inner.anyOf || [])[0];
  if (way && !inner.properties) return example(way, name, depth);
  if (inner.properties && depth < 3) return sample(inner, depth);
  const type = [inner.type].flat()[0];
  if (type === "array") return [example(inner.items, "", depth + 1)];
  if (type === "boolean") return true;
  if (type === "integer" || type === "number") return inner.minimum || 1;
  if (type === "object") return {};
  return inner.format === "date-time" ? "2030-01-31T12:00:00Z" : "text";
}

// The fields that tell the most: those that are needed, else the usual ones.
function sample(schema, depth) {
  const usual = ["type", "payload", "queue", "worker", "queues", "max", "wait", "results", "held", "for", "retry_all", "ids", "worker_id"];
  const needed = schema.required || [];
  const names = Object.keys(schema.properties).filter((name) => needed.includes(name) || usual.includes(name));
  const chosen = names.filter((name) => !(name === "for" && names.includes("action")));
  return Object.fromEntries(chosen.map((name) => [name, example(schema.properties[name], name, depth + 1)]));
}

function curl(method, path, operation) {
  const url = `${location.origin}${path.replace("{queue}", "mail").replace("{slug}", "not-found").replace("{id}", "ID")}`;
  const words = ["curl -s"];
  if (method !== "get" && !(method === "post" && operation.requestBody?.required)) words.push(`-X ${method.toUpperCase()}`);
  words.push(url);
  let text = words.join(" ");
  if (operation.security.length > 0) text += " \\\n  -H \"authorization: Bearer $WINDLASS_TOKEN\"";
  const schema = operation.requestBody?.required && operation.requestBody.content["application/json"].schema;
  if (schema) {
    const inner = resolve(schema);
    const body = inner.properties ? sample(inner, 0) : [sample(api.components.schemas.Submit, 0)];
    text += ` \\\n  -H 'content-type: application/json' \\\n  -d '${JSON.stringify(body)}'`;
  }
  return element("pre", "", text);
}

function heading(text) {
  return element("h3", "", text);
}

function parameters(operation) {
  const rows = operation.parameters.map((parameter) => [
    parameter.name,
    element("span", "sort", parameter.in === "query" ? "query" : parameter.in),
    [...prose(parameter.description, "span"), " ", element("span", "sort", sort(parameter.schema))],
  ]);
  return [heading("Parameters"), table(rows)];
}

function answers(operation) {
  const rows = Object.entries(operation.responses).map(([status, reference]) => {
    const response = resolve(reference);
    const kind = status < 400 ? "good" : status < 500 ? "bad" : "fault";
    const content = Object.values(response.content)[0];
    const said = prose(response.description, "div");
    return [element("span", `status ${kind}`, status), status < 400 ? [...said, ...foldedSchema(content.schema, false)] : said];
  });
  return [heading("Answers"), table(rows)];
}

function inside(method, path, operation) {
  const parts = [];
  if (operation.description) parts.push(...prose(operation.description, "p"));
  const scope = operation.security[0] && Object.values(operation.security[0])[0][0];
  parts.push(element("p", "", ...(scope ? ["Needs a token with the scope ", element("span", "scope", scope), " where tokens are asked for."] : ["Needs no token."])));
  if (operation.parameters) parts.push(...parameters(operation));
  if (operation.requestBody?.required) {
    parts.push(heading("Body"));
    for (const [media, content] of Object.entries(operation.requestBody.content)) {
      const about = content.schema.items?.description || content.schema.description || "";
      parts.push(element("div", "", element("code", "", media), " ", ...foldedSchema(content.schema, true), ...prose(about, "div")));
    }
  }
  parts.push(...answers(operation), heading("Example"), curl(method, path, operation));
  return element("div", "inside", ...parts);
}

function call(method, path, operation) {
  const made = element("details", "call");
  made.id = operation.operationId;
  const shown = element("span", "path");
  for (const piece of path.split(/(\{[^}]+\})/)) shown.append(piece.startsWith("{") ? element("i", "", piece) : piece);
  const verb = method.toUpperCase();
  made.append(element("summary", "", element("span", `method ${verb}`, verb), shown, element("span", "says", operation.summary)));
  made.dataset.words = `${verb} ${path} ${operation.summary}`.toLowerCase();
  // Made when it is first opened: there are many.
  made.addEventListener("toggle", () => {
    if (made.open && made.children.length === 1) made.append(inside(method, path, operation));
  });
  return made;
}

function show() {
  find("version").textContent = `HTTP API · version ${api.info.version}`;
  find("about").append(...prose(api.info.description, "p"));
  for (const { name, description } of api.tags) {
    const group = element("section", "group", element("h2", "", name), element("p", "", description));
    const links = element("ul");
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const method of METHODS.filter((method) => methods[method]?.tags[0] === name)) {
        const operation = methods[method];
        group.append(call(method, path, operation));
        const link = element("a", "", operation.summary);
        link.href = `#${operation.operationId}`;
        links.append(element("li", "", link));
      }
    }
    find("groups").append(group);
    find("contents").append(element("h2", "", name), links);
  }
}

function openNamed() {
  const named = document.getElementById(location.hash.slice(1));
  if (named?.classList.contains("call")) {
    named.open = true;
    named.scrollIntoView();
  }
}

function search() {
  const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const group of document.querySelectorAll(".group")) {
    let inGroup = 0;
    for (const one of group.querySelectorAll(".call")) {
      one.hidden = !words.every((word) => one.dataset.words.includes(word));
      inGroup += one.hidden ? 0 : 1;
    }
    group.hidden = inGroup === 0;
    count += inGroup;
  }
  find("nothing").hidden = count > 0;
}

async function start() {
  try {
    api = await (await fetch("/api/v1/openapi.json")).json();
  } catch {
    find("about").textContent = "cannot reach the server";
    return;
  }
  show();
  openNamed();
  addEventListener("hashchange", openNamed);
  find("search").addEventListener("input", search);
}
start();
