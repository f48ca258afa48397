// Experiments: a table of all, and the curves and parameters of those that are ticked.
const OVERLAID = 8, MOST_TOLD = 5;
const SMOOTHINGS = { none: 0, "0.6": 0.6, "0.9": 0.9, "0.97": 0.97 };

const isDrawn = (run) => Object.values(run.points).some((count) => count > 1);
const score = (run) => (run.return === null ? -Infinity : run.return);

function runsTable(rows, options = {}) {
  const names = Object.keys(rows), runs = Object.values(rows), of = (key) => runs.map((run) => run[key]), labels = names.map((name, i) => labelOf(name, runs[i]));
  const columns = [
    { name: "experiment", values: labels, class: "long", cell: (i) => el("a", { href: at("experiment", names[i]) }, broken(labels[i])) },
    { name: "result", values: of("status"), cell: (i) => mark(runs[i].level, runs[i].status), class: "short" },
    { name: "greedy return", values: of("return"), number: true, cell: (i) => returned(runs[i].return, runs[i].episodes) },
    { name: "held-out loss", values: of("held_out"), number: true },
    { name: "kind", values: of("kind"), class: "short" }, { name: "algorithm", values: of("algorithm"), class: "short" }, ...parameters(of("parameters")), { name: "seed", values: of("seed"), number: true },
    ...(of("note").some(Boolean) ? [{ name: "note", values: of("note"), class: "long" }] : []),
    { name: "dataset", values: of("dataset"), class: "long" }, { name: "updates", values: of("updates"), number: true },
    { name: "time", values: of("seconds"), number: true, cell: (i) => duration(runs[i].seconds) }, { name: "made (UTC)", values: of("made"), class: "short" },
  ];
  if (options.chosen) columns.splice(1, 0, { name: "curve", values: names, plain: true, class: "check", cell: (i) => (isDrawn(runs[i])
    ? el("input", { type: "checkbox", checked: options.chosen.has(names[i]), "aria-label": `Draw ${labels[i]}`, onchange: (event) => options.choose(names[i], event.target.checked) }) : "–") });
  return table(columns, { caption: "experiments", sort: ["greedy return", true], state: options.state });
}

// A column for each parameter that differs, by the last of its names where that is no other's; those that most have are first.
function parameters(all) {
  const paths = [...new Set(all.flatMap((each) => Object.keys(each)))], last = (path) => path.split(".").pop().replaceAll("_", " ");
  const said = (path) => all.filter((each) => path in each).length;
  return paths.sort((a, b) => said(b) - said(a)).map((path) => {
    const values = all.map((each) => (path in each ? each[path] : ""));
    const number = values.every((value) => value === "" || typeof value === "number");
    return { name: paths.filter((other) => last(other) === last(path)).length > 1 ? path : last(path), values: number ? values : values.map(String), number, class: "long" };
  });
}

const labelOf = (name, run) => run.called || name;

function smoothed(y, weight) {
  let mean = null;
  return y.map((value) => (Number.isFinite(value) ? (mean = mean === null ? value : weight * mean + (1 - weight) * value) : value));
}

// Series of the same runs with other seeds as one: their mean, and the range between the lowest and the highest.
function banded(series) {
  const groups = new Map();
  for (const each of series) groups.set(each.group, [...(groups.get(each.group) || []), each]);
  return [...groups.values()].map((of) => {
    if (of.length === 1) return of[0];
    const from = Math.max(...of.map((each) => each.x[0])), to = Math.min(...of.map((each) => each.x.at(-1)));
    const x = [...new Set(of.flatMap((each) => each.x))].filter((value) => value >= from && value <= to).sort((a, b) => a - b);
    const all = x.map((value) => of.map((each) => interpolated(each, value)));
    return { name: `${of[0].setting}, ${of.length} seeds`, x, y: all.map((each) => each.reduce((sum, value) => sum + value, 0) / each.length),
      low: all.map((each) => Math.min(...each)), high: all.map((each) => Math.max(...each)) };
  });
}

function interpolated({ x, y }, value) {
  const after = x.findIndex((each) => each >= value);
  if (x[after] === value) return y[after];
  const share = (value - x[after - 1]) / (x[after] - x[after - 1]);
  return y[after - 1] + share * (y[after] - y[after - 1]);
}

