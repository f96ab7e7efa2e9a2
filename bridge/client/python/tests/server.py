"""A real server for the tests, and one that plays whatever a test wants."""

import base64
import errno
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse
from typing import Any, Callable, List, Optional

BIN = os.environ.get("NEXUS_BIN", os.path.join(os.path.dirname(__file__), "..", "..", "..", "..", "bin"))


class Bounded(unittest.TestCase):
    """A test that would wait for ever fails, and so does what ends its processes."""

    limit = 100  # seconds

    def run(self, result: Any = None) -> Any:
        def late(*_: Any) -> None:
            self.fail(f"waited {self.limit} s")

        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, self.limit, self.limit)
        try:
            return super().run(result)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


class Server:
    """nexus serve in a home of its own, on a port that is free."""

    def __init__(self, scenario: Optional[dict] = None, **configuration: Any) -> None:
        self.home = tempfile.mkdtemp(prefix="nexus-python-")
        self.port = 0
        self.remote = ""  # where other machines reach it
        self.key = ""
        self.flags: List[str] = []
        if scenario is not None:
            self.flags = ["--scenario", os.path.join(self.home, "scenario.json")]
            self._write("scenario.json", scenario)
        if configuration:
            self._write("config.json", {"server": configuration})
        self.start()

    def _write(self, name: str, value: dict) -> None:
        with open(os.path.join(self.home, name), "w", encoding="utf-8") as file:
            os.chmod(file.name, 0o600)
            json.dump(value, file)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("NEXUS3_API_KEY", "NEXUS_HOME")}
        self.process = subprocess.Popen(
            [os.path.join(BIN, "nexus"), "serve", str(self.port), "--home", self.home, *self.flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True,
        )
        for line in self.process.stdout:
            if line.startswith("nexus listening on "):
                self.port = urllib.parse.urlsplit(line.split()[-1]).port
            if line.startswith("for other machines: "):
                self.remote = line.split()[-1]
            if line.startswith("key file: "):
                with open(line.split(": ", 1)[1].rstrip("\n"), encoding="ascii") as file:
                    self.key = file.read().strip()
                return
        raise RuntimeError("the server did not start")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        for _ in range(1000):  # a process that it was starting has its socket for a moment
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == errno.ECONNREFUSED:
                    return
            time.sleep(0.01)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def close(self) -> None:
        self.end()
        shutil.rmtree(self.home, ignore_errors=True)


class Player:
    """A server that proves to have the key, and answers each request as the test says.

    play gets the number of the request, from 1, and its body, and returns the whole
    response; None closes the connection. unknown is how many challenges it answers before it knows its keys.
    """

    def __init__(self, play: Callable[[int, dict], Optional[bytes]], key: Optional[str] = "nxk_test", unknown: int = 0) -> None:
        self.play, self.key, self.unknown = play, key, unknown
        self.heard: List[bytes] = []
        self.bodies: List[dict] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        head, body = self._request(connection)
        if not head.startswith(b"GET /healthz?"):
            return
        query = urllib.parse.parse_qs(head.split()[1].decode().partition("?")[2])
        health: dict = {"status": "ok", "service": "nexus", "version": "test"}
        self.unknown -= 1
        if self.unknown >= 0:
            health["keys_unknown"] = True
        elif self.key is not None:
            digest = hashlib.sha256(self.key.encode()).hexdigest()
            address = "127.0.0.1:%d" % self.listener.getsockname()[1]
            text = f"nexus-proof-v1\n{query['challenge'][0]}\n{address}"
            health["proof"] = base64.b64encode(hmac.new(digest.encode(), text.encode(), hashlib.sha256).digest()).decode()
        connection.sendall(response(200, health))
        head, body = self._request(connection)
        if head:
            self.bodies.append(json.loads(body) if body else {})
            answer = self.play(len(self.bodies), self.bodies[-1])
            if answer is not None:
                connection.sendall(answer)

    def _request(self, connection: socket.socket):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return b"", b""
            self.heard.append(piece)
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        while len(body) < length:
            body += connection.recv(65536)
        return head, body


def response(status: int, value: dict, *headers: str) -> bytes:
    body = json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def result(value: dict) -> bytes:
    return response(200, {"jsonrpc": "2.0", "id": 1, "result": value})


def stream(*events: str) -> bytes:
    """A stream that the connection's end ends."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + "".join(events).encode()
