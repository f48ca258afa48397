// The sections, chosen by the part of the address behind #.
const DATA = JSON.parse(document.getElementById("data").textContent);
const MAIN = document.getElementById("main");
const SECTIONS = { overview: "Overview", datasets: "Datasets", experiments: "Experiments", policies: "Policies", lineage: "Lineage" };
const LEVELS = { pass: "good", warn: "fair", fail: "bad" };
const RUNS = DATA.runs.name || [];
const OVERLAID = 8, UNFINISHED = 5, MOST_REASONS = 5;
let overlaid = null;
const POLICY_OF = new Map(DATA.policies.map((each, i) => [each.name.replace(/\/(best|last)$/, ""), i]));

const verdict = (word) => mark(LEVELS[word] || "grey", { pass: "passed", warn: "passed with warnings", fail: "failed" }[word] || word);
const ruled = (word) => (word === "warn" ? mark("fair", "warning") : verdict(word));
const returned = (of, episodes) => (of === null ? "–" : `${text(of)}${episodes ? ` (n = ${text(episodes)})` : ""}`);
const isLinked = /^https?:\/\//.test(DATA.runs_url);
const runLink = (id) => (id && isLinked ? el("a", { href: `${DATA.runs_url}/flow-run/${encodeURIComponent(id)}`, rel: "noreferrer" }, id.slice(0, 8)) : text(id));
const title = (words) => el("h2", null, words);

function overview() {
  const unfinished = RUNS.filter((_, i) => DATA.runs.status[i] === "not finished");
  const tiles = [["datasets", DATA.datasets.length, "dataset"], ["experiments", RUNS.length, "experiment"], ["policies", DATA.policies.length, "policy", "policies"],
    ["policies", DATA.decisions.length, "decision"], ["policies", DATA.registry.length, "alias move"]];
  const failed = DATA.datasets.map((each, i) => [each, i]).filter(([each]) => each.versions[0].verdict === "fail");
  const empty = !DATA.datasets.length && !RUNS.length && !DATA.policies.length;
  return [
    el("div", { class: "tiles" }, tiles.map(([where, count, one, many = `${one}s`]) => el("a", { class: "tile", href: `#${where}` }, el("b", null, text(count)), count === 1 ? one : many))),
    empty ? el("p", { class: "note grey" }, `Nothing was made below ${DATA.root} yet. Begin with: offline expert-to-policy ${DATA.root}`) : null,
    DATA.problems.length ? [title("Problems"), el("p", null, `${DATA.problems.length === 1 ? "One file" : `${text(DATA.problems.length)} files`} could not be read; the rest is in this page.`),
      table([column("file", DATA.problems, (each) => each[0], { class: "long" }), column("reason", DATA.problems, (each) => each[1])], { caption: "problems" }).element] : null,
    failed.length ? [title("Quality"), failed.slice(0, 20).map(([each, i]) => el("p", { class: "note bad" }, mark("bad", each.name), ` failed its check: ${each.quality.findings.filter(([, word]) => word === "fail").map(([rule]) => rule).join(", ")}. `, el("a", { href: `#dataset/${i}` }, "Look")))] : null,
    unfinished.length ? [title("Not finished"), unfinished.slice(0, UNFINISHED).map((name) => el("p", { class: "note fair" },
      mark("fair", name), ` runs, or was stopped: ${text(DATA.runs.updates[RUNS.indexOf(name)])} updates, last metrics ${DATA.runs.made[RUNS.indexOf(name)]} UTC.`)),
      unfinished.length > UNFINISHED ? el("p", null, el("a", { href: "#experiments" }, `${text(unfinished.length - UNFINISHED)} more`)) : null] : null,
    DATA.registry.length ? [title("What runs"), current().map((each) => el("p", { class: "note grey" }, el("b", null, each.name), ` names ${each.fingerprint} since ${each.at} UTC: ${each.because || each.kind}`))] : null,
    DATA.decisions.length ? [title("Decisions"), DATA.decisions.map(decisionNote)] : null,
    DATA.datasets.length ? [title("Datasets"), datasetsTable()] : null,
    RUNS.length ? [title("Best experiments"), runsTable(best(10)).element] : null,
  ];
}

function current() {
  const seen = new Set();
  return DATA.registry.filter((each) => !seen.has(each.name) && seen.add(each.name));
}

