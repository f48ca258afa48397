"use strict";
// Elements and drawings. Text from data is only ever text: no string becomes HTML.
function el(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "text", "rect", "g", "title", "circle", "svg:a"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag.replace("svg:", "")) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

function text(value, digits = 4) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return (value || 0).toLocaleString("en"); // -0 is 0
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  return size >= 100 ? value.toLocaleString("en", { maximumFractionDigits: 1 }) : String(Number(value.toPrecision(digits)));
}

const LONG_PATH = 48;
let root = ""; // as the overview says
function counted(count, one, many = `${one}s`) { return `${text(count)} ${count === 1 ? one : many}`; }

// Long names break after separators rather than inside words.
function separated(name) { return name.includes(" ") ? [name] : name.split(/(?<=[/.,_=@])/).flatMap((each, i) => (i ? [el("wbr"), each] : [each])); }

// The same; of a long path its end is shown, of a sentence or a list all.
function broken(value) {
  const end = typeof value === "string" && value.length > LONG_PATH && !value.includes(" ") && value.split("/").slice(-2).join("/");
  if (end && end.length < value.length) return [el("span", { title: value }, "…/", broken(end))];
  return typeof value === "string" ? separated(value) : [value];
}

// A command as one copies it into a shell.
function command(words) {
  const copy = el("button", { type: "button", class: "plain", onclick: async () => {
    try { await navigator.clipboard.writeText(words); copy.textContent = "Copied"; } catch { getSelection().selectAllChildren(code); }
  } }, "Copy"), code = el("code", null, words);
  return el("div", { class: "command" }, code, copy);
}

// Words of a command, each quoted for a shell where it needs that.
function shell(...words) { return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`)).join(" "); }

// The address of what is below the root.
function address(name) { return name === "." ? root : `${root.replace(/\/$/, "")}/${name}`; }

function duration(seconds) {
  if (seconds === null) return "–";
  return seconds < 60 ? `${Number(seconds.toPrecision(2))} s` : seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function bytes(value) {
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB") return `${Number(value.toPrecision(3))} ${unit}`;
    value /= 1000;
  }
}

function ticks(low, high, about) {
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) || power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; i++) found.push(Number((i * step).toPrecision(10)));
  return found.length > 1 ? found : ticks(low, high, 2 * about); // one number is no scale
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [0, 1];
  const more = high - low > 1e-9 * Math.max(1, Math.abs(high)) ? 0 : Math.max(1, Math.abs(high)) / 2;
  return [low - more, high + more];
}

const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const color = (i) => `var(--series-${(i % 6) + 1})`;
const dash = (i) => DASHES[(i + Math.floor(i / 6)) % DASHES.length]; // another one whenever a colour comes again

// As wide as the page, or half of it beside another: letters keep their size.
function wide(share = 1) {
  const page = document.getElementById("main").clientWidth;
  return Math.round(Math.max(280, page >= 800 ? page * share - (share < 1 ? 16 : 0) : page));
}

// Powers of ten between two logarithms, with 2 and 5 times each where these are few.
function powers(low, high) {
  const found = [], steps = high - low > 3 ? [1] : [1, 2, 5], every = Math.max(1, Math.ceil((high - low) / 8));
  for (let power = Math.floor(low); power <= high; power += every) for (const step of steps) found.push(power + Math.log10(step));
  return found.filter((at) => at >= low && at <= high);
}

// Words in lines of about so many letters.
function folded(words, letters) {
  const lines = [""];
  for (const word of words.split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= letters) lines.push("");
    lines.push([lines.pop(), word].filter(Boolean).join(" "));
  }
  return lines;
}

// Axes around a drawing; returns the element and what turns values into places. names: of the values 0, 1, … of y.
function axes(xs, ys, { x, y, width = wide(), height = 220, left = 68, label, zero = false, isLog = false, names = null }) {
  const said = x ? folded(x, width / 6) : [], right = 24, top = 10, bottom = 22 + 15 * said.length;
  const [x0, x1] = xs, [low, high] = ys, pad = zero ? 0 : (high - low) * 0.06, y0 = low - pad, y1 = high + (high - low) * 0.06;
  const px = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - right);
  const py = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - top - bottom);
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": label });
  const few = names ? Math.ceil(names.length / (height / 14)) : 1;
  const marked = isLog ? powers(y0, y1) : names ? [...names.keys()].filter((at) => at % few === 0 && at >= y0 && at <= y1) : ticks(y0, y1, height / 45);
  for (const at of marked) {
    const words = names ? (names[at].length > 9 ? `${names[at].slice(0, 8)}…` : names[at]) : text(isLog ? Number((10 ** at).toPrecision(3)) : at);
    svg.append(el("line", { class: "grid", x1: left, x2: width - right, y1: py(at), y2: py(at) }));
    svg.append(el("text", { x: left - 6, y: py(at) + 4, "text-anchor": "end" }, words, names ? el("title", null, names[at]) : null));
  }
  for (const at of ticks(x0, x1, width / 120)) svg.append(el("text", { x: px(at), y: height - bottom + 15, "text-anchor": "middle" }, text(at)));
  said.forEach((line, i) => svg.append(el("text", { x: said.length > 1 ? width / 2 : (left + width - right) / 2, y: height - 4 - 15 * (said.length - 1 - i), "text-anchor": "middle" }, line)));
  if (y) svg.append(el("text", { transform: `translate(12 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y));
  return { svg, px, py, width, left, right: width - right, top, bottom: height - bottom, x0, x1 };
}

