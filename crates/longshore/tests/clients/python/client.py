"""The script of the Python client, in a pod: each step is checked, and told on a line of its own.

Its last line counts them. The test that runs it reads in the ConfigMap `progress` what it waits for.
"""

import json
import os
import sys
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import stream
from urllib3.exceptions import HTTPError

SELECTOR = "script=yes"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
PATIENCE = 60

with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="utf-8") as file:
    NAMESPACE = file.read()
# Not `load_config`: what a kubeconfig of the machine says must not matter.
config.load_incluster_config()
CORE = client.CoreV1Api()
steps = 0


def done(step):
    global steps
    steps += 1
    print("ok:", step, flush=True)


def check(holds, *found):
    """An `assert` that no switch turns off."""
    if not holds:
        raise AssertionError(f"python: found {found}")


def code(function, *arguments, **options):
    """The HTTP status of a request that may be refused."""
    try:
        function(*arguments, **options)
    except ApiException as refused:
        return refused.status
    return 200


def until(what, holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"python: not in time: {what}")
        time.sleep(0.05)


def config_map(name, data):
    return client.V1ConfigMap(
        api_version="v1",
        kind="ConfigMap",
        metadata=client.V1ObjectMeta(name=name, labels={"script": "yes"}),
        data=data,
    )


def ask(phase):
    """Tells the test how far the script is."""
    name, body = "progress", {"data": {"phase": phase}}
    if code(CORE.read_namespaced_config_map, name, NAMESPACE) == 404:
        CORE.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name}, **body})
    else:
        CORE.patch_namespaced_config_map(name, NAMESPACE, body)


def events(version):
    """The events of the script's objects; the client resumes where the server ended a watch, this where it was cut."""
    deadline = time.monotonic() + 2 * PATIENCE
    source = watch.Watch()
    while time.monotonic() < deadline:
        try:
            for event in source.stream(
                CORE.list_namespaced_config_map,
                NAMESPACE,
                label_selector=SELECTOR,
                resource_version=source.resource_version or version,
                timeout_seconds=2 * PATIENCE,
                # A relay that holds a connection to nobody must not hold the script.
                _request_timeout=(5, 20),
            ):
                yield event["type"], event["object"]
        except HTTPError:
            time.sleep(0.2)
    raise AssertionError("python: no event in time")


def follow(version):
    """Each event has to be the next one: none is left out, and none comes twice."""
    source = events(version)

    def expect(kind, name):
        found, item = next(source)
        check((found, item.metadata.name) == (kind, name), kind, name, found, item)
        return item

    return expect


def creates():
    for name in ["a", "b"]:
        created = CORE.create_namespaced_config_map(NAMESPACE, config_map(name, {"value": "1"}))
        check(created.metadata.uid and created.metadata.resource_version, created)
    check(code(CORE.create_namespaced_config_map, NAMESPACE, config_map("a", {})) == 409)
    done("create")


def lists():
    names, more = [], None
    while more != "":
        options = {"_continue": more} if more else {}
        page = CORE.list_namespaced_config_map(NAMESPACE, label_selector=SELECTOR, limit=1, **options)
        names += [item.metadata.name for item in page.items]
        check(len(page.items) == 1, page)
        more = page.metadata._continue or ""
    check(names == ["a", "b"], names)
    done("list")


def watches():
    version = CORE.list_namespaced_config_map(NAMESPACE, label_selector=SELECTOR).metadata.resource_version
    expect = follow(version)
    CORE.create_namespaced_config_map(NAMESPACE, config_map("c", {"value": "1"}))
    expect("ADDED", "c")
    done("watch")
    ask("watching")
    expect("ADDED", "after-restart")
    done("watch over a restart")
    return expect


def patches(expect):
    # The client sends a list as a JSON patch, and a dictionary as a strategic one.
    CORE.patch_namespaced_config_map("a", NAMESPACE, {"data": {"strategic": "1"}})
    expect("MODIFIED", "a")
    operations = [
        {"op": "test", "path": "/data/strategic", "value": "1"},
        {"op": "replace", "path": "/data/value", "value": "2"},
    ]
    patched = CORE.patch_namespaced_config_map("a", NAMESPACE, operations)
    seen = expect("MODIFIED", "a")
    check(seen.metadata.resource_version == patched.metadata.resource_version, seen, patched)
    check(patched.data == {"strategic": "1", "value": "2"}, patched.data)
    operations[0]["value"] = "2"
    check(code(CORE.patch_namespaced_config_map, "a", NAMESPACE, operations) == 422)
    patched.metadata.resource_version = "1"
    check(code(CORE.replace_namespaced_config_map, "a", NAMESPACE, patched) == 409)
    done("patch")


def apply(data):
    """What was applied before says what has to go; the rest is merged."""
    wanted = config_map("applied", data)
    text = json.dumps(client.ApiClient().sanitize_for_serialization(wanted))
    wanted.metadata.annotations = {LAST_APPLIED: text}
    try:
        found = CORE.read_namespaced_config_map("applied", NAMESPACE)
    except ApiException as missing:
        check(missing.status == 404, missing)
        CORE.create_namespaced_config_map(NAMESPACE, wanted)
        return
    before = json.loads(found.metadata.annotations[LAST_APPLIED])["data"]
    # The client drops members that are None from its types, and keeps them in dictionaries.
    body = client.ApiClient().sanitize_for_serialization(wanted)
    body["data"] = {name: data.get(name) for name in {**before, **data}}
    CORE.patch_namespaced_config_map("applied", NAMESPACE, body)


