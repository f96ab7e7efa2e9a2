// A client of the nexus server (SPEC.md, section 6). Types are in nexus.d.mts.
//
//   const client = new NexusClient({ url: "http://127.0.0.1:8765/agent/worker-1" });
//   const { content } = await client.send({ content: "Hello!" });

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { METHODS } from "./methods.mjs";
import { agentName, body, ClientError, defaultHome, defaultURL, detect, discover, events, homePort, isStream, parseKey, reach, request, result, signature, targets, unwrap } from "./wire.mjs";

export { ClientError, detect };

const FIRST_PAUSE = 200; // ms; doubled from try to try, and half of it left to chance
const LONG_PAUSE = 5000;
const LONG_WAIT = 60; // seconds; the longest Retry-After that is waited for

const OPTIONS = ["url", "agentId", "apiKey", "home", "timeout", "retries", "ca"];

const PLAN_PARTS = ["plan_start", "task_start", "task_end", "plan_end"];

const KNOWN = new Map(Object.values(METHODS).map(([name, scope, repeat, wait]) => [name, { scope, repeat, wait }]));

export class NexusClient {
  #target; // of #places, with the agent
  #places; // all addresses, of machines that are one
  #timeout;
  #options;
  #moves; // the server of the home is meant, wherever it listens
  #key; // { text, found, signs, answered }, shared by the clients made from this one; signs: the server wants signatures

  constructor(options = {}) {
    wantObject(options, 'new NexusClient takes an object, as { url: "http://127.0.0.1:8765" }');
    for (const name of Object.keys(options)) {
      if (!OPTIONS.includes(name)) throw new TypeError(`new NexusClient has no option ${name}: there are ${OPTIONS.join(", ")}`);
    }
    const { url = process.env.NEXUS_SERVER || defaultURL(options.home), ca, timeout = 60, agentId, apiKey, retries = 5 } = options;
    this.#places = targets(url, agentId, ca);
    this.#target = this.#places[0];
    this.#timeout = bounded(timeout);
    this.#moves = options.url === undefined && !process.env.NEXUS_PORT && !process.env.NEXUS_SERVER;
    this.#options = { ...options, url, retries };
    this.#key = apiKey === undefined ? { found: true } : { text: parseKey(apiKey, "apiKey"), found: false };
  }

  get agentId() {
    return this.#target.agent;
  }

  agent(agentId) {
    const other = this.#like({ agentId: undefined, url: this.#places.map(({ scheme, authority }) => `${scheme}://${authority}/agent/${agentName(agentId)}`) });
    other.#target = other.#places[this.#at(this.#target)];
    return other;
  }

  withTimeout(timeout) {
    return this.#like({ timeout });
  }

  #like(change) {
    const other = new NexusClient({ ...this.#options, ...change });
    other.#target = other.#places[this.#at(this.#target)];
    other.#key = this.#key;
    other.#moves = this.#moves;
    return other;
  }

  async call(method, params = {}, options = {}) {
    wantObjects(method, params, options);
    const { timeout = this.#timeout, signal } = options;
    const { repeat = "", wait = 0 } = KNOWN.get(method) ?? {};
    const path = this.#path(method);
    const given = numbered(repeat === "once" ? { request_id: randomUUID(), ...defined(params) } : params);
    const limit = bounded(timeout) == null ? signal : within(timeout + (given.timeout_s || wait), signal);
    return this.#named(given, () =>
      this.#again(repeat !== "", limit, async () =>
        result(await this.#post(path, method, given, "application/json", limit), limit),
      ),
    );
  }

  async *sendStream(params, options) {
    let said = false;
    for await (const { type, data } of this.#told("send", params, options)) {
      if (type === "stream_data") {
        said = true;
        yield { type: "text", text: data.params.chunk };
      } else if (type === "stream_restart" || (type === "again" && said)) {
        said = false;
        yield { type: "restart" };
      } else if (type === "response") {
        if (!said && data.content) yield { type: "text", text: data.content }; // of a turn that had ended before
        yield { type: "result", result: data };
      }
    }
  }

  executeTaskStream(params, options) {
    return this.#taskStream("execute_task", params, options);
  }

  createPlanStream(params, options) {
    return this.#taskStream("create_plan", params, options);
  }

  async *#taskStream(method, params, options) {
    let said = false;
    for await (const { type, data } of this.#told(method, params, options)) {
      if (type === "stream_data") {
        said = true;
        const { tool, progress, chunk } = data.params;
        if (tool) yield { type: "tool", tool };
        else if (progress) yield { type: "progress", progress };
        else yield { type: "text", text: chunk };
      } else if (type === "stream_restart" || (type === "again" && said)) {
        said = false;
        yield { type: "restart" };
      } else if (type === "response") {
        yield { type: "result", result: data };
      }
    }
  }

