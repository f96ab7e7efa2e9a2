// Connections to a nexus server: the key, the proof that the server has it, one
// request, and the events of a stream (SPEC.md, sections 6.4 and 6.5).

import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readFileSync, readSync, statSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";

const MAX_ANSWER = 49 << 20; // bytes: 8 MiB of text, however JSON escapes it
const MAX_HEALTH = 8 << 10; // bytes of GET /healthz with its head
const MAX_KEY = 512; // bytes
const DETECT = 3000; // ms
const AGENT = /^\.?[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,62}$/; // SPEC.md, section 6.3: no two dots in a row
const REACH = 10_000; // ms for a connection and its proof, where there is another address to go to
const SILENCE = 60_000; // ms; a stream that says nothing for so long is dead

/** A call that failed. */
export class ClientError extends Error {
  constructor(message, { type = "", code = null, data = {}, httpStatus = 0, retryAfter = 0, recoverySuggestions = [], ...options } = {}) {
    const details = options.details ?? data.details ?? "";
    super(details && !message.includes(details) ? `${message}: ${details}` : message, options);
    this.name = "ClientError";
    this.code = code;
    this.type = data.type ?? type;
    this.details = details;
    this.recoverySuggestions = data.recovery_suggestions ?? recoverySuggestions;
    this.data = data;
    this.httpStatus = httpStatus;
    this.retryAfter = retryAfter;
    this.requestId = "";
  }
}

const strange = (details) => new ClientError("the answer is not a nexus server's", { type: "NOT_NEXUS", details });
const broken = (cause) =>
  new ClientError("no connection to the server", { type: "CONNECTION_FAILED", details: cause.message, cause });

const untrusted = ({ authority }, cause) =>
  new ClientError("the server's certificate is not accepted, and the API key was not sent to it", {
    type: "SERVER_UNTRUSTED", cause,
    details: /^(ERR_SSL_|EPROTO)/.test(cause.code) ? `${authority} does not speak TLS: ${cause.message}` : `${authority}: ${cause.message}`,
    recoverySuggestions: ["Give the file of the authority that signs the server's certificate (ca, NEXUS_CA)."],
  });

const refused = ({ authority, scheme }, cause) =>
  new ClientError(`no server runs at ${scheme}://${authority}: start one with nexus serve`, {
    type: "CONNECTION_FAILED", details: cause.message, cause,
    recoverySuggestions: ["Start a server with nexus serve.", "If one runs elsewhere, give its url, its home or NEXUS_PORT."],
  });

/** The server that is meant where none is named: at NEXUS_PORT, else that of the home, else at 8765. */
export function defaultURL(home) {
  const text = process.env.NEXUS_PORT || String(homePort(home ?? defaultHome()) ?? 8765);
  if (!/^[0-9]{1,5}$/.test(text) || Number(text) < 1 || Number(text) > 65535) {
    throw new TypeError(`NEXUS_PORT must be from 1 to 65535, not ${JSON.stringify(text)}`);
  }
  return `http://127.0.0.1:${Number(text)}`;
}

/** The port of the server of a home, by the home's lock: "PID PORT", then its inode, which no copy has, and the process lives. */
export function homePort(home) {
  let fd;
  let found;
  try {
    fd = openPlain(join(home, "run", "lock"));
    const text = Buffer.alloc(64);
    found = /^([0-9]{1,10}) ([0-9]{1,5})\n(?:([0-9]{1,20})\n)?$/.exec(text.toString("latin1", 0, readSync(fd, text)));
    if (found?.[3] && BigInt(found[3]) !== fstatSync(fd, { bigint: true }).ino) return undefined;
  } catch {
    return undefined; // no server was here
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
  if (!found || Number(found[2]) < 1 || Number(found[2]) > 65535) return undefined;
  try {
    process.kill(Number(found[1]), 0);
  } catch (e) {
    if (e.code !== "EPERM") return undefined; // EPERM: another user's process
  }
  return Number(found[2]);
}

const openPlain = (path) => openSync(path, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));

