// The episodes of a dataset: a list, and one of them over time.
const SHOWN_FEATURES = 8, GROUPS = ["observations", "actions", "rewards"];
const LISTED = new Map(); // by dataset: the numbers of the episodes in the order of its list, for the next one and the one before

const hasSteps = (name, number) => IS_SERVED || (INLINE.values.episode[name] || {})[number] !== undefined;

async function explorer(name, chosen) {
  const box = el("div"), state = kept(`filter ${name}`, { what: "episodes", where: "", found: null, error: "" });
  const draw = async () => box.replaceChildren(await part([["episodes", name]], (found) => listOf(name, chosen, found, state, draw)));
  await draw();
  return [chosen === null ? null : await part([["episode", name, chosen]], (steps) => episode(name, chosen, steps)), box];
}

function listOf(name, chosen, all, state, draw) {
  if (!all) return [el("p", { class: "note fair" }, "The episodes of this version could not be read; see Problems on the overview.")];
  const found = state.found || all, rows = found.number.length, listed = new Set(all.number);
  const marked = new Set([...all.marked, ...(state.found ? state.found.marked.filter((number) => !listed.has(number)) : [])]);
  const stored = found.number.filter((number) => hasSteps(name, number)).length;
  const said = state.found ? `${text(found.matching)} of ${counted(found.total, "episode")} ${found.matching === 1 ? "meets" : "meet"} the condition${rows < found.matching ? `; the first ${text(rows)} are listed` : ""}.`
    : IS_SERVED ? `${rows < all.total ? `${text(rows)} of ${text(all.total)} episodes are listed, a sample; a condition finds any. ` : ""}Every episode opens.`
      : stored === all.total ? `The steps of all ${counted(stored, "episode")} are in this page.` : `${text(rows)} of ${text(all.total)} episodes are listed; the steps of ${text(stored)} of ${text(all.total)} are in this page: best, worst, median, outliers and a sample.`;
  const why = found.number.map((number) => all.chosen[number] || "");
  const link = (row) => (hasSteps(name, found.number[row])
    ? el("a", { href: at("dataset", name, "episode", found.number[row]), "aria-current": found.number[row] === chosen ? "true" : null }, found.id[row]) : el("span", { class: "quiet" }, found.id[row]));
  const columns = [
    { name: "episode", values: found.id, cell: link, class: "long" },
    ...(found.start.length ? [{ name: "from step", values: found.start, number: true }] : []),
    { name: "return", values: found.return, number: true },
    { name: "steps", values: found.length, number: true },
    { name: "end", values: found.end, class: "short" },
  ];
  if (marked.size) columns.push({ name: "marked", stays: true, values: found.number.map((number) => (marked.has(number) ? "bad" : "")), cell: (row) => (marked.has(found.number[row]) ? mark("bad", "bad") : "–") });
  if (found.score) columns.push({ name: "outlier score (standard deviations)", values: found.score, number: true });
  if (found.reason && found.reason.some(Boolean)) columns.push({ name: "because", values: found.reason.map((each) => each || ""), class: "long", cell: (row) => (found.reason[row] || "–").split("; ")[0].replace(" standard deviations", "") }); // an episode says all of it
  columns.push({ name: "chosen as", stays: true, values: why.map((each, row) => (hasSteps(name, found.number[row]) ? each : "")) });
  const list = table(columns, { caption: "episodes", state: `episodes ${name}`, sort: ["chosen as", false], chosen: new Set(chosen === null ? [] : [found.number.indexOf(chosen)]),
    ordered: (order) => LISTED.set(name, order.map((row) => found.number[row]).filter((number) => hasSteps(name, number))) });
  const { return: returns, length: lengths } = all.histograms, finite = (values) => values.filter((value) => value !== null);
  const only = (values) => (new Set(finite(values)).size === 1 && all.total === all.number.length ? finite(values)[0] : null);
  const isOne = JSON.stringify(returns) === JSON.stringify(lengths); // a reward of one a step
  const histograms = el("div", { class: "columns" }, histogram(returns, isOne ? "return (the number of steps)" : "return", only(all.return)),
    isOne ? null : histogram(lengths, "number of steps", only(all.length)));
  return [chosen === null ? histograms : null, IS_SERVED ? filterOf(name, state, draw) : null, el("p", { class: "quiet" }, said), rows ? list.element : null];
}