async function experiments() {
  const state = kept("experiments", { chosen: null, kind: null, smoothing: "none", isLog: false, hasBands: false });
  const figure = el("div");
  let rows = {}, list = null, drawing = 0, drawn = null;

  async function draw() {
    const number = ++drawing, names = [...state.chosen].filter((name) => rows[name]);
    const box = await part(names.map((name) => ["curves", name]), (...curves) => curvesOf(names.map((name, i) => [name, rows[name], curves[i] || {}])));
    if (number === drawing) figure.replaceChildren(box);
  }

  function curvesOf(chosen) {
    const kinds = [...new Set([...COMMON, ...chosen.flatMap(([, , curves]) => Object.keys(curves))])].filter((kind) => chosen.some(([, , curves]) => curves[kind]));
    const drawable = (kind) => chosen.filter(([, , curves]) => curves[kind] && curves[kind][0].length > 1);
    const kind = kinds.includes(state.kind) ? state.kind : kinds.find((each) => drawable(each).length) || kinds[0];
    const select = (label, values, now, key) => {
      const node = el("select", { "aria-label": label, onchange: () => { state[key] = node.value; draw(); } }, values.map((value) => el("option", null, value)));
      node.value = now;
      return node;
    };
    const tick = (label, key) => el("label", null, el("input", { type: "checkbox", checked: state[key], onchange: (event) => { state[key] = event.target.checked; draw(); } }), ` ${label}`);
    const some = drawable(kind), left = chosen.length - some.length;
    const charts = [...new Set(some.map(([, run]) => run.x))].map((units) => {
      let series = some.filter(([, run]) => run.x === units).map(([name, run, curves]) => {
        const [x, y] = curves[kind], setting = run.setting || labelOf(name.split("/").slice(0, -1).join("/") || name, run);
        return { name: labelOf(name, run), x, y: smoothed(y, SMOOTHINGS[state.smoothing]), group: JSON.stringify([run.kind, run.algorithm, run.dataset, run.setting, run.parameters]), setting };
      });
      if (state.hasBands) series = banded(series);
      return lines(series, { x: units, y: curveName(kind), height: 300, points: state.smoothing === "none", isLog: state.isLog }).figure;
    });
    const bar = el("div", { class: "bar" }, "Curves of ", kinds.length ? select("Curves", kinds, kind, "kind") : null,
      el("label", null, "Smoothing ", select("Smoothing", Object.keys(SMOOTHINGS), state.smoothing, "smoothing")), tick("Log axis", "isLog"), tick("Seeds as bands", "hasBands"),
      el("button", { type: "button", class: "plain", onclick: () => { state.chosen.clear(); draw(); list.draw(); } }, "Draw none"));
    const all = Object.values(rows), can = all.filter(isDrawn).length;
    const note = `${text(some.length)} of ${counted(can, "curve")} ${some.length === 1 ? "is" : "are"} drawn; choose them in the table.${can < all.length ? ` Of ${counted(all.length - can, "experiment")} there is one value, or none.` : ""}${left ? ` Of ${text(left)} that ${left === 1 ? "is" : "are"} ticked there is no such curve.` : ""}`;
    return [bar, charts, el("p", { class: "quiet small" }, note), differences(chosen)];
  }

  const box = await part([["runs"]], (runs) => {
    rows = runs.rows;
    const names = Object.keys(rows);
    if (!names.length) return [el("p", { class: "quiet" }, "There is no experiment.")];
    state.chosen = state.chosen || new Set(names.filter((name) => isDrawn(rows[name])).sort((a, b) => score(rows[b]) - score(rows[a])).slice(0, OVERLAID));
    list = runsTable(rows, { chosen: state.chosen, state: "experiments", choose: (name, isWanted) => { if (isWanted) state.chosen.add(name); else state.chosen.delete(name); draw(); } });
    drawn = draw();
    const failed = names.filter((name) => rows[name].status === "failed");
    return [figure, list.element, failed.length ? [title("Failed"), failed.slice(0, MOST_TOLD).map((name) => failure(name, rows[name])),
      failed.length > MOST_TOLD ? el("p", { class: "quiet" }, `${text(failed.length - MOST_TOLD)} more are in the table.`) : null] : null];
  });
  await drawn;
  return [box];
}

const failure = (name, run) => el("p", { class: "note bad" }, mark("bad", labelOf(name, run)), ` ${run.told} `, Object.keys(run.points).length ? el("a", { href: at("experiment", name) }, "Look") : null);

