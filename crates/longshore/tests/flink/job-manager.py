"""Plays a JobManager with one job: the REST API, as far as an operator uses it, and requests to the API server.

The job counts. A savepoint holds the number that the count has reached, and a job that is restored goes on from there.
Each start of a job is a line of /flink-data/starts: the cluster, where the job was restored from, and its number.
"""

import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONF = "/opt/flink/conf"
DATA = "/flink-data"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
RUNNING, FINISHED, CANCELED = "RUNNING", "FINISHED", "CANCELED"


def config():
    """The flat file of Flink 1, or the nested one of Flink 2."""
    for name in ("flink-conf.yaml", "config.yaml"):
        if os.path.exists(f"{CONF}/{name}"):
            with open(f"{CONF}/{name}") as file:
                return flat(file.read())
    sys.exit("there is no configuration")


def flat(text):
    found, above = {}, []
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if not colon or key.startswith("#"):
            continue
        depth = len(line) - len(line.lstrip())
        while above and above[-1][0] >= depth:
            above.pop()
        above.append((depth, key.strip("'\"")))
        if value.strip():
            found[".".join(name for _, name in above)] = value.strip().strip("'\"")
    return found


def ask(path):
    """What the API server answers to the service account of the pod."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    with open(f"{ACCOUNT}/token") as file:
        request = urllib.request.Request(
            f"https://{host}:{port}{path}", headers={"Authorization": "Bearer " + file.read()}
        )
    trust = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
        return json.load(answer)


def path_of(url):
    """The path in a URL of a file: `file:/a` and `file:///a` are the same."""
    return "/" + url.removeprefix("file:").lstrip("/")


class Job:
    def __init__(self, options):
        self.id = options["$internal.pipeline.job-id"]
        self.cluster = options["kubernetes.cluster-id"]
        self.state = RUNNING
        self.restored = options.get("execution.savepoint.path")
        self.savepoint = None
        self.operations = {}
        self.lock = threading.Lock()
        self.number = 1
        if self.restored:
            with open(path_of(self.restored)) as file:
                self.number = int(file.read()) + 1
        with open(f"{DATA}/starts", "a") as file:
            file.write(f"{self.cluster} {self.restored or '-'} {self.number}\n")

    def save(self, trigger, directory, stops):
        with self.lock:
            if trigger not in self.operations:
                self.number += 10
                path = f"{path_of(directory)}/savepoint-{trigger[:6]}"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(str(self.number))
                self.savepoint = f"file:{path}"
                self.operations[trigger] = self.savepoint
                if stops:
                    self.state = FINISHED
        return trigger


class Rest(BaseHTTPRequestHandler):
    job = None
    directory = None

    def log_message(self, text, *values):
        print(text % values)

    def answer(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def unknown(self):
        self.answer(404, {"errors": ["NotFoundException: " + self.path]})

    def parts(self):
        return self.path.partition("?")[0].strip("/").split("/")

    def do_GET(self):
        job = self.job
        match self.parts():
            case ["config"]:
                self.answer(200, {"flink-version": "2.2.0", "flink-revision": "played"})
            case ["jobs", "overview"]:
                tasks = {"total": 2, "running": 2 if job.state == RUNNING else 0, "finished": 0}
                overview = {"jid": job.id, "name": job.cluster, "state": job.state, "tasks": tasks}
                self.answer(200, {"jobs": [overview | {"start-time": 1, "end-time": -1}]})
            case ["jobs", job.id, "checkpoints"]:
                latest = {"savepoint": None, "restored": None, "completed": None}
                if job.savepoint:
                    latest["savepoint"] = {"id": 2, "external_path": job.savepoint}
                if job.restored:
                    latest["restored"] = {"id": 1, "external_path": job.restored}
                self.answer(200, {"counts": {"completed": 1}, "latest": latest, "history": []})
            case ["jobs", job.id, "savepoints", trigger] if trigger in job.operations:
                location = job.operations[trigger]
                self.answer(200, {"status": {"id": "COMPLETED"}, "operation": {"location": location}})
            case _:
                self.unknown()

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "{}")
        job = self.job
        match self.parts():
            case ["jobs", job.id, "stop"]:
                directory = body.get("targetDirectory") or self.directory
                self.answer(202, {"request-id": job.save(body["triggerId"], directory, True)})
            case ["jobs", job.id, "savepoints"]:
                directory = body.get("target-directory") or self.directory
                self.answer(202, {"request-id": job.save(body["triggerId"], directory, False)})
            case _:
                self.unknown()

    def do_PATCH(self):
        if self.parts() != ["jobs", self.job.id]:
            return self.unknown()
        if self.job.state != RUNNING:
            return self.answer(409, {"errors": ["already over"]})
        self.job.state = CANCELED
        self.answer(202, {})


def main():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    options = config()
    namespace, cluster = options["kubernetes.namespace"], options["kubernetes.cluster-id"]
    # What a JobManager cannot work without.
    ask(f"/apis/apps/v1/namespaces/{namespace}/deployments/{cluster}")
    ask(f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{cluster}")
    ask(f"/api/v1/namespaces/{namespace}/configmaps?labelSelector=app%3D{cluster}")
    Rest.job = Job(options)
    Rest.directory = options.get("execution.checkpointing.savepoint-dir") or options.get("state.savepoints.dir")
    address = (os.environ["_POD_IP_ADDRESS"], 8081)
    print("serves", address, "after", time.process_time(), "s")
    ThreadingHTTPServer(address, Rest).serve_forever()


main()
