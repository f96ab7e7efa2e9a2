// The events of one agent, as they happen.

import { $, atEnd, cut, make, plain, put } from "./dom.js";
import { turnEnded } from "./history.js";
import { frames, listening, pause, refusal, Refused, session, wake } from "./wire.js";

const most = {
  rows: 300, // shown; the oldest go
  queue: 1000, // that wait to be shown; the oldest go
  text: 2000, // characters of one row
};

const queue = [];
let flushing = false;

// follow shows the events of whatever agent has that id from now on, over broken
// connections and the agent's end, until signal ends. It starts none.
export async function follow(id, signal) {
  queue.length = 0;
  $("events").replaceChildren();
  let last; // the id of the last event that came
  for (let wait = 1000; !signal.aborted; wait = Math.min(2 * wait, 10000)) {
    const line = listening(signal);
    try {
      const response = await fetch(`/events?agents=${encodeURIComponent(id)}`, {
        signal: line.signal, cache: "no-store", credentials: "omit",
        headers: { Authorization: `Bearer ${session.key}`, ...(last && { "Last-Event-ID": last }) },
      });
      if (!response.ok) throw await refusal(response);
      put($("flow"), "live");
      for await (const frame of frames(response.body, line.heard)) {
        if (signal.aborted) return;
        wait = 1000;
        if (frame.event === "end") break;
        last = frame.id ?? last;
        if (frame.event === "open") reopened();
        else if (frame.event === "node_state") away(frame.data);
        else arrive(frame);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.locked) { session.news = true; wake(); } // it will be told there
    } finally {
      line.done();
    }
    if (signal.aborted) return;
    put($("flow"), "broken off; connecting again");
    await pause(wait, signal);
  }
}

// reopened has the agent asked once more: what it did meanwhile is told after this.
function reopened() {
  if (!resting.has(session.state)) session.state = "";
  session.news = true;
}

// away says of a machine of the cluster that its agents' events do not come for now, or come again.
function away({ node, state, gap }) {
  arrive({ event: "node_state", data: { event: { node, state, gap } } });
  if (state === "up") reopened();
}

// resting are the states in which an agent stays as it is until something is told of it.
const resting = new Set(["stopped", "failed", "removed"]);

function arrive({ event, data: { seq, event: data } }) {
  if (queue.length >= most.queue) queue.shift();
  queue.push({ seq, event, data });
  if (event === "agent_state") session.state = data.state;
  if (event === "agent_removed") session.state = "removed";
  put($("flow"), event === "agent_removed" ? "the agent is gone" : "live");
  if (event === "turn_end") turnEnded(data.turn_id);
  if (["permission_request", "permission_end", "agent_state", "agent_removed", "turn_end"].includes(event)) {
    session.news = true;
    wake();
  }
  if (flushing) return;
  flushing = true;
  setTimeout(flush, 60);
}

function flush() {
  flushing = false;
  const list = $("events");
  const stuck = atEnd(list);
  for (const { seq, event, data } of queue.splice(0)) {
    const { type, text, kind = "", join } = describe(event, data);
    let row = list.lastElementChild;
    if (join && row?.dataset.join === join) {
      const shown = row.lastElementChild.firstChild;
      if (shown.length < most.text) shown.appendData(cut(plain(text), most.text - shown.length));
      row.firstElementChild.textContent = seq ?? "";
      continue;
    }
    row = make("div", { class: kind, ...(join && { "data-join": join }) }, make("span", { class: "seq" }, seq ?? ""),
      make("span", { class: "type" }, plain(type)), make("span", { class: "text" }, document.createTextNode(cut(plain(text), most.text))));
    list.append(row);
  }
  while (list.children.length > most.rows) list.firstElementChild.remove();
  if (stuck) list.scrollTop = list.scrollHeight;
}

// describe says an event in a line. Events with the same join go on in one row.
function describe(event, data) {
  const line = (text, kind) => ({ type: event, text, kind });
  switch (event) {
    case "message_update": {
      const e = data.event ?? {};
      const inner = (text, join) => ({ type: e.type, text, join });
      switch (e.type) {
        case "text_delta": case "thinking_delta": return inner(e.delta, e.type);
        case "toolcall_start": return inner(e.tool_name);
        case "toolcall_input_delta": case "toolcall_output_delta": return inner(e.delta, `${e.type} ${e.tool_id}`);
        case "toolcall_input": return inner(JSON.stringify(e.input));
        case "toolcall_result": return { ...inner(e.result), kind: e.is_error ? "bad" : "" };
        case "fallback": return { ...inner(`${e.model} answers in the place of the agent's model: ${e.reason}`), kind: "warn" };
        case "retry": return { ...inner(e.reason), kind: "warn" };
        case "compaction_start": return inner("old messages give way to a summary");
        case "compaction_end": return inner(e.compacted ? `${e.tokens_before} tokens became ${e.tokens_after}` : e.reason);
        default: return { type: e.type ?? event, text: JSON.stringify(e) };
      }
    }
    case "agent_state": {
      const kind = { failed: "bad", backoff: "warn" }[data.state];
      return line(`${data.state}, incarnation ${data.incarnation}${data.reason ? ": " + data.reason : ""}`, kind);
    }
    case "node_state": return line(`the machine ${data.node} is ${data.state}${data.gap ? "; some events may be missing" : ""}`, data.state === "up" ? "" : "warn");
    case "agent_removed": return line("its process has ended", "warn");
    case "turn_start": return line(data.turn_id + (data.attempt ? `, attempt ${data.attempt}` : ""));
    case "turn_end": return line(`${data.outcome}${data.error ? ": " + data.error : ""}`, data.error ? "bad" : "");
    case "agent_end": return line(`${data.stop_reason}, ${data.usage?.input_tokens} tokens in, ${data.usage?.output_tokens} out${data.usage?.cost ? `, $${data.usage.cost.toFixed(4)}` : ""}`);
    case "session_update": return line(`${data.message_count} messages, ${data.total_tokens} of ${data.budget_tokens} tokens`);
    case "permission_request": return line(data.summary, "warn");
    case "permission_end": return line(`${data.request_id} ${data.outcome}`);
    case "error": return line(data.message, "bad");
    case "gap": return line(`${data.from} to ${data.to} are not kept any more`, "warn");
    default: return line(JSON.stringify(data));
  }
}
