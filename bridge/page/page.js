// The page of a nexus server (SPEC §6.11): the key, and the agents.

import { drawAgents, drawTakes, forgetCurves, newCurve, processorOf, sample } from "./curves.js";
import { $, cut, dollars, during, lost, make, mebibytes, plain, put, thousands, unreached } from "./dom.js";
import { follow } from "./events.js";
import { showHistory } from "./history.js";
import { questions } from "./questions.js";
import { forgetSaved, onOpen } from "./saved.js";
import { forgetTalk, showTalk } from "./talk.js";
import { call, every, inTime, pathOf, pause, post, refusal, Refused, request, session, wake } from "./wire.js";

$("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  if (button.disabled) return; // it is being tried
  const given = $("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(given)) return lock("A key is one word, without spaces.");
  await during(() => unlock(given), button);
});

// unlock shows what a key opens, or why it opens nothing.
async function unlock(key) {
  session.ends.abort();
  Object.assign(session, { key, scope: "", agent: "", signs: false, state: "", news: true, ends: new AbortController() });
  try {
    show(await look());
  } catch (error) {
    return lock(error instanceof Refused ? `${error.message}. ${error.advice}` : "The server does not answer. Does it run?");
  }
  $("key").value = "";
  put($("key-error"), "");
  $("key-error").hidden = $("door").hidden = true;
  $("desk").hidden = $("forget").hidden = false;
  link("up", "Connected");
  put($("scope"), { read: "This key is good for reading alone: nothing can be sent, allowed, created or destroyed with it.",
    agent: `This key is good for ${session.agent} alone: other agents are not shown.` }[session.scope] ?? "");
  $("scope").hidden = $("scope").textContent === "";
  $("desk").focus();
  if (session.agent) choose(session.agent);
  watch(session.signal);
}

// redeem gives the one-time code of the address, if there is one, for the key (nexus
// open). The code is used up by then, and leaves the address and the history with it.
async function redeem() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return;
  history.replaceState(null, "", location.pathname);
  try {
    const response = await fetch("/page/key", {
      method: "POST", headers: { Authorization: `Code ${code}` }, signal: AbortSignal.timeout(15000), cache: "no-store", credentials: "omit",
    });
    if (!response.ok) throw await refusal(response);
    await unlock((await response.json()).key);
  } catch (error) {
    lock(error instanceof Refused ? `${error.message}. ${error.advice}` : "The server does not answer. Does it run?");
  }
}

window.addEventListener("hashchange", redeem); // a page that is open may be given a code too

$("forget").addEventListener("click", () => lock(""));

// lock forgets the key and all that was learned by it, and asks for one.
function lock(why) {
  session.ends.abort();
  session.key = "";
  $("scope").hidden = true;
  choose("");
  forgetSaved();
  forgetCurves();
  show({ agents: [], summaries: [] });
  $("desk").hidden = $("forget").hidden = true;
  $("door").hidden = false;
  put($("key-error"), why);
  $("key-error").hidden = why === "";
  link("none", "No key");
  notice("");
  fault("deed-error", "");
  put($("count"), "");
  $("key").value = "";
  $("key").focus();
}

function link(state, text) {
  $("link").dataset.link = state;
  put($("link"), text);
  $("desk").classList.toggle("stale", state === "gone");
}

function notice(text) {
  put($("notice"), text);
  $("notice").hidden = text === "";
}

async function look() {
  if (session.agent) return lookAtOne(session.agent);
  const response = await post("/", [request("list_agents"), request("get_agent_summaries", { include_context: false })], inTime());
  if (session.agent) return lookAtOne(session.agent); // the key is not good for more
  if (!response.ok) throw await refusal(response);
  const [list, sums] = await response.json();
  if (list.error) throw new Refused(response.status, list.error);
  return { agents: list.result.agents, summaries: sums.result?.agents ?? [], missing: list.result.unreachable_nodes };
}

