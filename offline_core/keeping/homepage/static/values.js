// Values by name, inside the page or asked for where it is served, and the parts of a page that are drawn from them.
const INLINE = JSON.parse(document.getElementById("data").textContent);
const IS_SERVED = INLINE.values === null;
const MOST_KNOWN = 200, SECONDS_BETWEEN_LOOKS = 3, SECONDS_WHILE_READ = 1;
const KNOWN = new Map(); // by name: what came last, and the tag by which the server knows it

// The value of a name such as ("episode", "recording", 3); undefined: there is none. It is the same object until it changes.
async function load(...name) {
  const key = JSON.stringify(name), before = KNOWN.get(key);
  if (!IS_SERVED) {
    const value = name.reduce((at, each) => (at && Object.hasOwn(at, each) ? at[each] : undefined), INLINE.values);
    if (!before) KNOWN.set(key, { value: value && value.fields ? listed(value) : value });
    return KNOWN.get(key).value;
  }
  const answer = await fetch(`value?of=${encodeURIComponent(key)}`, { cache: "no-store", headers: before ? { "If-None-Match": before.tag } : {} });
  if (answer.status === 304) return before.value;
  let value = await answer.json();
  if (value && value.error) throw new Error(value.error);
  if (value === null) return undefined;
  if (value.fields) value = listed(value, answer.status === 226 ? before.value.rows : {}); // 226: only the rows that changed
  KNOWN.delete(key);
  KNOWN.set(key, { value, tag: answer.headers.get("ETag") });
  if (KNOWN.size > MOST_KNOWN) KNOWN.delete(KNOWN.keys().next().value);
  return value;
}

// A list whose rows are arrays, as one of objects; over the rows that are known, if it has only those that changed.
function listed({ fields, rows, gone = [] }, known = {}) {
  const all = { ...known };
  for (const [name, row] of Object.entries(rows)) all[name] = Object.fromEntries(fields.map((field, i) => [field, row[i]]));
  for (const name of gone) delete all[name];
  return { rows: all };
}

// What a reader has typed, ticked or sorted by, by name: it stays when a part is drawn again.
const STATE = new Map();
function kept(name, first) {
  if (!STATE.has(name)) STATE.set(name, first);
  return STATE.get(name);
}

// A part of the page, drawn from the values of some names; drawn again, by its `refresh`, when one of them has changed.
const PARTS = new Set();
async function part(names, draw) {
  const box = el("div");
  let last = null;
  async function refresh() {
    let drawn, values;
    try {
      values = await Promise.all(names.map((name) => load(...name)));
      if (last && values.every((value, i) => value === last[i])) return;
      drawn = draw(...values);
    } catch (error) {
      if (last) throw error; // what was drawn stays
      drawn = [el("p", { class: "note bad" }, error.message)];
    }
    last = values || null;
    replace(box, drawn);
  }
  await refresh();
  PARTS.add({ box, refresh });
  return box;
}

const present = (nodes) => nodes.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);

// Draw anew; what is opened, focused or scrolled stays so.
function replace(box, nodes) {
  const called = (node) => `${node.nodeName} ${node.getAttribute("aria-label") || node.textContent}`;
  const all = (selector) => [...box.querySelectorAll(selector)];
  const focused = box.contains(document.activeElement) ? document.activeElement : null, name = focused && called(focused);
  const caret = focused && focused.nodeName === "INPUT" && focused.type === "search" ? focused.selectionStart : null;
  const open = new Map(all("details").map((each) => [each.querySelector("summary").textContent, each.open]));
  const scrolled = new Map(all("[role=region]").map((each) => [each.getAttribute("aria-label"), each.scrollLeft]));
  box.replaceChildren(...present(nodes));
  for (const each of all("details")) if (open.has(each.querySelector("summary").textContent)) each.open = open.get(each.querySelector("summary").textContent);
  for (const each of all("[role=region]")) each.scrollLeft = scrolled.get(each.getAttribute("aria-label")) || 0;
  const again = focused && all(focused.nodeName).find((each) => called(each) === name);
  if (again) again.focus({ preventScroll: true });
  if (again && caret !== null) again.setSelectionRange(caret, caret);
}

// Look for what is new, in all parts that are shown.
async function refreshAll() {
  for (const each of PARTS) {
    if (each.box.isConnected) each.isShown = true;
    else if (each.isShown) PARTS.delete(each);
  }
  await Promise.all([...PARTS].map((each) => each.refresh()));
}

async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const value = await answer.json();
  if (value.error) throw new Error(value.error);
  return value;
}

async function watch(told) {
  let seconds = SECONDS_BETWEEN_LOOKS;
  try {
    const { change, at: now, unread } = await load("moment"); // another change whenever a file below the root did
    if (change !== watch.last && watch.last !== undefined) await refreshAll();
    watch.last = change;
    told.textContent = ` · as of ${now} UTC, ${unread ? `${counted(unread, "older file")} still to be read` : "kept fresh"}`;
    if (unread) seconds = SECONDS_WHILE_READ;
  } catch (error) {
    told.textContent = error instanceof TypeError ? " · the server does not answer: this page is as it was" : ` · ${error.message}`;
  }
  setTimeout(() => watch(told), 1000 * seconds);
}