// The parameters of some runs side by side, those that differ.
function differences(chosen) {
  const paths = [...new Set(chosen.flatMap(([, run]) => Object.keys(run.parameters)))];
  const values = { algorithm: (run) => run.algorithm, seed: (run) => run.seed, ...Object.fromEntries(paths.map((path) => [path, (run) => run.parameters[path]])) };
  const differing = Object.keys(values).filter((path) => new Set(chosen.map(([, run]) => JSON.stringify(values[path](run)))).size > 1);
  if (chosen.length < 2 || !differing.length) return null;
  return el("details", null, el("summary", null, "Their parameters, where they differ"), table([
    column("parameter", differing, (path) => path, { class: "short", plain: true }),
    ...chosen.map(([name, run]) => column(labelOf(name, run), differing, (path) => (values[path](run) === undefined ? "default" : values[path](run)), { plain: true, stays: true })),
  ], { caption: "differing parameters" }).element);
}

// One experiment: what it came to, its parameters and its curves.
async function experiment(name) {
  return [await part([["runs"], ["curves", name], ["policies"]], (runs, curves, policies) => {
    const run = runs.rows[name];
    if (!run) return [el("p", null, "There is no such experiment.")];
    const policy = ["best", "last"].map((each) => (name === "." ? each : `${name}/${each}`)).find((each) => policies.rows[each]);
    return [
      el("p", null, el("a", { href: "#experiments" }, "All experiments")), title(labelOf(name, run)), run.called ? el("p", { class: "quiet" }, separated(name)) : null,
      el("p", { class: `note ${run.level}` }, mark(run.level, run.status), ` ${run.told}`),
      facts({ policy: policy ? el("a", { href: at("policy", policy) }, separated(policy)) : "", kind: run.kind, algorithm: run.algorithm, setting: run.setting, seed: run.seed, dataset: run.dataset, updates: run.updates,
        "greedy return": returned(run.return, run.episodes), target: run.target, "held-out loss": run.held_out, time: run.seconds === null ? "" : duration(run.seconds), "made (UTC)": run.made }),
      noteOf(name, run.note),
      drawnCurves(curves || {}, run.x),
      Object.keys(run.parameters).length ? [el("h3", null, "Parameters that are not at their defaults"), facts(run.parameters)] : null,
    ];
  })];
}

// What people say of an experiment; where the page is served, to be changed.
function noteOf(name, note) {
  if (!IS_SERVED) return note ? el("p", { class: "note grey" }, note) : null;
  const trouble = el("div"), field = el("textarea", { rows: 2, "aria-label": "Note", placeholder: "What is this run, and what came of it?" });
  const state = kept(`note ${name}`, { text: null }); // what is being written outlasts a drawing
  field.value = state.text === null ? note : state.text;
  const save = el("button", { type: "button", class: "plain", disabled: state.text === null, onclick: async () => {
    try {
      await post("note", { run: name, text: field.value });
      state.text = null;
      trouble.replaceChildren();
      await refreshAll();
    } catch (error) {
      trouble.replaceChildren(el("p", { class: "note bad", role: "alert" }, error.message));
    }
  } }, "Save note");
  field.oninput = () => { state.text = field.value === note ? null : field.value; save.disabled = state.text === null; };
  return el("div", { class: "bar" }, field, save, trouble);
}

const COMMON = ["return", "loss", "held-out loss"];
const curveName = (kind) => (kind === "return" ? "mean greedy return" : kind.replaceAll("_", " "));

// The curves of one experiment: those that all have, and what else its metrics tell.
function drawnCurves(curves, x) {
  const all = Object.entries(curves), isCommon = ([kind]) => COMMON.includes(kind), isDrawn = ([, [, ys]]) => ys.length > 1;
  const common = all.filter((each) => isCommon(each) && isDrawn(each)), more = all.filter((each) => !isCommon(each) && isDrawn(each));
  const told = all.filter((each) => isCommon(each) && !isDrawn(each));
  return [common.length ? sideBySide(common, x) : null,
    told.map(([kind, [xs, ys]]) => el("p", null, `The ${curveName(kind)} is ${text(ys[0])} after ${text(xs[0])} ${x}.`)),
    more.length ? el("details", null, el("summary", null, counted(more.length, "more metric")), sideBySide(more, x)) : null];
}

function sideBySide(curves, x) {
  const fit = Math.floor((MAIN.clientWidth + 32) / 384), width = wide(1 / Math.max(2, Math.min(curves.length, fit))); // as .columns lays them
  return el("div", { class: "columns" }, curves.map(([kind, [xs, ys]]) => el("div", null, el("h3", null, curveName(kind)),
    lines([{ name: kind, x: xs, y: ys }], { width, x, y: curveName(kind), points: true }).figure)));
}