// Lines of [{name, x, y, low, high}], the last two the edges of a band; each has a colour and a dash, named in a legend. Returns the
// figure and a function that moves a cursor. Options: those of axes, steps: a value holds until the next, points: few values are dots.
function lines(all, options) {
  const logarithms = (values) => values && values.map((value) => (value > 0 ? Math.log10(value) : NaN));
  const series = options.isLog ? all.map((each) => ({ ...each, y: logarithms(each.y), low: logarithms(each.low), high: logarithms(each.high) })) : all;
  const area = axes(extent(series.flatMap((each) => [...each.x])), extent(series.flatMap((each) => [...each.y, ...(each.low || []), ...(each.high || [])])), {
    ...options, y: options.isLog ? `${options.y} (log)` : options.y, label: `${options.y || "values"} over ${options.x || "steps"}: ${series.map((each) => each.name).join(", ")}`,
  });
  series.forEach(({ x, low, high }, i) => {
    const edge = low && [...x.keys()].filter((k) => Number.isFinite(low[k]) && Number.isFinite(high[k]));
    if (!edge || !edge.length) return;
    const point = (values) => (k) => `${area.px(x[k]).toFixed(1)} ${area.py(values[k]).toFixed(1)}`;
    area.svg.append(el("path", { class: "band", d: `M${edge.map(point(high)).join("L")}L${edge.reverse().map(point(low)).join("L")}Z`, fill: color(i) }));
  });
  series.forEach((each, i) => {
    let drawn = "", open = false;
    for (let k = 0; k < each.x.length; k++) {
      if (!Number.isFinite(each.y[k])) {
        if (open && options.steps) drawn += `H${area.px(each.x[k]).toFixed(1)}`; // a step holds until the next one
        open = false;
        continue;
      }
      const at = `${area.px(each.x[k]).toFixed(1)} ${area.py(each.y[k]).toFixed(1)}`;
      drawn += !open ? `M${at}` : options.steps ? `H${at.split(" ")[0]}V${at.split(" ")[1]}` : `L${at}`;
      open = true;
    }
    area.svg.append(el("path", { d: drawn || "M0 0", stroke: color(i), "stroke-dasharray": dash(i) }, el("title", null, each.name)));
    const known = each.y.filter(Number.isFinite).length;
    if (known === 1 || (options.points && known < 40)) {
      for (let k = 0; k < each.x.length; k++) {
        if (Number.isFinite(each.y[k])) area.svg.append(el("circle", { cx: area.px(each.x[k]), cy: area.py(each.y[k]), r: 2.6, fill: color(i) }));
      }
    }
  });
  const cursor = el("line", { class: "cursor", x1: area.left, x2: area.left, y1: area.top, y2: area.bottom, visibility: "hidden" });
  area.svg.append(cursor);
  const items = series.map((each, i) => {
    const value = el("span");
    const key = el("svg", { viewBox: "0 0 32 10", "aria-hidden": "true" }, el("path", { d: "M0 5H32", stroke: color(i), "stroke-dasharray": dash(i) }));
    return { item: el("li", null, key, each.name, " ", value), value };
  });
  const legend = series.length > 1 || options.cursor ? el("ul", { class: "legend" }, items.map((each) => each.item)) : null;
  return {
    figure: el("figure", null, area.svg, legend),
    area,
    move(at, index) {
      cursor.setAttribute("visibility", "visible");
      for (const name of ["x1", "x2"]) cursor.setAttribute(name, area.px(at));
      const said = (value) => (!Number.isFinite(value) ? "–" : options.names && options.names[value] !== undefined ? options.names[value] : text(value));
      items.forEach((each, i) => (each.value.textContent = `= ${said(all[i].y[index])}`));
    },
  };
}