export const defaultHome = () => process.env.NEXUS_HOME || join(homedir(), ".nexus3");

/** The key: NEXUS3_API_KEY, server-PORT.key, server.key. The first that is there counts. Without a port no key file does. */
export function discover(port, home) {
  const given = process.env.NEXUS3_API_KEY;
  if (given) return parseKey(given, "NEXUS3_API_KEY");
  if (port === undefined) {
    throw new ClientError("no API key found: no NEXUS3_API_KEY; the key files of a home are of its own server, at http://127.0.0.1:PORT", {
      type: "NO_KEY", recoverySuggestions: ["Give the key of that server (apiKey, NEXUS3_API_KEY)."],
    });
  }
  const where = home ?? defaultHome();
  const names = port === 8765 ? ["server.key"] : [`server-${port}.key`, "server.key"];
  for (const name of names) {
    try {
      const key = readKey(join(where, name));
      checkHome(where);
      return key;
    } catch (e) {
      if (e.code === "ENOENT") continue;
      throw e instanceof ClientError ? e : new ClientError(`read key file ${join(where, name)}: ${e.message}`, { type: "NO_KEY" });
    }
  }
  throw new ClientError(`no API key found: no NEXUS3_API_KEY, no ${names[0]} in ${where}`, {
    type: "NO_KEY", recoverySuggestions: ["Give the home of that server (home, NEXUS_HOME), or its key (apiKey, NEXUS3_API_KEY)."],
  });
}

/** A key as a person or a file gives it. The error never shows it. */
export function parseKey(text, source) {
  const key = text.trim();
  if (key.length > MAX_KEY || !/^nxk_[A-Za-z0-9_-]+$/.test(key)) {
    throw new ClientError(`malformed API key (${source}): want nxk_ and letters, digits, '-' or '_'`, { type: "NO_KEY" });
  }
  return key;
}

function readKey(path) {
  const fd = openPlain(path);
  try {
    const info = fstatSync(fd);
    if (!info.isFile()) throw new ClientError(`key file ${path} is not a plain file`, { type: "NO_KEY" });
    if (process.platform !== "win32" && info.mode & 0o077) {
      throw new ClientError(`others may read key file ${path}: run chmod 600 ${path}, or restart the server`, { type: "NO_KEY" });
    }
    if (!trusted(info)) throw new ClientError(`key file ${path} is another user's, who may have put it there`, { type: "NO_KEY" });
    const buffer = Buffer.alloc(MAX_KEY + 2);
    return parseKey(buffer.toString("ascii", 0, readSync(fd, buffer)), path);
  } finally {
    closeSync(fd);
  }
}

/** Whether it is our user's, or root's. */
const trusted = (info) => process.platform === "win32" || info.uid === 0 || info.uid === process.geteuid();

function checkHome(home) {
  const info = statSync(home);
  if (process.platform !== "win32" && info.mode & 0o022) {
    throw new ClientError(`others may put key files into ${home}: run chmod 700 ${home}`, { type: "NO_KEY" });
  }
  if (!trusted(info)) throw new ClientError(`directory ${home} is another user's, who may have put the key file there`, { type: "NO_KEY" });
}

const digest = (text) => createHash("sha256").update(text).digest("hex");

function proves(key, nonce, address, proof) {
  const want = createHmac("sha256", digest(key)).update(`nexus-proof-v1\n${nonce}\n${address}`).digest();
  const got = Buffer.from(String(proof), "base64");
  return got.length === want.length && timingSafeEqual(got, want);
}

/** The member auth of a request; id and params are the JSON that it has. */
export function signature(key, path, id, method, params) {
  const timestamp = Math.floor(Date.now() / 1000);
  const text = ["nexus-request-v1", timestamp, path, id, method, params].join("\n");
  return { timestamp, signature: createHmac("sha256", key).update(text).digest("base64") };
}