let one = { agents: [], summaries: [] }; // the agent that the key is for

// lookAtOne tells of the agent that the key is for, as list_agents would. It is asked
// at first, then when there may be news of it, and not where that would start it again
// or bring it back.
async function lookAtOne(id) {
  const alive = await fetch("/healthz", { signal: inTime(), cache: "no-store", credentials: "omit" });
  if ((await alive.json()).status === "draining") throw new Refused(503, { message: "The server is ending", data: { type: "SERVER_DRAINING" } });
  if (session.state === "removed") one = { agents: [], summaries: [] };
  const runs = ["", "ready"].includes(session.state);
  if (session.news && runs) {
    session.news = false;
    const onlyIfItRuns = session.state === "ready" ? { "X-Nexus-Restore": "false" } : {};
    const response = await post(pathOf(id), [request("get_context"), request("get_tokens"), request("get_permissions")], inTime(), onlyIfItRuns);
    if (!response.ok && response.status !== 404) throw await refusal(response);
    const [context, tokens, permissions] = await response.json();
    const known = { ...context.result, agent_id: id, pending: permissions.result?.pending, last_error: context.error?.message };
    one = response.ok ? { agents: [known], summaries: tokens.result ? [{ agent_id: id, tokens: tokens.result }] : [] } : { agents: [], summaries: [] };
  }
  for (const agent of one.agents) {
    agent.state = session.state || "–";
    if (!runs) agent.pending = []; // its process has taken them along
  }
  return one;
}

async function watch(signal) {
  for (let failed = 0; ;) {
    await pause(document.hidden ? 5 * every : Math.min(every * 2 ** failed, 5 * every), signal, true);
    if (signal.aborted) return;
    try {
      const seen = await look();
      if (signal.aborted) return;
      show(seen);
      failed = 0;
      notice("");
      link("up", "Connected");
    } catch (error) {
      if (signal.aborted) return;
      if (error.locked) return lock(`${error.message}. ${error.advice}`);
      if (error.type === "SERVER_DRAINING") {
        link("draining", "The server is ending: what runs may finish, nothing new begins");
      } else if (error instanceof Refused) {
        notice(`${error.message}. ${error.advice}`);
      } else {
        failed = Math.min(failed + 1, 3);
        link("gone", "The server does not answer; trying again");
      }
    }
    await pause(300, signal); // however often it is woken
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });
window.addEventListener("online", () => wake());

const rows = new Map(); // by agent
let chosen = "";

function show({ agents, summaries, missing }) {
  put($("unreached"), unreached(missing));
  $("unreached").hidden = $("unreached").textContent === "";
  const tokens = new Map(summaries.map((s) => [s.agent_id, s.tokens]));
  const here = new Set(agents.map((a) => a.agent_id));
  for (const [id, row] of rows) if (!here.has(id)) { row.tr.remove(); rows.delete(id); forgetTalk(id); }
  sample(agents);
  const had = document.activeElement;
  inOrder(agents, tokens).forEach((agent, i) => {
    let row = rows.get(agent.agent_id);
    if (!row) rows.set(agent.agent_id, row = newRow(agent.agent_id));
    if ($("rows").children[i] !== row.tr) $("rows").insertBefore(row.tr, $("rows").children[i] ?? null);
    mark(agent.agent_id, row);
    put(row.state, agent.state);
    row.state.dataset.state = agent.state;
    put(row.restarts, String(agent.restarts ?? "–"));
    put(row.memory, mebibytes(agent.memory_bytes));
    const used = tokens.get(agent.agent_id);
    put(row.tokens, used ? `${thousands(used.total)} / ${thousands(used.budget)}` : "–");
    put(row.cost, dollars(agent.cost_usd_used));
    put(row.queue, String(agent.queued || "–"));
    put(row.asks, String(agent.pending?.length || "–"));
    row.asks.classList.toggle("some", agent.pending?.length > 0);
    put(row.fault, cut(plain(agent.last_error), 2000));
    row.fault.title = row.fault.textContent;
  });
  if (lost()) had?.focus({ preventScroll: true }); // its row was moved
  put($("count"), agents.length === 1 ? "1 agent" : `${agents.length} agents`);
  drawAgents([...rows].map(([id, { processor }]) => [id, processor]));
  drawTakes($("takes"));
  narrow();
  facts(agents.find((a) => a.agent_id === chosen));
  questions(agents);
}

