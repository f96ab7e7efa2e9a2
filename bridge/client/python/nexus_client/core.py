"""What the client for asyncio and the plain one have in common."""

import json
import math
import os
import random
import ssl
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import (
    Any,
    AsyncGenerator,
    Awaitable,
    Callable,
    Dict,
    Generic,
    Iterator,
    List,
    Literal,
    Optional,
    Sequence,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
    cast,
)

from . import keys, results
from ._table import METHODS, Method
from .errors import ClientError, told
from .events import PlanEnded, PlanNote, StreamEvent
from .target import Target, target, targets
from .wire import IO, MAX_LINE, Broken, Connection, Deadline, Failed, Late, Refused, Response, Strange, Untrusted

T = TypeVar("T")
R = TypeVar("R")

RETRIES = 5  # with the pauses, about six seconds
_FIRST_PAUSE, _LONG_PAUSE = 0.2, 5.0  # doubled from try to try, and half of it left to chance
_LONG_WAIT = 60.0  # the longest Retry-After that is waited for
_SILENCE = 60.0  # a stream that says nothing for so long is dead: a server says something every 15 s
_DETECT = 3.0
_REACH = 10.0  # for a connection and its proof, where there is another address to go to
_AGAIN = "again"


@dataclass(frozen=True)
class TextPart:
    """A piece of an answer's text."""

    text: str
    type: Literal["text"] = "text"
    restart: Literal[False] = False
    result: None = None


@dataclass(frozen=True)
class RestartPart:
    """The text before it is void.

    The agent crashed and the send is tried again (on_crash), or the connection broke
    and the answer is told from its start.
    """

    text: Literal[""] = ""
    type: Literal["restart"] = "restart"
    restart: Literal[True] = True
    result: None = None


@dataclass(frozen=True)
class ResultPart:
    """The last part of a streamed answer."""

    result: results.Send
    text: Literal[""] = ""
    type: Literal["result"] = "result"
    restart: Literal[False] = False


@dataclass(frozen=True)
class ToolPart:
    """A call of a tool in a task that begins or has ended."""

    tool_id: str
    tool_name: Optional[str]  # where it begins
    status: Literal["started", "ended"]
    is_error: bool  # it failed, was refused or aborted
    type: Literal["tool"] = "tool"
    result: None = None


@dataclass(frozen=True)
class ProgressPart:
    """What else happens in a task: started, retry, fallback or compaction_start."""

    progress: str
    type: Literal["progress"] = "progress"
    result: None = None


@dataclass(frozen=True)
class TaskEnded(Generic[R]):
    """The last part of a streamed task: its result."""

    result: R
    type: Literal["result"] = "result"


ExecuteTaskPart = Union[TextPart, ToolPart, ProgressPart, RestartPart, TaskEnded[results.ExecuteTask]]
CreatePlanPart = Union[TextPart, ToolPart, ProgressPart, RestartPart, TaskEnded[results.CreatePlan]]


class Readiness(TypedDict):
    """What GET /readyz says (SPEC.md, section 6.4)."""

    status: Literal["ready", "unready", "draining"]
    reasons: List[str]  # why it is not ready; empty if it is
    version: str
    protocol_version: int
    agents: Dict[str, int]  # by state
    turns_running: int
    turns_waiting: int
    guard: str
    checks: Dict[str, str]  # by name: "ok", or what is wrong
    warnings: List[str]
    goroutines: int


# A piece of a streamed answer; the last one is the result.
Part = Union[TextPart, RestartPart, ResultPart]

# An event as it was read.
_Read = StreamEvent[str, Dict[str, Any]]


def trust(ca: Optional[str]) -> ssl.SSLContext:
    """Return what is known of the authorities: those of a file, of NEXUS_CA, or else of the system."""
    return ssl.create_default_context(cafile=ca or os.environ.get("NEXUS_CA") or None)


def bounded(timeout: Optional[float]) -> Optional[float]:
    """Return timeout, which a request can have: a ValueError otherwise, also for what is no number."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(cast(Any, timeout), (int, float))):
        raise ValueError(f"timeout: want a number of seconds above 0, or None for no bound, have {type(timeout).__name__}")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"timeout: want a number of seconds above 0, or None for no bound, have {timeout}")
    return timeout


class Known:
    """What is known of the server, shared by clients made from one."""

    signatures = False  # it wants them
    answered = False


class _Tries:
    """How often a call was tried, and what a machine said, since all addresses were tried, that does not know its cluster's keys yet."""

    def __init__(self) -> None:
        self.count = 0
        self.unknown: Optional[ClientError] = None


