// A table that sorts by any column, filters by text and shows a page of rows at a time, however many there are.
const PAGE = 50;
const SHORT = 32; // characters that are not broken into lines

function mark(level, words) {
  const signs = { good: "✓", bad: "✗", fair: "!", grey: "·" };
  return el("span", { class: `mark ${level}` }, `${signs[level]} ${words}`);
}

const isMissing = (value) => value === null || value === undefined || value === "";

// Columns that say something: [those that differ between rows, those with one value in all]; the first one always differs.
function differing(all) {
  const said = all.filter((each, i) => i === 0 || each.plain || !each.values.every(isMissing));
  const isAlike = (each, i) => i > 0 && !each.plain && !each.stays && each.values.length > 2 && each.values.every((value) => value === each.values[0]);
  return [said.filter((each, i) => !isAlike(each, i)), said.filter(isAlike)];
}

// all: [{name, values, number, cell(row), class, plain: not sorted by, stays: a column in any case}], all of the same length. Options: sort: [name of a column, descending],
// chosen: Set of rows, caption, state: the name by which it stays as a reader left it, ordered: called with the rows in their order.
function table(all, options = {}) {
  const [columns, alike] = differing(all), count = all.length ? all[0].values.length : 0;
  const state = kept(`table ${options.state || `${location.hash} ${options.caption}`}`, { page: 0, by: options.sort || null, query: "" });
  let order = [...Array(count).keys()];
  const isShort = (each) => each.values.every((value) => String(value).length <= SHORT);
  const classes = columns.map((each) => (each.number ? "number" : each.class === "long" && isShort(each) ? "short" : each.class || null));
  const searched = columns.filter((each) => !each.number);
  const body = el("tbody"), shown = el("span", { class: "quiet", role: "status" });
  const heads = columns.map((each, i) => {
    const button = el("button", { type: "button", onclick: () => { state.by = [each.name, state.by && state.by[0] === each.name ? !state.by[1] : Boolean(each.number)]; state.page = 0; draw(); } }, each.name);
    return el("th", { scope: "col", class: [each.number && "number", each.name.length > SHORT && "long"].filter(Boolean).join(" ") || null }, each.plain ? each.name : button);
  });
  const before = el("button", { type: "button", class: "plain", onclick: () => { state.page--; draw(); } }, "Previous");
  const next = el("button", { type: "button", class: "plain", onclick: () => { state.page++; draw(); } }, "Next");
  const search = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${options.caption || "rows"}`,
    oninput: (event) => { state.query = event.target.value; state.page = 0; draw(); } });
  search.value = state.query;

  function draw() {
    order = [...Array(count).keys()];
    const query = state.query.toLowerCase(), sorted = columns.find((each) => state.by && each.name === state.by[0]), isDescending = state.by && state.by[1];
    if (query) order = order.filter((row) => searched.some((each) => String(each.values[row]).toLowerCase().includes(query)));
    if (sorted) {
      const { values, number } = sorted, sign = isDescending ? -1 : 1;
      order.sort((a, b) => {
        const [one, two] = [values[a], values[b]];
        if (isMissing(one) || isMissing(two)) return isMissing(one) - isMissing(two) || a - b;
        return sign * (number ? one - two : one < two ? -1 : one > two ? 1 : 0) || a - b;
      });
    }
    const pages = Math.max(1, Math.ceil(order.length / PAGE));
    const page = (state.page = Math.min(Math.max(0, state.page), pages - 1));
    heads.forEach((head, i) => {
      const now = columns[i] === sorted ? (isDescending ? "descending" : "ascending") : null;
      if (now) head.setAttribute("aria-sort", now); else head.removeAttribute("aria-sort");
      if (!columns[i].plain) head.firstChild.textContent = columns[i].name + (now ? (isDescending ? " ▼" : " ▲") : "");
    });
    if (options.ordered) options.ordered(order);
    body.replaceChildren(...order.slice(page * PAGE, page * PAGE + PAGE).map((row) => el("tr", { class: options.chosen && options.chosen.has(row) ? "chosen" : null },
      columns.map((each, i) => el("td", { class: classes[i] }, each.cell ? each.cell(row) : (classes[i] === "long" ? broken : String)(text(each.values[row])))))));
    shown.textContent = order.length ? `${text(page * PAGE + 1)} to ${text(Math.min(order.length, page * PAGE + PAGE))} of ${text(order.length)}` : "none";
    before.disabled = page === 0; next.disabled = page >= pages - 1;
  }
  draw();
  const bar = count > 8 ? el("div", { class: "bar" }, search, shown, count > PAGE ? [before, next] : null) : null;
  const made = el("table", null, options.caption ? el("caption", { class: "skip" }, options.caption) : null, el("thead", null, el("tr", null, heads)), body);
  const same = alike.length ? el("p", { class: "quiet small" }, `The same in all ${text(count)} rows: `,
    alike.flatMap((each, i) => [`${i ? ", " : ""}${each.name} `, el("b", null, each.cell ? each.cell(0) : text(each.values[0]))])) : null;
  return { element: el("div", null, bar, same, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption || "table" }, made)), draw };
}

// Rows of an object, those that say something.
function facts(pairs) {
  return el("div", { class: "scroll" }, el("table", { class: "facts" }, el("tbody", null,
    Object.entries(pairs).filter(([, value]) => !isMissing(value) && value !== "–").map(([name, value]) => el("tr", null, el("th", { scope: "row" }, name), el("td", null, value instanceof Node ? value : text(value)))))));
}

function column(name, rows, get, more = {}) {
  return { name, values: rows.map(get), ...more };
}