const decisionNote = (each) => el("p", { class: `note ${each.level}` }, mark(each.level, each.verdict), ` ${each.sentence} `, el("span", { class: "quiet" }, each.name));

function datasetsTable() {
  const all = DATA.datasets, last = (each) => each.versions[0];
  return table([
    column("dataset", all, (each) => each.name, { cell: (i) => el("a", { href: `#dataset/${i}` }, broken(all[i].name)), class: "long" }),
    column("version", all, (each) => last(each).version, { number: true }),
    column("made", all, (each) => last(each).made, { class: "short" }),
    column("by", all, (each) => last(each).by, { class: "short" }),
    column("episodes", all, (each) => last(each).episodes, { number: true }),
    column("steps", all, (each) => last(each).steps, { number: true }),
    column("mean return", all, (each) => (last(each).return.length ? last(each).return[0] : null), { number: true }),
    column("size", all, (each) => last(each).bytes, { number: true, cell: (i) => bytes(last(all[i]).bytes) }),
    column("quality", all, (each) => last(each).verdict, { cell: (i) => verdict(last(all[i]).verdict) }),
  ], { caption: "datasets" }).element;
}

function datasets() {
  return DATA.datasets.length ? [datasetsTable()] : [el("p", { class: "quiet" }, "There is no dataset.")];
}

function dataset(number, episodeRow) {
  const each = DATA.datasets[number];
  if (!each) return [el("p", null, "There is no such dataset.")];
  const versions = each.versions, range = (of) => (of.length && of[0] === null ? "not finite" : of.length ? `${text(of[0])} ± ${text(of[1])} (${text(of[2])} to ${text(of[3])})` : "–");
  const quality = each.quality, names = ["mean", "std", "min", "5 %", "median", "95 %", "max"];
  return [
    el("p", null, el("a", { href: "#datasets" }, "All datasets")),
    title(each.name),
    quality ? el("p", { class: `note ${quality.level}` }, mark(quality.level, quality.status), ` ${quality.told}`) : el("p", { class: "note grey" }, `Not checked: offline check ${DATA.root}/${each.name}`),
    el("h3", null, `Episodes of version ${versions[0].version}`), explorer(each, number, episodeRow),
    el("h3", null, "Versions"), table([
      column("version", versions, (of) => of.version, { number: true }), column("made", versions, (of) => of.made, { class: "short" }), column("by", versions, (of) => of.by, { class: "short" }),
      column("from", versions, (of) => of.from, { class: "long" }), column("episodes", versions, (of) => of.episodes, { number: true }), column("steps", versions, (of) => of.steps, { number: true }),
      column("return ± std of episodes (range)", versions, (of) => range(of.return)), column("actions", versions, (of) => of.actions),
      column("tags", versions, (of) => of.tags), column("quality", versions, (of) => of.verdict, { cell: (i) => verdict(versions[i].verdict) }),
      ...(versions.some((of) => of.run) ? [column("run", versions, (of) => of.run, { cell: (i) => runLink(versions[i].run) })] : []),
    ], { caption: "versions" }).element,
    el("details", null, el("summary", null, `Facts of version ${versions[0].version}`), facts(each.facts)),
    quality ? el("details", { open: quality.verdict !== "pass" }, el("summary", null, "Quality rules"), table([
      column("rule", quality.findings, (of) => of[0]), column("verdict", quality.findings, (of) => of[1], { cell: (i) => ruled(quality.findings[i][1]) }),
      column("finding", quality.findings, (of) => of[2]), column("advice", quality.findings, (of) => of[3]),
    ], { caption: "quality rules" }).element) : null,
    each.columns.length ? el("details", null, el("summary", null, "Statistics of the columns"), table([
      column("column", each.columns, (of) => of[0]), ...names.map((name, i) => column(name, each.columns, (of) => of[i + 1], { number: true })),
      column("not finite", each.columns, (of) => of[8], { number: true }),
    ], { caption: "columns" }).element) : null,
  ];
}

function best(count) {
  const score = (i) => (DATA.runs.return[i] === null ? -Infinity : DATA.runs.return[i]);
  return [...RUNS.keys()].sort((a, b) => score(b) - score(a)).slice(0, count);
}

