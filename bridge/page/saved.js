// The saved sessions of the server.

import { $, cut, during, lost, make, plain, put, unreached } from "./dom.js";
import { call, Refused, wake } from "./wire.js";

const most = 50; // asked for at once

let there = 0; // sessions on the page
let open = () => {}; // opens an agent

// onOpen says how an agent is opened whose session was loaded.
export function onOpen(f) { open = f; }

// forgetSaved takes all sessions off the page.
export function forgetSaved() {
  $("saved").open = false;
  $("saved-list").replaceChildren();
}

$("saved").addEventListener("toggle", () => {
  if (!$("saved").open) return;
  there = 0;
  $("saved-list").replaceChildren();
  during(more, $("saved-more"));
});

$("saved-more").addEventListener("click", async () => {
  const last = $("saved-list").lastElementChild;
  await during(more, $("saved-more"));
  if ($("saved-more").hidden && lost()) (last?.nextElementSibling?.querySelector("button") ?? $("saved").querySelector("summary")).focus();
});

async function more() {
  fault("");
  try {
    const page = await call("/", "list_sessions", { offset: there, limit: most });
    $("saved-list").append(...page.sessions.map((session) => newRow(session, session.name === page.last_session)));
    there = page.offset + page.sessions.length;
    $("saved-more").hidden = there >= page.total || page.sessions.length === 0;
    const told = page.total === 0 ? "No conversation is saved here yet." : `${there} of ${page.total}, the latest used first.`;
    put($("saved-note"), `${told} ${unreached(page.unreachable_nodes)}`.trim());
  } catch (error) {
    fault(error instanceof Refused ? error.message : "the server does not answer");
  }
}

function fault(text) {
  put($("saved-error"), text);
  $("saved-error").hidden = text === "";
}

function newRow(session, last) {
  const facts = [session.message_count === 1 ? "1 message" : `${session.message_count} messages`, session.kind, session.model, session.permission_level, session.cwd,
    new Date(session.updated_at * 1000).toLocaleString(), session.active && "running", last && "used last", session.damaged && `damaged: ${session.damaged}`];
  const li = make("li", {},
    make("strong", {}, plain(session.name)),
    make("span", { class: "quiet" }, plain(cut(facts.filter(Boolean).join(", "), 300))));
  if (!session.damaged) {
    const button = make("button", { type: "button", class: "all" }, "Open");
    button.setAttribute("aria-label", `Open ${session.name}`);
    button.addEventListener("click", () => during(() => load(session.name), button));
    li.append(button);
  }
  return li;
}

// load makes an agent of a session, if there is none yet, and opens it.
async function load(name) {
  fault("");
  try {
    const loaded = await call("/", "load_session", { session_name: name });
    wake();
    await open(loaded.agent_id ?? name);
  } catch (error) {
    fault(error instanceof Refused ? `${name} was not opened: ${error.message}` : "the server does not answer");
  }
}