const order = { by: "agent", turn: 1 };
const states = ["failed", "backoff", "busy", "starting", "stopping", "ready", "stopped"]; // those first that need somebody

// inOrder are the agents in the order of a column: names and states as they are read, the largest number first.
function inOrder(agents, tokens) {
  const value = {
    agent: () => 0, state: (a) => -states.indexOf(a.state), restarts: (a) => a.restarts, memory: (a) => a.memory_bytes,
    tokens: (a) => tokens.get(a.agent_id)?.total, processor: (a) => processorOf(a.agent_id), cost: (a) => a.cost_usd_used,
    queue: (a) => a.queued, asks: (a) => a.pending?.length,
  }[order.by];
  const byName = (a, b) => (a.agent_id < b.agent_id ? -1 : 1);
  return [...agents].sort((a, b) => order.turn * ((value(b) ?? -1) - (value(a) ?? -1) || byName(a, b)));
}

for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => {
    const by = button.dataset.sort;
    Object.assign(order, { by, turn: by === order.by ? -order.turn : 1 });
    for (const th of document.querySelectorAll("th[aria-sort]")) th.removeAttribute("aria-sort");
    const rising = ["agent", "state"].includes(by) === order.turn > 0;
    button.closest("th").setAttribute("aria-sort", rising ? "ascending" : "descending");
    wake();
  });
}

const few = 10; // agents that are seen at a glance

// narrow hides the rows that the filter leaves out, and says where none is left.
function narrow() {
  const filter = $("filter");
  if (rows.size <= few && document.activeElement !== filter) filter.value = "";
  filter.hidden = rows.size <= few && filter.value === "";
  const wanted = filter.value.trim().toLowerCase();
  let left = 0;
  for (const [id, row] of rows) {
    row.tr.hidden = !id.toLowerCase().includes(wanted);
    if (!row.tr.hidden) left++;
  }
  $("empty").hidden = left > 0;
  const none = { read: "No agent runs here.", agent: `There is no agent ${session.agent}.` }[session.scope] ?? "No agent runs here. Create one below.";
  put($("empty"), rows.size > 0 ? "No agent has such a name." : none);
}

$("filter").addEventListener("input", narrow);

onOpen(async (id) => {
  show(await look());
  choose(id);
  $("agent-title").focus();
});

const beside = matchMedia("(min-width: 1100px) and (min-height: 560px)"); // as in page.css: the agent stands beside the list, not below it

function newRow(id) {
  const name = make("button", { type: "button" }, id);
  name.addEventListener("click", () => {
    choose(id);
    if (beside.matches) return;
    $("agent-title").focus({ preventScroll: true });
    $("agent").scrollIntoView();
  });
  const row = { name, tr: make("tr", { role: "row" }, make("td", { role: "cell" }, name)) };
  for (const [member, label, style] of [["state", "", "state"], ["restarts", "Restarts", "number"], ["memory", "Memory", "number"],
    ["tokens", "Tokens", "number"], ["cpu", "Processor", "number cpu"], ["cost", "Cost", "number cost"], ["queue", "Queue", "number queue"],
    ["asks", "Asks", "number asks"], ["fault", "", "fault"]]) {
    row[member] = make("td", { role: "cell", class: style, ...(label && { "data-label": label }) });
    row.tr.append(row[member]);
  }
  row.processor = { number: make("span"), curve: newCurve() };
  row.cpu.append(row.processor.number, row.processor.curve);
  return row;
}

