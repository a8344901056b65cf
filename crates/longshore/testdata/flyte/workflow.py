"""Tasks as people write them with the Flyte SDK, without child actions."""

import os

import flyte
import flyte.errors

env = flyte.TaskEnvironment(name="hello", image=flyte.Image.from_base("python:3.11-slim"))


@env.task
def double(x: int, words: list[str]) -> tuple[int, list[str]]:
    return 2 * x, [*words, "from the task"]


@env.task
def fails(x: int) -> int:
    raise ValueError(f"{x} is too many")


@env.task(retries=3)
def gives_up(x: int) -> int:
    raise flyte.errors.NonRecoverableError(code="Hopeless", message=f"{x} will never do")


@env.task(retries=1)
def flaky(x: int) -> int:
    if os.environ["FLYTE_ATTEMPT_NUMBER"] == "0":
        raise RuntimeError("not the first time")
    return x