// A condition in the SQL of 'offline prune', on an episode's columns or on any of its steps.
function filterOf(name, state, draw) {
  const where = el("input", { type: "search", class: "where", placeholder: state.what === "steps" ? "obs[1] > 2 and rewards < 0" : "return > 400 and length <= 500", "aria-label": "Condition" });
  where.value = state.where;
  const what = el("select", { "aria-label": "Condition on", onchange: () => { state.what = what.value; where.placeholder = what.value === "steps" ? "obs[1] > 2 and rewards < 0" : "return > 400 and length <= 500"; } }, el("option", { value: "episodes" }, "episodes with"), el("option", { value: "steps" }, "episodes with a step with"));
  what.value = state.what;
  async function filter(event) {
    event.preventDefault();
    Object.assign(state, { where: where.value.trim(), what: what.value, found: null, error: "" });
    kept(`table episodes ${name}`, {}).page = 0;
    button.disabled = true;
    try {
      if (state.where) state.found = await load("matching", name, state.what, state.where);
    } catch (error) {
      state.error = error.message;
    }
    draw();
  }
  const button = el("button", { type: "submit", class: "plain" }, "Show");
  return [el("form", { class: "bar", role: "search", onsubmit: filter }, what, where, button), state.error ? el("p", { class: "note bad", role: "alert" }, state.error) : null,
    state.found && state.found.matching && state.what === "episodes" ? ["To keep these alone:", command(shell("offline", "prune", address(name), `${address(name)}-kept`, "-s", `where=${state.where}`))] : null];
}

