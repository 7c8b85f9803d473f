// A windlass worker with nothing but Node 20 or newer:
//   WINDLASS_URL=http://127.0.0.1:8080 node worker.mjs [QUEUE ...]
// Write your handlers in place of those below; the rest can stay as it is.
import { setTimeout as pause } from "node:timers/promises";

const url = (process.env.WINDLASS_URL ?? "http://127.0.0.1:8080").replace(/\/+$/, "") + "/api/v1";
const token = process.env.WINDLASS_TOKEN;
const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
const queues = process.argv.length > 2 ? process.argv.slice(2) : ["default"];
const slots = 10; // tasks at once
const patience = 25_000; // ms that runs may take to finish when the worker stops

class Discard extends Error {} // no retry can help
class Snooze extends Error {} // not now, but after this time, e.g. "10m"; the run does not count

const handlers = {
  echo: async (run) => run.payload,
  sleep: async (run) => { // long work reports its progress, and stops when it is asked to
    const { ms } = run.payload;
    for (let step = 0; step < 20; step++) {
      run.report(step / 20, `${(ms * step) / 20} ms`);
      await pause(ms / 20, null, { signal: run.signal });
    }
    return { slept_ms: ms };
  },
  greet: async (run) => {
    if (!run.payload.name) throw new Discard("there is no name");
    if (run.payload.asleep) throw new Snooze("10m");
    return `hello, ${run.payload.name}`; // any other error is a failure, which windlass retries
  },
};

/** A task that was leased to us, as its handler sees it. */
class Run {
  #stop = new AbortController();
  progress = null;
  isLost = false;
  constructor(task, worker) {
    Object.assign(this, { id: task.id, epoch: task.epoch, type: task.type, payload: task.payload });
    Object.assign(this, { attempt: task.attempts, worker });
  }
  get signal() { return this.#stop.signal; } // aborted when the run should stop
  report(fraction, note = "") { this.progress = { fraction, note }; } // sent with the next heartbeat
  stop() { this.#stop.abort(); }
  lose() { // somebody else may run the task: stop, and report nothing
    this.isLost = true;
    this.stop();
  }
}

let worker; // our id at the server
let control = { state: "run", heartbeat: 5, lease: 15 };
const runs = new Set(); // what we hold: from the lease until the answer to the result
let freed = () => {}; // called when a run has left
const stopping = new AbortController();

async function call(method, path, body, signal = AbortSignal.timeout(60_000)) {
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body), signal });
  const told = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(`${told.title}: ${told.detail}`), { status: answer.status });
  return told;
}

function forget(error, id) { // 409: we were silent for too long, and others have our tasks; the next lease is of a new worker
  if (stopping.signal.aborted && error.name === "AbortError") return;
  console.error(String(error));
  if (error.status !== 409) return;
  if (worker === id) worker = undefined;
  for (const run of runs) if (run.worker === id) run.lose();
}

async function work(run) {
  let ended;
  try {
    ended = { outcome: "completed", result: await handlers[run.type](run) };
  } catch (error) {
    if (run.signal.aborted) ended = { outcome: "cancelled" };
    else if (error instanceof Discard) ended = { outcome: "discarded", error: error.message };
    else if (error instanceof Snooze) ended = { outcome: "snoozed", after: error.message };
    else ended = { outcome: "failed", error: String(error) };
  }
  await deliver(run, ended);
  runs.delete(run);
  freed();
}

async function deliver(run, ended) { // as often as it takes: the same result counts once
  while (!run.isLost) {
    try {
      const results = [{ id: run.id, epoch: run.epoch, ...ended }];
      const told = await call("POST", "/results", { worker_id: run.worker, results });
      if (told.results[0].status !== "unrecorded") return;
    } catch (error) {
      if (error.status === 409) return;
      console.error(String(error));
      if ([400, 413, 422].includes(error.status)) ended = { outcome: "failed", error: `refused: ${error.message}` };
    }
    await pause(1000);
  }
}

async function beat() { // shows that we live, names what we hold, and hears what should stop
  let [renewed, rest] = [performance.now(), control.heartbeat];
  for (;;) {
    await pause(rest * 1000, null, { ref: false });
    const [sent, id] = [performance.now(), worker];
    if (!id) {
      renewed = sent;
      continue;
    }
    const held = [...runs].filter((run) => !run.isLost);
    try {
      const named = held.map(({ id, epoch, progress }) => ({ id, epoch, progress }));
      const within = AbortSignal.timeout(control.heartbeat * 500);
      const told = await call("POST", `/workers/${id}/heartbeat`, { held: named }, within);
      [control, renewed, rest] = [told.control, sent, told.control.heartbeat];
      for (const run of held) {
        if (told.lost.includes(run.id)) run.lose();
        else if (told.cancel.includes(run.id)) run.stop();
      }
    } catch (error) {
      forget(error, id);
      rest = 1;
      const isLate = performance.now() - renewed > control.lease * 600; // others may get our tasks soon
      if (isLate) for (const run of held) run.lose();
    }
  }
}

async function lease() { // waits for tasks while there are free slots
  while (runs.size >= slots && !stopping.signal.aborted) await new Promise((resolve) => { freed = resolve; });
  if (stopping.signal.aborted) return;
  const id = worker;
  const me = { id, name: "node", slots, types: Object.keys(handlers) };
  const asked = { worker: me, queues, max: slots - runs.size, wait: "20s" };
  try {
    const told = await call("POST", "/leases", asked, AbortSignal.any([stopping.signal, AbortSignal.timeout(60_000)]));
    [worker, control] = [told.worker.id, told.control];
    for (const task of told.tasks) {
      const run = new Run(task, worker);
      runs.add(run);
      work(run);
    }
  } catch (error) {
    forget(error, id);
    await pause(1000, null, { signal: stopping.signal }).catch(() => {});
  }
}

function stop() { // a lease that waits is given up: what it was about to bring goes back at once
  stopping.abort();
  freed();
}

for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, stop); // the second one ends us at once
beat();
while (!stopping.signal.aborted && control.state !== "drain") await lease();
const end = performance.now() + patience;
while (runs.size && performance.now() < end) {
  await Promise.race([new Promise((resolve) => { freed = resolve; }), pause(end - performance.now())]);
}
const last = worker;
worker = undefined; // no more heartbeats
if (last) await call("DELETE", `/workers/${last}`); // what is not finished goes back at once, without a retry spent
process.exit();
