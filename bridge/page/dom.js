// What all parts of the page build with. Whatever agents say becomes text nodes:
// none of it is ever read as HTML.

export const $ = (id) => document.getElementById(id);

// make builds an element: text goes in as text, the rest as attributes.
export function make(tag, attributes = {}, ...inside) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...inside);
  return node;
}

// plain spells out what could pretend to be other text: characters that control,
// turn or hide writing, but for tab and newline.
export function plain(value) {
  return String(value ?? "").replace(/(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// during disables buttons while work goes on. A disabled button loses the focus: it gets the
// focus back, unless something else has it by then.
export async function during(work, ...buttons) {
  const had = buttons.find((button) => button === document.activeElement);
  for (const button of buttons) button.disabled = true;
  try {
    return await work();
  } finally {
    for (const button of buttons) button.disabled = false;
    if (lost()) had?.focus();
  }
}

// lost reports whether nothing that is there has the focus.
export const lost = () => (document.activeElement ?? document.body) === document.body || document.activeElement.hidden;

// unreached says that what some machines of a cluster have is missing, as they are not reached; "" if none is named.
export function unreached(machines) {
  if (!machines?.length) return "";
  const [which, theirs] = machines.length === 1 ? ["machine", "it has"] : ["machines", "they have"];
  return plain(`The ${which} ${machines.join(", ")} ${machines.length === 1 ? "is" : "are"} not reached: what ${theirs} is missing here.`);
}

export function put(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export const cut = (text, length) => (text.length > length ? text.slice(0, length) + "…" : text);
export const thousands = (n) => (n < 1000 ? String(n) : n < 1e6 ? (n / 1000).toFixed(n < 1e4 ? 1 : 0) + "k" : (n / 1e6).toFixed(1) + "M");
export const mebibytes = (n) => (n === undefined || n === null || n === 0 ? "–" : (n / (1 << 20)).toFixed(1) + " MiB");
export const dollars = (n) => (n === undefined || n === null ? "–" : `$${n === 0 || n >= 1 ? n.toFixed(2) : n.toFixed(4)}`);

// atEnd reports whether a list that scrolls shows its end.
export const atEnd = (node) => node.scrollHeight - node.scrollTop - node.clientHeight < 24;