// only: the value of all episodes, if they have the same.
function histogram({ edges, counts }, x, only = null) {
  if (!counts.length) return el("p", { class: "quiet" }, `No finite ${x}.`);
  if (only !== null) return el("p", null, `The ${x} is ${text(only)} in all episodes.`);
  const area = axes([edges[0], edges[edges.length - 1]], [0, Math.max(...counts)], { x, y: "episodes", width: wide(1 / 2), height: 180, zero: true, label: `Histogram of ${x}` });
  counts.forEach((count, i) => {
    const left = area.px(edges[i]), wide = Math.max(1, area.px(edges[i + 1]) - left - 1);
    area.svg.append(el("rect", { class: "bars", x: left, width: wide, y: area.py(count), height: area.bottom - area.py(count) },
      el("title", null, `${text(edges[i])} to ${text(edges[i + 1])}: ${text(count)} episodes`)));
  });
  return el("figure", null, area.svg);
}

// [name, [value, low, high]], one below the other. long: what short names stand for, told below.
function intervals(rows, x, { zero = false, long = {} } = {}) {
  const height = 60 + 26 * rows.length;
  const area = axes(extent([...rows.flatMap(([, each]) => each), ...(zero ? [0] : [])]), [0, rows.length], { x, height, left: 150, label: `Intervals of ${x}` });
  area.svg.querySelectorAll("line.grid").forEach((line) => line.remove());
  area.svg.querySelectorAll('text[text-anchor="end"]').forEach((each) => each.remove());
  if (zero) area.svg.append(el("line", { class: "zero", x1: area.px(0), x2: area.px(0), y1: area.top, y2: area.bottom }));
  rows.forEach(([name, [value, low, high]], i) => {
    const at = area.py(rows.length - i - 0.5);
    area.svg.append(el("text", { class: "ink", x: 0, y: at + 4 }, name.length > 24 ? `…${name.slice(-23)}` : name, el("title", null, long[name] || name)));
    if (![value, low, high].every(Number.isFinite)) {
      area.svg.append(el("text", { x: area.left, y: at + 4 }, Number.isFinite(value) ? `${text(value)}, without a bound` : "not known"));
      return;
    }
    area.svg.append(el("path", { d: `M${area.px(low)} ${at}H${area.px(high)}`, stroke: color(0) }));
    area.svg.append(el("circle", { cx: area.px(value), cy: at, r: 4, fill: color(0) }, el("title", null, `${text(value)} (${text(low)} to ${text(high)})`)));
  });
  const told = Object.entries(long).map(([name, words]) => `${name}: ${words}`).join("; ");
  return el("figure", null, area.svg, told ? el("figcaption", null, `${told}.`) : null);
}
