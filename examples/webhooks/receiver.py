#!/usr/bin/env python3
# Receives the webhooks of windlass with nothing but Python's standard library (3.9 or newer):
#   WINDLASS_URL=http://127.0.0.1:8080 WEBHOOK_SECRET=whsec_... python3 receiver.py [PORT]
# /now is answered with the result; /later is taken on (202), worked on, and reported by POST /results.
import base64, hashlib, hmac, json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

URL = os.environ.get("WINDLASS_URL", "http://127.0.0.1:8080") + "/api/v1"
TOKEN = os.environ.get("WINDLASS_TOKEN")  # with the scope work
KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
HEADERS = {"content-type": "application/json"} | ({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})

def is_genuine(headers, body):
    sent, told = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "")
    if not sent.isdigit() or abs(time.time() - int(sent)) > 300:
        return False  # an old request that somebody has kept and sends again
    signed = f"{headers['webhook-id']}.{sent}.".encode() + body
    ours = "v1," + base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(ours, theirs) for theirs in told.split())  # one for each secret in use

def work(body):
    return {"received": json.loads(body)}

def report(run, body):
    result = {"id": run["task"], "epoch": run["epoch"], "outcome": "completed", "result": work(body)}
    report = {"worker_id": run["worker"], "results": [result]}
    try:
        with urlopen(Request(URL + "/results", json.dumps(report).encode(), HEADERS), timeout=90) as answer:
            print(json.load(answer)["results"], flush=True)  # applied; already; or lease-lost: it was run again
    except HTTPError as refused:
        print(json.load(refused)["detail"], flush=True)  # 409: the worker that sent this is gone, it is run again

class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not is_genuine(self.headers, body):
            return self.answer(401, {"error": "the signature is not ours"})
        if self.path == "/now":
            return self.answer(200, work(body))
        if self.path != "/later":
            return self.answer(410, {"error": "no such hook"})  # a dead letter: no retry helps
        run = {name: self.headers[f"windlass-{name}{'' if name == 'epoch' else '-id'}"] for name in ("task", "epoch", "worker")}
        self.answer(202, {})
        threading.Thread(target=report, args=(run, body)).start()

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Receiver)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