// mark shows whether a row is that of the agent that is open.
function mark(id, row) {
  row.tr.classList.toggle("chosen", id === chosen);
  row.name.setAttribute("aria-pressed", String(id === chosen));
}

$("back").addEventListener("click", () => {
  (rows.get(chosen)?.name ?? $("filter")).focus({ preventScroll: true });
  $("agents").scrollIntoView();
  rows.get(chosen)?.tr.scrollIntoView({ block: "nearest" });
});

let following = new AbortController();

// choose opens an agent; "" opens none.
function choose(id) {
  if (id === chosen && id !== "") return;
  following.abort();
  chosen = id;
  for (const [name, row] of rows) mark(name, row);
  $("agent").hidden = id === "";
  $("desk").classList.toggle("two", id !== "");
  put($("agent-title"), id);
  $("facts").replaceChildren();
  showTalk(id);
  showHistory(id, rows.get(id)?.state.textContent === "stopped");
  if (id === "") return;
  following = new AbortController();
  rows.get(id)?.tr.scrollIntoView({ block: "nearest" });
  follow(id, AbortSignal.any([session.signal, following.signal]));
  wake();
}

function facts(agent) {
  drawTakes($("agent-takes"), agent?.agent_id ?? "");
  if (!agent) {
    if (chosen !== session.agent) choose("");
    $("facts").replaceChildren();
    return;
  }
  const told = [["kind", agent.kind], ["model", agent.model], ["permissions", agent.permission_level], ["directory", agent.cwd], ["machine", agent.node], ["process", agent.pid],
    ["incarnation", agent.incarnation], ["restarts", agent.restarts], ["messages", agent.message_count], ["waiting", agent.queued || null],
    ["parent", agent.parent_agent_id], ["last restart", agent.last_restart_reason]].filter(([, v]) => v !== null && v !== undefined);
  const text = told.map(([name, value]) => `${name} ${plain(value)}`).join("\n");
  if ($("facts").dataset.told === text && $("facts").children.length > 0) return;
  $("facts").dataset.told = text;
  $("facts").replaceChildren(...told.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, plain(value)))));
}

$("create-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  fault("deed-error", "");
  const params = { approvals: $("new-ask").checked ? "ask" : "deny" };
  for (const [member, field] of [["agent_id", "new-id"], ["preset", "new-preset"], ["model", "new-model"], ["cwd", "new-cwd"]]) {
    const value = $(field).value.trim();
    if (value !== "") params[member] = value;
  }
  await during(async () => {
    try {
      const made = await call("/", "create_agent", params);
      show(await look());
      choose(made.agent_id);
      event.target.reset();
      $("create").open = false;
      fault("create-error", "");
      $("message").focus();
    } catch (error) {
      fault("create-error", why(error));
    }
  }, event.target.querySelector("button"));
});

const why = (error) => (error instanceof Refused ? error.message : "the server does not answer");

// fault shows why a deed was not done, until that is dismissed or the next deed.
function fault(id, text) {
  put($(id), text);
  $(id).hidden = text === "";
}

$("dismiss").addEventListener("click", () => fault("deed-error", ""));

$("destroy").addEventListener("click", () => {
  const id = chosen;
  fault("deed-error", "");
  put($("sure-title"), `Destroy ${id}?`);
  put($("sure-text"), id.startsWith(".") ? "Its process ends, and nothing of it is kept." : "Its process ends. Its conversation stays saved under its name.");
  $("sure").returnValue = "no";
  $("sure").onclose = async () => {
    if ($("sure").returnValue !== "yes") return;
    try {
      await call("/", "destroy_agent", { agent_id: id });
    } catch (error) {
      fault("deed-error", `${id} was not destroyed: ${why(error)}`);
    }
    wake();
  };
  $("sure").showModal();
});

$("key").focus();
redeem();
