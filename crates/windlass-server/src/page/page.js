// The page at `/`: asks once a second and shows what it is told. Names, payloads and errors may hold
// anything, so everything is set as text, never as markup.
"use strict";

const POLL_MS = 1000;
const PATIENCE_MS = 5000;
const STATES = ["scheduled", "pending", "running", "retrying", "completed", "dead_letter", "cancelled"];
// Kept as long as this tab is open, and out of reach of other tabs.
const TOKEN = "windlass-token";
const find = (id) => document.getElementById(id);

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  const answer = await response.text();
  if (response.status === 401) {
    // Another request may have asked already, or the token be a new one by now.
    if (token === sessionStorage.getItem(TOKEN)) sessionStorage.removeItem(TOKEN);
    askForToken(token !== null);
  }
  if (!response.ok) {
    let detail = `status ${response.status}`;
    try { detail = JSON.parse(answer).detail || detail; } catch { /* not one of our problems */ }
    throw new Told(detail);
  }
  return answer;
}

// The server answered, but not with what was asked for.
class Told extends Error {}

function askForToken(wasRefused) {
  if (find("login").open || sessionStorage.getItem(TOKEN) !== null) return;
  find("login-text").textContent = wasRefused ? "This token is not taken. Another?" : "This server asks for a token.";
  find("login").showModal();
}

function takeToken() {
  // What no header can hold is no token, and must not break every later request.
  const token = find("token").value.trim();
  find("token").value = "";
  if (!/^[\x21-\x7e]+$/.test(token)) return;
  sessionStorage.setItem(TOKEN, token);
  find("login").close();
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function row(...cells) {
  const made = element("tr");
  made.append(...cells);
  return made;
}

const number = (value) => element("td", value.toLocaleString("en"), "number");

function span(seconds) {
  if (seconds < 1) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function ago(time) {
  const text = span(Math.max(0, (Date.now() - Date.parse(time)) / 1000));
  return text === "now" ? text : `${text} ago`;
}

function stateClass(state) {
  return STATES.includes(state) ? `state ${state}` : "state";
}

function showStats(stats) {
  const { name, durability } = stats.store;
  const workers = stats.workers.live === 1 ? "1 worker" : `${stats.workers.live} workers`;
  const slots = `${stats.workers.slots_used} of ${stats.workers.slots} slots busy`;
  find("store").textContent = `${name} (${durability}) · ${workers}, ${slots}`;
  find("states").replaceChildren(...STATES.map((state) => {
    const item = element("li");
    const count = element("b", (stats.tasks.by_state[state] || 0).toLocaleString("en"));
    item.append(count, element("span", state.replace("_", " "), stateClass(state)));
    return item;
  }));
}

function showQueues(queues) {
  find("no-queues").hidden = queues.length > 0;
  find("queues").replaceChildren(...queues.map(({ name, paused, depth, oldest_age }) => row(
    element("td", name, paused ? "paused" : ""),
    number(depth.pending), number(depth.running), number(depth.scheduled + depth.retrying),
    number(depth.completed), number(depth.dead_letter),
    element("td", oldest_age === null ? "" : span(oldest_age), "number"),
  )));
}

function showTasks(tasks) {
  find("no-tasks").hidden = tasks.length > 0;
  // The row under the keyboard's focus is made anew each second: give the focus back to it.
  const focused = document.activeElement?.dataset?.task;
  find("tasks").replaceChildren(...tasks.map((task) => {
    const button = element("button", task.id.length > 18 ? `…${task.id.slice(-12)}` : task.id);
    button.type = "button";
    button.title = task.id;
    button.dataset.task = task.id;
    button.addEventListener("click", () => showTask(task.id));
    const cell = element("td");
    cell.append(button);
    return row(
      element("td", task.state.replace("_", " "), stateClass(task.state)),
      element("td", task.type), element("td", task.queue), cell,
      number(task.attempts + task.crashes), element("td", ago(task.updated_at), "number"),
    );
  }));
  if (focused !== undefined) {
    for (const button of find("tasks").querySelectorAll("button")) {
      if (button.dataset.task === focused) button.focus({ preventScroll: true });
    }
  }
}

// Breaks JSON into lines without reading the numbers in it, which could lose digits.
function pretty(json) {
  let text = "", depth = 0, inText = false;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (let at = 0; at < json.length; at += 1) {
    const letter = json[at];
    if (inText) {
      text += letter;
      if (letter === "\\") text += json[at += 1];
      else if (letter === '"') inText = false;
    } else if (letter === '"') { inText = true; text += letter; }
    else if ("{[".includes(letter)) {
      const isEmpty = "}]".includes(json[at + 1]);
      depth += 1;
      text += letter + (isEmpty ? "" : line());
    } else if ("}]".includes(letter)) {
      depth -= 1;
      text += ("{[".includes(json[at - 1]) ? "" : line()) + letter;
    } else if (letter === ",") text += letter + line();
    else if (letter === ":") text += ": ";
    else if (!/\s/.test(letter)) text += letter;
  }
  return text;
}

async function showTask(id) {
  find("task-title").textContent = id;
  find("task-json").textContent = "…";
  find("task").showModal();
  try {
    find("task-json").textContent = pretty(await ask(`/api/v1/tasks/${encodeURIComponent(id)}`));
  } catch (error) {
    find("task-json").textContent = error instanceof Told ? error.message : "cannot reach the server";
  }
}

function showHealth(text, isLive) {
  find("health").textContent = text;
  find("health").className = isLive ? "live" : "lost";
  document.body.classList.toggle("lost", !isLive);
}

async function poll() {
  try {
    const paths = ["/api/v1/stats", "/api/v1/queues", "/api/v1/tasks?limit=25"];
    const [stats, queues, tasks] = (await Promise.all(paths.map(ask))).map((json) => JSON.parse(json));
    showStats(stats);
    showQueues(queues.data);
    showTasks(tasks.data);
    showHealth("live", true);
  } catch (error) {
    showHealth(error instanceof Told ? error.message : "cannot reach the server", false);
  }
  setTimeout(poll, POLL_MS);
}

find("enter").addEventListener("click", takeToken);
find("token").addEventListener("keydown", (event) => {
  if (event.key === "Enter") takeToken();
});
find("close").addEventListener("click", () => find("task").close());
find("task").addEventListener("click", (event) => {
  if (event.target === find("task")) find("task").close();
});
poll();
