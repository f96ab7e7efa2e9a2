// Calls of agents that wait for somebody to allow them.

import { $, make, plain, put } from "./dom.js";
import { call, pathOf, session, wake } from "./wire.js";

const most = 8; // agents whose questions are looked at in one round

const cards = new Map(); // by agent and request_id
const asking = new Set(); // agents whose questions are being asked for
const words = { allow_once: "Allow once", allow_session: "Allow for the session", deny: "Deny" };

// questions shows what the agents of a list ask.
export function questions(agents) {
  const waiting = agents.filter((a) => a.pending_permissions > 0);
  const ids = new Set(waiting.map((a) => a.agent_id));
  for (const card of [...cards.values()]) if (!ids.has(card.agent)) drop(card);
  for (const { agent_id: id } of waiting.slice(0, most)) {
    if (asking.has(id)) continue;
    asking.add(id);
    const signal = session.signal;
    call(pathOf(id), "get_permissions").then(({ pending }) => { if (!signal.aborted) ask(id, pending); }, () => {}).finally(() => asking.delete(id));
  }
}

function ask(agent, pending) {
  const here = new Set(pending.map((q) => `${agent} ${q.request_id}`));
  for (const card of [...cards.values()]) if (card.agent === agent && !here.has(card.name)) drop(card);
  for (const question of pending) {
    const name = `${agent} ${question.request_id}`;
    if (!cards.has(name)) cards.set(name, newCard(name, agent, question));
  }
  counted();
}

function newCard(name, agent, question) {
  const what = question.command ?? JSON.stringify(question.input, null, 1);
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
    make("pre", {}, plain(what)),
    make("p", { class: "quiet" }, plain(`${question.tool_name}, ${question.action}${where && " in " + where}. ${question.reason}`)),
    make("p", { class: "quiet" }, isNaN(until) ? "" : `Denied by itself at ${until.toLocaleTimeString()}.`),
    error, make("div", { class: "row acts" }, ...buttons));
  const card = { name, agent, li };
  async function decide(decision) {
    for (const button of buttons) button.disabled = true;
    try {
      await call(pathOf(agent), "respond_permission", { request_id: question.request_id, decision });
    } catch (e) {
      if (e.type !== "PERMISSION_REQUEST_NOT_FOUND") {
        put(error, e.message);
        for (const button of buttons) button.disabled = false;
        return;
      }
    }
    drop(card);
    if (!$("asked").hidden) $("asked-title").focus();
    wake();
  }
  $("asked-list").append(li);
  return card;
}

function drop(card) {
  card.li.remove();
  cards.delete(card.name);
  counted();
}

function counted() {
  $("asked").hidden = cards.size === 0;
  document.title = cards.size === 0 ? "nexus" : `(${cards.size}) nexus`;
}
