"""A client of the nexus server: SPEC.md, section 6.

    async with NexusClient("http://127.0.0.1:8765/agent/worker-1") as client:
        result = await client.send("Hello!")
        print(result["content"])

NexusClientSync has the same methods for plain code. Both may be shared: by tasks
of a loop, by threads. A request has a connection of its own, on which the server
proves that it has the API key before the key is sent.
"""

from . import events, params, results
from .client import NexusClient, NexusClientSync, detect, detect_sync
from .core import (
    CreatePlanPart,
    ExecuteTaskPart,
    Part,
    ProgressPart,
    Readiness,
    RestartPart,
    ResultPart,
    TaskEnded,
    TextPart,
    ToolPart,
)
from .errors import ClientError, NexusError
from .events import AnyEvent, Event, PlanEnded, PlanNote, PlanPart, StreamEvent

__all__ = [
    "AnyEvent",
    "ClientError",
    "CreatePlanPart",
    "Event",
    "ExecuteTaskPart",
    "NexusClient",
    "NexusClientSync",
    "NexusError",
    "Part",
    "PlanEnded",
    "PlanNote",
    "PlanPart",
    "ProgressPart",
    "Readiness",
    "RestartPart",
    "ResultPart",
    "StreamEvent",
    "TaskEnded",
    "TextPart",
    "ToolPart",
    "detect",
    "detect_sync",
    "events",
    "params",
    "results",
]