function runsTable(rows, check) {
  const runs = DATA.runs, of = (key) => rows.map((i) => runs[key][i]);
  const [names, levels, statuses, seconds] = ["name", "level", "status", "seconds"].map(of);
  const columns = [
    { name: "experiment", values: names, class: "long", cell: (i) => (POLICY_OF.has(names[i]) ? el("a", { href: `#policy/${POLICY_OF.get(names[i])}` }, broken(names[i])) : broken(names[i])) },
    { name: "kind", values: of("kind"), class: "short" }, { name: "algorithm", values: of("algorithm"), class: "short" },
    { name: "result", values: statuses, cell: (i) => mark(levels[i], statuses[i]), class: "short" },
    { name: "greedy return", values: of("return"), number: true, cell: (i) => returned(runs.return[rows[i]], runs.episodes[rows[i]]) },
    { name: "held-out loss", values: of("held_out"), number: true }, ...parameters(of("parameters")), { name: "seed", values: of("seed"), number: true },
    { name: "dataset", values: of("dataset"), class: "long" }, { name: "updates", values: of("updates"), number: true },
    { name: "time", values: seconds, number: true, cell: (i) => duration(seconds[i]) }, { name: "made", values: of("made"), class: "short" },
  ];
  if (check) columns.splice(1, 0, { name: "curve", values: rows, plain: true, class: "check", cell: (i) => (isDrawn(rows[i])
    ? el("input", { type: "checkbox", checked: overlaid.has(rows[i]), "aria-label": `Draw ${names[i]}`, onchange: (event) => check(rows[i], event.target.checked) }) : "–") });
  return table(columns, { caption: "experiments", sort: ["greedy return", true] });
}

// A column for each parameter that a sweep has set, by the last of its names where that is no other's.
function parameters(all) {
  const paths = [...new Set(all.flatMap((each) => Object.keys(each)))], last = (path) => path.split(".").pop().replaceAll("_", " ");
  const written = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : value);
  return paths.map((path) => {
    const values = all.map((each) => (path in each ? written(each[path]) : ""));
    const number = values.every((value) => value === "" || typeof value === "number");
    return { name: paths.filter((other) => last(other) === last(path)).length > 1 ? path : last(path), values, number, class: "long" };
  });
}

const isDrawn = (i) => Object.values(DATA.runs.curves[i]).some(([x]) => x.length > 1);

function experiments() {
  if (!RUNS.length) return [el("p", { class: "quiet" }, "There is no experiment.")];
  overlaid = overlaid || new Set(best(RUNS.length).filter(isDrawn).slice(0, OVERLAID));
  const label = (i) => (DATA.runs.setting[i] ? `${DATA.runs.setting[i]} (${DATA.runs.name[i].split("/").pop()})` : DATA.runs.name[i]);
  const kinds = ["return", "loss", "held-out loss"].filter((kind) => DATA.runs.curves.some((each) => each[kind]));
  const figure = el("div"), choice = el("select", { "aria-label": "Curves", onchange: draw }, kinds.map((kind) => el("option", null, kind)));
  const none = el("button", { type: "button", class: "plain", onclick: () => { overlaid.clear(); draw(); list.draw(); } }, "Draw none");
  choice.value = kinds.find((kind) => DATA.runs.curves.some((each) => each[kind] && each[kind][0].length > 1)) || kinds[0];
  function draw() {
    const kind = choice.value, chosen = [...overlaid].filter((i) => DATA.runs.curves[i][kind] && DATA.runs.curves[i][kind][0].length > 1);
    const charts = [...new Set(chosen.map((i) => DATA.runs.x[i]))].map((units) => {
      const series = chosen.filter((i) => DATA.runs.x[i] === units).map((i) => ({ name: label(i), x: DATA.runs.curves[i][kind][0], y: DATA.runs.curves[i][kind][1] }));
      return lines(series, { x: units, y: kind === "return" ? "mean greedy return" : kind, height: 280, points: true }).figure;
    });
    const drawable = RUNS.filter((_, i) => isDrawn(i)).length, single = overlaid.size - chosen.length;
    const note = `${text(chosen.length)} of ${counted(drawable, "curve")} ${chosen.length === 1 ? "is" : "are"} drawn; choose them in the table.${drawable < RUNS.length ? ` Of ${counted(RUNS.length - drawable, "experiment")} there is one value, or none.` : ""}${single ? ` Of ${text(single)} that ${single === 1 ? "is" : "are"} ticked there is no such curve.` : ""}`;
    figure.replaceChildren(...charts, el("p", { class: "quiet small" }, note));
  }
  const list = runsTable([...RUNS.keys()], (i, wanted) => { if (wanted) overlaid.add(i); else overlaid.delete(i); draw(); });
  draw();
  return [el("div", { class: "bar" }, "Curves of ", choice, none), figure, list.element];
}

