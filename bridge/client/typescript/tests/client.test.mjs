// The client against a real server: node --test, with its programs in NEXUS_BIN.

import assert from "node:assert/strict";
import { chmodSync, chownSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test as unlimited } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { METHODS } from "../methods.mjs";
import { ClientError, detect, NexusClient } from "../nexus.mjs";
import { defaultURL, discover } from "../wire.mjs";
import { player, response, result, Server, stream } from "./server.mjs";

const PATIENCE = 60; // seconds; nothing is asserted about the time that things take

// A test that would wait for ever fails, and keeps none of its processes nor this one.
const test = (name, body) => unlimited(name, { timeout: 100_000 }, body);
after(() => setTimeout(() => process.exit(1), 5_000).unref());

delete process.env.NEXUS3_API_KEY; // of whoever runs the tests

// Task b waits until a is done; each is a turn whose answer has the declared shape.
const PLAN = {
  tasks: [
    { id: "a", type: "analysis", description: "task a", priority: 1 },
    { id: "b", type: "analysis", description: "task b", priority: 2, dependencies: ["a"] },
  ],
};
const SCENARIO = {
  turns: [["a", 0], ["b", 500]].map(([name, delay]) => ({
    match: `\n\ntask ${name}\n`,
    steps: [{ delay_ms: delay }, { text: JSON.stringify({ status: "success", code: "", explanation: `${name} is done` }) }],
  })),
};

/** A home where no server was. */
function nowhere(t) {
  const home = mkdtempSync(join(tmpdir(), "nexus-nowhere-"));
  t.after(() => rmSync(home, { recursive: true }));
  return home;
}

async function real(t, options) {
  const server = await new Server(options).start();
  t.after(() => server.close());
  const client = (options = {}) => new NexusClient({ url: server.url, home: server.home, timeout: PATIENCE, ...options });
  return { server, client };
}

async function played(t, play, key) {
  const p = await player(play, key);
  t.after(p.close);
  const client = (options = {}) => new NexusClient({ url: `${p.url}/agent/a`, apiKey: "nxk_test", timeout: PATIENCE, ...options });
  return { ...p, client };
}

async function all(items) {
  const list = [];
  for await (const item of items) list.push(item);
  return list;
}

