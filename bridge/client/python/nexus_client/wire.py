"""HTTP/1.1, as much as a nexus server speaks, over asyncio or plain sockets.

What is written with async def works over both: with a plain socket nothing ever
waits in an event loop, and run and iterate drive it to its end.
"""

import asyncio
import errno
import hashlib
import socket
import ssl
import time
from typing import Any, AsyncGenerator, Awaitable, Callable, Dict, Generator, Generic, NamedTuple, Optional, TypeVar

T = TypeVar("T")

MAX_LINE = 49 << 20  # bytes of an event, and of an answer: 8 MiB of text, however JSON escapes it
_MAX_HEAD = 64 << 10  # bytes of a line of a response's head
_PIECE = 64 << 10


class Failed(Exception):
    """There is no answer."""

    unsent = False  # nothing of the request was sent


class Broken(Failed):
    """The connection could not be had, or broke. What the server did is not known."""


class Refused(Broken):
    """Nothing listens there, so the server did nothing."""

    def __init__(self, host: str, port: int, tls: bool, error: OSError) -> None:
        super().__init__(str(error))
        self.where = ("https://" if tls else "http://") + _address((host, port))


class Untrusted(Failed):
    """The server has not proved by a certificate to be the host that is meant."""


class Strange(Failed):
    """The answer is not a nexus server's."""


class Late(Failed):
    """The time is over."""


class Connection:
    """A connection: of asyncio or of a socket."""

    address = ""  # what is at its other end, as in 127.0.0.1:8765 or [::1]:8765, or by which certificate

    async def write(self, data: bytes, timeout: Optional[float]) -> None:
        raise NotImplementedError

    async def read(self, timeout: Optional[float]) -> bytes:
        """The next bytes; none at the end."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class IO(NamedTuple):
    """How to connect and to wait."""

    open: Callable[[str, int, Optional[float], Optional[ssl.SSLContext]], Awaitable[Connection]]
    sleep: Callable[[float], Awaitable[None]]


def _certificate(encrypted: Any) -> str:
    return "certificate:" + hashlib.sha256(encrypted.getpeercert(binary_form=True)).hexdigest()


def _address(peer: Any) -> str:
    host = f"[{peer[0]}]" if ":" in peer[0] else peer[0]
    return f"{host}:{peer[1]}"


class _Stream(Connection):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        encrypted, peer = writer.get_extra_info("ssl_object"), writer.get_extra_info("peername")
        if not encrypted and not peer:
            self.close()
            raise Broken("the server closed the connection")
        self.address = _certificate(encrypted) if encrypted else _address(peer)

    async def write(self, data: bytes, timeout: Optional[float]) -> None:
        self._writer.write(data)
        await _within(self._writer.drain(), timeout)

    async def read(self, timeout: Optional[float]) -> bytes:
        return await _within(self._reader.read(_PIECE), timeout)

    def close(self) -> None:
        # To close a connection of TLS politely waits for the server, and the event loop may end before.
        self._writer.transport.abort()


async def _within(work: Awaitable[T], timeout: Optional[float]) -> T:
    try:
        return await asyncio.wait_for(work, timeout)
    except asyncio.TimeoutError:
        raise Late() from None
    except OSError as e:
        raise Broken(str(e)) from e


async def _open_stream(host: str, port: int, timeout: Optional[float], tls: Optional[ssl.SSLContext]) -> Connection:
    try:
        reader, writer = await _within(asyncio.open_connection(host, port, ssl=tls, server_hostname=host if tls else None), timeout)
    except Broken as e:
        raise _untrusted(host, port, e.__cause__) or _refused(host, port, tls, e.__cause__) or e from e.__cause__
    return _Stream(reader, writer)


class _Socket(Connection):
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.address = _certificate(sock) if isinstance(sock, ssl.SSLSocket) else _address(sock.getpeername())

    async def write(self, data: bytes, timeout: Optional[float]) -> None:
        self._within(lambda: self._socket.sendall(data), timeout)

    async def read(self, timeout: Optional[float]) -> bytes:
        return self._within(lambda: self._socket.recv(_PIECE), timeout)

    def _within(self, work: Callable[[], T], timeout: Optional[float]) -> T:
        try:
            self._socket.settimeout(timeout)
            return work()
        except socket.timeout:
            raise Late() from None
        except OSError as e:
            raise Broken(str(e)) from e

    def close(self) -> None:
        self._socket.close()


async def _open_socket(host: str, port: int, timeout: Optional[float], tls: Optional[ssl.SSLContext]) -> Connection:
    sock: Optional[socket.socket] = None
    try:
        sock = socket.create_connection((host, port), timeout)
        return _Socket(tls.wrap_socket(sock, server_hostname=host) if tls else sock)
    except OSError as e:
        if sock is not None:
            sock.close()
        if isinstance(e, socket.timeout):
            raise Late() from None
        raise _untrusted(host, port, e) or _refused(host, port, tls, e) or Broken(str(e)) from e


def _untrusted(host: str, port: int, error: Optional[BaseException]) -> Optional[Untrusted]:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(f"{_address((host, port))}: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return Untrusted(f"{_address((host, port))} does not speak TLS: {error}")
    return None


def _refused(host: str, port: int, tls: Optional[ssl.SSLContext], error: Optional[BaseException]) -> Optional[Refused]:
    # Where a name has several addresses, asyncio gives one error without a number for all.
    if isinstance(error, OSError) and error.errno in (errno.ECONNREFUSED, None):
        return Refused(host, port, tls is not None, error)
    return None


async def _sleep_here(seconds: float) -> None:
    time.sleep(seconds)


ASYNC = IO(_open_stream, asyncio.sleep)
SYNC = IO(_open_socket, _sleep_here)


def run(work: Awaitable[T]) -> T:
    """The result of what was written for asyncio and never waits in its loop."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as e:
        return e.value
    raise RuntimeError("something waits for an event loop")


