// Messages to an agent and its answers, as they come.

import { $, atEnd, lost, make, plain, put } from "./dom.js";
import { call, every, frames, listening, pathOf, pause, post, Refused, request, session, wake } from "./wire.js";

const most = {
  exchanges: 20, // shown of an agent; the oldest go
  answer: 1 << 16, // characters shown of an answer
  sends: 3, // that run at once; a browser opens six connections
};

const talks = new Map(); // what is shown of each agent's sends
let sending = 0;
let shown = ""; // the agent whose sends are on the page

// showTalk shows the sends to an agent.
export function showTalk(agent) {
  shown = agent;
  $("sent").replaceChildren(...(talks.get(agent) ?? []));
}

const own = new Set(); // the request_ids of this page

// isFromHere reports whether a turn is of a send from this page.
export const isFromHere = (turn) => own.has(turn);

// answeredHere are the sends to an agent that have been answered; its conversation has
// them. dropSaved takes them off the page.
export const answeredHere = (agent) => (talks.get(agent) ?? []).filter((li) => li.dataset.saved);
export function dropSaved(agent, saved) {
  talks.set(agent, (talks.get(agent) ?? []).filter((li) => !saved.includes(li)));
  for (const li of saved) li.remove();
}

// forgetTalk forgets those to an agent that is gone.
export const forgetTalk = (agent) => talks.delete(agent);

$("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("send-form").requestSubmit();
});

$("send-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("message").value;
  if (text.trim() === "") return;
  $("message").value = "";
  send(shown, text);
});

async function send(agent, content) {
  const id = crypto.randomUUID();
  own.add(id);
  const exchange = newExchange(agent, content, id);
  if (sending >= most.sends) {
    return exchange.end(`Not sent: ${most.sends} messages are on their way from this page.`, true);
  }
  sending++;
  const signal = session.signal;
  try {
    // The same request_id joins the turn that runs, from its start: nothing is
    // sent twice, however often the connection breaks.
    for (let tries = 0; ; tries++) {
      try {
        return exchange.answered(await stream(agent, request("send", { content, request_id: id }), exchange, signal));
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused) return exchange.end(error.message, true);
        if (tries === 20) return exchange.end("The connection is lost. The turn may go on.", true);
        exchange.tell("The connection broke; trying again");
        await pause(every, signal);
      }
    }
  } finally {
    sending--;
  }
}

// stream sends and shows what is answered as it comes; it returns the result.
async function stream(agent, body, exchange, signal) {
  const line = listening(signal);
  try {
    const response = await post(pathOf(agent), body, line.signal, { Accept: "text/event-stream" });
    let answer;
    if (response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      exchange.clear();
      for await (const { event, data } of frames(response.body, line.heard)) {
        if (event === "stream_data") exchange.add(data.params.chunk);
        else if (event === "stream_restart") exchange.clear();
        else if (event === "response") answer = data;
      }
      if (!answer) throw new Error("cut off");
    } else {
      answer = await response.json();
    }
    if (answer.error) throw new Refused(response.status, answer.error);
    return answer.result;
  } finally {
    line.done();
  }
}

function newExchange(agent, content, id) {
  const said = make("p", { class: "said" }, plain(content));
  const text = document.createTextNode("");
  const status = make("span", {}, "Waiting for the answer");
  const cancel = make("button", { type: "button" }, "Cancel");
  const outcome = make("p", { class: "outcome" }, status, cancel);
  const li = make("li", { class: "running" }, said, make("p", { class: "answer" }, text), outcome);
  const list = talks.get(agent) ?? [];
  list.push(li);
  for (const old of list.splice(0, Math.max(0, list.length - most.exchanges))) old.remove();
  talks.set(agent, list);
  if (agent === shown) { $("sent").append(li); $("talk").scrollTop = $("talk").scrollHeight; }
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    try {
      await call(pathOf(agent), "cancel", { request_id: id });
      if (lost()) $("message").focus(); // the button goes
    } catch (error) {
      put(status, error.message);
      cancel.disabled = false;
      if (lost()) cancel.focus();
    }
  });
  let coming = ""; // not painted yet
  let whole = true; // all of the answer is shown
  let painting = 0;
  const paint = () => {
    clearTimeout(painting);
    painting = 0;
    const stuck = agent === shown && atEnd($("talk"));
    text.appendData(coming);
    coming = "";
    if (stuck) $("talk").scrollTop = $("talk").scrollHeight;
  };
  return {
    clear() { text.data = coming = ""; whole = true; },
    tell(words) { put(status, words); },
    add(chunk) {
      const room = most.answer - text.length - coming.length;
      const more = plain(chunk.slice(0, room));
      whole &&= chunk.length <= room && more.length <= room;
      put(status, whole ? "Answering" : "Answering; the rest is not shown here");
      coming += more.slice(0, room);
      painting ||= setTimeout(paint, 60);
    },
    answered(result) {
      li.dataset.saved = "yes";
      if (result.cancelled) return this.end("Cancelled", false);
      if (text.length + coming.length === 0) this.add(result.content ?? "");
      const usage = result.usage ? `, ${result.usage.input_tokens} tokens in, ${result.usage.output_tokens} out` : "";
      const rest = whole ? "" : ", only the beginning is shown";
      this.end(plain(`${result.stop_reason ?? "done"}${usage}${rest}`), false);
    },
    end(words, bad) {
      put(status, words);
      outcome.classList.toggle("bad", bad);
      cancel.remove();
      li.classList.remove("running");
      paint();
      wake();
    },
  };
}