def applies(expect):
    apply({"kept": "1", "removed": "1"})
    expect("ADDED", "applied")
    CORE.patch_namespaced_config_map("applied", NAMESPACE, {"data": {"foreign": "1"}})
    expect("MODIFIED", "applied")
    apply({"kept": "2"})
    seen = expect("MODIFIED", "applied")
    check(seen.data == {"kept": "2", "foreign": "1"}, seen.data)
    # The server's own way is refused.
    maps = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"kept": "3"}}
    refused = code(maps.server_side_apply, body, namespace=NAMESPACE, field_manager="script")
    check(refused == 415, refused)
    done("apply")


def is_ready(name):
    conditions = CORE.read_namespaced_pod(name, NAMESPACE).status.conditions or []
    return any(it.type == "Ready" and it.status == "True" for it in conditions)


def executes():
    command = ["sh", "-c", "echo begun; exec sleep 1000"]
    container = client.V1Container(name="main", image="target:1", command=command)
    pod = client.V1Pod(
        metadata=client.V1ObjectMeta(name="target"),
        spec=client.V1PodSpec(containers=[container]),
    )
    CORE.create_namespaced_pod(NAMESPACE, pod)
    until("the pod is ready", lambda: is_ready("target"))
    session = stream(
        CORE.connect_get_namespaced_pod_exec,
        "target",
        NAMESPACE,
        command=["sh", "-c", "read line; echo $line; echo err >&2; exit 7"],
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    session.write_stdin("given\n")
    session.run_forever(timeout=PATIENCE)
    streams = (session.read_stdout(), session.read_stderr(), session.returncode)
    check(streams == ("given\n", "err\n", 7), streams)
    check(CORE.read_namespaced_pod_log("target", NAMESPACE) == "begun\n")
    done("exec")


def has_its_rights():
    """The test gives one right more, then takes it and one more away: each is seen, and nothing else changes."""
    reviewer = client.AuthorizationV1Api()

    def secrets():
        return code(CORE.list_namespaced_secret, NAMESPACE)

    def replace():
        item = CORE.read_namespaced_config_map("b", NAMESPACE)
        return code(CORE.replace_namespaced_config_map, "b", NAMESPACE, item, dry_run="All")

    def rules():
        """What the server says that the account may do in its namespace, without what everybody may."""
        spec = client.V1SelfSubjectRulesReviewSpec(namespace=NAMESPACE)
        review = client.V1SelfSubjectRulesReview(spec=spec)
        answer = reviewer.create_self_subject_rules_review(review)
        rules = answer.status.resource_rules
        return {
            f"{verb} {resource}"
            for rule in rules
            for resource in rule.resources
            for verb in rule.verbs
            if not resource.startswith("selfsubject")
        }

    mine = set(json.loads(os.environ["RIGHTS"]))
    check(rules() == mine, rules(), mine)
    check((secrets(), replace()) == (403, 200))
    check(code(CORE.list_namespaced_config_map, "default") == 403)
    check(code(CORE.list_node) == 403)
    ask("a right more")
    until("secrets may be listed", lambda: secrets() == 200)
    check(rules() == mine | {"list secrets"}, rules())
    check(replace() == 200)
    ask("a right less")
    until("ConfigMaps may not be replaced", lambda: replace() == 403)
    until("secrets may not be listed", lambda: secrets() == 403)
    check(rules() == mine - {"update configmaps"}, rules())
    done("exactly its rights")


def deletes(expect):
    other = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    check(code(CORE.delete_namespaced_config_map, "c", NAMESPACE, body=other) == 409)
    CORE.delete_namespaced_config_map("c", NAMESPACE)
    expect("DELETED", "c")
    check(code(CORE.read_namespaced_config_map, "c", NAMESPACE) == 404)
    CORE.delete_collection_namespaced_config_map(NAMESPACE, label_selector=SELECTOR)
    left = CORE.list_namespaced_config_map(NAMESPACE, label_selector=SELECTOR).items
    check(left == [], left)
    CORE.delete_namespaced_pod("target", NAMESPACE, grace_period_seconds=1)
    until("the pod is gone", lambda: code(CORE.read_namespaced_pod, "target", NAMESPACE) == 404)
    done("delete")


def main():
    until("the server answers", answers)
    creates()
    lists()
    expect = watches()
    patches(expect)
    applies(expect)
    executes()
    has_its_rights()
    deletes(expect)
    print(f"python: {steps} steps", flush=True)


def answers():
    try:
        return client.VersionApi().get_code().git_version != ""
    except HTTPError:
        return False


if __name__ == "__main__":
    check(os.environ["KUBERNETES_SERVICE_HOST"] == "10.96.0.1", os.environ)
    sys.exit(main())