/** The name of an agent as it is, or the error that create_agent gives for it. It needs no escape in a path. */
export function agentName(agentId) {
  if (typeof agentId === "string" && AGENT.test(agentId)) return agentId;
  const problem =
    "Invalid parameter agent_id: want a name like worker-1: a letter or digit, then up to 62 letters, digits, '_', '-' " +
    "and single '.'; one more '.' in front makes it temporary";
  throw new ClientError(problem, { type: "INVALID_PARAMS", recoverySuggestions: ["Correct the parameters and send it again."] });
}

/** The server and the agent that a URL names. */
export function target(url, agentId) {
  const wrong = () => new TypeError(`server URL ${url}: want http://127.0.0.1:PORT or https://HOST:PORT, also with /agent/ID behind it`);
  if (!URL.canParse(url)) throw wrong();
  const u = new URL(url);
  const host = u.hostname;
  const path = /^\/agent\/([^/]*)\/?$/.exec(u.pathname);
  const secure = u.protocol === "https:";
  const ours = secure || u.protocol === "http:" && ["127.0.0.1", "localhost", "[::1]"].includes(host);
  if (!ours || u.username || u.search || u.hash || (u.pathname !== "/" && !AGENT.test(path?.[1] ?? "")) || (path && agentId && agentId !== path[1])) {
    throw wrong();
  }
  const port = Number(u.port || (secure ? 443 : 80));
  return { scheme: secure ? "https" : "http", host: host.replace(/[[\]]/g, ""), port, authority: `${host}:${port}`, agent: path?.[1] ?? (agentId === undefined ? undefined : agentName(agentId)) };
}

/** The servers that several URLs name, in a list or with commas between them, and the one agent or none. */
export function targets(url, agentId, ca) {
  const all = (Array.isArray(url) ? url : String(url).split(",")).map((one) => target(one.trim(), agentId));
  if (all.length === 0 || all.some(({ agent }) => agent !== all[0].agent)) {
    throw new TypeError(`server URL ${url}: want at least one, and the same agent in all`);
  }
  const file = all.some(({ scheme }) => scheme === "https") ? ca || process.env.NEXUS_CA : undefined;
  const known = file ? readFileSync(file) : undefined;
  return all.map((one) => ({ ...one, ca: known, several: all.length > 1 }));
}

/** Connect. limit, an AbortSignal, ends the connection whatever it does. */
function connect(where, limit) {
  return new Promise((resolve, reject) => {
    limit?.throwIfAborted();
    const to = { host: where.host, port: where.port };
    const secure = where.scheme === "https";
    const socket = secure ? tls.connect({ ...to, ca: where.ca, ALPNProtocols: ["http/1.1"], ...(net.isIP(where.host) ? {} : { servername: where.host }) }) : net.connect(to);
    const end = () => socket.destroy(limit.reason);
    limit?.addEventListener("abort", end, { once: true });
    socket.settled = () => limit?.removeEventListener("abort", end); // from then on limit does not count
    socket.once("close", socket.settled);
    let reached = false;
    if (secure) socket.once("connect", () => (reached = true));
    const failed = (e) => reject(e.code === "ECONNREFUSED" ? refused(where, e) : reached && !limit?.aborted && e.code !== "ECONNRESET" ? untrusted(where, e) : e);
    socket.once("error", failed);
    socket.once(secure ? "secureConnect" : "connect", () => {
      socket.off("error", failed);
      socket.on("error", () => {}); // whoever uses it hears it, too
      socket.setNoDelay(true);
      resolve(socket);
    });
  });
}

/** Throws where nothing listens. */
export async function reach(where) {
  try {
    (await connect(where, AbortSignal.timeout(DETECT))).destroy();
  } catch (e) {
    if (e instanceof ClientError) throw e;
  }
}