function policies() {
  const all = DATA.policies, moves = DATA.registry;
  return [
    !all.length ? el("p", { class: "quiet" }, "There is no policy.") : table([
      column("policy", all, (each) => each.name, { cell: (i) => el("a", { href: `#policy/${i}` }, broken(all[i].name)), class: "long" }),
      column("aliases", all, (each) => each.aliases), column("by", all, (each) => each.by, { class: "short" }), column("environment", all, (each) => each.environment),
      column("return in training", all, (each) => each.return, { number: true, cell: (i) => returned(all[i].return, all[i].episodes) }),
      column("evaluated", all, (each) => (each.evaluations.length ? Math.max(...each.evaluations.map((of) => of.mean)) : null), { number: true }),
      column("evaluations", all, (each) => each.evaluations.length, { number: true }), column("estimates", all, (each) => each.estimates.length, { number: true }),
      column("made", all, (each) => each.made, { class: "short" }),
    ], { caption: "policies", sort: ["made", true] }).element,
    DATA.decisions.length ? [title("Decisions"), DATA.decisions.map(decision)] : null,
    moves.length ? [title("Moves of aliases"), table([
      column("alias", moves, (each) => each.name), column("move", moves, (each) => each.kind), column("names", moves, (each) => each.fingerprint), column("copied from", moves, (each) => each.from),
      column("at", moves, (each) => each.at), column("by", moves, (each) => each.by), column("because", moves, (each) => each.because),
    ], { caption: "moves" }).element] : null,
  ];
}

function decision(each) {
  const reasons = each.candidates.flatMap((of) => of.reasons.map((reason) => `${of.name}: ${reason}`)), more = reasons.length - MOST_REASONS;
  const judged = each.candidates.filter((of) => of.judged).map((of) => [of.name, of.judged]);
  return [decisionNote(each), el("p", { class: "quiet" }, `On ${each.dataset}, against ${each.against}. Candidates were ranked on ${text(each.selected_on)} of its episodes and judged on ${text(each.judged_on)} others.`),
    judged.length ? intervals(judged, `difference of ${each.of} to what runs today, with its interval`, true) : null,
    el("ul", null, reasons.slice(0, MOST_REASONS).map((reason) => el("li", null, reason)), more > 0 ? el("li", null, `and ${text(more)} more in result.json`) : null, each.notes.map((note) => el("li", null, note)))];
}

function policy(number) {
  const each = DATA.policies[number];
  if (!each) return [el("p", null, "There is no such policy.")];
  const run = RUNS.findIndex((name) => [`${name}/best`, `${name}/last`].includes(each.name));
  const curves = run < 0 ? {} : DATA.runs.curves[run], of = (key) => DATA.runs[key][run];
  const learned = run < 0 ? {} : { result: el("span", null, mark(of("level"), of("status")), ` ${of("told")}`), algorithm: of("algorithm"), setting: of("setting"), dataset: of("dataset"), time: duration(of("seconds")) };
  return [
    el("p", null, el("a", { href: "#policies" }, "All policies")),
    title(each.name),
    facts({ fingerprint: each.fingerprint, made: `${each.made} UTC by ${each.by}`, environment: each.environment, aliases: each.aliases, "return in training": returned(each.return, each.episodes), ...learned, ...(each.run ? { "made in run": runLink(each.run) } : {}) }),
    el("div", { class: "columns" }, Object.entries(curves).map(([kind, [x, y]]) => (y.length > 1
      ? el("div", null, el("h3", null, kind === "return" ? "Mean greedy return" : kind), lines([{ name: kind, x, y }], { width: wide(1 / 2), x: DATA.runs.x[run], y: kind, points: true }).figure)
      : el("p", null, `${kind}: ${text(y[0])} after ${text(x[0])} ${DATA.runs.x[run]}`)))),
    each.evaluations.map((of) => [el("h3", null, `Evaluation in ${of.environment}`),
      el("p", null, mark(of.level, of.status), ` ${of.told}`),
      Object.keys(of.more).length ? facts(of.more) : null, histogram(of.returns, "return", of.std === 0 ? of.mean : null)]),
    each.estimates.map((of) => [el("h3", null, `Estimate on ${of.dataset}`), el("p", null, mark(of.level, of.status), ` ${of.told}`),
      el("p", { class: "quiet" }, `${of.actions} actions, ${of.gamma === 1 ? "" : `discount ${of.gamma}, `}intervals of ${100 * of.confidence} %`),
      intervals(Object.entries(of.intervals), of.of), of.warnings.map((warning) => el("p", { class: "note fair" }, mark("fair", "Warning"), ` ${warning}`))]),
  ];
}

