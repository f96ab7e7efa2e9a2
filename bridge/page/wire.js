// Requests to the server that the page came from, and streams of events from it.
// The key is kept here, in memory, and nowhere else.

import { plain } from "./dom.js";

// session is what a key opened: aborted, it ends all that goes on by it. scope is what
// the key is good for, full, read or agent, and agent the one that it is for; signs
// says that the server wants requests signed. Of that one agent, state is what it
// said last, and news that there may be more to ask it.
export const session = {
  key: "", scope: "", agent: "", signs: false, state: "", news: true,
  ends: new AbortController(), get signal() { return this.ends.signal; },
};

const patience = 15000; // ms for an answer
const silence = 45000; // ms without a heartbeat until a stream counts as broken
const longest = 49 << 20; // characters of one event of a stream: 8 Mi of an answer (SPEC §7), for which JSON may write six each

// every is the time between two tries, in ms.
export const every = 2000;

let hurry = () => {};

// wake ends the wait for the next look at the agents.
export const wake = () => hurry();

// Refused is an error that the server answered with.
export class Refused extends Error {
  constructor(status, error = {}) {
    const details = error.data?.details;
    super(plain(`${error.message ?? `HTTP ${status}`}${details && details !== error.message ? `: ${details}` : ""}`));
    this.status = status;
    this.type = error.data?.type;
    this.advice = plain((error.data?.recovery_suggestions ?? []).join(" "));
  }
  // The key, or the place that it is used from, is not good.
  get locked() { return this.status === 401 || this.status === 403; }
}

// refusal is the error that a response carries.
export async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  return new Refused(response.status, body.error);
}

// post sends a request or a batch, signed where the server has refused one that was not.
export async function post(path, body, signal, headers = {}) {
  for (;;) {
    const signs = session.signs;
    const sent = !signs ? body : Array.isArray(body) ? await Promise.all(body.map((r) => signed(path, r))) : await signed(path, body);
    const response = await fetch(path, {
      method: "POST", body: JSON.stringify(sent), signal, cache: "no-store", credentials: "omit",
      headers: { Authorization: `Bearer ${session.key}`, "Content-Type": "application/json", ...headers },
    });
    const scope = response.headers.get("X-Key-Scope");
    if (scope) {
      [session.scope, session.agent = ""] = scope.split(" ");
      document.body.dataset.scope = session.scope;
    }
    if (response.status !== 401 || !scope || signs) return response;
    if (!crypto.subtle) return response; // the browser has it for 127.0.0.1, localhost and [::1]
    session.signs = true;
  }
}

const bytes = (text) => new TextEncoder().encode(text);

// signed is a request with its signature by the key (SPEC §6.5).
async function signed(path, r) {
  const timestamp = Date.now() / 1000;
  const text = ["nexus-request-v1", timestamp, path, JSON.stringify(r.id), r.method, JSON.stringify(r.params)].join("\n");
  const key = await crypto.subtle.importKey("raw", bytes(session.key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const mac = new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes(text)));
  return { ...r, auth: { timestamp, signature: btoa(String.fromCharCode(...mac)) } };
}

let requests = 0; // no two have the same id, or they could have the same signature

export const request = (method, params = {}) => ({ jsonrpc: "2.0", method, params, id: ++requests });

// inTime is session.signal, and ends when an answer is overdue.
export const inTime = () => AbortSignal.any([session.signal, AbortSignal.timeout(patience)]);

// call returns the result of a method; it throws Refused, or what fetch throws.
export async function call(path, method, params) {
  const response = await post(path, request(method, params), inTime());
  const body = await response.json();
  if (body.error) throw new Refused(response.status, body.error);
  return body.result;
}

// pathOf is where an agent's methods are called.
export const pathOf = (agent) => `/agent/${encodeURIComponent(agent)}`;

// frames reads a text/event-stream; heard is called whenever something comes.
export async function* frames(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let parts = []; // of an event that has not ended
    for (let length = 0; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const ends = value.includes("\n\n") || (value.startsWith("\n") && parts.at(-1)?.endsWith("\n"));
      parts.push(value);
      length += value.length;
      if (length > longest) throw new Error("an event without an end");
      if (!ends) continue;
      const events = parts.join("").split("\n\n");
      parts = [events.pop()];
      length = parts[0].length;
      for (const event of events) {
        const frame = {};
        for (const line of event.split("\n")) {
          const colon = line.indexOf(": ");
          if (colon > 0) frame[line.slice(0, colon)] = line.slice(colon + 2);
        }
        if (frame.data) yield { id: frame.id, event: frame.event, data: JSON.parse(frame.data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// listening ends with signal, or when nothing was heard for too long.
export function listening(signal) {
  const quiet = new AbortController();
  let timer;
  const heard = () => { clearTimeout(timer); timer = setTimeout(() => quiet.abort(new Error("silence")), silence); };
  heard();
  return { signal: AbortSignal.any([signal, quiet.signal]), heard, done: () => clearTimeout(timer) };
}

// pause waits, until signal ends if that is sooner, or until wake if it may be woken.
export function pause(ms, signal, wakes = false) {
  return new Promise((resolve) => {
    const end = () => { clearTimeout(timer); signal.removeEventListener("abort", end); resolve(); };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
    if (wakes) hurry = end;
  });
}