class Core:
    """A client, without the shape of its methods. Its state is the key, and what the server wants."""

    def __init__(
        self, url: Union[str, Sequence[str], None], timeout: Optional[float], agent_id: Optional[str], api_key: Optional[str],
        home: Optional[str], retries: int, io: IO, ca: Optional[str],
    ) -> None:
        url = url or os.environ.get("NEXUS_SERVER") or None
        self._moves = url is None and not os.environ.get("NEXUS_PORT")  # the server of the home is meant, wherever it listens
        self._places = targets(url or keys.default_url(home), agent_id)
        self.target = self._places[0]
        self._tls = trust(ca) if any(one.tls for one in self._places) else None
        self.timeout = bounded(timeout)
        self.retries = retries
        self._io = io
        self._home = home
        self._found = api_key is None
        self._server = Known()
        self._key = None if api_key is None else keys.parse(api_key, "api_key")

    def key(self) -> str:
        """The key, looked for at the first call and where the server turned out to have another."""
        if self._key is None:
            self._key = self._discover()
        return self._key

    def _discover(self) -> str:
        """The key as it is to be found now: key files are of the home's own server, which is not called by TLS."""
        return keys.discover(None if self._tls else self.target.port, self._home)

    async def _first_key(self) -> str:
        """The same. Where there is none, and no server either, the error says that."""
        try:
            return self.key()
        except ClientError as e:
            try:
                (await self._open(_DETECT)).close()
            except Refused as refused:
                raise _plain(refused) from e
            except (Broken, Late, Untrusted):
                pass  # something is there, or may be
            raise

    async def call(self, method: str, given: Dict[str, Any], timeout: Optional[float]) -> Any:
        """Call a method, and again where that is safe and worth it."""
        known = METHODS.get(method, Method("both", "", 0, ()))
        params = _params(given, known.required)
        path = self.path(method, known)
        if known.repeat == "once":
            params.setdefault("request_id", str(uuid.uuid4()))
        deadline = Deadline(None if timeout is None else timeout + _seconds(params.get("timeout_s"), known.wait))

        async def once() -> Any:
            response, close = await self._post(path, method, params, "application/json", deadline)
            try:
                return _result(response, await response.body(MAX_LINE, deadline))
            finally:
                close()

        return await _named(self.again(known.repeat != "", once, deadline), params)

    def path(self, method: str, known: Method) -> str:
        agent = self.target.agent
        if known.scope == "global" or known.scope == "both" and agent is None:
            return "/rpc"
        if agent is None:
            raise ClientError(f"{method} is called of an agent: give the client agent_id, or use client.agent(ID)", type="NO_AGENT")
        return "/agent/" + agent

    def stream(self, method: str, given: Dict[str, Any], timeout: Optional[float]) -> AsyncGenerator[Any, None]:
        """Call a method whose answer comes in parts."""
        if method == "send":
            return self._send_stream(given, timeout)
        if method == "run_plan":
            return self._run_plan_stream(given, timeout)
        return self._task_stream(method, given, timeout)

    async def _send_stream(self, given: Dict[str, Any], timeout: Optional[float]) -> AsyncGenerator[Part, None]:
        """A send whose answer comes in parts."""
        said = False
        told = self._told("send", given, timeout)
        try:
            async for event in told:
                if event.type == "stream_data":
                    said = True
                    yield TextPart(event.data["params"]["chunk"])
                elif event.type == "stream_restart" or (event.type == _AGAIN and said):
                    said = False
                    yield RestartPart()
                elif event.type == "response":
                    if not said and event.data.get("content"):  # of a turn that had ended before
                        yield TextPart(event.data["content"])
                    yield ResultPart(cast(results.Send, event.data))
        finally:
            await told.aclose()

    async def _task_stream(self, method: str, given: Dict[str, Any], timeout: Optional[float]) -> AsyncGenerator[Any, None]:
        """A task that is told as it goes."""
        said = False
        told = self._told(method, given, timeout)
        try:
            async for event in told:
                if event.type == "stream_data":
                    said = True
                    data = event.data["params"]
                    if data.get("tool"):
                        tool = data["tool"]
                        yield ToolPart(tool["tool_id"], tool.get("tool_name"), tool["status"], tool.get("is_error", False))
                    elif data.get("progress"):
                        yield ProgressPart(data["progress"])
                    else:
                        yield TextPart(data["chunk"])
                elif event.type == "stream_restart" or (event.type == _AGAIN and said):
                    said = False
                    yield RestartPart()
                elif event.type == "response":
                    yield TaskEnded(event.data)
        finally:
            await told.aclose()

    async def _run_plan_stream(self, given: Dict[str, Any], timeout: Optional[float]) -> AsyncGenerator[Any, None]:
        """A run of a plan that is told as it goes."""
        told = self._told("run_plan", given, timeout)
        try:
            async for event in told:
                if event.type in ("plan_start", "task_start", "task_end", "plan_end"):
                    yield PlanNote(event.type, event.data["params"])
                elif event.type == "response":
                    yield PlanEnded(cast(results.RunPlan, event.data))
        finally:
            await told.aclose()

    async def _told(self, method: str, given: Dict[str, Any], timeout: Optional[float]) -> AsyncGenerator[_Read, None]:
        """The events of a streamed call, tried again where the connection breaks.

        An event _AGAIN comes before those of another connection. The last one is
        response, whose data are the result, also where the answer is no stream.
        """
        params = _params(given)
        params.setdefault("request_id", str(uuid.uuid4()))
        path = self.path(method, METHODS[method])
        tries = _Tries()
        while True:
            deadline = Deadline(timeout)
            key, where = await self._first_key(), self.target
            try:
                response, close = await self._post(path, method, params, "text/event-stream, application/json", deadline)
                try:
                    if tries.count:
                        yield StreamEvent(None, 0, _AGAIN, {})
                    result: Any = None
                    if not _is_stream(response):
                        result = _result(response, await response.body(MAX_LINE, deadline))
                    else:
                        async for event in _events(response):
                            if event.type == "response":
                                result = _unwrap(event.data, response)
                                break
                            yield event
                finally:
                    close()
                yield StreamEvent(None, 0, "response", result)
                return
            except (ClientError, Failed) as e:
                await _named(self._pause(True, e, tries, Deadline(None), key, where), params)
                tries.count += 1

    async def readyz(self, timeout: Optional[float]) -> Readiness:
        """GET /readyz. That the server cannot work is no error."""
        deadline = Deadline(timeout)

        async def once() -> Any:
            response, close = await self._request("GET", "/readyz", b"", "application/json", deadline)
            try:
                answer = _object(await response.body(MAX_LINE, deadline))
                return answer if "status" in answer else _unwrap(answer, response)
            finally:
                close()

        return cast(Readiness, await self.again(True, once, deadline))

    async def events(self, path: str, asked: Dict[str, Any], timeout: Optional[float]) -> AsyncGenerator[_Read, None]:
        """Events, which go on where they were when a connection breaks. asked is the query: after, and lists of names."""
        query = {k: str(v) if isinstance(v, (str, int)) else ",".join(v) for k, v in asked.items() if v is not None}
        tries = _Tries()
        while True:
            key, where = await self._first_key(), self.target
            try:
                deadline = Deadline(timeout)
                whole = path + ("?" + urllib.parse.urlencode(query) if query else "")
                response, close = await self._request("GET", whole, b"", "text/event-stream", deadline)
                try:
                    if not _is_stream(response):
                        _result(response, await response.body(MAX_LINE, deadline))
                        raise Strange("no stream")
                    async for event in _events(response):
                        if event.type == "end" and event.data.get("reason") in ("slow", "draining"):
                            raise Broken("the server ended the stream")
                        tries = _Tries()
                        if event.id:
                            query["after"] = event.id
                        if not event.type:  # where it goes on before its first event
                            continue
                        yield event
                        if event.type == "end":
                            return
                finally:
                    close()
            except (ClientError, Failed) as e:
                if isinstance(e, ClientError) and e.type == "SERVER_DRAINING":
                    e = Broken(str(e))  # the next server has the events
                await self._pause(True, e, tries, Deadline(None), key, where)
                tries.count += 1

    async def again(self, repeatable: bool, once: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Try until it succeeds, fails for good, or was tried often enough."""
        tries = _Tries()
        while True:
            key, where = await self._first_key(), self.target
            try:
                return await once()
            except (ClientError, Failed) as e:
                await self._pause(repeatable, e, tries, deadline, key, where)
                tries.count += 1

    async def _pause(
        self, repeatable: bool, error: Union[ClientError, Failed], tries: _Tries, deadline: Deadline, key: str, where: Target
    ) -> None:
        """Wait before another try, or raise the error if there is no point in one.

        Where nothing of the request was sent, the next address is called at once; all of them are one try. If one of them
        does not know its cluster's keys yet, the key may be good, and the others may be back soon.
        A server that is shutting down takes nothing any more, for as long as its turns go on.
        What may not be repeated is tried again only where the server took no key of
        ours, and so nothing else, and another than that key is found, or another server.
        """
        unsent = isinstance(error, Refused) or isinstance(error, ClientError) and error.type == "SERVER_UNPROVED"
        if unsent and self._moved():  # nothing was sent, so it is not counted
            return
        many = len(self._places)
        if isinstance(error, ClientError) and _keys_unknown(error):
            tries.unknown = error
        draining = isinstance(error, ClientError) and error.type == "SERVER_DRAINING"
        if many > 1 and (error.unsent or isinstance(error, Broken) or draining or isinstance(error, ClientError) and error.type == "NO_QUORUM"):
            self._next(where)
            if error.unsent and (tries.count + 1) % many != 0:
                return
        if tries.unknown is not None and error.unsent:
            error = tries.unknown
        tries.unknown = None
        keyless = isinstance(error, ClientError) and error.type in ("AUTHENTICATION_FAILED", "SERVER_UNPROVED")
        if (keyless or _keys_unknown(error)) and self._found and self._another(key):
            return
        if keyless:
            raise error
        after, worth = 0.0, isinstance(error, Broken)
        if isinstance(error, ClientError):
            after, worth = error.retry_after, error.http_status in (429, 503) and (not draining or many > 1)
        if isinstance(error, Refused):
            worth = self._may_start()
        if not worth or not repeatable or tries.count >= (self.retries + 1) * many - 1 or after > _LONG_WAIT:
            raise _plain(error)
        most = min(_FIRST_PAUSE * 2 ** (tries.count // many), _LONG_PAUSE)
        wait = max(after, random.uniform(most / 2, most))
        try:
            left = deadline.left()
        except Late:
            left = 0.0
        if left is not None and left < wait:
            raise _plain(error)
        await self._io.sleep(wait)

    def _next(self, where: Target) -> None:
        """Call the address after that one, unless another request has found it before."""
        if self.target == where:
            at = [one._replace(agent=where.agent) for one in self._places].index(where)
            self.target = self._places[(at + 1) % len(self._places)]._replace(agent=where.agent)

    async def _open(self, timeout: Optional[float]) -> Connection:
        where = self.target
        return await self._io.open(where.host, where.port, timeout, self._tls if where.tls else None)

    def _moved(self) -> bool:
        """Whether the server that is meant listens elsewhere by now; then it is called there."""
        port = keys.home_port(self._home or keys.default_home()) if self._moves else None
        if port is None or port == self.target.port:
            return False
        self.target = self.target._replace(port=port)
        if self._found:
            self._another("")
        return True

    def _may_start(self) -> bool:
        """Whether a server may soon listen where none does: one that answered, or one that holds the home."""
        return self._server.answered or keys.home_port(self._home or keys.default_home()) == self.target.port

    def _another(self, key: str) -> bool:
        """Whether there is another key now, which another request may have found first."""
        try:
            self._key = self._discover()
        except ClientError:
            return False
        return self._key != key

    async def _post(
        self, path: str, method: str, params: Dict[str, Any], accept: str, deadline: Deadline
    ) -> Tuple[Response, Callable[[], None]]:
        request: Dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        signed = self._server.signatures
        if signed:
            request["id"] = str(uuid.uuid4())  # two requests alike need different ids
            request["auth"] = keys.signature(self.key(), path, _json(request["id"]), method, _json(params))
        response, close = await self._request("POST", path, _json(request).encode(), accept, deadline)
        if signed or response.status != 401:
            return response, close
        close()  # the key was sent: it is the signature that is missing, and nothing was done
        self._server.signatures = True
        return await self._post(path, method, params, accept, deadline)

    async def _request(
        self, method: str, path: str, body: bytes, accept: str, deadline: Deadline
    ) -> Tuple[Response, Callable[[], None]]:
        """Make a request on a connection of its own, once the server has proved itself on it."""
        key = self.key()
        connection = await self._reach(key, deadline)
        try:
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {self.target.authority}\r\nAuthorization: Bearer {key}\r\n"
                f"Accept: {accept}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            await connection.write(head.encode() + body, deadline.left())
            response = Response(connection)
            await response.head(deadline)
            self._server.answered = True
            return response, connection.close
        except BaseException:
            connection.close()
            raise

    async def _reach(self, key: str, deadline: Deadline) -> Connection:
        """A connection on which the server has proved itself."""
        left = deadline.left()
        several = len(self._places) > 1
        early = Deadline(min(left or _REACH, _REACH)) if several else deadline
        connection: Optional[Connection] = None
        try:
            connection = await self._open(early.left())
            await self._prove(connection, key, early)
            return connection
        except BaseException as e:
            if connection is not None:
                connection.close()
            if isinstance(e, Late) and several:
                deadline.left()  # unless it is over, too
                e = Broken("the server did not answer in time")
            if isinstance(e, (ClientError, Failed)):
                e.unsent = True
            raise e

    async def _prove(self, connection: Connection, key: str, deadline: Deadline) -> None:
        nonce, path = keys.challenge(key)
        await connection.write(f"GET {path} HTTP/1.1\r\nHost: {self.target.authority}\r\n\r\n".encode(), deadline.left())
        response = Response(connection)
        try:
            await response.head(deadline)
            health = _object(await response.body(4096, deadline))
        except Strange:
            health = {}
        ended = response.headers.get("connection", "").lower() == "close" or response.rest()
        if not ended and health.get("service") == "nexus" and health.get("keys_unknown") is True:
            raise ClientError(
                "Resource unavailable", code=-32001, type="NO_QUORUM", http_status=503, retry_after=1.0,
                details="the machine does not know the keys of its cluster, as it has not reached a majority of the machines yet, "
                "or a later version has written them; the API key was not sent to it",
                recovery_suggestions=["Send it again when a majority of the machines is there."],
            )
        if ended or not keys.proves(key, nonce, connection.address, str(health.get("proof", ""))):
            raise ClientError(
                "the server does not have this API key, which was not sent to it", type="SERVER_UNPROVED",
                recovery_suggestions=[
                    "The key has ended (revoke_key, expires_s), was replaced, or is of another server: "
                    "without it, and without NEXUS3_API_KEY, the key file of the home is used."
                ],
            )


def _keys_unknown(error: Union[ClientError, Failed]) -> bool:
    """Whether it is of a machine that does not know its cluster's keys yet, and to which nothing was sent."""
    return isinstance(error, ClientError) and error.unsent and error.type == "NO_QUORUM"


async def health(io: IO, url: str, ca: Optional[str]) -> str:
    """What listens there, without a key: nexus_server, no_server, other_service or timeout."""
    deadline, looks = Deadline(_DETECT), 4
    while True:
        try:
            return await _health(io, target(url, None), deadline, ca)
        except Broken:  # without an answer, perhaps by a server that has just died
            if looks == 0:
                return "other_service"
            looks -= 1
            await io.sleep(0.05)


async def _health(io: IO, where: Target, deadline: Deadline, ca: Optional[str]) -> str:
    try:
        connection = await io.open(where.host, where.port, deadline.left(), trust(ca) if where.tls else None)
    except Untrusted:
        return "other_service"
    except Broken as e:
        if isinstance(e.__cause__, ConnectionResetError):
            raise
        return "no_server"
    except Late:
        return "timeout"
    try:
        await connection.write(f"GET /healthz HTTP/1.1\r\nHost: {where.authority}\r\nConnection: close\r\n\r\n".encode(), deadline.left())
        response = Response(connection)
        await response.head(deadline)
        ours = _object(await response.body(4096, deadline)).get("service") == "nexus"
        return "nexus_server" if ours else "other_service"
    except Late:
        return "timeout"
    except Strange:
        return "other_service"
    finally:
        connection.close()


async def _named(work: Awaitable[T], params: Dict[str, Any]) -> T:
    """Have errors say of which request they are."""
    try:
        return await work
    except ClientError as e:
        e.request_id = str(params.get("request_id", ""))
        raise


def _plain(error: Exception) -> ClientError:
    """What went wrong, as callers see it."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, Late):
        return ClientError(
            "the server did not answer in time", type="CLIENT_TIMEOUT",
            recovery_suggestions=["What was begun goes on: where the call has a request_id, ask again with the same one.", "Raise timeout."],
        )
    if isinstance(error, Untrusted):
        return ClientError(
            "the server's certificate is not accepted, and the API key was not sent to it", type="SERVER_UNTRUSTED", details=str(error),
            recovery_suggestions=["Give the file of the authority that signs the server's certificate (ca, NEXUS_CA)."],
        )
    if isinstance(error, Strange):
        return ClientError("the answer is not a nexus server's", type="NOT_NEXUS", details=str(error))
    if isinstance(error, Refused):
        return ClientError(
            f"no server runs at {error.where}: start one with nexus serve", type="CONNECTION_FAILED", details=str(error),
            recovery_suggestions=["Start a server with nexus serve.", "If one runs elsewhere, give its URL, its home or NEXUS_PORT."],
        )
    return ClientError("no connection to the server", type="CONNECTION_FAILED", details=str(error))


def dict_of(params: Any) -> Dict[str, Any]:
    """Return the parameters of a call; those that are no dict are a TypeError, as an empty list is."""
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise TypeError(f"params: want a dict, have {type(params).__name__}")
    return cast(Dict[str, Any], params)


def _params(given: Dict[str, Any], required: Tuple[str, ...] = ()) -> Dict[str, Any]:
    """Return what is sent. A number that JSON does not have is a ClientError (INVALID_PARAMS), another type a TypeError."""
    params = {k: v for k, v in given.items() if k != "self" and (v is not None or k in required)}
    for name, value in params.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ClientError(f"{name}: want a number, have {value}", type="INVALID_PARAMS")
        if not isinstance(value, str):  # which may be long
            try:
                _json(value)
            except TypeError as e:
                raise TypeError(f"{name}: {e}") from e
    return params


def _seconds(timeout_s: Any, otherwise: int) -> float:
    """Return what a method may take by itself. What is no number is for the server to refuse."""
    return timeout_s if timeout_s and isinstance(timeout_s, (int, float)) else otherwise


def _json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError as e:  # deeper within
        raise ClientError(f"the parameters cannot be JSON: {e}", type="INVALID_PARAMS") from e


def _object(body: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        raise Strange("it is not JSON") from None
    if not isinstance(value, dict):
        raise Strange("it is no object")
    return cast(Dict[str, Any], value)


def _result(response: Response, body: bytes) -> Any:
    return _unwrap(_object(body), response)


def _unwrap(answer: Dict[str, Any], response: Response) -> Any:
    if isinstance(answer.get("error"), dict):
        after = response.headers.get("retry-after", "")
        raise told(answer["error"], response.status, float(after) if after.isdigit() else 0.0)
    if "result" not in answer:
        raise Strange("it has no result")
    return answer["result"]


def _is_stream(response: Response) -> bool:
    media = response.headers.get("content-type", "").split(";")[0].strip().lower()
    return response.status == 200 and media == "text/event-stream"


async def _events(response: Response) -> AsyncGenerator[_Read, None]:
    """Read text/event-stream. It ends with Broken where the stream does. An event without a type says where it goes on."""
    lines = _Lines()
    event: Dict[str, str] = {}
    while True:
        piece = await response.piece(lambda: _SILENCE)
        if not piece:
            raise Broken("the stream ended")
        for line in lines.of(piece):
            if line:
                name, _, value = line.partition(":")
                event[name] = value[1:] if value.startswith(" ") else value
                continue
            if "data" in event or "id" in event:
                number = event.get("id", "")
                seq = int(number) if number.isdigit() else 0
                yield StreamEvent(event.get("id"), seq, event.get("event", ""), _object(event.get("data", "{}").encode()))
            event = {}


class _Lines:
    """The lines of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._pieces: List[bytes] = []
        self._size = 0

    def of(self, piece: bytes) -> Iterator[str]:
        *whole, rest = piece.split(b"\n")
        for end in whole:
            line = b"".join(self._pieces) + end
            self._pieces, self._size = [], 0
            yield line.rstrip(b"\r").decode()
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size > MAX_LINE:
            raise Strange(f"a line is longer than {MAX_LINE} bytes")