  async *runPlanStream(params, options) {
    for await (const { type, data } of this.#told("run_plan", params, options)) {
      if (type === "response") yield { type: "result", result: data };
      else if (PLAN_PARTS.includes(type)) yield { type, data: data.params };
    }
  }

  // The events of a streamed call, tried again where the connection breaks: "again"
  // comes before those of another connection. The last one is response, whose data are
  // the result, also where the answer is no stream.
  async *#told(method, params, options = {}) {
    wantObjects(method, params, options);
    const { timeout = this.#timeout, signal } = options;
    const given = numbered({ request_id: randomUUID(), ...defined(params) });
    const path = this.#path(method);
    for (const tries = { count: 0 }; ; tries.count++) {
      const key = await this.#first();
      const where = this.#target;
      try {
        const limit = bounded(timeout) == null ? signal : within(timeout, signal);
        const response = await this.#post(path, method, given, "text/event-stream, application/json", limit);
        if (tries.count > 0) yield { type: "again" };
        let answer;
        if (isStream(response)) {
          for await (const event of events(response, signal)) {
            if (event.type === "response") {
              answer = unwrap(event.data, response);
              break;
            }
            yield event;
          }
        } else {
          answer = await result(response, limit);
        }
        yield { type: "response", data: answer };
        return;
      } catch (e) {
        await this.#named(given, () => this.#pause(true, e, tries, signal, key, where));
      }
    }
  }