/** Ask GET path on the connection, which goes on. What is no answer of ours is {}. */
function health(socket, where, path) {
  return new Promise((resolve, reject) => {
    let text = "";
    const done = (settle, value) => {
      socket.off("data", take).off("close", gone);
      settle(value);
    };
    const gone = () => done(reject, socket.errored ?? new Error("the server closed the connection"));
    const take = (data) => {
      text += data.toString("latin1");
      const head = text.indexOf("\r\n\r\n");
      const length = head < 0 ? null : /\r\ncontent-length: *(\d+)\r\n/i.exec(text.slice(0, head + 2));
      const whole = length && head + 4 + Number(length[1]);
      if (text.length > MAX_HEALTH || !"HTTP/1.".startsWith(text.slice(0, 7)) || (head >= 0 && !length)) {
        done(resolve, {});
      } else if (whole && text.length >= whole) {
        const more = text.length > whole || /\r\nconnection: *close\r\n/i.test(text.slice(0, head + 2));
        let value = {};
        try {
          value = more ? {} : (JSON.parse(text.slice(head + 4)) ?? {});
        } catch {
          // no answer of ours
        }
        done(resolve, value);
      }
    };
    socket.on("data", take).on("close", gone);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: ${where.authority}\r\n\r\n`);
  });
}

/** What listens there, without a key. */
export async function detect(url, ca) {
  const [where] = targets(url ?? defaultURL(), undefined, ca);
  const limit = AbortSignal.timeout(DETECT);
  for (let looks = 4; ; looks--) {
    const found = await look(where, limit);
    if (found || looks === 0) return found ?? "other_service";
    await sleep(50); // it ended without an answer, perhaps as a server that has just died
  }
}

async function look(where, limit) {
  let socket;
  try {
    socket = await connect(where, limit);
    const { service } = await health(socket, where, "/healthz");
    return service === "nexus" ? "nexus_server" : "other_service";
  } catch (e) {
    if (limit.aborted) return "timeout";
    if (e.type === "SERVER_UNTRUSTED") return "other_service";
    return socket || (e.cause ?? e).code === "ECONNRESET" ? undefined : "no_server";
  } finally {
    socket?.destroy();
  }
}

/**
 * Make a request on a connection of its own, once the server has proved on it that
 * it has the key. Returns the response; its socket must be destroyed.
 */
export async function request(where, key, method, path, body, accept, limit) {
  let socket;
  let unsent = true;
  const early = where.several ? AbortSignal.any([AbortSignal.timeout(REACH), ...(limit ? [limit] : [])]) : limit;
  try {
    socket = await connect(where, early);
    const nonce = randomBytes(24).toString("base64url");
    const { service, proof = "", keys_unknown: unknown } = await health(socket, where, `/healthz?challenge=${nonce}&key=${digest(digest(key)).slice(0, 12)}`);
    const host = socket.remoteFamily === "IPv6" ? `[${socket.remoteAddress}]` : socket.remoteAddress;
    const address = where.scheme === "https" ? `certificate:${createHash("sha256").update(socket.getPeerCertificate().raw).digest("hex")}` : `${host}:${socket.remotePort}`;
    if (service === "nexus" && unknown === true) {
      throw new ClientError("Resource unavailable", {
        type: "NO_QUORUM", code: -32001, httpStatus: 503, retryAfter: 1,
        details: "the machine does not know the keys of its cluster, as it has not reached a majority of the machines yet, or a later version has written them; the API key was not sent to it",
        recoverySuggestions: ["Send it again when a majority of the machines is there."],
      });
    }
    if (!proves(key, nonce, address, proof)) {
      throw new ClientError("the server does not have this API key, which was not sent to it", {
        type: "SERVER_UNPROVED",
        recoverySuggestions: [
          "The key has ended (revoke_key, expires_s), was replaced, or is of another server: without it, and without NEXUS3_API_KEY, the key file of the home is used.",
        ],
      });
    }
    unsent = false;
    if (early !== limit) follow(socket, limit);
    return await new Promise((resolve, reject) => {
      const headers = {
        Host: where.authority, Authorization: `Bearer ${key}`, Accept: accept,
        "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body), Connection: "close",
      };
      const call = http.request({ createConnection: () => socket, method, path, headers, setHost: false });
      call.once("response", resolve).once("error", reject).end(body);
    });
  } catch (e) {
    socket?.destroy();
    const error = unsent && early?.aborted && !limit?.aborted ? broken(new Error("the server did not answer in time")) : told(e, limit);
    if (unsent && error instanceof ClientError) error.unsent = true;
    throw error;
  }
}

/** Has limit end a connection, in the place of the signal by which it was made. */
function follow(socket, limit) {
  socket.settled();
  if (!limit) return;
  limit.throwIfAborted();
  const end = () => socket.destroy(limit.reason);
  limit.addEventListener("abort", end, { once: true });
  socket.settled = () => limit.removeEventListener("abort", end);
  socket.once("close", socket.settled);
}

/** What went wrong with a connection, as callers see it. */
function told(e, limit) {
  if (e instanceof ClientError) return e;
  if (limit?.aborted && limit.reason?.name === "TimeoutError") {
    return new ClientError("the server did not answer in time", {
      type: "CLIENT_TIMEOUT", cause: e,
      recoverySuggestions: ["What was begun goes on: where the call has a request_id, ask again with the same one.", "Raise timeout."],
    });
  }
  if (limit?.aborted) return limit.reason;
  return String(e.code).startsWith("HPE_") ? strange(e.message) : broken(e);
}

/** The result in a response, which is read to its end. */
export async function result(response, limit) {
  return unwrap(await body(response, limit), response);
}

/** The object that a response is, which is read to its end. */
export async function body(response, limit) {
  const pieces = [];
  let size = 0;
  try {
    for await (const piece of response) {
      pieces.push(piece);
      size += piece.length;
      if (size > MAX_ANSWER) throw strange(`it is longer than ${MAX_ANSWER} bytes`);
    }
  } catch (e) {
    throw told(e, limit);
  } finally {
    response.socket?.destroy();
  }
  return object(Buffer.concat(pieces).toString());
}

function object(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw strange("it is not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw strange("it is no object");
  return value;
}

/** The result of a JSON-RPC response, or its error thrown. */
export function unwrap(answer, response) {
  if (answer.error) {
    const after = Number(response.headers["retry-after"] ?? answer.error.data?.retry_after_s);
    throw new ClientError(String(answer.error.message ?? ""), {
      code: answer.error.code, data: answer.error.data ?? {}, httpStatus: response.statusCode, retryAfter: after > 0 ? after : 0,
    });
  }
  if (!("result" in answer)) throw strange("it has no result");
  return answer.result;
}

export const isStream = (response) =>
  response.statusCode === 200 && /^text\/event-stream(;|$)/i.test(response.headers["content-type"] ?? "");

/**
 * Read text/event-stream, as { id, seq, type, data }; one without a type says where it goes on. It never ends but by an error,
 * or when its reader leaves. Of what limited the request, only signal counts now.
 */
export async function* events(response, signal) {
  const { socket } = response;
  const end = () => socket.destroy(signal.reason);
  socket.settled();
  signal?.addEventListener("abort", end, { once: true });
  socket.setTimeout(SILENCE, () => socket.destroy(new Error("the server fell silent")));
  let event = {};
  let rest = [];
  let size = 0;
  try {
    for await (const piece of response) {
      let start = 0;
      for (let at = piece.indexOf(10); at >= 0; start = at + 1, at = piece.indexOf(10, start)) {
        const line = Buffer.concat([...rest, piece.subarray(start, at)]).toString().replace(/\r$/, "");
        rest = [];
        size = 0;
        if (line !== "") {
          const colon = line.indexOf(":");
          const [name, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1)];
          event[name] = value.replace(/^ /, "");
          continue;
        }
        if (event.data !== undefined || event.id !== undefined) {
          const seq = /^\d+$/.test(event.id ?? "") ? Number(event.id) : 0;
          yield { id: event.id ?? null, seq, type: event.event ?? "", data: object(event.data ?? "{}") };
        }
        event = {};
      }
      rest.push(piece.subarray(start));
      size += piece.length - start;
      if (size > MAX_ANSWER) throw strange(`a line is longer than ${MAX_ANSWER} bytes`);
    }
    throw new Error("the stream ended");
  } catch (e) {
    throw told(e, signal);
  } finally {
    signal?.removeEventListener("abort", end);
    socket.destroy();
  }
}
