"""The clients."""

from typing import Any, AsyncGenerator, Dict, Generator, Optional, Sequence, TypeVar, Union

from . import core, keys, wire
from ._async import AsyncMethods
from ._sync import SyncMethods
from .events import AnyEvent, Event
from .target import Target, agent_name

S = TypeVar("S", bound="_Shape")


class _Shape:
    """What both clients are made of."""

    _io: wire.IO

    def __init__(
        self,
        url: Union[str, Sequence[str], None] = None,
        timeout: Optional[float] = 60.0,
        *,
        agent_id: Optional[str] = None,
        api_key: Optional[str] = None,
        home: Optional[str] = None,
        retries: int = core.RETRIES,
        ca: Optional[str] = None,
    ) -> None:
        """Call nobody yet.

        url is that of a server or of an agent, as in
        http://127.0.0.1:8765/agent/worker-1, which is the same as agent_id; https on another
        machine. Of several, in a list or with commas between them, of machines that are one, the next is called where one is
        not to be had. Without one, it is the server at NEXUS_SERVER (as url), else at NEXUS_PORT, else that of home, else at 8765.
        ca is a file with the authorities that sign the certificates of servers at https (NEXUS_CA, else those of the system). timeout
        bounds a request, in seconds, None for no bound; what a method may take by
        itself (timeout_s) is added. The key is api_key, or looked for as
        NEXUS3_API_KEY and in home (NEXUS_HOME, ~/.nexus3), and sent to each address. retries is how often what
        may be repeated is tried again, at all addresses. A URL of another machine without https, and a timeout that is not
        above 0 are a ValueError, and an agent_id that no agent can have a ClientError (INVALID_PARAMS).
        """
        self._core = core.Core(url or None, timeout, agent_id, api_key, home, retries, self._io, ca)

    @property
    def agent_id(self) -> Optional[str]:
        """The agent that this client talks to; None for the server alone."""
        return self._core.target.agent

    def agent(self: S, agent_id: str) -> S:
        """A client like this one, of an agent. A name that no agent can have is a ClientError (INVALID_PARAMS)."""
        return self._like(self._core.target._replace(agent=agent_name(agent_id)), self._core.timeout)

    def with_timeout(self: S, timeout: Optional[float]) -> S:
        """A client like this one, with another timeout."""
        return self._like(self._core.target, core.bounded(timeout))

    def _like(self: S, target: Target, timeout: Optional[float]) -> S:
        other = object.__new__(type(self))
        other._core = core.Core.__new__(core.Core)
        other._core.__dict__.update(self._core.__dict__)
        other._core.target, other._core.timeout = target, timeout
        return other

    def _events_path(self) -> str:
        return self._core.path("events", core.METHODS["send"]) + "/events"


class NexusClient(_Shape, AsyncMethods):
    """A client for asyncio. It keeps no connection; close and async with are there for the habit."""

    _io = wire.ASYNC

    async def __aenter__(self) -> "NexusClient":
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Do nothing: each request has closed its connection."""

    async def call(self, method: str, params: Optional[Dict[str, Any]] = None) -> Any:
        """Call any method by its name. params must be as the server wants them."""
        return await self._call(method, core.dict_of(params))

    async def _call(self, method: str, given: Dict[str, Any]) -> Any:
        return await self._core.call(method, given, self._core.timeout)

    def _stream(self, method: str, given: Dict[str, Any]) -> AsyncGenerator[Any, None]:
        return self._core.stream(method, given, self._core.timeout)

    def _told(self, path: str, asked: Dict[str, Any]) -> AsyncGenerator[Any, None]:
        return self._core.events(path, asked, self._core.timeout)

    async def readyz(self) -> core.Readiness:
        """Ask whether the server can work (SPEC 6.4): status and reasons say it, and that it cannot is no error."""
        return await self._core.readyz(self._core.timeout)

    def events(
        self, after: Optional[int] = None, *, types: Optional[Sequence[str]] = None, tool_output: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Follow the agent's events after that number: 0 for all that is kept, None for only what comes.

        types leaves out those of other types, but for gap and end. tool_output adds what tools put out while they run.
        They go on where they were when a connection breaks, also with a later server,
        and end with an event "end" when the agent is destroyed.
        """
        return self._told(self._events_path(), _asked(after, types, None, tool_output))

    def all_events(
        self,
        after: Union[str, int, None] = None,
        *,
        types: Optional[Sequence[str]] = None,
        agents: Optional[Sequence[str]] = None,
        tool_output: bool = False,
    ) -> AsyncGenerator[AnyEvent, None]:
        """Follow the events of all agents, or of some, from the id of one on: 0 for all that is kept."""
        return self._told("/events", _asked(after, types, agents, tool_output))


class NexusClientSync(_Shape, SyncMethods):
    """The same client for plain code."""

    _io = wire.SYNC

    def __enter__(self) -> "NexusClientSync":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: each request has closed its connection."""

    def call(self, method: str, params: Optional[Dict[str, Any]] = None) -> Any:
        """Call any method by its name. params must be as the server wants them."""
        return self._call(method, core.dict_of(params))

    def _call(self, method: str, given: Dict[str, Any]) -> Any:
        return wire.run(self._core.call(method, given, self._core.timeout))

    def _stream(self, method: str, given: Dict[str, Any]) -> Generator[Any, None, None]:
        return wire.iterate(self._core.stream(method, given, self._core.timeout))

    def _told(self, path: str, asked: Dict[str, Any]) -> Generator[Any, None, None]:
        return wire.iterate(self._core.events(path, asked, self._core.timeout))

    def readyz(self) -> core.Readiness:
        """Ask whether the server can work; see NexusClient."""
        return wire.run(self._core.readyz(self._core.timeout))

    def events(
        self, after: Optional[int] = None, *, types: Optional[Sequence[str]] = None, tool_output: bool = False
    ) -> Generator[Event, None, None]:
        """Follow the agent's events; see NexusClient."""
        return self._told(self._events_path(), _asked(after, types, None, tool_output))

    def all_events(
        self,
        after: Union[str, int, None] = None,
        *,
        types: Optional[Sequence[str]] = None,
        agents: Optional[Sequence[str]] = None,
        tool_output: bool = False,
    ) -> Generator[AnyEvent, None, None]:
        """Follow the events of all agents, or of some; see NexusClient."""
        return self._told("/events", _asked(after, types, agents, tool_output))


def _asked(
    after: Union[str, int, None], types: Optional[Sequence[str]], agents: Optional[Sequence[str]], tool_output: bool
) -> Dict[str, Any]:
    return {"after": after, "types": types, "agents": agents, "tool_output": "true" if tool_output else None}


async def detect(url: Optional[str] = None, ca: Optional[str] = None) -> str:
    """Tell what listens there, without a key: nexus_server, no_server, other_service or timeout."""
    return await core.health(wire.ASYNC, url or keys.default_url(), ca)


def detect_sync(url: Optional[str] = None, ca: Optional[str] = None) -> str:
    """The same for plain code."""
    return wire.run(core.health(wire.SYNC, url or keys.default_url(), ca))