  /** Whether the server can work (SPEC.md, section 6.4). That it cannot is no error. */
  readyz({ timeout = this.#timeout, signal } = {}) {
    const limit = bounded(timeout) == null ? signal : within(timeout, signal);
    return this.#again(true, limit, async () => {
      const response = await this.#request("GET", "/readyz", "", "application/json", limit);
      const answer = await body(response, limit);
      return "status" in answer ? answer : unwrap(answer, response);
    });
  }

  events(options = {}) {
    return this.#events(`${this.#path("send", "events")}/events`, options);
  }

  allEvents(options = {}) {
    return this.#events("/events", options);
  }

  async *#events(path, options) {
    wantObject(options, "events takes an object, as { after: 0 }");
    const { after, types, agents, toolOutput, signal, timeout = this.#timeout } = options;
    const query = new URLSearchParams(defined({ after, types: types?.join(), agents: agents?.join(), tool_output: toolOutput ? true : undefined }));
    for (const tries = { count: 0 }; ; tries.count++) {
      const key = await this.#first();
      const where = this.#target;
      try {
        const limit = bounded(timeout) == null ? signal : within(timeout, signal);
        const whole = query.size > 0 ? `${path}?${query}` : path;
        const response = await this.#request("GET", whole, "", "text/event-stream", limit);
        if (!isStream(response)) {
          await result(response, limit);
          throw new ClientError("the answer is not a nexus server's", { type: "NOT_NEXUS" });
        }
        for await (const event of events(response, signal)) {
          if (event.type === "end" && ["slow", "draining"].includes(event.data.reason)) {
            throw new ClientError("the server ended the stream", { type: "CONNECTION_FAILED" });
          }
          tries.count = 0;
          if (event.id != null) query.set("after", event.id);
          if (event.type === "") continue; // where it goes on before its first event
          yield event;
          if (event.type === "end") return;
        }
      } catch (e) {
        const next = e.type === "SERVER_DRAINING" ? new ClientError(e.message, { type: "CONNECTION_FAILED", cause: e }) : e; // the next server has the events
        await this.#pause(true, next, tries, signal, key, where);
      }
    }
  }

  // Where method is called; called is what the program that asks has called.
  #path(method, called = method) {
    const { scope = "both" } = KNOWN.get(method) ?? {};
    const { agent } = this.#target;
    if (scope === "global" || (scope === "both" && !agent)) return "/rpc";
    if (!agent) {
      throw new ClientError(`${called} is called of an agent: give the client agentId, or use client.agent(ID)`, { type: "NO_AGENT" });
    }
    return `/agent/${agent}`;
  }

  #known() {
    return (this.#key.text ??= this.#discover());
  }

  // The key as it is to be found now: key files are of the home's own server, which is not called by TLS.
  #discover() {
    return discover(this.#places.some(({ scheme }) => scheme === "https") ? undefined : this.#target.port, this.#options.home);
  }

  // Where there is no key, and no server either, the error says that.
  async #first() {
    try {
      return this.#known();
    } catch (e) {
      await reach(this.#target);
      throw e;
    }
  }

  // Signs where the server wants that. One that says so has done nothing.
  async #post(path, method, params, accept, limit) {
    const signed = this.#key.signs;
    const id = signed ? randomUUID() : 1; // two requests alike need different ids
    const auth = signed && signature(this.#known(), path, JSON.stringify(id), method, JSON.stringify(params));
    const text = JSON.stringify({ jsonrpc: "2.0", id, method, params, ...(auth && { auth }) });
    const response = await this.#request("POST", path, text, accept, limit);
    if (signed || response.statusCode !== 401) return response;
    response.socket?.destroy();
    this.#key.signs = true;
    return this.#post(path, method, params, accept, limit);
  }

  async #request(...rest) {
    const response = await request(this.#target, this.#known(), ...rest);
    this.#key.answered = true;
    return response;
  }

  async #again(repeatable, limit, once) {
    for (const tries = { count: 0 }; ; tries.count++) {
      const key = await this.#first();
      const where = this.#target;
      try {
        return await once();
      } catch (e) {
        await this.#pause(repeatable, e, tries, limit, key, where);
      }
    }
  }

  // Waits before another try, or throws the error if there is no point in one. What
  // may not be repeated is tried again only where the server took no key of ours,
  // and so nothing else, and another than that key is found, or another server.
  // Where nothing was sent, the next address is called. If one of them does not know its
  // cluster's keys yet, the key may be good, and the others may be back soon.
  async #pause(repeatable, error, tries, limit, key, where) {
    const { retries } = this.#options;
    if (!(error instanceof ClientError)) throw error;
    const many = this.#places.length;
    const draining = error.type === "SERVER_DRAINING";
    if (keysUnknown(error)) tries.unknown = error;
    const elsewhere = error.unsent || draining || error.type === "CONNECTION_FAILED" || error.type === "NO_QUORUM";
    if (many > 1 && elsewhere) {
      if (this.#target === where) this.#target = this.#places[(this.#at(where) + 1) % many];
      if (error.unsent && (tries.count + 1) % many !== 0) return; // at once; all addresses are one try
    }
    if (tries.unknown && error.unsent) error = tries.unknown;
    tries.unknown = undefined;
    const unsent = error.type === "SERVER_UNPROVED" || error.cause?.code === "ECONNREFUSED";
    if (unsent && this.#moved()) return; // nothing was sent, so it is not counted
    const keyless = error.type === "SERVER_UNPROVED" || error.type === "AUTHENTICATION_FAILED";
    if ((keyless || keysUnknown(error)) && this.#key.found && this.#another(key)) return;
    if (keyless) throw error;
    if (tries.count >= (retries + 1) * many - 1) throw error;
    if (error.cause?.code === "ECONNREFUSED" && !this.#mayStart()) throw error;
    const busy = error.httpStatus === 429 || (error.httpStatus === 503 && (!draining || many > 1)); // one that ends takes nothing any more
    const worth = error.type === "CONNECTION_FAILED" || busy;
    if (!worth || !repeatable || error.retryAfter > LONG_WAIT) throw error;
    const most = Math.min(FIRST_PAUSE * 2 ** Math.floor(tries.count / many), LONG_PAUSE);
    try {
      await sleep(Math.max(error.retryAfter * 1000, (most * (1 + Math.random())) / 2), undefined, { signal: limit });
    } catch {
      throw limit.reason?.name === "TimeoutError" ? error : limit.reason;
    }
  }

  // Where an address is in #places.
  #at({ scheme, authority }) {
    return Math.max(0, this.#places.findIndex((one) => one.scheme === scheme && one.authority === authority));
  }

  // Whether the server that is meant listens elsewhere by now; then it is called there.
  #moved() {
    const port = this.#moves ? homePort(this.#options.home ?? defaultHome()) : undefined;
    if (port === undefined || port === this.#target.port) return false;
    this.#options = { ...this.#options, url: `http://127.0.0.1:${port}` };
    this.#places = targets(this.#options.url, this.#target.agent);
    this.#target = this.#places[0];
    if (this.#key.found) this.#another("");
    return true;
  }

  // Whether a server may soon listen where none does: one that answered, or one that holds the home.
  #mayStart() {
    return this.#key.answered || homePort(this.#options.home ?? defaultHome()) === this.#target.port;
  }

  // Whether there is another key now, which another request may have found first.
  #another(key) {
    try {
      this.#key.text = this.#discover();
    } catch {
      return false;
    }
    return this.#key.text !== key;
  }

  async #named(params, work) {
    try {
      return await work();
    } catch (e) {
      if (e instanceof ClientError) e.requestId = String(params.request_id ?? "");
      throw e;
    }
  }
}

