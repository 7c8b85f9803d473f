#!/usr/bin/env python3
# A windlass worker with nothing but Python's standard library (3.9 or newer):
#   WINDLASS_URL=http://127.0.0.1:8080 python3 worker.py [QUEUE ...]
# Write your handlers in place of those below; the rest can stay as it is.
import json, os, signal, sys, threading, time
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

URL = os.environ.get("WINDLASS_URL", "http://127.0.0.1:8080").rstrip("/") + "/api/v1"
TOKEN = os.environ.get("WINDLASS_TOKEN")
HEADERS = {"content-type": "application/json", **({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})}
QUEUES = sys.argv[1:] or ["default"]
SLOTS = 10  # tasks at once
PATIENCE = 25  # seconds that runs may take to finish when the worker stops


class Discard(Exception):
    """No retry can help."""

class Snooze(Exception):
    """Not now, but after this time, e.g. "10m"; the run does not count."""

class Cancelled(Exception):
    """Somebody cancelled the run, or it is over its timeout."""


def echo(run):
    return run.payload

def sleep(run):  # long work reports its progress, and stops when it is asked to
    seconds = run.payload["ms"] / 1000
    for step in range(20):
        run.report(step / 20, f"{seconds * step / 20:.1f} s")
        run.pause(seconds / 20)
    return {"slept_ms": run.payload["ms"]}

def greet(run):
    if not run.payload.get("name"):
        raise Discard("there is no name")
    if run.payload.get("asleep"):
        raise Snooze("10m")
    return f"hello, {run.payload['name']}"  # any other exception is a failure, which windlass retries

HANDLERS = {"echo": echo, "sleep": sleep, "greet": greet}


class Run:
    """A task that was leased to us, as its handler sees it."""

    def __init__(self, task, worker):
        self.id, self.epoch, self.type, self.payload = task["id"], task["epoch"], task["type"], task["payload"]
        self.attempt, self.worker = task["attempts"], worker
        self.progress, self.is_lost, self.stop = None, False, threading.Event()

    def report(self, fraction, note=""):  # sent with the next heartbeat
        self.progress = {"fraction": fraction, "note": note}

    def pause(self, seconds=0):
        if self.stop.wait(seconds):
            raise Cancelled

    def lose(self):  # somebody else may run the task: stop, and report nothing
        self.is_lost = True
        self.stop.set()


worker, control = None, {"state": "run", "heartbeat": 5, "lease": 15}
runs = set()  # what we hold: from the lease until the answer to the result
changed = threading.Condition()  # notified when a run has left


def call(method, path, body=None, timeout=60):
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(URL + path, data, HEADERS, method=method), timeout=timeout) as answer:
        return json.load(answer)

AWAY = (OSError, HTTPException, ValueError)  # no answer, or none that can be read: try again

def forget(error, me):  # 409: we were silent for too long, and others have our tasks; the next lease is of a new worker
    global worker
    print(error, file=sys.stderr)
    if getattr(error, "code", None) == 409:
        worker = None if worker == me else worker
        for run in [run for run in list(runs) if run.worker == me]:
            run.lose()

def work(run):
    try:
        ended = {"outcome": "completed", "result": HANDLERS[run.type](run)}
        json.dumps(ended)  # a result that is no JSON is a failure, too
    except Discard as error:
        ended = {"outcome": "discarded", "error": str(error)}
    except Snooze as error:
        ended = {"outcome": "snoozed", "after": str(error)}
    except Cancelled:
        ended = {"outcome": "cancelled"}
    except Exception as error:
        ended = {"outcome": "failed", "error": repr(error)}
    try:
        deliver(run, ended)
    finally:
        with changed:
            runs.discard(run)
            changed.notify_all()

def deliver(run, ended):  # as often as it takes: the same result counts once
    while not run.is_lost:
        result = {"id": run.id, "epoch": run.epoch, **ended}
        try:
            told = call("POST", "/results", {"worker_id": run.worker, "results": [result]})
            if told["results"][0]["status"] != "unrecorded":
                return
        except HTTPError as error:
            if error.code == 409:
                return
            if error.code in (400, 413, 422):
                ended = {"outcome": "failed", "error": f"the server refused the result: {error}"}
        except AWAY as error:
            print(error, file=sys.stderr)
        time.sleep(1)

def beat():  # shows that we live, names what we hold, and hears what should stop
    global control
    renewed, rest = time.monotonic(), control["heartbeat"]
    while True:
        time.sleep(rest)
        sent, held, me = time.monotonic(), [run for run in list(runs) if not run.is_lost], worker
        if me is None:
            renewed = sent
            continue
        named = [{"id": run.id, "epoch": run.epoch, "progress": run.progress} for run in held]
        try:
            told = call("POST", f"/workers/{me}/heartbeat", {"held": named}, control["heartbeat"] / 2)
            control, renewed, rest = told["control"], sent, told["control"]["heartbeat"]
            for run in held:
                if run.id in told["lost"]:
                    run.lose()
                elif run.id in told["cancel"]:
                    run.stop.set()
        except AWAY as error:
            forget(error, me)
            rest = 1
            if time.monotonic() - renewed > control["lease"] * 0.6:  # others may get our tasks soon
                for run in held:
                    run.lose()

def lease():  # waits for tasks while there are free slots
    global worker, control
    with changed:
        changed.wait_for(lambda: len(runs) < SLOTS)
    id = worker
    me = {"id": id, "name": "python", "slots": SLOTS, "types": list(HANDLERS)}
    try:
        told = call("POST", "/leases", {"worker": me, "queues": QUEUES, "max": SLOTS - len(runs), "wait": "20s"})
    except AWAY as error:
        forget(error, id)
        return time.sleep(1)
    worker, control = told["worker"]["id"], told["control"]
    for run in [Run(task, worker) for task in told["tasks"]]:
        runs.add(run)
        threading.Thread(target=work, args=[run], daemon=True).start()


class Stop(BaseException):
    pass

def stop(number, _):
    signal.signal(number, signal.SIG_DFL)  # the second one ends us at once
    raise Stop  # also out of a lease that waits: what it was about to bring goes back at once

for number in signal.SIGTERM, signal.SIGINT:
    signal.signal(number, stop)
threading.Thread(target=beat, daemon=True).start()
try:
    while control["state"] != "drain":
        lease()
except Stop:
    pass
with changed:
    changed.wait_for(lambda: not runs, PATIENCE)
last, worker = worker, None  # no more heartbeats
if last:
    call("DELETE", f"/workers/{last}")  # what is not finished goes back at once, without a retry spent
