// A client of the nexus server (SPEC.md, section 6). Types are in nexus.d.mts.
//
//   const client = new NexusClient({ url: "http://127.0.0.1:8765/agent/worker-1" });
//   const { content } = await client.send({ content: "Hello!" });

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { METHODS } from "./methods.mjs";
import { ClientError, detect, discover, events, isStream, parseKey, request, result, target, unwrap } from "./wire.mjs";

export { ClientError, detect };

const FIRST_PAUSE = 200; // ms; doubled from try to try, and half of it left to chance
const LONG_PAUSE = 5000;
const LONG_WAIT = 60; // seconds; the longest Retry-After that is waited for

const KNOWN = new Map(Object.values(METHODS).map(([name, scope, repeat, wait]) => [name, { scope, repeat, wait }]));

export class NexusClient {
  #target;
  #timeout;
  #options;
  #key; // { text, found }, shared by the clients made from this one

  constructor(options = {}) {
    const { url = "http://127.0.0.1:8765", timeout = 60, agentId, apiKey, retries = 5 } = options;
    this.#target = target(url, agentId);
    this.#timeout = timeout;
    this.#options = { ...options, retries };
    this.#key = apiKey === undefined ? { found: true } : { text: parseKey(apiKey, "apiKey"), found: false };
  }

  get agentId() {
    return this.#target.agent;
  }

  agent(agentId) {
    return this.#like({ url: `http://${this.#target.authority}`, agentId });
  }

  withTimeout(timeout) {
    return this.#like({ timeout });
  }

  #like(change) {
    const other = new NexusClient({ ...this.#options, ...change });
    other.#key = this.#key;
    return other;
  }

  async call(method, params = {}, { timeout = this.#timeout, signal } = {}) {
    const { repeat = "", wait = 0 } = KNOWN.get(method) ?? {};
    const path = this.#path(method);
    const given = repeat === "once" ? { request_id: randomUUID(), ...defined(params) } : params;
    const limit = timeout == null ? signal : within(timeout + (given.timeout_s || wait), signal);
    return this.#named(given, () =>
      this.#again(repeat !== "", limit, async () =>
        result(await this.#request("POST", path, encode(method, given), "application/json", limit), limit),
      ),
    );
  }

  async *sendStream(params, { timeout = this.#timeout, signal } = {}) {
    const given = { request_id: randomUUID(), ...defined(params) };
    const path = this.#path("send");
    let said = false;
    for (let tries = 0; ; tries++) {
      const key = this.#known();
      try {
        const limit = timeout == null ? signal : within(timeout, signal);
        const response = await this.#request("POST", path, encode("send", given), "text/event-stream, application/json", limit);
        if (said) {
          said = false;
          yield { type: "restart" };
        }
        let answer;
        if (isStream(response)) {
          for await (const event of events(response, signal)) {
            if (event.type === "stream_data") {
              said = true;
              yield { type: "text", text: event.data.params.chunk };
            } else if (event.type === "stream_restart") {
              said = false;
              yield { type: "restart" };
            } else if (event.type === "response") {
              answer = unwrap(event.data, response);
              break;
            }
          }
        } else {
          answer = await result(response, limit);
        }
        if (!said && answer.content) yield { type: "text", text: answer.content }; // of a turn that had ended before
        yield { type: "result", result: answer };
        return;
      } catch (e) {
        await this.#named(given, () => this.#pause(true, e, tries, signal, key));
      }
    }
  }

  events(options = {}) {
    return this.#events(`${this.#path("send")}/events`, options);
  }

  allEvents(options = {}) {
    return this.#events("/events", options);
  }

  async *#events(path, { after, signal, timeout = this.#timeout }) {
    let position = after;
    for (let tries = 0; ; tries++) {
      const key = this.#known();
      try {
        const query = position === undefined ? "" : `?after=${encodeURIComponent(position)}`;
        const limit = timeout == null ? signal : within(timeout, signal);
        const response = await this.#request("GET", path + query, "", "text/event-stream", limit);
        if (!isStream(response)) {
          await result(response, limit);
          throw new ClientError("the answer is not a nexus server's", { type: "NOT_NEXUS" });
        }
        for await (const event of events(response, signal)) {
          if (event.type === "end" && ["slow", "draining"].includes(event.data.reason)) {
            throw new ClientError("the server ended the stream", { type: "CONNECTION_FAILED" });
          }
          tries = 0;
          position = event.id ?? position;
          yield event;
          if (event.type === "end") return;
        }
      } catch (e) {
        await this.#pause(true, e, tries, signal, key);
      }
    }
  }

  #path(method) {
    const { scope = "both" } = KNOWN.get(method) ?? {};
    const { agent } = this.#target;
    if (scope === "global" || (scope === "both" && !agent)) return "/rpc";
    if (!agent) {
      throw new ClientError(`${method} is called of an agent: give the client agentId, or use client.agent(ID)`, { type: "NO_AGENT" });
    }
    return `/agent/${agent}`;
  }

  #known() {
    return (this.#key.text ??= discover(this.#target.port, this.#options.home));
  }

  #request(...rest) {
    return request(this.#target, this.#known(), ...rest);
  }

  async #again(repeatable, limit, once) {
    for (let tries = 0; ; tries++) {
      const key = this.#known();
      try {
        return await once();
      } catch (e) {
        await this.#pause(repeatable, e, tries, limit, key);
      }
    }
  }

  // Waits before another try, or throws the error if there is no point in one. What
  // may not be repeated is tried again only where the server took no key of ours,
  // and so nothing else, and another than that key is found.
  async #pause(repeatable, error, tries, limit, key) {
    const { retries } = this.#options;
    if (tries >= retries || !(error instanceof ClientError)) throw error;
    if (error.type === "SERVER_UNPROVED" || error.type === "AUTHENTICATION_FAILED") {
      if (this.#key.found && this.#another(key)) return;
      throw error;
    }
    const worth = error.type === "CONNECTION_FAILED" || error.httpStatus === 429 || error.httpStatus === 503;
    if (!worth || !repeatable || error.retryAfter > LONG_WAIT) throw error;
    const most = Math.min(FIRST_PAUSE * 2 ** tries, LONG_PAUSE);
    try {
      await sleep(Math.max(error.retryAfter * 1000, (most * (1 + Math.random())) / 2), undefined, { signal: limit });
    } catch {
      throw limit.reason?.name === "TimeoutError" ? error : limit.reason;
    }
  }

  // Whether there is another key now, which another request may have found first.
  #another(key) {
    try {
      this.#key.text = discover(this.#target.port, this.#options.home);
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

const defined = (params) => Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined));
const encode = (method, params) => JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });

/** A signal that comes after so many seconds, or when the other does. */
function within(seconds, signal) {
  const late = AbortSignal.timeout(Math.min(seconds * 1000, 2 ** 31 - 1));
  return signal ? AbortSignal.any([late, signal]) : late;
}
