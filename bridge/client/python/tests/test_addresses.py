"""Several addresses, by TLS, of real servers."""

import asyncio
import gc
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import unittest
import warnings
from typing import Any, List

from nexus_client import ClientError, NexusClient, NexusClientSync

from .server import BIN, Bounded, Server, response


class Addresses(Bounded):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.dir = os.path.join(made.name, "farm")
        machines = ["a=127.0.0.1:1", "b=127.0.0.2:1"]
        subprocess.run([os.path.join(BIN, "nexus"), "cluster", "init", self.dir, *machines], check=True, stdout=subprocess.DEVNULL)
        self.ca = os.path.join(self.dir, "a", "ca.pem")
        self.server = Server()
        self.addCleanup(self.server.close)

    def listen(self, machine: str, host: str) -> str:
        """Start the server anew, with a listener for other machines, and return its URL."""
        self.server.end()
        pair = [os.path.join(self.dir, machine, name) for name in ("certificate.pem", "key.pem")]
        self.server.flags = ["--listen", f"{host}:0", "--tls-cert", pair[0], "--tls-key", pair[1]]
        self.server.start()
        return self.server.remote

    def test_tls(self) -> None:
        """A server is known by its certificate; what is wrong with one is said, and no key is sent."""
        url = self.listen("a", "127.0.0.1")
        dead = "https://127.0.0.1:1"
        key = self.server.key
        with NexusClientSync(f"{dead},{url}", api_key=key, ca=self.ca) as client:
            self.assertEqual(client.list_agents()["agents"], [])
        with NexusClientSync([dead, url], api_key=key, ca=self.ca) as client:
            client.rotate_key(grace_s=60)  # which may not be repeated, and nothing was sent to the first
        other = os.path.join(self.dir, "..", "other")
        subprocess.run([os.path.join(BIN, "nexus"), "cluster", "init", other, "a=x:1", "b=y:1"], check=True, stdout=subprocess.DEVNULL)
        for wrong, ca, want in (
            (url, os.path.join(other, "a", "ca.pem"), "unable to get local issuer|self.signed|verify failed"),
            (url.replace("127.0.0.1", "localhost"), self.ca, "[Hh]ostname mismatch"),
            (self.server.url.replace("http:", "https:"), self.ca, "does not speak TLS"),
        ):
            with self.assertRaisesRegex(ClientError, want) as caught:
                NexusClientSync(wrong, api_key=key, ca=ca, retries=0).list_agents()
            self.assertEqual(caught.exception.type, "SERVER_UNTRUSTED")
        for bad in ("http://example.com", "https://a/agent/x,https://b/agent/y", "https://a,", []):
            with self.assertRaises(ValueError):
                NexusClientSync(bad or ["ftp://a"], api_key=key, ca=self.ca)

    def test_nothing_is_left_open(self) -> None:
        """A server that goes on with its end of a connection, and one that resets it at once, leave no open transport and no strange error."""
        self.listen("a", "127.0.0.1")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*[os.path.join(self.dir, "a", name) for name in ("certificate.pem", "key.pem")])
        over = threading.Event()

        def hold(accepted: socket.socket) -> None:
            with tls.wrap_socket(accepted, server_side=True) as connection:
                connection.recv(65536)
                connection.sendall(response(503, {}))
                over.wait()

        def reset(accepted: socket.socket) -> None:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()

        async def ask(url: str) -> None:
            await NexusClient(url, api_key=self.server.key, ca=self.ca, retries=0).list_agents()

        for serve, scheme in ((hold, "https"), (reset, "http")):
            with socket.create_server(("127.0.0.1", 0)) as listener, warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                server = threading.Thread(target=lambda: serve(listener.accept()[0]))
                server.start()
                try:
                    with self.assertRaises(ClientError):
                        asyncio.run(ask(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"))
                    gc.collect()
                finally:
                    over.set()
                    server.join()
                self.assertEqual([str(one.message) for one in warned], [])

    def test_the_environment(self) -> None:
        url = self.listen("a", "127.0.0.1")
        for name, value in (("NEXUS_SERVER", "https://127.0.0.1:1," + url), ("NEXUS_CA", self.ca), ("NEXUS3_API_KEY", self.server.key)):
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name, None)
        self.assertEqual(NexusClientSync().list_agents()["agents"], [])
        # The key files of a home are of its own server, which is not called by TLS.
        os.environ["NEXUS3_API_KEY"], os.environ["NEXUS_SERVER"] = "", url
        with self.assertRaisesRegex(ClientError, "the key files of a home are of its own server") as caught:
            NexusClientSync(home=self.server.home).list_agents()
        self.assertEqual(caught.exception.type, "NO_KEY")
        os.environ["NEXUS_SERVER"] = self.server.url
        self.assertEqual(NexusClientSync(home=self.server.home).list_agents()["agents"], [])

    def test_goes_on_elsewhere(self) -> None:
        """The server is killed in the midst of events, and the next address has them: no number twice, no hole that is not said to be one."""
        first = self.listen("a", "127.0.0.1")
        whole = NexusClientSync(first, api_key=self.server.key, ca=self.ca)
        whole.create_agent(agent_id="w")
        key = whole.create_key(scope="agent", agent_id="w")["key"]
        second = f"https://127.0.0.2:{first.rpartition(':')[2]}"  # which nobody is at yet
        client = NexusClientSync([f"{first}/agent/w", f"{second}/agent/w"], api_key=key, ca=self.ca, retries=60)
        client.send("My name is Alice", request_id="first")
        seen: List[Any] = []
        killed = False
        for event in client.events(0):
            if event.seq:
                self.assertGreater(event.seq, seen[-1].seq if seen else 0)
                if event.type != "gap" and seen:
                    self.assertEqual(event.seq, seen[-1].seq + 1)
                seen.append(event)
            if event.type == "turn_end" and not killed:
                killed = True
                self.server.kill()
                pair = [os.path.join(self.dir, "b", name) for name in ("certificate.pem", "key.pem")]
                self.server.flags = ["--listen", second[len("https://") :], "--tls-cert", pair[0], "--tls-key", pair[1]]
                self.server.start()
                self.assertTrue(client.send("My name is Alice", request_id="first").get("replayed"))
                self.assertEqual(client.send("What is my name?")["content"], "Your name is Alice.")
            elif event.type == "turn_end":
                break
        self.assertTrue(killed)

    def test_asyncio(self) -> None:
        import asyncio

        url = self.listen("a", "127.0.0.1")

        async def ask() -> Any:
            async with NexusClient(["https://127.0.0.1:1", url], api_key=self.server.key, ca=self.ca) as client:
                return await client.list_agents()

        self.assertEqual(asyncio.run(ask())["agents"], [])

        async def refused() -> Any:
            return await NexusClient(url, api_key=self.server.key, retries=0).list_agents()

        with self.assertRaises(ClientError) as caught:
            asyncio.run(refused())
        self.assertEqual(caught.exception.type, "SERVER_UNTRUSTED")


if __name__ == "__main__":
    unittest.main()