for (const [name, [method]] of Object.entries(METHODS)) {
  Object.defineProperty(NexusClient.prototype, name, {
    value(params, options) {
      return this.call(method, params, options);
    },
    configurable: true,
    writable: true,
  });
}

function wantObject(value, want) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return;
  throw new TypeError(`${want}, not ${JSON.stringify(value) ?? typeof value}`);
}

function wantObjects(method, params, options) {
  wantObject(params, `${method} takes its parameters as an object${method === "send" ? ', as { content: "Hello!" }' : ""}`);
  wantObject(options, `${method} takes its options as an object, as { timeout: 60 }`);
}

// Whether it is of a machine that does not know its cluster's keys yet, and to which nothing was sent.
const keysUnknown = (error) => error.unsent && error.type === "NO_QUORUM";

const defined = (params) => Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined));

/** The parameters as they are, or an error for a number that JSON does not have, which would go out as null. */
function numbered(params) {
  for (const [name, value] of Object.entries(params)) {
    JSON.stringify(value, (_, part) => {
      if (typeof part !== "number" || Number.isFinite(part)) return part;
      throw new ClientError(`${name}: want a number, have ${part}`, { type: "INVALID_PARAMS" });
    });
  }
  return params;
}

/** A timeout that a request can have. */
function bounded(timeout) {
  if (timeout == null || (typeof timeout === "number" && timeout > 0 && timeout < Infinity)) return timeout;
  throw new TypeError(`timeout: want a number of seconds above 0, or null for no bound, not ${String(timeout)}`);
}

/** A signal that comes after so many seconds, or when the other does. */
function within(seconds, signal) {
  const late = AbortSignal.timeout(Math.min(seconds * 1000, 2 ** 31 - 1));
  return signal ? AbortSignal.any([late, signal]) : late;
}
