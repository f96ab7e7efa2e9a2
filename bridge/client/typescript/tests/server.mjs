// A real server for the tests, and one that plays whatever a test wants.

import { spawn } from "node:child_process";
import { createHash, createHmac } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export const bin = process.env.NEXUS_BIN ?? fileURLToPath(new URL("../../../../bin", import.meta.url));

/** nexus serve in a home of its own, on a port that is free. */
export class Server {
  home = mkdtempSync(join(tmpdir(), "nexus-typescript-"));
  port = 0;
  flags = [];

  constructor({ scenario, configuration } = {}) {
    if (scenario) this.flags = ["--scenario", this.#write("scenario.json", scenario)];
    if (configuration) this.#write("config.json", { server: configuration });
  }

  #write(name, value) {
    const path = join(this.home, name);
    writeFileSync(path, JSON.stringify(value), { mode: 0o600 });
    return path;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  async start() {
    const env = { ...process.env };
    delete env.NEXUS3_API_KEY;
    delete env.NEXUS_HOME;
    const args = ["serve", String(this.port), "--home", this.home, ...this.flags];
    this.process = spawn(join(bin, "nexus"), args, { env, stdio: ["ignore", "pipe", "ignore"] });
    this.exited = once(this.process, "exit");
    for await (const line of createInterface(this.process.stdout)) {
      if (line.startsWith("nexus listening on ")) this.port = Number(new URL(line.split(" ").at(-1)).port);
      if (line.startsWith("for other machines: ")) this.remote = line.split(" ").at(-1);
      if (line.startsWith("key file: ")) {
        this.key = readFileSync(line.slice("key file: ".length), "utf8").trim();
        return this;
      }
    }
    throw new Error("the server did not start");
  }

  async end(signal = "SIGTERM") {
    this.process.kill(signal);
    await this.exited;
    while (await this.#listens()) await sleep(10); // a process that it was starting has its socket for a moment
  }

  async #listens() {
    const socket = net.connect(this.port, "127.0.0.1");
    const found = await new Promise((resolve) => socket.on("connect", () => resolve(true)).on("error", (e) => resolve(e.code !== "ECONNREFUSED")));
    socket.destroy();
    return found;
  }

  async close() {
    if (this.process.exitCode === null && this.process.signalCode === null) await this.end();
    rmSync(this.home, { recursive: true, force: true });
  }
}

/**
 * A server that proves to have the key (null: to no one), and answers each request
 * as play(number from 1, body) says: with a whole response, or null to close the
 * connection, undefined to say nothing. unknown() of the player is how many challenges
 * it answers before it knows its keys.
 */
export async function player(play, key = "nxk_test") {
  let unknown = 0;
  const heard = [];
  const bodies = [];
  const sockets = new Set();
  const server = net.createServer((socket) => {
    let text = "";
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("data", (data) => {
      text += data;
      heard.push(String(data));
      const end = text.indexOf("\r\n\r\n");
      if (end < 0) return;
      if (text.startsWith("GET /healthz")) {
        const url = new URL(text.split(" ")[1], "http://x");
        const health = { status: "ok", service: "nexus", version: "test" };
        unknown -= 1;
        if (unknown >= 0) {
          health.keys_unknown = true;
        } else if (key !== null) {
          const verifier = createHash("sha256").update(key).digest("hex");
          const signed = `nexus-proof-v1\n${url.searchParams.get("challenge")}\n127.0.0.1:${server.address().port}`;
          health.proof = createHmac("sha256", verifier).update(signed).digest("base64");
        }
        text = text.slice(end + 4);
        socket.write(response(200, health));
        return;
      }
      const length = Number(/content-length: *(\d+)/i.exec(text)?.[1] ?? 0);
      if (text.length < end + 4 + length) return;
      bodies.push(length ? JSON.parse(text.slice(end + 4)) : {});
      const answer = play(bodies.length, bodies.at(-1));
      if (answer !== undefined) socket.end(answer ?? undefined);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, "close");
  };
  return { url: `http://127.0.0.1:${server.address().port}`, heard, bodies, close, unknown: (n) => { unknown = n; } };
}

export function response(status, value, ...headers) {
  const body = JSON.stringify(value);
  const head = [`HTTP/1.1 ${status} X`, `Content-Length: ${Buffer.byteLength(body)}`, "Content-Type: application/json", ...headers];
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

export const result = (value) => response(200, { jsonrpc: "2.0", id: 1, result: value });

/** A stream that the connection's end ends. */
export const stream = (...events) => `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n${events.join("")}`;
