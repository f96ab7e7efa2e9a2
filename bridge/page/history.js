// The conversation of the agent that is open, as it is saved, and what it has cost.

import { $, cut, during, lost, make, plain, put, thousands } from "./dom.js";
import { answeredHere, dropSaved, isFromHere } from "./talk.js";
import { inTime, pathOf, post, refusal, Refused, request, session } from "./wire.js";

const most = {
  page: 40, // messages that are asked for at once
  text: 1 << 14, // characters shown of a message, or of a tool's result
};

let shown = ""; // the agent whose conversation is on the page
let first = 0; // the offset of the oldest message on the page
let reading = Promise.resolve(); // one conversation at a time
let due = false; // it has changed since it was read

// showHistory shows the end of an agent's conversation; "" shows none. That of an agent
// whose process is stopped is shown when it is asked for, as its process has to start.
export function showHistory(agent, stopped = false) {
  shown = agent;
  put($("cost"), "");
  put($("history-note"), "");
  $("earlier").hidden = true;
  $("history").replaceChildren();
  if (stopped) {
    first = -1;
    put($("earlier"), "Start the agent and show its conversation");
    $("earlier").hidden = false;
  } else if (agent !== "") {
    renew();
  }
}

// turnEnded reads the conversation again where somebody else wrote to the agent.
export function turnEnded(turn) {
  if (isFromHere(turn)) readCost();
  else renew();
}

// renew reads the end of the conversation once more; calls that come meanwhile are one.
function renew() {
  if (due) return;
  due = true;
  reading = reading.then(() => {
    due = false;
    return read(shown, -1);
  });
}

$("earlier").addEventListener("click", async () => {
  await during(() => (reading = reading.then(() => read(shown, first))), $("earlier"));
  if ($("earlier").hidden && lost()) $("agent-title").focus({ preventScroll: true });
});

// read shows the messages before the offset end, or the last ones where that is negative.
async function read(agent, end) {
  if (agent === "" || agent !== shown) return;
  try {
    const renewed = end < 0;
    const settled = answeredHere(agent); // before it is asked, so that the answer has them
    if (renewed) {
      const [head, context] = await ask(agent, [request("get_messages", { limit: 0 }), request("get_context")]);
      if (agent !== shown) return;
      tellCost(context);
      end = head.total;
    }
    const start = Math.max(0, end - most.page);
    const messages = [];
    while (start + messages.length < end) { // pages are bounded in bytes too
      const [page] = await ask(agent, [request("get_messages", { offset: start + messages.length, limit: end - start - messages.length })]);
      if (page.messages.length === 0) break;
      messages.push(...page.messages);
    }
    if (agent !== shown) return;
    const rows = messages.map(newRow);
    if (renewed) {
      dropSaved(agent, settled);
      $("history").replaceChildren(...rows);
      $("talk").scrollTop = $("talk").scrollHeight;
    } else {
      const before = $("talk").scrollHeight;
      $("history").prepend(...rows);
      $("talk").scrollTop += $("talk").scrollHeight - before;
    }
    first = start;
    $("earlier").hidden = start === 0;
    put($("earlier"), `Earlier messages: ${start}`);
    put($("history-note"), "");
  } catch (error) {
    if (agent !== shown || session.signal.aborted) return;
    put($("history-note"), error instanceof Refused ? `The conversation cannot be shown: ${error.message}` : "The conversation could not be read.");
  }
}

async function readCost() {
  const agent = shown;
  try {
    const [context] = await ask(agent, [request("get_context")]);
    if (agent === shown) tellCost(context);
  } catch {
    // what was told stays
  }
}

async function ask(agent, requests) {
  // Who looks on must not start an agent that was destroyed a moment ago.
  const response = await post(pathOf(agent), requests, inTime(), { "X-Nexus-Restore": "false" });
  if (!response.ok) throw await refusal(response);
  const answers = await response.json();
  const wrong = answers.find((answer) => answer.error);
  if (wrong) throw new Refused(response.status, wrong.error);
  return answers.map((answer) => answer.result);
}

function tellCost({ usage, cost }) {
  const cached = usage.cache_read_input_tokens > 0 ? ` (${thousands(usage.cache_read_input_tokens)} of them from the cache)` : "";
  const dollars = cost === null ? "no price is configured for its model" : `$${cost.toFixed(cost < 1 ? 4 : 2)}`;
  put($("cost"), `Used: ${thousands(usage.input_tokens)} tokens in${cached}, ${thousands(usage.output_tokens)} out. Cost: ${dollars}.`);
}

const speakers = { user: "You", assistant: "Agent", tool: "Tool", system: "Note" };

function newRow(message) {
  const speaker = speakers[message.role] ?? message.role;
  const from = message.source_agent_id ?? message.source;
  const li = make("li", { class: `past ${message.role === "user" ? "of-user" : ""}` },
    make("p", { class: "speaker" }, plain(from && message.role === "user" ? `${speaker}, from ${from}` : message.tool_name ? `${speaker} ${message.tool_name}` : speaker)));
  if (message.thinking) li.append(folded("Thinking", message.thinking));
  if (message.role === "tool") li.append(folded(message.is_error ? "Result: an error" : "Result", message.content ?? ""));
  else if (message.content) li.append(make("p", { class: message.role === "user" ? "said" : "answer" }, shortened(message.content)));
  for (const call of message.tool_calls ?? []) li.append(folded(`Calls ${call.name}`, JSON.stringify(call.input, null, 1)));
  for (const file of message.attachments ?? []) li.append(make("p", { class: "quiet" }, plain(`Attached: ${file.path ?? file.name ?? ""}`)));
  if (message.interrupted) li.append(make("p", { class: "quiet" }, "Interrupted."));
  if (message.truncated) li.append(make("p", { class: "quiet" }, plain(`Only the beginning is here${message.file ? `; all of it is in ${message.file}` : ""}.`)));
  return li;
}

const shortened = (text) => cut(plain(text.slice(0, most.text + 1)), most.text);

function folded(title, text) {
  return make("details", {}, make("summary", {}, plain(title)), make("pre", { tabindex: "0" }, shortened(text)));
}
