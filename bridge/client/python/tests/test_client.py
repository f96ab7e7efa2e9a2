"""The clients against a real server: python3 -m unittest, with its programs in NEXUS_BIN."""

import asyncio
import inspect
import json
import os
import socket
import struct
import tempfile
import threading
import time
import unittest
import urllib.request
from typing import Any, List
from unittest import mock

from nexus_client import ClientError, NexusClient, NexusClientSync, detect, detect_sync
from nexus_client._table import METHODS

from .server import Bounded, Player, Server, response, result, stream

PATIENCE = 60.0  # nothing is asserted about the time that things take

os.environ.pop("NEXUS3_API_KEY", None)  # of whoever runs the tests


# Task b waits until a is done; each is a turn whose answer has the declared shape.
PLAN = {"tasks": [
    {"id": "a", "type": "analysis", "description": "task a", "priority": 1},
    {"id": "b", "type": "analysis", "description": "task b", "priority": 2, "dependencies": ["a"]},
]}
SCENARIO = {"turns": [{"match": f"\n\ntask {name}\n", "steps": [{"delay_ms": delay}, {
    "text": json.dumps({"status": "success", "code": "", "explanation": f"{name} is done"}),
}]} for name, delay in (("a", 0), ("b", 500))]}


class Real(Bounded):
    def setUp(self) -> None:
        self.server = self.started()

    def started(self, *args: Any, **options: Any) -> Server:
        server = Server(*args, **options)
        self.addCleanup(server.close)
        return server

    def sync(self, **options: Any) -> NexusClientSync:
        return NexusClientSync(self.server.url, PATIENCE, home=self.server.home, **options)

    def client(self, **options: Any) -> NexusClient:
        return NexusClient(self.server.url, PATIENCE, home=self.server.home, **options)

    def test_conversation(self) -> None:
        with self.sync() as server:
            self.assertEqual(server.create_agent("worker-1")["url"], "/agent/worker-1")
            worker = NexusClientSync(self.server.url + "/agent/worker-1", PATIENCE, home=self.server.home)
            worker.send("My name is Alice")
            answer = worker.send("What is my name?", "req-1")
            self.assertIn("Alice", answer["content"])
            self.assertEqual(answer["request_id"], "req-1")
            self.assertTrue(worker.send("What is my name?", "req-1")["replayed"])
            self.assertGreater(worker.get_tokens()["total"], 0)
            self.assertEqual(worker.get_context()["message_count"], 4)
            self.assertEqual(worker.get_messages()["total"], 4)
            self.assertEqual(worker.cancel("req-1")["reason"], "not_found_or_completed")
            worker.set_system_prompt("Be brief.")
            self.assertEqual(worker.get_system_prompt()["system_prompt"], "Be brief.")
            worker.set_system_prompt(None)
            self.assertEqual(worker.call("get_model")["model"], worker.get_model()["model"])
            self.assertTrue(worker.shutdown()["success"])
            self.assertEqual([a["agent_id"] for a in server.list_agents()["agents"]], ["worker-1"])
            self.assertTrue(server.destroy_agent("worker-1")["success"])
            self.assertTrue(server.shutdown_server()["success"])
            self.server.process.wait(PATIENCE)

    def test_conversation_of_asyncio(self) -> None:
        async def talk() -> None:
            async with self.client() as server:
                await server.create_agent(agent_id="a")
                a = server.agent("a")
                self.assertEqual((a.agent_id, server.agent_id), ("a", None))
                answers = await asyncio.gather(*(a.send(f"My name is Alice {i}") for i in range(5)))
                self.assertEqual(len({x["request_id"] for x in answers}), 5)
                self.assertEqual((await a.get_context())["message_count"], 10)
                running = asyncio.create_task(a.send("Write a long essay", "long"))
                cancelled = {"cancelled": False}
                while not cancelled["cancelled"] and not running.done():
                    cancelled = await a.cancel("long")
                self.assertTrue((await running)["cancelled"])

        asyncio.run(talk())

    def test_every_method_is_there(self) -> None:
        names = [m["name"] for m in self.sync().rpc_discover()["methods"]]
        self.assertEqual(names, list(METHODS))
        for shape in (NexusClient, NexusClientSync):
            for name in names:
                self.assertTrue(callable(getattr(shape, name.replace(".", "_"))), name)
        self.assertEqual(list(inspect.signature(NexusClient.send).parameters)[:3], ["self", "content", "request_id"])

    def test_stream(self) -> None:
        self.sync().create_agent("a")
        parts = list(self.sync(agent_id="a").send_stream("My name is Alice and I like short answers"))
        self.assertGreater(len(parts), 1)
        self.assertEqual("".join(p.text for p in parts), parts[-1].result["content"])

        async def leave() -> None:
            a = self.client(agent_id="a")
            pieces = a.send_stream("Write a long essay", "essay")
            async for part in pieces:
                self.assertTrue(part.text)
                break
            await pieces.aclose()
            await a.cancel("essay")
            again = [p async for p in a.send_stream("Write a long essay", "essay")]
            self.assertEqual(again[-1].result["request_id"], "essay")

        asyncio.run(leave())

    def test_task_stream(self) -> None:
        parts = list(self.sync().execute_task_stream("code_generation", "Write a hello in Go", request_id="hello"))
        self.assertEqual([p.type for p in parts[:2]] + [parts[-1].type], ["progress", "text", "result"])
        self.assertEqual(parts[-1].result["status"], "success")
        again = list(self.sync().execute_task_stream("code_generation", "Write a hello in Go", request_id="hello"))
        self.assertEqual(([p.type for p in again], again[0].result["replayed"]), (["result"], True))

        async def plan() -> None:
            async with self.client() as client:
                parts = [p async for p in client.create_plan_stream("Add a health check")]
                self.assertTrue(parts[-1].result["plan"]["tasks"])

        asyncio.run(plan())

    def test_run_of_a_plan(self) -> None:
        self.server = self.started(SCENARIO)
        self.assertEqual(self.sync().readyz()["status"], "ready")
        parts = list(self.sync().run_plan_stream(PLAN, pool={"size": 2}, request_id="run"))
        self.assertEqual([(p.type, p.data.get("task_id") if p.result is None else None) for p in parts], [
            ("plan_start", None), ("task_start", "a"), ("task_end", "a"), ("task_start", "b"), ("task_end", "b"), ("plan_end", None), ("result", None),
        ])
        self.assertEqual((parts[2].data["status"], parts[-2].data["status"], parts[-1].result["status"]), ("success", "completed", "completed"))
        self.assertEqual(parts[-1].result["tasks"][1]["result"]["output"]["explanation"], "b is done")
        again = list(self.sync().run_plan_stream(PLAN, pool={"size": 2}, request_id="run"))
        self.assertEqual([p.type for p in again], ["plan_start", "plan_end", "result"])
        self.assertEqual((again[0].data["completed"], again[-1].result["replayed"]), (["a", "b"], True))
        with self.assertRaises(ClientError) as caught:
            list(self.sync().run_plan_stream({"tasks": []}))
        self.assertEqual(caught.exception.type, "INVALID_PARAMS")

    def test_run_of_a_plan_over_a_killed_server(self) -> None:
        self.server = self.started(SCENARIO)

        async def follow() -> List[Any]:
            client = self.client(retries=50)
            self.assertEqual((await client.readyz())["status"], "ready")
            parts = []
            async for part in client.run_plan_stream(PLAN, pool={"size": 1}, request_id="run"):
                parts.append(part)
                if part.type == "task_end" and len(parts) == 3:
                    self.server.kill()
                    self.server.start()  # it has another key
            return parts

        parts = asyncio.run(follow())
        starts = [p for p in parts if p.type == "plan_start"]
        self.assertEqual([p.data["completed"] for p in starts], [[], ["a"]])
        self.assertEqual([p.data["task_id"] for p in parts if p.type == "task_end"], ["a", "b"])
        self.assertEqual((parts[-1].result["status"], parts[-1].result["resumed"]), ("completed", True))

    def test_signatures(self) -> None:
        self.server = self.started(require_signatures=True)
        client = self.sync()
        client.create_agent("a")
        a = client.agent("a")
        parts = list(a.send_stream("My name is Zoë"))
        self.assertIn("Zoë", parts[-1].result["content"])
        self.assertEqual(self.sync().readyz()["status"], "ready")

        async def many() -> Any:
            shared = self.client()
            return await asyncio.gather(*(shared.list_agents() for _ in range(20)))

        for answer in asyncio.run(many()):
            self.assertEqual(len(answer["agents"]), 1)

    def test_events_go_on_over_a_killed_server(self) -> None:
        async def follow() -> None:
            server = self.client(retries=50)
            await server.create_agent("a")
            a = server.agent("a")
            await a.send("one", "one")
            events: List[Any] = []
            killed = False
            async for event in a.events(0):
                events.append(event)
                if event.type == "turn_end" and not killed:
                    killed = True
                    self.server.kill()
                    self.server.start()  # it has another key
                    await a.send("two", "two")
                elif event.type == "turn_end":
                    break
            numbers = [e.seq for e in events if e.seq]
            self.assertEqual(numbers, sorted(set(numbers)))
            self.assertEqual([e.data["turn_id"] for e in events if e.type == "turn_end"], ["one", "two"])
            everything = server.all_events(0)
            first = await everything.__anext__()
            self.assertEqual((first.type, first.seq), ("open", 0))
            await everything.aclose()

        asyncio.run(follow())
        client = self.sync()
        with self.assertRaises(ClientError) as caught:
            list(client.agent("nobody").events(0))
        self.assertEqual(caught.exception.type, "AGENT_NOT_FOUND")

    def test_events_go_on_before_the_first_one(self) -> None:
        async def follow() -> None:
            server = self.client(retries=50)
            await server.create_agent("early")
            a = server.agent("early")
            events = a.events()
            first = asyncio.ensure_future(events.__anext__())
            metrics = urllib.request.Request(self.server.url + "/metrics", headers={"Authorization": f"Bearer {self.server.key}"})
            while b'requests_running{route="events"} 1' not in await asyncio.to_thread(lambda: urllib.request.urlopen(metrics).read()):
                await asyncio.sleep(0.01)
            self.server.kill()
            self.server.start()
            await a.send("one", "one")
            told = [await first]
            while told[-1].type != "turn_end":
                told.append(await events.__anext__())
            self.assertEqual((told[-1].data["turn_id"], "turn_start" in [e.type for e in told]), ("one", True))
            await events.aclose()

        asyncio.run(follow())

    def test_events_that_are_wanted(self) -> None:
        server = self.sync(retries=50)
        for name in ("a", "b", "c"):
            server.create_agent(name)
            server.agent(name).send("hello", name + "1")
        of_a, got = server.agent("a").events(0, types=["turn_start", "turn_end"]), []
        for event in of_a:
            got.append((event.type, event.data["turn_id"]))
            if len(got) == 2:
                self.server.end()  # which saves all events, unlike a kill
                self.server.start()
                server.agent("a").send("hello", "a2")
            if len(got) == 4:
                break
        of_a.close()
        self.assertEqual(got, [("turn_start", "a1"), ("turn_end", "a1"), ("turn_start", "a2"), ("turn_end", "a2")])
        server.agent("c").send("hello", "c2")  # so that it runs in the later server, too
        server.agent("b").send("hello", "b2")
        of_two, got = server.all_events(0, types=["turn_end"], agents=["a", "b"]), []
        for event in of_two:
            if event.type != "open":
                got.append((event.data["agent_id"], event.data["event"]["type"], event.data["event"]["turn_id"]))
            if len(got) == 4:
                break
        of_two.close()
        self.assertEqual(sorted(got), [(name, "turn_end", name + n) for name in "ab" for n in "12"])
        for refused in (server.all_events(0, types=[]), server.agent("a").events(0, types=[""])):
            with self.assertRaises(ClientError) as caught:
                next(refused)
            self.assertEqual(caught.exception.type, "INVALID_PARAMS")

    def test_a_send_goes_on_with_a_later_server(self) -> None:
        self.sync().create_agent("a")

        async def both() -> Any:
            a = self.client(agent_id="a", retries=50)
            await a.send("My name is Alice", "one")
            self.server.kill()
            waiting = asyncio.create_task(a.send("What is my name?"))
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, self.server.start)
            return await waiting

        self.assertIn("Alice", asyncio.run(both())["content"])

    def test_requests_at_once_all_find_the_key_of_a_later_server(self) -> None:
        async def many() -> Any:
            client = self.client()
            await client.list_agents()
            self.server.kill()
            self.server.start()
            return await asyncio.gather(*(client.list_agents() for _ in range(20)))

        self.assertEqual(asyncio.run(many()), [{"agents": []}] * 20)

    def test_errors(self) -> None:
        client = self.sync()
        for call, code, kind in (
            (lambda: client.agent("nobody").send("x"), -32602, "AGENT_NOT_FOUND"),
            (lambda: client.call("unheard_of"), -32601, "METHOD_NOT_FOUND"),
            (lambda: client.create_agent("..", cwd="x"), -32602, "INVALID_PARAMS"),
            (lambda: client.send("x"), None, "NO_AGENT"),
            (lambda: self.sync(api_key="nxk_wrong").list_agents(), None, "SERVER_UNPROVED"),
            (lambda: NexusClientSync(self.server.url, home=self.nowhere()).list_agents(), None, "NO_KEY"),
        ):
            with self.assertRaises(ClientError) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.type), (code, kind))
        with self.assertRaises(ClientError) as caught:
            client.agent("nobody").get_tokens()
        self.assertIn("Agent not found: nobody", str(caught.exception))
        self.assertTrue(caught.exception.recovery_suggestions)

    def nowhere(self) -> str:
        """A home where no server was."""
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        return home.name

    def test_without_a_server(self) -> None:
        """That no server runs is told with or without a key, and what to do."""
        self.server.kill()
        options: Any
        for options in ({"home": self.nowhere()}, {"home": self.server.home}, {"api_key": "nxk_test"}):
            for host in ("127.0.0.1", "localhost"):
                url = f"http://{host}:{self.server.port}"
                plain = NexusClientSync(url, agent_id="a", **options)
                later = NexusClient(url, agent_id="a", **options)

                async def follow(items: Any) -> None:
                    async for _ in items:
                        pass

                calls: List[Any] = [
                    lambda: plain.list_agents(), lambda: plain.readyz(), lambda: list(plain.events()), lambda: list(plain.send_stream("x")),
                    lambda: asyncio.run(later.readyz()), lambda: asyncio.run(follow(later.events())),
                ]
                for call in calls:
                    # A pause before another try takes a random number.
                    again = mock.patch("nexus_client.core.random.uniform", side_effect=AssertionError("it is tried again"))
                    with self.assertRaises(ClientError) as caught, again:
                        call()
                    self.assertEqual(caught.exception.type, "CONNECTION_FAILED")
                    self.assertIn(f"no server runs at {url}: start one with nexus serve", str(caught.exception))
                    self.assertTrue(caught.exception.recovery_suggestions)

    def test_names_of_agents(self) -> None:
        """What cannot be the name of an agent is refused as the server refuses it, before a path is made of it."""
        server = self.sync()
        for name in ("", "a b", "a?x=1", "a#x", "../x", "a/b", "%41", "a..b", "é", "a\n", "a\r\nX: y", "a" * 64, "..a"):
            with self.assertRaises(ClientError) as refused:
                server.create_agent(name)
            for make in (lambda: server.agent(name), lambda: self.client(agent_id=name)):
                with self.assertRaises(ClientError) as caught:
                    make()
                self.assertEqual((caught.exception.type, str(caught.exception)), ("INVALID_PARAMS", str(refused.exception)), name)
                self.assertEqual(caught.exception.recovery_suggestions, refused.exception.recovery_suggestions)
            if name and "\n" not in name:  # of a URL, urllib takes line ends out
                self.assertRaises(ValueError, NexusClient, f"{self.server.url}/agent/{name}")
        self.assertRaises(ClientError, server.agent, None)
        for name in ("a", ".tmp", "events", "a.b_c-1", "a" * 63, ".a" + "b" * 62):
            server.create_agent(name)
            self.assertEqual(server.agent(name).get_context()["message_count"], 0)
            self.assertEqual(NexusClient(f"{self.server.url}/agent/{name}/").agent_id, name)

    def test_server_of_the_home(self) -> None:
        """Without a URL it is the server of the home, wherever it listens, or that at NEXUS_PORT."""
        from nexus_client import keys

        self.addCleanup(os.environ.pop, "NEXUS_PORT", None)
        self.addCleanup(os.environ.pop, "NEXUS_HOME", None)
        self.assertEqual(keys.default_url(self.server.home), self.server.url)
        meant, named = NexusClientSync(home=self.server.home), self.sync(retries=0)
        self.assertEqual(meant.list_agents()["agents"], [])
        self.server.kill()
        self.server.port = 0
        self.server.start()
        self.assertEqual(meant.agent("a").agent_id, "a")
        self.assertEqual(meant.create_agent("a")["agent_id"], "a")  # which is not repeated: it is sent to the later server alone
        self.assertEqual(meant.agent("a").get_context()["message_count"], 0)
        self.assertRaises(ClientError, named.list_agents)
        os.environ["NEXUS_HOME"] = self.server.home
        self.assertEqual(detect_sync(), "nexus_server")
        self.assertEqual(asyncio.run(detect()), "nexus_server")
        os.environ["NEXUS_PORT"] = "1"
        self.assertEqual((keys.default_url(), detect_sync()), ("http://127.0.0.1:1", "no_server"))
        for bad in ("x", "0", "65536", "-1"):
            os.environ["NEXUS_PORT"] = bad
            self.assertRaises(ValueError, detect_sync)
        os.environ["NEXUS_PORT"] = ""
        self.server.kill()
        self.assertEqual(keys.default_url(), "http://127.0.0.1:8765")  # what the lock says is of one that is gone
        for text in ("x\n", "1 0\n", "1 70000\n", f"{os.getpid()} 9", f"{os.getpid()} 9\n1\n"):
            with open(os.path.join(self.server.home, "run", "lock"), "w", encoding="ascii") as file:
                file.write(text)
            self.assertEqual(keys.default_url(), "http://127.0.0.1:8765")

    def test_another_key_is_no_retry(self) -> None:
        client = self.sync(retries=0)
        self.assertEqual(client.list_agents()["agents"], [])
        self.server.kill()
        self.server.start()  # it has another key
        self.assertEqual(client.list_agents()["agents"], [])

    def test_detect_of_a_server_that_dies(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            listener.settimeout(PATIENCE)

            def die() -> None:
                for _ in range(2):
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.close()
                listener.close()

            dying = threading.Thread(target=die)
            dying.start()
            self.assertEqual(detect_sync(f"http://127.0.0.1:{port}"), "no_server")
            dying.join()

    def test_detect(self) -> None:
        self.assertEqual(detect_sync(self.server.url), "nexus_server")
        self.assertEqual(asyncio.run(detect(self.server.url)), "nexus_server")
        self.server.kill()
        self.assertEqual(detect_sync(self.server.url), "no_server")


class Played(Bounded):
    def player(self, play: Any, key: Any = "nxk_test", unknown: int = 0) -> Player:
        player = Player(play, key, unknown)
        self.addCleanup(player.close)
        return player

    def sync(self, player: Player, **options: Any) -> NexusClientSync:
        return NexusClientSync(player.url + "/agent/a", options.pop("timeout", PATIENCE), api_key="nxk_test", **options)

    def test_no_key_for_a_stranger(self) -> None:
        for key in (None, "nxk_other"):
            player = self.player(lambda n, body: result({"agents": []}), key)
            for retries in (0, 2):
                with self.assertRaises(ClientError) as caught:
                    self.sync(player, retries=retries).list_agents()
                self.assertEqual(caught.exception.type, "SERVER_UNPROVED")
            self.assertEqual(player.bodies, [])
            self.assertNotIn(b"nxk_", b"".join(player.heard))

    def test_keys_not_known_yet(self) -> None:
        """A machine of a cluster that does not know its keys yet is one without a majority, and gets no key."""
        ignorant = self.player(lambda n, body: result({"agents": []}), unknown=1000)
        stranger = self.player(lambda n, body: result({"agents": []}), "nxk_other")
        for others in ([], ["http://127.0.0.1:1"], [stranger.url]):
            for urls in ([ignorant.url, *others], [*others, ignorant.url]):
                with self.assertRaises(ClientError) as caught:
                    NexusClientSync(urls, api_key="nxk_test", retries=1).list_agents()
                self.assertEqual((caught.exception.type, caught.exception.http_status), ("NO_QUORUM", 503))
                self.assertIn("does not know the keys of its cluster", str(caught.exception))
                with self.assertRaises(ClientError) as caught:
                    list(NexusClientSync(urls, api_key="nxk_test", retries=0).all_events())
                self.assertEqual(caught.exception.type, "NO_QUORUM")
        self.assertEqual(ignorant.bodies + stranger.bodies, [])
        self.assertNotIn(b"nxk_", b"".join(ignorant.heard + stranger.heard))
        for others in ([], ["http://127.0.0.1:1"], [stranger.url]):
            ignorant.unknown = 1
            self.assertEqual(NexusClientSync([ignorant.url, *others], api_key="nxk_test").list_agents(), {"agents": []})

    def test_tries_again_what_is_safe(self) -> None:
        busy = response(503, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "Resource unavailable"}})
        rate = response(429, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32002, "message": "Too many"}}, "Retry-After: 1")
        half = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"
        for bad in (busy, rate, half, None):
            for name, again in (("send", True), ("list_agents", True), ("create_agent", False), ("set_model", False)):
                player = self.player(lambda n, body: bad if n == 1 else result({"content": "x"}))
                client = self.sync(player)
                begun = time.monotonic()
                arguments = ["x"] if name in ("send", "set_model") else []
                if again:
                    getattr(client, name)(*arguments)
                    if bad is rate:
                        self.assertGreaterEqual(time.monotonic() - begun, 1)
                else:
                    self.assertRaises(ClientError, getattr(client, name), *arguments)
                self.assertEqual(len(player.bodies), 2 if again else 1, name)
                if name == "send":
                    first, second = (b["params"]["request_id"] for b in player.bodies)
                    self.assertEqual(first, second)

    def test_gives_up(self) -> None:
        player = self.player(lambda n, body: None)
        with self.assertRaises(ClientError) as caught:
            self.sync(player, retries=2).send("x", "mine")
        self.assertEqual((caught.exception.type, caught.exception.request_id, len(player.bodies)), ("CONNECTION_FAILED", "mine", 3))
        long = response(429, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32002, "message": "Too many"}}, "Retry-After: 3600")
        player = self.player(lambda n, body: long)
        with self.assertRaises(ClientError) as caught:
            self.sync(player).list_agents()
        self.assertEqual((caught.exception.retry_after, len(player.bodies)), (3600, 1))

    def test_draining_is_told_at_once(self) -> None:
        data = {"type": "SERVER_DRAINING", "details": "nothing was accepted", "recovery_suggestions": []}
        ends = response(503, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "Resource unavailable", "data": data}})
        player = self.player(lambda n, body: ends)
        with self.assertRaisesRegex(ClientError, "nothing was accepted"):
            self.sync(player).send("x")
        with self.assertRaisesRegex(ClientError, "nothing was accepted"):
            list(self.sync(player).send_stream("x"))
        self.assertEqual(len(player.bodies), 2)

    def test_stream_that_breaks_is_told_again(self) -> None:
        def chunk(text: str) -> str:
            return 'event: stream_data\ndata: {"params":{"chunk":"%s"}}\n\n' % text

        whole = 'event: response\ndata: {"result":{"request_id":"r","content":"one two"}}\n\n'
        for second in (stream(chunk("one "), chunk("two"), whole), stream(whole), result({"request_id": "r", "content": "one two"})):
            player = self.player(lambda n, body: stream(": open\n\n", chunk("one")) if n == 1 else second)
            parts = list(self.sync(player).send_stream("x"))
            self.assertEqual([p.text or "|" for p in parts if p.result is None][:2], ["one", "|"])
            self.assertEqual("".join(p.text or "|" for p in parts if p.result is None), "one|one two")
            self.assertEqual(parts[-1].result["content"], "one two")
            self.assertEqual(player.bodies[0]["params"], player.bodies[1]["params"])

    def test_time_is_over(self) -> None:
        ended = threading.Event()
        self.addCleanup(ended.set)
        player = self.player(lambda n, body: ended.wait() and None)
        with self.assertRaises(ClientError) as caught:
            self.sync(player, timeout=0.2).send("x", "mine")
        self.assertEqual((caught.exception.type, caught.exception.request_id), ("CLIENT_TIMEOUT", "mine"))
        ended.set()

        async def later() -> None:
            stuck = threading.Event()
            self.addCleanup(stuck.set)
            player = self.player(lambda n, body: stuck.wait() and None)
            client = NexusClient(player.url, api_key="nxk_test").with_timeout(0.2)
            with self.assertRaises(ClientError) as caught:
                await client.list_agents()
            self.assertEqual(caught.exception.type, "CLIENT_TIMEOUT")
            stuck.set()

        asyncio.run(later())

    def test_arguments_are_checked(self) -> None:
        for timeout in (0, -1, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "timeout: want a number of seconds above 0"):
                NexusClientSync("http://127.0.0.1:1", timeout)
            with self.assertRaisesRegex(ValueError, "timeout: want a number of seconds above 0"):
                NexusClient("http://127.0.0.1:1").with_timeout(timeout)
        client = NexusClientSync("http://127.0.0.1:1/agent/a", api_key="nxk_test")
        wrong: Any = []
        with self.assertRaisesRegex(TypeError, "params: want a dict, have list"):
            client.call("list_agents", wrong)
        no_number: Any
        for no_number in ("5", True, [1]):
            with self.assertRaisesRegex(ValueError, "timeout: want a number of seconds above 0"):
                NexusClientSync("http://127.0.0.1:1", no_number)
        content: Any = b"x"
        with self.assertRaisesRegex(TypeError, "content: Object of type bytes is not JSON serializable"):
            client.send(content)
        with self.assertRaisesRegex(TypeError, "limits: Object of type bytes is not JSON serializable"):
            client.call("create_agent", {"limits": {"tokens": content}})
        for call in (
            lambda: client.send("x", timeout_s=float("nan")),
            lambda: list(client.send_stream("x", timeout_s=float("inf"))),
        ):
            with self.assertRaises(ClientError) as caught:
                call()
            self.assertEqual(caught.exception.type, "INVALID_PARAMS")

    def test_strange_answers(self) -> None:
        for answer in (b"220 mail ready\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", response(200, {}), response(502, {"a": 1})):
            player = self.player(lambda n, body: answer)
            with self.assertRaises(ClientError) as caught:
                self.sync(player, retries=0).list_agents()
            self.assertEqual(caught.exception.type, "NOT_NEXUS")
        chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = b'{"result":{"agents":[]}}'
        for piece in (1, 5, 100):
            parts = [body[i : i + piece] for i in range(0, len(body), piece)]
            answer = chunks + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
            self.assertEqual(self.sync(self.player(lambda n, body: answer)).list_agents(), {"agents": []})


if __name__ == "__main__":
    unittest.main()
