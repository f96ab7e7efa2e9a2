// Requests to the server that the page came from, and streams of events from it.
// The key is kept here, in memory, and nowhere else.

import { plain } from "./dom.js";

// session is what a key opened: aborted, it ends all that goes on by it.
export const session = { key: "", ends: new AbortController(), get signal() { return this.ends.signal; } };

const patience = 15000; // ms for an answer
const silence = 45000; // ms without a heartbeat until a stream counts as broken
const longest = 4 << 20; // characters of one event of a stream

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

export function post(path, body, signal, headers = {}) {
  return fetch(path, {
    method: "POST", body: JSON.stringify(body), signal, cache: "no-store", credentials: "omit",
    headers: { Authorization: `Bearer ${session.key}`, "Content-Type": "application/json", ...headers },
  });
}

export const request = (method, params = {}, id = 1) => ({ jsonrpc: "2.0", method, params, id });

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
    for (let buffer = ""; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      buffer += value;
      let from = 0;
      for (let to; (to = buffer.indexOf("\n\n", from)) >= 0; from = to + 2) {
        const frame = {};
        for (const line of buffer.slice(from, to).split("\n")) {
          const colon = line.indexOf(": ");
          if (colon > 0) frame[line.slice(0, colon)] = line.slice(colon + 2);
        }
        if (frame.data) yield { id: frame.id, event: frame.event, data: JSON.parse(frame.data) };
      }
      buffer = buffer.slice(from);
      if (buffer.length > longest) throw new Error("an event without an end");
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