describe("a real server", () => {
  test("a conversation", async (t) => {
    const { server, client } = await real(t);
    const root = client();
    assert.equal((await root.createAgent({ agent_id: "worker-1" })).url, "/agent/worker-1");
    const worker = client({ url: `${server.url}/agent/worker-1` });
    await worker.send({ content: "My name is Alice" });
    const answer = await worker.send({ content: "What is my name?", request_id: "req-1" });
    assert.match(answer.content, /Alice/);
    assert.equal((await worker.send({ content: "What is my name?", request_id: "req-1" })).replayed, true);
    assert.ok((await worker.getTokens()).total > 0);
    assert.equal((await worker.getContext()).message_count, 4);
    assert.equal((await worker.call("get_messages", { limit: 1 })).messages.length, 1);
    await worker.setSystemPrompt({ system_prompt: null });
    const running = worker.send({ content: "Write a long essay", request_id: "long" });
    let over = false;
    running.finally(() => (over = true));
    while (!(await worker.cancel({ request_id: "long" })).cancelled && !over);
    assert.equal((await running).cancelled, true);
    assert.equal((await worker.shutdown()).success, true);
    assert.deepEqual((await root.listAgents()).agents.map((a) => a.agent_id), ["worker-1"]);
    assert.equal((await root.destroyAgent({ agent_id: "worker-1" })).success, true);
    assert.equal((await root.shutdownServer()).success, true);
    await server.exited;
  });

  test("every method is there", async (t) => {
    const { client } = await real(t);
    const names = (await client().rpcDiscover()).methods.map((m) => m.name);
    assert.deepEqual(names, Object.values(METHODS).map(([name]) => name));
    for (const name of Object.keys(METHODS)) assert.equal(typeof client()[name], "function", name);
  });

  test("a streamed answer", async (t) => {
    const { client } = await real(t);
    await client().createAgent({ agent_id: "a" });
    const a = client().agent("a");
    const parts = await all(a.sendStream({ content: "My name is Alice and I like short answers" }));
    const text = parts.map((p) => p.text ?? "").join("");
    assert.ok(text.length > 0);
    assert.equal(text, parts.at(-1).result.content);
    for await (const part of a.sendStream({ content: "Write a long essay", request_id: "essay" })) {
      assert.equal(part.type, "text");
      break;
    }
    await a.cancel({ request_id: "essay" });
    assert.equal((await all(a.sendStream({ content: "Write a long essay", request_id: "essay" }))).at(-1).result.request_id, "essay");
  });

  test("a run of a plan", async (t) => {
    const { client } = await real(t, { scenario: SCENARIO });
    assert.equal((await client().readyz()).status, "ready");
    const run = { plan: PLAN, pool: { size: 2 }, request_id: "run" };
    const parts = await all(client().runPlanStream(run));
    assert.deepEqual(parts.map((p) => [p.type, p.data?.task_id]), [
      ["plan_start", undefined], ["task_start", "a"], ["task_end", "a"], ["task_start", "b"], ["task_end", "b"],
      ["plan_end", undefined], ["result", undefined],
    ]);
    assert.deepEqual([parts[2].data.status, parts.at(-2).data.status, parts.at(-1).result.status], ["success", "completed", "completed"]);
    assert.equal(parts.at(-1).result.tasks[1].result.output.explanation, "b is done");
    const again = await all(client().runPlanStream(run));
    assert.deepEqual(again.map((p) => p.type), ["plan_start", "plan_end", "result"]);
    assert.deepEqual([again[0].data.completed, again.at(-1).result.replayed], [["a", "b"], true]);
    await assert.rejects(all(client().runPlanStream({ plan: { tasks: [] } })), { type: "INVALID_PARAMS" });
  });

  test("a task that is told as it goes", async (t) => {
    const { client } = await real(t);
    const task = { task_type: "code_generation", prompt: "Write a hello in Go", request_id: "hello" };
    const parts = await all(client().executeTaskStream(task));
    assert.deepEqual([...parts.slice(0, 2), parts.at(-1)].map((p) => p.type), ["progress", "text", "result"]);
    assert.equal(parts.at(-1).result.status, "success");
    const again = await all(client().executeTaskStream(task));
    assert.deepEqual(again.map((p) => [p.type, p.result.replayed]), [["result", true]]);
    const plan = await all(client().createPlanStream({ user_request: "Add a health check" }));
    assert.ok(plan.at(-1).result.plan.tasks.length > 0);
  });

  test("a run of a plan goes on with a later server", async (t) => {
    const { server, client } = await real(t, { scenario: SCENARIO });
    const parts = [];
    for await (const part of client({ retries: 50 }).runPlanStream({ plan: PLAN, pool: { size: 1 }, request_id: "run" })) {
      parts.push(part);
      if (parts.length !== 3) continue;
      await server.end("SIGKILL");
      await server.start();
    }
    const of = (type) => parts.filter((p) => p.type === type).map((p) => p.data);
    assert.deepEqual(of("plan_start").map((p) => p.completed), [[], ["a"]]);
    assert.deepEqual(of("task_end").map((p) => p.task_id), ["a", "b"]);
    assert.deepEqual([parts.at(-1).result.status, parts.at(-1).result.resumed], ["completed", true]);
  });

  test("a server that wants signatures", async (t) => {
    const { client } = await real(t, { configuration: { require_signatures: true } });
    const root = client();
    await root.createAgent({ agent_id: "a" });
    const parts = await all(root.agent("a").sendStream({ content: "My name is Zoë" }));
    assert.match(parts.at(-1).result.content, /Zoë/);
    assert.equal((await client().readyz()).status, "ready");
    const fresh = client();
    const answers = await Promise.all(Array.from({ length: 20 }, () => fresh.listAgents()));
    assert.deepEqual(answers.map((x) => x.agents.length), Array(20).fill(1));
  });

  test("another key is no retry", async (t) => {
    const { server, client } = await real(t);
    const root = client({ retries: 0 });
    assert.equal((await root.listAgents()).agents.length, 0);
    await server.end("SIGKILL");
    await server.start();
    assert.equal((await root.listAgents()).agents.length, 0);
  });

  test("detect of a server that dies", async (t) => {
    let taken = 0;
    const listener = net.createServer((socket) => {
      socket.on("error", () => {});
      if (++taken === 2) listener.close();
      socket.resetAndDestroy();
    });
    t.after(() => listener.close());
    await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
    assert.equal(await detect(`http://127.0.0.1:${listener.address().port}`), "no_server");
    assert.equal(taken, 2);
  });

  test("events and sends go on with a later server, which has another key", async (t) => {
    const { server, client } = await real(t);
    const root = client({ retries: 50 });
    await root.createAgent({ agent_id: "a" });
    const a = root.agent("a");
    await a.send({ content: "My name is Alice", request_id: "one" });
    const ended = [];
    const numbers = [];
    let answer;
    for await (const event of a.events({ after: 0 })) {
      if (event.seq) numbers.push(event.seq);
      if (event.type !== "turn_end") continue;
      ended.push(event.data.turn_id);
      if (ended.length === 2) break;
      await server.end("SIGKILL");
      answer = a.send({ content: "What is my name?", request_id: "two" });
      await server.start();
    }
    assert.match((await answer).content, /Alice/);
    assert.deepEqual(ended, ["one", "two"]);
    assert.deepEqual(numbers, [...new Set(numbers)].sort((x, y) => x - y));
    for await (const event of root.allEvents({ after: 0 })) {
      assert.equal(event.type, "open");
      break;
    }
    await assert.rejects(all(root.agent("nobody").events()), { type: "AGENT_NOT_FOUND" });
  });

  test("events go on that were cut off before the first one", async (t) => {
    const { server, client } = await real(t);
    const root = client({ retries: 50 });
    await root.createAgent({ agent_id: "early" });
    const agent = root.agent("early");
    const events = agent.events();
    const first = events.next();
    const running = async () => (await fetch(`${server.url}/metrics`, { headers: { Authorization: `Bearer ${server.key}` } })).text();
    while (!(await running()).includes('requests_running{route="events"} 1')) await sleep(10);
    await server.end("SIGKILL");
    await server.start();
    await agent.send({ content: "hello", request_id: "one" });
    const told = [(await first).value];
    while (told.at(-1).type !== "turn_end") told.push((await events.next()).value);
    assert.equal(told.at(-1).data.turn_id, "one");
    assert.ok(told.some(({ type }) => type === "turn_start"));
    await events.return();
  });

  test("events that are wanted", async (t) => {
    const { server, client } = await real(t);
    const root = client({ retries: 50 });
    for (const agent_id of ["a", "b", "c"]) {
      await root.createAgent({ agent_id });
      await root.agent(agent_id).send({ content: "hello", request_id: `${agent_id}1` });
    }
    const got = [];
    for await (const { type, data } of root.agent("a").events({ after: 0, types: ["turn_start", "turn_end"] })) {
      got.push(`${type} ${data.turn_id}`);
      if (got.length === 4) break;
      if (got.length !== 2) continue;
      await server.end(); // which saves all events, unlike a kill
      await server.start();
      await root.agent("a").send({ content: "hello", request_id: "a2" });
    }
    assert.deepEqual(got, ["turn_start a1", "turn_end a1", "turn_start a2", "turn_end a2"]);
    await root.agent("c").send({ content: "hello", request_id: "c2" }); // so that it runs in the later server, too
    await root.agent("b").send({ content: "hello", request_id: "b2" });
    const ends = [];
    for await (const { type, data } of root.allEvents({ after: 0, types: ["turn_end"], agents: ["a", "b"] })) {
      if (type !== "open") ends.push(`${data.agent_id} ${data.event.type} ${data.event.turn_id}`);
      if (ends.length === 4) break;
    }
    assert.deepEqual(ends.sort(), ["a turn_end a1", "a turn_end a2", "b turn_end b1", "b turn_end b2"]);
    await assert.rejects(root.allEvents({ after: 0, agents: [] }).next(), { type: "INVALID_PARAMS" });
  });

  test("requests at once all find the key of a later server", async (t) => {
    const { server, client } = await real(t);
    const root = client();
    await root.listAgents();
    await server.end("SIGKILL");
    await server.start();
    const answers = await Promise.all(Array.from({ length: 20 }, () => root.listAgents()));
    assert.deepEqual(answers, Array(20).fill({ agents: [] }));
  });

  test("names of agents", async (t) => {
    const { server, client } = await real(t);
    const root = client();
    for (const name of ["", "a b", "a?x=1", "a#x", "../x", "a/b", "%41", "a..b", "é", "a\n", "a\r\nX: y", "a".repeat(64), "..a"]) {
      const { message, recoverySuggestions } = await root.createAgent({ agent_id: name }).catch((e) => e);
      for (const make of [() => root.agent(name), () => client({ agentId: name })]) {
        assert.throws(make, { name: "ClientError", type: "INVALID_PARAMS", message, recoverySuggestions });
      }
    }
    for (const name of ["a b", "a?x=1", "a#x", "%41", "a..b", "é"]) {
      assert.throws(() => client({ url: `${server.url}/agent/${name}` }), TypeError, name);
    }
    assert.throws(() => root.agent(undefined), { type: "INVALID_PARAMS" });
    for (const name of ["a", ".tmp", "events", "a.b_c-1", "a".repeat(63), `.a${"b".repeat(62)}`]) {
      await root.createAgent({ agent_id: name });
      assert.equal((await root.agent(name).getContext()).message_count, 0);
      assert.equal(client({ url: `${server.url}/agent/${name}/` }).agentId, name);
    }
  });

  test("errors", async (t) => {
    const { server, client } = await real(t);
    const root = client();
    for (const [call, code, type] of [
      [() => root.agent("nobody").send({ content: "x" }), -32602, "AGENT_NOT_FOUND"],
      [() => root.call("unheard_of"), -32601, "METHOD_NOT_FOUND"],
      [() => root.createAgent({ agent_id: ".." }), -32602, "INVALID_PARAMS"],
      [() => root.send({ content: "x" }), null, "NO_AGENT"],
      [() => client({ apiKey: "nxk_wrong" }).listAgents(), null, "SERVER_UNPROVED"],
      [() => client({ home: nowhere(t) }).listAgents(), null, "NO_KEY"],
    ]) {
      await assert.rejects(call, { name: "ClientError", code, type });
    }
    // It was "send is called of an agent", which nobody had called.
    assert.throws(() => root.events(), { type: "NO_AGENT", message: /^events is called of an agent/ });
    await assert.rejects(root.agent("nobody").getTokens(), (e) => /Agent not found: nobody/.test(e.message) && e.recoverySuggestions.length > 0);
    assert.equal(await detect(server.url), "nexus_server");
    await server.end("SIGKILL");
    assert.equal(await detect(server.url), "no_server");
    t.mock.method(Math, "random", () => assert.fail("it is tried again")); // for the pause before that
    for (const options of [{ home: nowhere(t) }, { home: server.home }, { apiKey: "nxk_test" }]) {
      for (const url of [server.url, `http://localhost:${server.port}`]) {
        const a = new NexusClient({ url, agentId: "a", ...options });
        for (const call of [() => a.listAgents(), () => a.readyz(), () => all(a.events()), () => all(a.sendStream({ content: "x" }))]) {
          await assert.rejects(call, (e) => {
            assert.match(e.message, new RegExp(`^no server runs at ${url}: start one with nexus serve`));
            return e.type === "CONNECTION_FAILED" && e.recoverySuggestions.length > 0;
          });
        }
      }
    }
  });
});

