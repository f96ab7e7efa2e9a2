// Calls of agents that wait for somebody to allow them.

import { $, during, make, plain, put } from "./dom.js";
import { call, pathOf, wake } from "./wire.js";

const most = 12; // shown at first, and more for each time that more are asked for

const cards = new Map(); // those shown, by agent and request_id; they keep their places
const decided = new Set(); // whose answer the server has, and may not have in its list yet
const words = { allow_once: "Allow once", allow_session: "Allow for the session", deny: "Deny" };
let room = most;
let waiting = new Map(); // all, by agent and request_id

// questions shows what the agents of a list ask.
export function questions(agents) {
  const told = agents.flatMap(({ agent_id: agent, pending = [] }) => pending.map((question) => [`${agent} ${question.request_id}`, { agent, question }]));
  waiting = new Map(told);
  if (waiting.size === 0) room = most;
  for (const name of decided) if (!waiting.delete(name)) decided.delete(name);
  fill();
}

// fill puts what waits into the places that are free.
function fill() {
  for (const [name, li] of cards) if (!waiting.has(name)) { li.remove(); cards.delete(name); }
  for (const [name, { agent, question }] of waiting) {
    if (cards.size >= room) break;
    if (cards.has(name)) continue;
    cards.set(name, newCard(name, agent, question));
    $("asked-list").append(cards.get(name));
  }
  const rest = waiting.size - cards.size;
  $("asked").hidden = waiting.size === 0;
  put($("asked-title"), waiting.size < 2 ? "Waiting for you" : `Waiting for you: ${waiting.size}`);
  $("asked-more").hidden = rest === 0;
  put($("asked-more"), `Show ${Math.min(rest, most)} more of ${rest}`);
  document.title = waiting.size === 0 ? "nexus" : `(${waiting.size}) nexus`;
}

$("asked-more").addEventListener("click", () => {
  room += most;
  fill();
});

// contents are all that somebody decides by, as nexus approvals has it: the command, which may stand in
// no input, and the input, without the command if that is the same.
function contents({ command, input }) {
  if (!command) return [JSON.stringify(input, null, 1)];
  const rest = JSON.stringify(input?.command === command ? { ...input, command: undefined } : input, null, 1);
  return rest === "{}" ? [command] : [command, rest];
}

// scopeOf says what an answer for the session would cover, if there is one and the agent says it.
function scopeOf({ decisions, for_session: covers }) {
  return covers && decisions.includes("allow_session") ? [`For the session: ${plain(covers)}`] : [];
}

// cutOf says that the input is not whole, if it is not.
function cutOf({ command, input }) {
  if (input?.truncated !== true) return [];
  const also = command ? " The command is whole, and may read what is not here." : "";
  return [`Of the input's ${plain(String(input.size))} bytes only the beginning and the end are here.${also}`];
}

function newCard(name, agent, question) {
  const where = (question.paths ?? []).join(", ");
  const until = new Date(question.deadline);
  const error = make("p", { class: "error", role: "alert" });
  const buttons = question.decisions.map((decision) => {
    const button = make("button", { type: "button" }, words[decision] ?? plain(decision));
    button.addEventListener("click", () => decide(decision));
    return button;
  });
  const li = make("li", {},
    make("p", {}, make("strong", {}, `${agent}: ${plain(question.summary)}`)),
    ...contents(question).map((text) => make("pre", {}, plain(text))),
    ...cutOf(question).map((text) => make("p", {}, text)),
    make("p", { class: "quiet" }, plain(`${question.tool_name}, ${question.action}${where && " in " + where}. ${question.reason}`)),
    ...scopeOf(question).map((text) => make("p", {}, text)),
    make("p", { class: "quiet" }, isNaN(until) ? "" : `Denied by itself at ${until.toLocaleTimeString()}.`),
    error, make("div", { class: "row acts" }, ...buttons));
  async function decide(decision) {
    try {
      await during(() => call(pathOf(agent), "respond_permission", { request_id: question.request_id, decision }), ...buttons);
    } catch (e) {
      if (e.type !== "PERMISSION_REQUEST_NOT_FOUND") {
        put(error, e.message);
        return;
      }
    }
    decided.add(name);
    waiting.delete(name);
    fill();
    $(!$("asked").hidden ? "asked-title" : !$("agent").hidden ? "agent-title" : "desk").focus();
    wake();
  }
  return li;
}
