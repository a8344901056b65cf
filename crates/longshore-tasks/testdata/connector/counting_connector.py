"""A connector for tests: its jobs run when they are asked for first, and succeed when they are asked for next."""

from dataclasses import dataclass

from flyte.connectors import AsyncConnector, ConnectorRegistry, Resource, ResourceMeta
from flyteidl2.core.execution_pb2 import TaskExecution

ASKED: dict[str, int] = {}


@dataclass
class Job(ResourceMeta):
    prefix: str


class CountingConnector(AsyncConnector[Job]):
    name = "Counting Connector"
    task_type_name = "counting"
    metadata_type = Job

    async def create(self, task_template, output_prefix, inputs=None, task_execution_metadata=None, **kwargs):
        if "refused" in output_prefix:
            raise ValueError("no such place")
        ASKED[output_prefix] = 0
        return Job(prefix=output_prefix)

    async def get(self, resource_meta, **kwargs):
        ASKED[resource_meta.prefix] += 1
        if ASKED[resource_meta.prefix] < 2:
            return Resource(phase=TaskExecution.RUNNING, message="under way")
        return Resource(phase=TaskExecution.SUCCEEDED, outputs={"n": ASKED[resource_meta.prefix]})

    async def delete(self, resource_meta, **kwargs):
        ASKED.pop(resource_meta.prefix, None)


ConnectorRegistry.register(CountingConnector())
