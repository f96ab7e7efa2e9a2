// Several addresses, by TLS, of real servers.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { NexusClient } from "../nexus.mjs";
import { bin, Server } from "./server.mjs";

const DEAD = "https://127.0.0.1:1";

/** The directory of certificates for two machines. */
function certificates(t) {
  const made = mkdtempSync(join(tmpdir(), "nexus-typescript-"));
  t.after(() => rmSync(made, { recursive: true }));
  execFileSync(join(bin, "nexus"), ["cluster", "init", join(made, "farm"), "a=127.0.0.1:1", "b=127.0.0.2:1"], { stdio: "ignore" });
  return join(made, "farm");
}

const flags = (dir, machine, listen) => ["--listen", listen, "--tls-cert", join(dir, machine, "certificate.pem"), "--tls-key", join(dir, machine, "key.pem")];

/** A server that other machines reach. */
async function listening(t, dir) {
  const server = new Server();
  server.flags = flags(dir, "a", "127.0.0.1:0");
  await server.start();
  t.after(() => server.close());
  return server;
}

test("a server by TLS is known by its certificate; what is wrong with one is said", async (t) => {
  const dir = certificates(t);
  const ca = join(dir, "a", "ca.pem");
  const server = await listening(t, dir);
  const { key: apiKey, remote: url } = server;
  for (const all of [`${DEAD},${url}`, [DEAD, url]]) {
    assert.deepEqual((await new NexusClient({ url: all, apiKey, ca }).listAgents()).agents, []);
  }
  await new NexusClient({ url: [DEAD, url], apiKey, ca }).rotateKey({ grace_s: 60 }); // which may not be repeated, and nothing was sent to the first
  for (const [wrong, known, want] of [
    [url, join(certificates(t), "a", "ca.pem"), /self.signed|unable to|signature/],
    [url.replace("127.0.0.1", "localhost"), ca, /altnames|Hostname/],
    [server.url.replace("http:", "https:"), ca, /does not speak TLS/],
  ]) {
    await assert.rejects(new NexusClient({ url: wrong, apiKey, ca: known, retries: 0 }).listAgents(), (e) => {
      assert.equal(e.type, "SERVER_UNTRUSTED", String(e));
      assert.match(e.message, want);
      return true;
    });
  }
  for (const bad of ["http://example.com", "https://a/agent/x,https://b/agent/y", "https://a,", []]) {
    assert.throws(() => new NexusClient({ url: bad, apiKey, ca }), TypeError);
  }
  Object.assign(process.env, { NEXUS_SERVER: `${DEAD},${url}`, NEXUS_CA: ca });
  t.after(() => {
    delete process.env.NEXUS_SERVER;
    delete process.env.NEXUS_CA;
  });
  assert.deepEqual((await new NexusClient({ apiKey }).listAgents()).agents, []);
  // The key files of a home are of its own server, which is not called by TLS.
  const { home } = server;
  process.env.NEXUS_SERVER = url;
  await assert.rejects(new NexusClient({ home }).listAgents(), (e) => e.type === "NO_KEY" && /the key files of a home are of its own server/.test(e.message));
  process.env.NEXUS_SERVER = server.url;
  assert.deepEqual((await new NexusClient({ home }).listAgents()).agents, []);
});

test("where a server is killed in the midst of events, the next address has them", async (t) => {
  const dir = certificates(t);
  const ca = join(dir, "a", "ca.pem");
  const server = await listening(t, dir);
  const first = server.remote;
  const second = `https://127.0.0.2:${new URL(first).port}`; // which nobody is at yet
  const whole = new NexusClient({ url: first, apiKey: server.key, ca });
  await whole.createAgent({ agent_id: "w" });
  const { key: apiKey } = await whole.createKey({ scope: "agent", agent_id: "w" });
  const client = new NexusClient({ url: [first, second], apiKey, ca, retries: 60 }).agent("w");
  await client.send({ content: "My name is Alice", request_id: "first" });
  let killed = false;
  let last = 0;
  for await (const { seq, type } of client.events({ after: 0 })) {
    if (seq) {
      assert.ok(seq > last && (seq === last + 1 || type === "gap"), `after event ${last} comes ${type} ${seq}`);
      last = seq;
    }
    if (type !== "turn_end") continue;
    if (killed) break;
    killed = true;
    await server.end("SIGKILL");
    server.flags = flags(dir, "b", second.slice("https://".length));
    await server.start();
    assert.equal((await client.send({ content: "My name is Alice", request_id: "first" })).replayed, true);
    assert.equal((await client.send({ content: "What is my name?" })).content, "Your name is Alice.");
  }
  assert.ok(killed);
});