test("without a URL: the server of the home, or that at NEXUS_PORT", async (t) => {
  const server = await new Server().start();
  t.after(async () => {
    delete process.env.NEXUS_PORT;
    delete process.env.NEXUS_HOME;
    await server.close();
  });
  const [meant, named] = [new NexusClient({ home: server.home }).withTimeout(9), new NexusClient({ url: server.url, home: server.home, retries: 0 })];
  assert.deepEqual((await meant.listAgents()).agents, []);
  await server.end("SIGKILL");
  server.port = 0;
  await server.start();
  assert.equal((await meant.createAgent({ agent_id: "a" })).agent_id, "a"); // which is not repeated: it is sent to the later server alone
  assert.equal((await meant.agent("a").getContext()).message_count, 0);
  await assert.rejects(named.listAgents(), { type: "CONNECTION_FAILED" });
  process.env.NEXUS_HOME = server.home;
  assert.equal(await detect(), "nexus_server");
  process.env.NEXUS_PORT = "1";
  assert.deepEqual([defaultURL(), await detect()], ["http://127.0.0.1:1", "no_server"]);
  for (const bad of ["x", "0", "65536", "-1"]) {
    process.env.NEXUS_PORT = bad;
    assert.throws(() => new NexusClient(), /NEXUS_PORT must be/);
  }
  process.env.NEXUS_PORT = "";
  await server.end("SIGKILL");
  assert.equal(defaultURL(), "http://127.0.0.1:8765"); // what the lock says is of one that is gone
  for (const text of ["x\n", "1 0\n", "1 70000\n", `${process.pid} 9`, `${process.pid} 9\n1\n`]) {
    writeFileSync(join(server.home, "run", "lock"), text);
    assert.equal(defaultURL(), "http://127.0.0.1:8765");
  }
});