class _End(Generic[T]):
    pass


def iterate(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """The same for what gives items."""
    end: _End[T] = _End()

    async def step() -> Any:
        try:
            return await items.__anext__()
        except StopAsyncIteration:
            return end

    try:
        while True:
            item = run(step())
            if item is end:
                return
            yield item
    finally:
        run(items.aclose())


class Deadline:
    """The end of a call's time; None is none."""

    def __init__(self, seconds: Optional[float]) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> Optional[float]:
        """Seconds, above 0."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise Late()
        return left


class Response:
    """The answer to one request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._buffer = b""
        self._left: Optional[int] = None  # bytes of the body, or of its chunk
        self._chunked = False
        self.status = 0
        self.headers: Dict[str, str] = {}

    async def head(self, deadline: Deadline) -> None:
        """Read the status and the headers."""
        line = await self._line(_MAX_HEAD, deadline.left)
        words = line.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise Strange("it does not speak HTTP")
        self.status = int(words[1])
        while True:
            line = await self._line(_MAX_HEAD, deadline.left)
            if not line:
                break
            name, colon, value = line.partition(b":")
            if not colon or len(self.headers) > 100:
                raise Strange("its headers are none")
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        if self._chunked:
            self._left = 0
        elif length is not None:
            if not length.isdigit():
                raise Strange("its Content-Length is no number")
            self._left = int(length)

    async def body(self, limit: int, deadline: Deadline) -> bytes:
        """All of it."""
        out = bytearray()
        while True:
            piece = await self.piece(deadline.left)
            if not piece:
                return bytes(out)
            out += piece
            if len(out) > limit:
                raise Strange(f"the answer is longer than {limit} bytes")

    async def piece(self, left: Callable[[], Optional[float]]) -> bytes:
        """The next bytes of the body; none at its end."""
        if self._chunked and self._left == 0:
            size = await self._line(_MAX_HEAD, left)
            try:
                self._left = int(size.split(b";")[0], 16)
            except ValueError:
                raise Strange("a chunk has no length") from None
            if self._left == 0:
                await self._line(_MAX_HEAD, left)
                self._chunked = False
                return b""
        if self._left == 0:
            return b""
        data = self._buffer or await self._connection.read(left())
        if not data:
            if self._left is None:
                self._left = 0
                return b""
            raise Broken("the answer broke off")
        if self._left is None:
            self._buffer = b""
            return data
        piece, self._buffer = data[: self._left], data[self._left :]
        self._left -= len(piece)
        if self._chunked and self._left == 0 and await self._line(_MAX_HEAD, left):
            raise Strange("a chunk has no end")
        return piece

    async def _line(self, limit: int, left: Callable[[], Optional[float]]) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > limit:
                raise Strange("a line has no end")
            data = await self._connection.read(left())
            if not data:
                raise Broken("the server closed the connection")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def rest(self) -> bool:
        """Whether more came than was asked for."""
        return bool(self._buffer)
