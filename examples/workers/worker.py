#!/usr/bin/env python3
# A windlass worker with nothing but Python's standard library (3.9 or newer):
# WINDLASS_URL=http://127.0.0.1:8080 python3 worker.py [QUEUE ...]
import json, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

URL = os.environ.get("WINDLASS_URL", "http://127.0.0.1:8080") + "/api/v1"
TOKEN = os.environ.get("WINDLASS_TOKEN")
HEADERS = {"content-type": "application/json"} | ({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})
SLOTS = 10  # tasks at once

worker, control = None, {"state": "run", "heartbeat": 5}
held, stopped = {}, set()  # id -> epoch of what runs here; ids that should stop
stopping, is_idle = threading.Event(), False

def sleep(task):
    end = time.monotonic() + task["payload"]["ms"] / 1000
    while time.monotonic() < end and task["id"] not in stopped:  # long work looks now and then
        time.sleep(0.05)

HANDLERS = {"echo": lambda task: task["payload"], "sleep": sleep}

def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(URL + path, data, HEADERS, method=method), timeout=90) as answer:
        return json.load(answer)

def lost(error):  # 409: we were silent for too long, and others have our tasks
    return print(error, file=sys.stderr) or getattr(error, "code", None) == 409

def run(task):
    try:
        ended = {"outcome": "completed", "result": HANDLERS[task["type"]](task)}
    except Exception as error:  # windlass retries it
        ended = {"outcome": "failed", "error": repr(error)}
    if task["id"] in stopped:
        ended = {"outcome": "cancelled"}
    return {"id": task["id"], "epoch": task["epoch"], **ended}

def beat():  # shows that we live, names what runs here, and hears what should stop
    global control
    while not stopping.wait(control["heartbeat"]):
        body = {"held": [{"id": id, "epoch": epoch} for id, epoch in list(held.items())]}
        try:
            told = call("POST", f"/workers/{worker}/heartbeat", body) if worker else {}
            control = told.get("control", control)
            stopped.update(told.get("cancel", []), told.get("lost", []))
        except OSError as error:
            stopped.update(held if lost(error) else [])

def stop(*_):
    stopping.set()
    if is_idle:
        raise SystemExit  # nothing runs: no need to wait for the end of the poll

for number in signal.SIGTERM, signal.SIGINT:
    signal.signal(number, stop)
threading.Thread(target=beat, daemon=True).start()
pool, results = ThreadPoolExecutor(SLOTS), []
try:
    while results or not (stopping.is_set() or control["state"] == "drain"):
        me, queues = {"id": worker, "name": "python", "slots": SLOTS}, sys.argv[1:] or ["default"]
        wait = 0 if results else 20  # only who is idle waits: that a signal can end
        lease = {"worker": me, "queues": queues, "max": SLOTS, "wait": wait}
        report = {"worker_id": worker, "results": results, "lease": None if stopping.is_set() else lease}
        is_idle = not results
        try:
            told = call("POST", "/results", report) if results else call("POST", "/leases", lease)
        except OSError as error:
            worker, results = (None, []) if lost(error) else (worker, results)  # who is lost leases anew
            time.sleep(1)
            continue
        is_idle, worker, tasks = False, told.get("worker", {}).get("id", worker), told.get("tasks", [])
        held, stopped = {task["id"]: task["epoch"] for task in tasks}, set()
        control, results = told.get("control", control), list(pool.map(run, tasks))
finally:
    if worker:
        call("DELETE", f"/workers/{worker}")  # whatever we hold goes back at once
