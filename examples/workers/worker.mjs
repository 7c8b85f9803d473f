// A windlass worker with nothing but Node 18 or newer:
// WINDLASS_URL=http://127.0.0.1:8080 node worker.mjs [QUEUE ...]
import { setTimeout as pause } from "node:timers/promises";

const url = (process.env.WINDLASS_URL ?? "http://127.0.0.1:8080") + "/api/v1";
const token = process.env.WINDLASS_TOKEN;
const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
const queues = process.argv.length > 2 ? process.argv.slice(2) : ["default"];
const slots = 10; // tasks at once

let worker; // our id, while the server knows us
let control = { state: "run", heartbeat: 5 };
let held = new Map(); // id -> { epoch, stop } of what runs here
const stopping = new AbortController();

const handlers = {
  echo: async (payload) => payload,
  sleep: async ({ ms }, signal) => { await pause(ms, null, { signal }); },
};

async function call(method, path, body, signal) {
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body), signal });
  const told = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(`${told.title}: ${told.detail}`), { status: answer.status });
  return told;
}

async function run(task) {
  const lease = { id: task.id, epoch: task.epoch };
  const { signal } = held.get(task.id).stop;
  try {
    if (!handlers[task.type]) throw new Error(`no handler for ${task.type}`);
    const result = await handlers[task.type](task.payload, signal);
    return { ...lease, outcome: "completed", result };
  } catch (error) { // windlass retries what failed
    return signal.aborted ? { ...lease, outcome: "cancelled" } : { ...lease, outcome: "failed", error: String(error) };
  }
}

function lost(error) { // 409: we were silent for too long, and others have our tasks
  if (error.name !== "AbortError") console.error(String(error));
  return error.status === 409;
}

async function beat() { // shows that we live, names what runs here, and hears what should stop
  for (;;) {
    await pause(control.heartbeat * 1000, null, { ref: false });
    try {
      const names = [...held].map(([id, { epoch }]) => ({ id, epoch }));
      const told = worker && (await call("POST", `/workers/${worker}/heartbeat`, { held: names }));
      control = told?.control ?? control;
      for (const id of [...(told?.cancel ?? []), ...(told?.lost ?? [])]) held.get(id)?.stop.abort();
    } catch (error) { if (lost(error)) for (const { stop } of held.values()) stop.abort(); }
  }
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => stopping.abort());
beat();
let results = [];
while (results.length || !(stopping.signal.aborted || control.state === "drain")) {
  const wait = results.length ? 0 : 20; // only who is idle waits: that a signal can end
  const lease = { worker: { id: worker, name: "node", slots }, queues, max: slots, wait };
  const report = { worker_id: worker, results, lease: stopping.signal.aborted ? null : lease };
  try {
    const told = results.length
      ? await call("POST", "/results", report) : await call("POST", "/leases", lease, stopping.signal);
    worker = told.worker?.id ?? worker;
    control = told.control ?? control;
    const tasks = told.tasks ?? [];
    held = new Map(tasks.map(({ id, epoch }) => [id, { epoch, stop: new AbortController() }]));
    results = await Promise.all(tasks.map(run));
  } catch (error) {
    if (lost(error)) [worker, results] = [undefined, []]; // the next lease is of a new worker
    await pause(1000, null, results.length ? {} : { signal: stopping.signal }).catch(() => {});
  }
}
if (worker) await call("DELETE", `/workers/${worker}`); // whatever we hold goes back at once
