// What the agents have taken lately, as curves: processor, memory, and tokens of models.
// Nothing is known of the time before the page was opened.

import { make, mebibytes, put, thousands } from "./dom.js";

const span = 300; // s that a curve shows at most
const least = 60; // s that a curve shows at least
const width = 300; // of a curve, in its own units
const gap = 25; // s between two looks, beyond which nobody knows what was in between
const height = 24; // likewise

const kinds = [
  { name: "processor", label: "Processor", text: (n) => `${n.toFixed(1)} %` }, // of one processor
  { name: "memory", label: "Memory", text: mebibytes },
  { name: "tokens", label: "Tokens a minute", text: thousands },
];

const agents = new Map(); // by name: what an agent was when it was seen last, and its points
let sums = []; // points of all agents
let now = 0;

// sample takes what list_agents says.
export function sample(infos) {
  now = performance.now() / 1000;
  const here = new Map(infos.map((info) => [info.agent_id, info]));
  for (const id of agents.keys()) if (!here.has(id)) agents.delete(id);
  const sum = { at: now, processor: null, memory: null, tokens: null };
  for (const info of infos) {
    let seen = agents.get(info.agent_id);
    if (!seen || seen.info.created_at !== info.created_at) agents.set(info.agent_id, seen = { info, at: now, points: [] });
    const minutes = (now - seen.at) / 60;
    const grown = (member) => (minutes > 0 && info[member] != null && seen.info[member] != null ? Math.max(0, info[member] - seen.info[member]) / minutes : null);
    const point = {
      at: now, memory: info.memory_bytes ?? null, tokens: grown("tokens_used"),
      processor: info.incarnation === seen.info.incarnation && grown("cpu_s") !== null ? grown("cpu_s") / 60 * 100 : null,
    };
    Object.assign(seen, { info, at: now, points: lately([...seen.points, point]) });
    for (const { name } of kinds) {
      const counted = name === "tokens" && here.has(info.parent_agent_id); // those of the agent that created it have them
      if (point[name] !== null && !counted) sum[name] += point[name];
    }
  }
  sums = lately([...sums, sum]);
}

const lately = (points) => points.filter(({ at }) => at > now - span);

// processorOf is the processor of an agent, in percent of one; undefined if that is not known.
export const processorOf = (id) => last(agents.get(id)?.points ?? [], "processor") ?? undefined;

// forgetCurves forgets all.
export function forgetCurves() {
  agents.clear();
  sums = [];
}

const last = (points, name) => points.at(-1)?.[name] ?? null;
const most = (points, name) => points.reduce((high, point) => Math.max(high, point[name] ?? 0), 0);

// newCurve is a curve to draw: the number beside it says what it is now.
export function newCurve() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of [["viewBox", `0 0 ${width} ${height}`], ["preserveAspectRatio", "none"], ["aria-hidden", "true"], ["class", "curve"]]) svg.setAttribute(name, value);
  svg.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
  return svg;
}

function draw(svg, points, name, full) {
  const shown = Math.max(least, now - (sums[0]?.at ?? now));
  let line = "";
  let before = null;
  for (const point of points) {
    if (point[name] === null) before = null;
    else {
      const x = (width * (1 - (now - point.at) / shown)).toFixed(1), y = (height - 1 - (height - 2) * point[name] / (full || 1)).toFixed(1);
      line += `${before !== null && point.at - before < gap ? "L" : "M"}${x} ${y}`;
      before = point.at;
    }
  }
  svg.firstChild.setAttribute("d", line);
}

// drawAgents draws the processor of each agent, all by one scale. rows are pairs of a name and the
// cell with a number and a curve.
export function drawAgents(rows) {
  let full = 1;
  for (const { points } of agents.values()) full = Math.max(full, most(points, "processor"));
  for (const [id, { number, curve }] of rows) {
    const points = agents.get(id)?.points ?? [];
    const value = last(points, "processor");
    put(number, value === null ? "–" : kinds[0].text(value));
    draw(curve, points, "processor", full);
  }
}

// drawTakes draws all curves of an agent, or of all agents where there is no id, into a node. The node
// is hidden where nothing is known.
export function drawTakes(node, id) {
  const points = id === undefined ? sums : agents.get(id)?.points ?? [];
  if (node.children.length === 0) {
    node.append(...kinds.map(({ label }) => make("div", {}, make("p", {}, make("span", {}, label), make("b")), newCurve())));
  }
  let known = false;
  kinds.forEach(({ name, text }, i) => {
    const one = node.children[i];
    const value = last(points, name);
    put(one.querySelector("b"), value === null ? "–" : text(value));
    draw(one.querySelector("svg"), points, name, most(points, name));
    known ||= value !== null && name !== "tokens";
  });
  node.hidden = !known;
}
