"""What the control plane and the client do for a task written with the Flyte SDK: it is prepared and read back here.

    sdk.py prepare URL    puts code and inputs into a store; prints a spec for each task, as JSON
    sdk.py outputs TASK URL   prints the outputs that an attempt of a task left below URL, as JSON
"""

import asyncio
import base64
import io
import json
import os
import pathlib
import sys
import tarfile

import boto3
import flyte.storage
from flyte._internal.imagebuild.image_builder import ImageCache
from flyte._internal.runtime.convert import convert_from_native_to_inputs, convert_outputs_to_native
from flyte._internal.runtime.io import load_outputs, upload_inputs
from flyte._internal.runtime.task_serde import get_proto_task
from flyte.models import CodeBundle, SerializationContext

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
import workflow  # noqa: E402

INPUTS = {
    "double": {"x": 21, "words": ["to the task"]},
    "fails": {"x": 3},
    "gives_up": {"x": 3},
    "flaky": {"x": 7},
}
STARTED_AT = "2026-11-21T00:58:44Z"


def bundle() -> bytes:
    """The code, as the SDK packs it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in ["workflow.py", "broken.py"]:
            tar.add(os.path.join(FOLDER, name), arcname=name)
    return packed.getvalue()


def template(name: str, tgz: str):
    context = SerializationContext(
        version="v1",
        project="flytesnacks",
        domain="development",
        org="local",
        root_dir=pathlib.Path(FOLDER),
        code_bundle=CodeBundle(computed_version="v1", tgz=tgz, destination="."),
        image_cache=ImageCache(image_lookup={"hello": "python:3.11-slim"}),
    )
    task = get_proto_task(getattr(workflow, name), context)
    # The actions service does this before an executor sees the action.
    args = [STARTED_AT if it == "{{.runStartTime}}" else it for it in task.container.args]
    del task.container.args[:]
    task.container.args.extend(args)
    return task


def broken(tgz: str):
    task = template("double", tgz)
    args = ["broken" if it == "workflow" else it for it in task.container.args]
    del task.container.args[:]
    task.container.args.extend(args)
    return task


def make_directory(url: str):
    """The SDK writes to files as to objects, so somebody else has to make directories, and buckets."""
    place = url.split("://")[1]
    if url.startswith("file://"):
        os.makedirs(place, exist_ok=True)
    elif url.startswith("s3://"):
        s3 = boto3.client(
            "s3",
            endpoint_url=os.environ["FLYTE_AWS_ENDPOINT"],
            aws_access_key_id=os.environ["FLYTE_AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=os.environ["FLYTE_AWS_SECRET_ACCESS_KEY"],
        )
        s3.create_bucket(Bucket=place.split("/")[0])


async def prepare(url: str) -> dict:
    tgz = f"{url}/code.tar.gz"
    make_directory(url)
    await flyte.storage.put_stream(bundle(), to_path=tgz)
    specs = {}
    for name, values in [*INPUTS.items(), ("broken", INPUTS["double"])]:
        task = broken(tgz) if name == "broken" else template(name, tgz)
        function = workflow.double if name == "broken" else getattr(workflow, name)
        inputs = await convert_from_native_to_inputs(function.native_interface, **values)
        uri = f"{url}/inputs-{name}"
        make_directory(uri)
        await upload_inputs(inputs, f"{uri}/inputs.pb")
        specs[name] = {
            "inputUri": uri,
            "taskType": task.type,
            "taskTemplate": base64.b64encode(task.SerializeToString()).decode(),
        }
    return specs


async def outputs(name: str, url: str):
    found = await load_outputs(f"{url}/outputs.pb")
    return await convert_outputs_to_native(getattr(workflow, name).native_interface, found)


match sys.argv[1:]:
    case ["prepare", url]:
        print(json.dumps(asyncio.run(prepare(url))))
    case ["outputs", name, url]:
        print(json.dumps(asyncio.run(outputs(name, url))))
    case _:
        sys.exit(__doc__)