function floats(base64) {
  const raw = atob(base64), view = new DataView(new ArrayBuffer(raw.length));
  for (let i = 0; i < raw.length; i++) view.setUint8(i, raw.charCodeAt(i));
  return Float32Array.from({ length: raw.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

// The one before or after an episode in the list, as it is sorted and filtered.
function neighbour(name, number, by) {
  const order = LISTED.get(name) || [], place = order.indexOf(number);
  return place < 0 ? undefined : order[place + by];
}

function episode(name, number, found) {
  if (!found) return [el("p", { class: "quiet" }, "The steps of this episode are not in this page.")];
  const state = kept(`features ${name}`, { shown: {}, x: "time", policy: "" });
  const go = (by) => { const next = neighbour(name, number, by); if (next !== undefined) location.hash = at("dataset", name, "episode", next); };
  const head = el("h3", null, `Episode ${found.id}`);
  const before = el("button", { type: "button", class: "plain", onclick: () => go(-1) }, "Previous episode"), after = el("button", { type: "button", class: "plain", onclick: () => go(1) }, "Next episode");
  const marking = el("span"), told = el("p", { class: "quiet" }, `Return ${text(found.return)}, ${counted(found.length, "step")}${found.start ? ` from step ${text(found.start)} on` : ""}, ${found.end}. `, el("a", { href: at("dataset", name) }, "Close the episode"));
  const reason = el("div");
  part([["episodes", name]], (all) => {
    const row = all.number.indexOf(number), isBad = all.marked.includes(number);
    marking.replaceChildren(...(IS_SERVED ? [el("button", { type: "button", class: "plain", "aria-pressed": String(isBad), onclick: () => setMark(!isBad) }, isBad ? "✗ Marked as bad" : "Mark as bad")] : isBad ? [mark("bad", "marked as bad")] : []));
    const why = all.chosen[number], because = all.reason && row >= 0 && all.reason[row];
    return [why ? el("p", { class: "quiet" }, `Chosen as: ${why}.`) : null, because ? el("p", { class: "note fair" }, `Outlier: ${because}`) : null];
  }).then((box) => reason.replaceChildren(box));
  const trouble = el("div");
  async function setMark(isBad) {
    try {
      await post("mark", { dataset: name, number, id: found.id, is_bad: isBad });
      trouble.replaceChildren();
      await refreshAll();
    } catch (error) {
      trouble.replaceChildren(el("p", { class: "note bad", role: "alert" }, error.message));
    }
  }
  const film = found.clip ? clipOf(found.clip) : null, frames = found.frames ? framesOf(found.frames) : null;
  const section = el("section", { id: "episode" }, head, el("div", { class: "bar" }, before, after, marking), trouble, told, reason);
  section.keys = { n: () => go(1), p: () => go(-1), m: () => { const button = marking.querySelector("button"); if (button) button.click(); } };
  if (!found.values) { section.append(...present([film])); return [section]; }

  const values = floats(found.values), points = found.names.length ? values.length / found.names.length : 0;
  const steps = Array.from({ length: points }, (_, i) => i * found.stride), times = found.clock && Array.from(floats(found.clock.values));
  const signals = found.names.map(([group, feature], i) => ({ group, feature, y: Array.from(values.subarray(i * points, (i + 1) * points)), names: found.labels[i] || null }));
  const isShown = ({ group, feature }, place) => (feature in state.shown ? state.shown[feature] : group !== "observations" || place < SHOWN_FEATURES);
  const drawings = el("div"), notes = el("p", { class: "quiet small", role: "status" });
  let charts = [], beside = null;

  function draw() {
    const isTime = times && state.x === "time", x = isTime ? times : steps, axis = isTime ? found.clock.name : "step";
    charts = [];
    const groups = GROUPS.map((group) => {
      const of = signals.filter((each) => each.group === group), shown = of.filter(isShown);
      if (!of.length) return null;
      const toggles = of.length > 1 ? el("fieldset", { class: "bar" }, el("legend", { class: "skip" }, `Shown ${group}`), of.map((each, place) => el("label", null,
        el("input", { type: "checkbox", checked: isShown(each, place), "aria-label": `Show ${each.feature}`, onchange: (event) => { state.shown[each.feature] = event.target.checked; replace(drawings, draw()); move(Number(slider.value)); } }), ` ${each.feature}`))) : null;
      const plots = shown.map((each) => {
        const other = beside && beside.byName[`${group} ${each.feature}`];
        const series = [{ name: other ? `${each.feature}, recorded` : each.feature, x, y: each.y }, ...(other ? [{ name: `${each.feature}, ${beside.policy}`, x, y: other }] : [])];
        const chart = lines(series, { x: axis, y: each.feature.length > 20 ? `${each.feature.slice(0, 19)}…` : each.feature, height: 150, width: wide(1 / 2), cursor: true, steps: group !== "observations", names: each.names });
        chart.x = x;
        charts.push(chart);
        return chart.figure;
      });
      return [el("h4", null, group), toggles, el("div", { class: "columns plots" }, plots)];
    });
    for (const each of charts) each.area.svg.addEventListener("pointermove", (event) => {
      const box = each.area.svg.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width) * each.area.width;
      const value = each.area.x0 + ((place - each.area.left) / (each.area.right - each.area.left)) * (each.area.x1 - each.area.x0);
      if (value < each.area.x0 || value > each.area.x1) return;
      slider.value = each.x.reduce((best, at, i) => (Math.abs(at - value) < Math.abs(each.x[best] - value) ? i : best), 0);
      move(Number(slider.value));
    });
    return groups;
  }

  const said = el("output", { class: "quiet" });
  const slider = el("input", { type: "range", min: 0, max: Math.max(0, points - 1), value: 0, "aria-label": "Step", oninput: () => move(Number(slider.value)) });
  const play = el("button", { type: "button", class: "plain", onclick: () => toggle() }, "Play");
  let timer = null;
  function toggle() {
    if (timer) { clearInterval(timer); timer = null; play.textContent = "Play"; return; }
    if (Number(slider.value) >= points - 1) slider.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => {
      if (!slider.isConnected || Number(slider.value) >= points - 1) return toggle();
      slider.value = Number(slider.value) + Math.max(1, Math.round(points / 400));
      move(Number(slider.value));
    }, 33);
  }
  function move(index) {
    const step = index * found.stride;
    charts.forEach((each) => each.move(each.x[index], index));
    said.textContent = `step ${text(step)} of ${text(found.steps)}`;
    slider.setAttribute("aria-valuetext", said.textContent);
    if (frames) frames.show(step);
    if (film && film.nodeName === "VIDEO" && Number.isFinite(film.duration)) film.currentTime = (step / Math.max(1, found.steps)) * film.duration;
  }
  Object.assign(section.keys, { " ": toggle, ArrowRight: () => nudge(1), ArrowLeft: () => nudge(-1) });
  const nudge = (by) => { slider.value = Number(slider.value) + by; move(Number(slider.value)); };

  // What a policy would have done, for the same observations.
  const compared = el("div", { class: "bar" });
  async function compare() {
    beside = null;
    if (state.policy) {
      notes.textContent = `${state.policy} looks at the episode …`;
      try {
        const other = await load("beside", name, number, state.policy), theirs = floats(other.values), width = theirs.length / other.names.length;
        const byName = Object.fromEntries(other.names.map(([group, feature], i) => [`${group} ${feature}`, group === "actions" ? Array.from(theirs.subarray(i * width, (i + 1) * width)) : null]));
        beside = { policy: `greedy ${other.policy}`, byName };
        const choice = signals.find((each) => each.names), agreed = choice && choice.y.filter((value, i) => Number.isFinite(value) && value === byName[`actions ${choice.feature}`][i]).length;
        notes.textContent = choice ? `It does what was done at ${text(agreed)} of ${counted(Math.ceil(found.steps / found.stride), "step")} shown.` : "";
      } catch (error) {
        notes.textContent = error.message;
      }
    } else notes.textContent = "";
    replace(drawings, draw());
    move(Number(slider.value));
  }
  if (IS_SERVED) load("policies").then(({ rows }) => {
    const names = Object.keys(rows);
    if (!names.length) return;
    const select = el("select", { "aria-label": "Compare with a policy", onchange: () => { state.policy = select.value; compare(); } }, el("option", { value: "" }, "no policy"), names.map((each) => el("option", { value: each }, rows[each].called)));
    select.value = state.policy;
    compared.append(el("label", null, "Beside the actions, greedy ones of ", select));
  });
  if (times) compared.append(el("label", null, el("input", { type: "checkbox", checked: state.x === "time", onchange: (event) => { state.x = event.target.checked ? "time" : "step"; replace(drawings, draw()); move(Number(slider.value)); } }), " Time on the axis"));

  const more = [
    found.stride > 1 ? `Every ${found.stride}th step is shown.` : null,
    found.out ? `${text(found.out)} more numbers of each step are not shown.` : null,
    "Keys: n next, p previous, m marks it, space plays, arrows step.",
  ].filter(Boolean).join(" ");
  drawings.append(...present(draw()));
  section.append(...present([el("p", { class: "quiet small" }, IS_SERVED ? more : more.replace(" m marks it,", "")), compared, notes,
    el("div", { class: film || frames ? "beside" : null }, film || frames ? el("div", { class: "film" }, film, frames && frames.canvas) : null, drawings),
    points ? el("div", { class: "player bar" }, play, slider, said) : null]));
  if (points) move(0);
  if (state.policy && IS_SERVED) compare();
  return [section];
}

addEventListener("keydown", (event) => {
  const opened = document.getElementById("episode"), tag = event.target.nodeName;
  if (!opened || event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "TEXTAREA"].includes(tag) || (tag === "INPUT" && event.target.type !== "checkbox" && event.target.type !== "range")) return;
  if ((event.key === " " && ["BUTTON", "A", "SUMMARY", "INPUT"].includes(tag)) || (event.key.startsWith("Arrow") && tag === "INPUT")) return; // it has a meaning of its own there
  const act = opened.keys[event.key];
  if (act) { event.preventDefault(); act(); }
});

function clipOf(clip) {
  if (!clip.data) return el("p", null, clip.href.startsWith("file:") ? el("a", { href: clip.href }, `Open the clip ${clip.href}`) : `Clip: ${clip.href}`);
  if (clip.type === "image/gif") return el("img", { class: "clip", src: clip.data, alt: "Clip of the episode" });
  return el("video", { src: clip.data, controls: true, muted: true, loop: true, "aria-label": "Clip of the episode" });
}

// Recorded pictures, one above the other in one image; shows the last one up to a step.
function framesOf({ png, steps, width, height }) {
  const canvas = el("canvas", { width, height, role: "img", "aria-label": "Recorded frame" });
  const image = new Image();
  let wanted = 0;
  const draw = () => { if (image.complete && image.naturalWidth) canvas.getContext("2d").drawImage(image, 0, wanted * height, width, height, 0, 0, width, height); };
  image.onload = draw;
  image.src = `data:image/png;base64,${png}`;
  return { canvas, show(step) { wanted = Math.max(0, steps.findLastIndex((each) => each <= step)); draw(); } };
}