function lineage() {
  const { nodes, edges, left_out: leftOut } = DATA.graph;
  if (!nodes.length) return [el("p", { class: "quiet" }, "Nothing was made yet.")];
  const wide = 230, high = 68, gap = 60, space = 16;
  const at = (node) => [10 + node.column * (wide + gap), 10 + node.row * (high + space)];
  const width = 20 + (1 + Math.max(...nodes.map((each) => each.column))) * (wide + gap) - gap, height = 20 + (1 + Math.max(...nodes.map((each) => each.row))) * (high + space) - space;
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Lineage of ${nodes.length} datasets and policies; the list below says the same` });
  for (const [parent, child] of edges) {
    const [x0, y0] = at(nodes[parent]), [x1, y1] = at(nodes[child]), from = x0 + wide, middle = (from + x1) / 2;
    svg.append(el("path", { d: `M${from} ${y0 + high / 2}C${middle} ${y0 + high / 2} ${middle} ${y1 + high / 2} ${x1} ${y1 + high / 2}` }));
  }
  const kinds = { dataset: "series-1", policy: "series-2", checkpoint: "series-2", files: "series-6" };
  for (const node of nodes) {
    const [x, y] = at(node);
    const round = node.kind === "policy" || node.kind === "checkpoint" ? 20 : 3;
    svg.append(el("g", null, el("title", null, node.lines.join(", ")),
      el("rect", { x, y, width: wide, height: high, rx: round, stroke: `var(--${kinds[node.kind]})`, "stroke-dasharray": node.is_outside ? "5 4" : null }),
      node.lines.slice(0, 4).map((line, i) => el("text", { class: i ? null : "ink", x: x + 12, y: y + 17 + 14.5 * i }, line.length > 36 ? `…${line.slice(-35)}` : line))));
  }
  const made = nodes.map((node, i) => ({ node, from: edges.filter(([, child]) => child === i).map(([parent]) => nodes[parent].lines[0]) }));
  return [
    el("p", { class: "quiet" }, "Square: datasets and files. Round: policies. Dashed: imported, of another root, or deleted since.", leftOut ? ` ${text(leftOut)} more are not drawn.` : ""),
    el("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Lineage" }, svg),
    el("details", null, el("summary", null, "As a list"), el("ul", null, made.map(({ node, from }) => el("li", null, node.lines.join(", "), from.length ? `; from ${from.join(", ")}` : "")))),
  ];
}

function show() {
  const [where, number, , row] = location.hash.slice(1).split("/");
  const section = where === "dataset" ? "datasets" : where === "policy" ? "policies" : SECTIONS[where] ? where : "overview";
  document.getElementById("nav").replaceChildren(...Object.entries(SECTIONS).map(([name, words]) => el("a", { href: `#${name}`, "aria-current": name === section ? "page" : null }, words)));
  const drawn = where === "dataset" ? dataset(Number(number), row === undefined ? null : Number(row)) : where === "policy" ? policy(Number(number)) : { overview, datasets, experiments, policies, lineage }[section]();
  MAIN.replaceChildren(...drawn.flat(Infinity).filter((each) => each !== null && each !== undefined));
  const opened = document.getElementById("episode");
  if (opened) opened.scrollIntoView(); else scrollTo(0, 0);
}

const about = document.getElementById("about");
about.append(`${DATA.root}, as of ${DATA.made} UTC`);
if (isLinked) about.append(" · ", el("a", { href: DATA.runs_url, rel: "noreferrer" }, "Runs of flows"));
addEventListener("hashchange", () => { show(); if (!document.getElementById("episode")) MAIN.focus({ preventScroll: true }); });
show();