describe("a server that plays", () => {
  test("a stranger gets no key", async (t) => {
    for (const key of [null, "nxk_other"]) {
      const p = await played(t, () => result({ agents: [] }), key);
      await assert.rejects(p.client().listAgents(), { type: "SERVER_UNPROVED" });
      assert.deepEqual(p.bodies, []);
      assert.doesNotMatch(p.heard.join(""), /nxk_/);
    }
  });

  test("a machine that does not know its keys yet is one without a majority, and gets no key", async (t) => {
    const ignorant = await played(t, () => result({ agents: [] }));
    const stranger = await played(t, () => result({ agents: [] }), "nxk_other");
    const of = (url, retries) => new NexusClient({ url, apiKey: "nxk_test", retries });
    ignorant.unknown(1000);
    for (const others of [[], ["http://127.0.0.1:1"], [stranger.url]]) {
      for (const urls of [[ignorant.url, ...others], [...others, ignorant.url]]) {
        await assert.rejects(of(urls, 1).listAgents(), { type: "NO_QUORUM", httpStatus: 503, message: /does not know the keys of its cluster/ });
        await assert.rejects(of(urls, 0).allEvents().next(), { type: "NO_QUORUM" });
      }
    }
    assert.deepEqual([...ignorant.bodies, ...stranger.bodies], []);
    assert.doesNotMatch([...ignorant.heard, ...stranger.heard].join(""), /nxk_/);
    for (const others of [[], ["http://127.0.0.1:1"], [stranger.url]]) {
      ignorant.unknown(1);
      assert.deepEqual(await of([ignorant.url, ...others], 5).listAgents(), { agents: [] });
    }
  });

  test("what is safe is tried again", async (t) => {
    const error = (code) => ({ jsonrpc: "2.0", id: 1, error: { code, message: "later" } });
    const half = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{";
    for (const bad of [response(503, error(-32001)), response(429, error(-32002), "Retry-After: 1"), half, null]) {
      for (const [name, again] of [["send", true], ["listAgents", true], ["createAgent", false], ["setModel", false]]) {
        const p = await played(t, (n) => (n === 1 ? bad : result({ content: "x" })));
        const call = p.client()[name]({ content: "x" });
        await (again ? call : assert.rejects(call, ClientError));
        assert.equal(p.bodies.length, again ? 2 : 1, name);
        if (name === "send") assert.equal(p.bodies[0].params.request_id, p.bodies[1].params.request_id);
      }
    }
  });

  test("it gives up", async (t) => {
    const gone = await played(t, () => null);
    await assert.rejects(gone.client({ retries: 2 }).send({ content: "x", request_id: "mine" }), { type: "CONNECTION_FAILED", requestId: "mine" });
    assert.equal(gone.bodies.length, 3);
    const rate = response(429, { jsonrpc: "2.0", id: 1, error: { code: -32002, message: "later" } }, "Retry-After: 3600");
    const busy = await played(t, () => rate);
    await assert.rejects(busy.client().listAgents(), { httpStatus: 429, retryAfter: 3600 });
    assert.equal(busy.bodies.length, 1);
  });

  test("a server that ends says so at once", async (t) => {
    const data = { type: "SERVER_DRAINING", details: "nothing was accepted", recovery_suggestions: [] };
    const p = await played(t, () => response(503, { jsonrpc: "2.0", id: 1, error: { code: -32001, message: "Resource unavailable", data } }));
    await assert.rejects(p.client().send({ content: "x" }), /nothing was accepted/);
    await assert.rejects(p.client().sendStream({ content: "x" }).next(), /nothing was accepted/);
    assert.equal(p.bodies.length, 2);
  });

  test("a streamed answer that breaks off is told again", async (t) => {
    const chunk = (text) => `event: stream_data\ndata: {"params":{"chunk":"${text}"}}\n\n`;
    const whole = 'event: response\ndata: {"result":{"request_id":"r","content":"one two"}}\n\n';
    for (const second of [stream(chunk("one "), chunk("two"), whole), stream(whole), result({ request_id: "r", content: "one two" })]) {
      const p = await played(t, (n) => (n === 1 ? stream(": open\n\n", chunk("one")) : second));
      const parts = await all(p.client().sendStream({ content: "x" }));
      assert.equal(parts.slice(0, -1).map((part) => part.text ?? "|").join(""), "one|one two");
      assert.equal(parts.at(-1).result.content, "one two");
      assert.deepEqual(p.bodies[0].params, p.bodies[1].params);
    }
  });

  test("the time is over, or the caller has enough", async (t) => {
    const p = await played(t, () => undefined);
    await assert.rejects(p.client({ timeout: 0.2 }).send({ content: "x", request_id: "mine" }), { type: "CLIENT_TIMEOUT", requestId: "mine" });
    await assert.rejects(p.client().listAgents({}, { timeout: 0.2 }), { type: "CLIENT_TIMEOUT" });
    const stop = new AbortController();
    const call = p.client().listAgents({}, { signal: stop.signal });
    stop.abort();
    await assert.rejects(call, { name: "AbortError" });
    const events = await played(t, () => `${stream(": open\n\n", 'id: 1\nevent: a\ndata: {}\n\n')}`);
    const leave = new AbortController();
    await assert.rejects(async () => {
      for await (const event of events.client().events({ signal: leave.signal })) {
        assert.equal(event.seq, 1);
        leave.abort();
      }
    }, { name: "AbortError" });
  });

  test("strange answers", async (t) => {
    for (const answer of ["220 mail ready\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", response(200, {}), response(502, { a: 1 })]) {
      const p = await played(t, () => answer);
      await assert.rejects(p.client({ retries: 0 }).listAgents(), { type: "NOT_NEXUS" });
    }
  });
});

test("keys: order and modes", (t) => {
  const home = mkdtempSync(join(tmpdir(), "nexus-keys-"));
  t.after(() => rmSync(home, { recursive: true }));
  const put = (name, text, mode = 0o600) => {
    writeFileSync(join(home, name), `${text}\n`);
    chmodSync(join(home, name), mode);
  };
  assert.throws(() => discover(9, home), { type: "NO_KEY" });
  put("server.key", "nxk_default");
  assert.equal(discover(9, home), "nxk_default");
  put("server-9.key", "nxk_nine");
  assert.deepEqual([discover(9, home), discover(8765, home)], ["nxk_nine", "nxk_default"]);
  process.env.NEXUS3_API_KEY = "nxk_environment";
  assert.equal(discover(9, home), "nxk_environment");
  delete process.env.NEXUS3_API_KEY;
  for (const [text, mode] of [["nxk_nine", 0o644], ["secret", 0o600], ["nxk_a b", 0o600]]) {
    put("server-9.key", text, mode);
    assert.throws(() => discover(9, home), (e) => e.type === "NO_KEY" && !e.message.includes(text));
  }
  put("server-9.key", "nxk_nine");
  for (const mode of [0o770, 0o702, 0o1777]) {
    chmodSync(home, mode);
    assert.throws(() => discover(9, home), (e) => e.type === "NO_KEY" && e.message.includes("others may put"));
  }
  chmodSync(home, 0o700);
  if (process.geteuid() === 0) { // who alone can give files away
    for (const path of [join(home, "server-9.key"), home]) {
      chownSync(path, 12345, 0);
      assert.throws(() => discover(9, home), (e) => e.type === "NO_KEY" && e.message.includes("another user's"));
      chownSync(path, 0, 0);
    }
  } else {
    t.mock.method(process, "geteuid", () => -1);
    assert.throws(() => discover(9, home), (e) => e.type === "NO_KEY" && e.message.includes("another user's"));
    t.mock.restoreAll();
  }
  assert.equal(discover(9, home), "nxk_nine");
  rmSync(join(home, "server-9.key"));
  symlinkSync(join(home, "server.key"), join(home, "server-9.key"));
  assert.throws(() => discover(9, home), { type: "NO_KEY" });
});

test("wrong arguments", async () => {
  for (const options of ["http://127.0.0.1:1", null, ["http://127.0.0.1:1"], 1]) {
    assert.throws(() => new NexusClient(options), { name: "TypeError", message: /takes an object, as .*, not / });
  }
  for (const timeout of [0, -1, NaN, Infinity, "60"]) {
    assert.throws(() => new NexusClient({ timeout }), { name: "TypeError", message: /^timeout: want a number of seconds above 0/ });
    await assert.rejects(new NexusClient({ url: "http://127.0.0.1:1" }).call("list_agents", {}, { timeout }), { name: "TypeError" });
  }
  assert.throws(() => new NexusClient({ ulr: "http://127.0.0.1:1" }), { name: "TypeError", message: /no option ulr/ });
  const a = new NexusClient({ url: "http://127.0.0.1:1/agent/a", apiKey: "nxk_test" });
  for (const wrong of ["hi", null, ["hi"], 1, () => {}]) {
    for (const call of [
      () => a.send(wrong), () => a.call("send", wrong), () => all(a.sendStream(wrong)), () => all(a.runPlanStream(wrong)),
      () => a.send({ content: "hi" }, wrong), () => all(a.events(wrong)), () => all(a.allEvents(wrong)),
    ]) {
      await assert.rejects(call, { name: "TypeError", message: /object, as .*, not |object, not / });
    }
  }
});

test("numbers that JSON does not have are refused", async () => {
  const a = new NexusClient({ url: "http://127.0.0.1:1/agent/a", apiKey: "nxk_test" });
  for (const [name, call] of [
    ["timeout_s", () => a.send({ content: "hi", timeout_s: NaN })], ["timeout_s", () => all(a.sendStream({ content: "hi", timeout_s: Infinity }))],
    ["limits", () => a.createAgent({ limits: { tokens: -Infinity } })], ["offset", () => a.getMessages({ offset: NaN })],
  ]) {
    await assert.rejects(call, (e) => e.type === "INVALID_PARAMS" && e.message.startsWith(`${name}: want a number, have `));
  }
});

test("other machines are refused", () => {
  for (const url of [
    "http://example.com", "https://example.com/x", "ftp://127.0.0.1:1", "http://10.0.0.1:8765", "http://user@127.0.0.1", "127.0.0.1:1", "x", "",
    "http://127.0.0.1/x", "http://127.0.0.1/agent/a/events", "http://127.0.0.1/agent/a?x=1",
  ]) {
    assert.throws(() => new NexusClient({ url }), { name: "TypeError", message: /^server URL .*: want http:/ }, url);
  }
  assert.equal(new NexusClient({ url: "http://[::1]:1/agent/a" }).agentId, "a");
  assert.throws(() => new NexusClient({ url: "http://127.0.0.1/agent/a", agentId: "b" }), TypeError);
});
