// The sections, chosen by the part of the address behind #.
const MAIN = document.getElementById("main");
const SECTIONS = { overview: "Overview", datasets: "Datasets", experiments: "Experiments", policies: "Policies", lineage: "Lineage" };
const IN_SECTION = { dataset: "datasets", experiment: "experiments", policy: "policies" };
const LEVELS = { pass: "good", warn: "fair", fail: "bad" };
const MOST_REASONS = 5;
let runsUrl = "";

const at = (...parts) => `#${parts.map(encodeURIComponent).join("/")}`;
const verdict = (word) => mark(LEVELS[word] || "grey", { pass: "passed", warn: "passed with warnings", fail: "failed" }[word] || word);
const ruled = (word) => (word === "warn" ? mark("fair", "warning") : verdict(word));
const returned = (of, episodes) => (of === null ? "–" : `${text(of)}${episodes ? ` (n = ${text(episodes)})` : ""}`);
const isLinked = () => /^https?:\/\//.test(runsUrl);
const runLink = (id) => (id && isLinked() ? el("a", { href: `${runsUrl}/flow-run/${encodeURIComponent(id)}`, rel: "noreferrer" }, id.slice(0, 8)) : text(id));
const title = (words) => el("h2", null, separated(words));

async function overview() {
  return [await part([["overview"]], (all) => {
    const { counts, problems } = all;
    const tiles = [["datasets", counts.datasets, "dataset"], ["experiments", counts.experiments, "experiment"], ["policies", counts.policies, "policy", "policies"],
      ["policies", counts.decisions, "decision"], ["policies", counts.moves, "alias move"]];
    const going = Object.entries(all.going_on), failed = Object.entries(all.failed);
    const empty = !counts.datasets && !counts.experiments && !counts.policies;
    return [
      el("div", { class: "tiles" }, tiles.map(([where, count, one, many = `${one}s`]) => el("a", { class: "tile", href: `#${where}` }, el("b", null, text(count)), count === 1 ? one : many))),
      empty ? el("p", { class: "note grey" }, `Nothing was made below ${all.root} yet. Begin with: `, command(shell("offline", "expert-to-policy", root))) : null,
      problems.length ? [title("Problems"), el("p", null, `${problems.length === 1 ? "One file" : `${text(problems.length)} files`} could not be read; the rest is in this page.`),
        table([column("file", problems, (each) => each[0], { class: "long" }), column("reason", problems, (each) => each[1], { class: "long" })], { caption: "problems" }).element] : null,
      all.bad.length ? [title("Quality"), all.bad.map(([name, rules]) => el("p", { class: "note bad" }, mark("bad", name), ` failed its check: ${rules}. `, el("a", { href: at("dataset", name) }, "Look")))] : null,
      all.decisions.length ? [title("Decisions"), all.decisions.map(decisionNote)] : null,
      all.aliases.length ? [title("What runs"), all.aliases.map((each) => el("p", { class: "note grey" }, el("b", null, each.name), ` names a copy of ${each.from} since ${each.at} UTC: ${each.because || each.kind}`))] : null,
      failed.length ? [title("Failed"), failed.map(([name, run]) => failure(name, run)),
        all.failures > failed.length ? el("p", null, el("a", { href: "#experiments" }, `${text(all.failures - failed.length)} more`)) : null] : null,
      going.length ? [title("Not finished"), going.map(([name, run]) => el("p", { class: "note fair" },
        mark("fair", name), ` runs, or was stopped: ${text(run.updates)} updates, last metrics ${run.made} UTC. `, el("a", { href: at("experiment", name) }, "Look"))),
        all.unfinished > going.length ? el("p", null, el("a", { href: "#experiments" }, `${text(all.unfinished - going.length)} more`)) : null] : null,
      counts.datasets ? [title("Datasets"), datasetsTable(all.datasets), counts.datasets > Object.keys(all.datasets).length ? el("p", null, el("a", { href: "#datasets" }, `All ${text(counts.datasets)} datasets`)) : null] : null,
      counts.experiments ? [title("Best experiments"), runsTable(all.best).element] : null,
    ];
  })];
}

const decisionNote = (each) => el("p", { class: `note ${each.level}` }, mark(each.level, each.verdict), ` ${each.sentence} `, el("a", { href: "#policies" }, each.name));

function datasetsTable(rows) {
  const names = Object.keys(rows), all = Object.values(rows);
  return table([
    column("dataset", names, (name) => name, { cell: (i) => el("a", { href: at("dataset", names[i]) }, broken(names[i])), class: "long" }),
    column("quality", all, (each) => each.verdict, { cell: (i) => verdict(all[i].verdict) }),
    column("version", all, (each) => each.version, { number: true }),
    column("made (UTC)", all, (each) => each.made, { class: "short" }),
    column("by", all, (each) => each.by, { class: "short" }),
    column("episodes", all, (each) => each.episodes, { number: true }),
    column("steps", all, (each) => each.steps, { number: true }),
    column("mean return", all, (each) => each.return, { number: true }),
    column("size", all, (each) => each.bytes, { number: true, cell: (i) => bytes(all[i].bytes) }),
  ], { caption: "datasets" }).element;
}

const datasets = async () => [await part([["datasets"]], ({ rows }) => [Object.keys(rows).length ? datasetsTable(rows) : el("p", { class: "quiet" }, "There is no dataset.")])];

async function dataset(name, chosen) {
  const range = (of) => (of.length && of[0] === null ? "not finite" : of.length ? `${text(of[0])} ± ${text(of[1])} (${text(of[2])} to ${text(of[3])})` : "–");
  const names = ["mean", "std", "min", "5 %", "median", "95 %", "max"];
  const head = await part([["dataset", name]], (each) => {
    if (!each) return [el("p", null, "There is no such dataset.")];
    const quality = each.quality;
    return [
      el("p", null, el("a", { href: "#datasets" }, "All datasets")), title(each.name),
      quality ? el("p", { class: `note ${quality.level}` }, mark(quality.level, quality.status), ` ${quality.told}`) : el("div", { class: "note grey" }, "Not checked. Look at every step by the quality rules:", command(shell("offline", "check", address(each.name)))),
      el("h3", null, `Episodes of version ${each.versions[0].version}`),
    ];
  });
  const rest = await part([["dataset", name]], (each) => {
    if (!each) return [];
    const { versions, quality } = each;
    return [
      el("h3", null, "Versions"), table([
        column("version", versions, (of) => of.version, { number: true }), column("made (UTC)", versions, (of) => of.made, { class: "short" }), column("by", versions, (of) => of.by, { class: "short" }),
        column("from", versions, (of) => of.from, { class: "long" }), column("episodes", versions, (of) => of.episodes, { number: true }), column("steps", versions, (of) => of.steps, { number: true }),
        column("return ± std of episodes (range)", versions, (of) => range(of.return)), column("actions", versions, (of) => of.actions),
        column("tags", versions, (of) => of.tags), column("quality", versions, (of) => of.verdict, { cell: (i) => verdict(versions[i].verdict) }),
        ...(versions.some((of) => of.run) ? [column("run", versions, (of) => of.run, { cell: (i) => runLink(versions[i].run) })] : []),
      ], { caption: "versions" }).element,
      el("details", null, el("summary", null, `Facts of version ${versions[0].version}`), facts(each.facts)),
      quality ? el("details", { open: quality.verdict !== "pass" }, el("summary", null, "Quality rules"), table([
        column("rule", quality.findings, (of) => of[0]), column("verdict", quality.findings, (of) => of[1], { cell: (i) => ruled(quality.findings[i][1]) }),
        column("finding", quality.findings, (of) => of[2], { class: "long" }), column("advice", quality.findings, (of) => of[3], { class: "long" }),
      ], { caption: "quality rules" }).element) : null,
      each.columns.length ? el("details", null, el("summary", null, "Statistics of the columns"), table([
        column("column", each.columns, (of) => of[0]), ...names.map((of, i) => column(of, each.columns, (row) => row[i + 1], { number: true })),
        column("not finite", each.columns, (of) => of[8], { number: true }),
      ], { caption: "columns" }).element) : null,
    ];
  });
  return [head, ...(await explorer(name, chosen)), rest];
}

async function policies() {
  return [
    await part([["policies"]], ({ rows }) => {
      const names = Object.keys(rows), all = Object.values(rows);
      return [!all.length ? el("p", { class: "quiet" }, "There is no policy.") : table([
        column("policy", all, (each) => each.called, { cell: (i) => el("a", { href: at("policy", names[i]) }, broken(all[i].called)), class: "long" }),
        column("aliases", all, (each) => each.aliases), column("by", all, (each) => each.by, { class: "short" }), column("environment", all, (each) => each.environment),
        column("return in training", all, (each) => each.return, { number: true, cell: (i) => returned(all[i].return, all[i].episodes) }),
        column("evaluated", all, (each) => each.evaluated, { number: true }),
        column("evaluations", all, (each) => each.evaluations, { number: true }), column("estimates", all, (each) => each.estimates, { number: true }),
        column("made (UTC)", all, (each) => each.made, { class: "short" }),
      ], { caption: "policies", sort: ["made (UTC)", true] }).element];
    }),
    await part([["decisions"]], (decisions) => [decisions.length ? [title("Decisions"), decisions.map(decision)] : null]),
    await part([["registry"]], (moves) => [moves.length ? [title("Moves of aliases"), table([
      column("alias", moves, (each) => each.name), column("move", moves, (each) => each.kind), column("names", moves, (each) => each.fingerprint), column("copied from", moves, (each) => each.from),
      column("at (UTC)", moves, (each) => each.at), column("by", moves, (each) => each.by), column("because", moves, (each) => each.because),
    ], { caption: "moves" }).element] : null]),
  ];
}

function decision(each) {
  const reasons = each.candidates.flatMap((of) => of.reasons.map((reason) => `${of.name}: ${reason}`)), more = reasons.length - MOST_REASONS;
  const judged = each.candidates.filter((of) => of.judged).map((of) => [of.name, of.judged]);
  return [decisionNote(each), el("p", { class: "quiet" }, `It is on ${each.dataset}, against ${each.against}. Candidates were ranked on ${text(each.selected_on)} of its episodes and judged on ${text(each.judged_on)} others.`),
    judged.length ? intervals(judged, `difference of ${each.of} to what runs today, with its interval`, { zero: true }) : null,
    el("ul", null, reasons.slice(0, MOST_REASONS).map((reason) => el("li", null, reason)), more > 0 ? el("li", null, `and ${text(more)} more in result.json`) : null, each.notes.map((note) => el("li", null, note))),
    el("p", null, each.advice), each.next ? command(each.next) : null];
}

async function policy(name) {
  const { experiment: run = null } = (await load("policy", name)) || {};
  return [await part([["policies"], ["policy", name], ...(run === null ? [] : [["curves", run]])], ({ rows }, each, curves) => policyPage(name, rows[name], each, curves))];
}

function policyPage(name, row, each, curves) {
  if (!each || !row) return [el("p", null, "There is no such policy.")];
  return [
    el("p", null, el("a", { href: "#policies" }, "All policies")), title(row.called), row.called === name ? null : el("p", { class: "quiet" }, separated(name)),
    each.decisions.length + each.evaluations.length + each.estimates.length ? null : el("div", { class: "note grey" }, "It was never evaluated, estimated or decided on.", row.environment ? command(shell("offline", "evaluate", address(name))) : null),
    each.decisions.map(decision),
    each.evaluations.map((of) => [el("h3", null, `Evaluation in ${of.environment}`),
      el("p", { class: `note ${of.level}` }, mark(of.level, of.status), ` ${of.told}`),
      Object.keys(of.more).length ? facts(of.more) : null, histogram(of.returns, "return", of.std === 0 ? of.mean : null)]),
    each.estimates.map((of) => [el("h3", null, `Estimate on ${of.dataset}`), el("p", { class: `note ${of.level}` }, mark(of.level, of.status), ` ${of.told}`),
      el("p", { class: "quiet" }, `It is of ${of.actions} actions, ${of.gamma === 1 ? "" : `with a discount of ${of.gamma} and `}with intervals of ${text(100 * of.confidence)} %.`),
      intervals(Object.entries(of.intervals), of.of, { long: of.methods }), of.warnings.map((warning) => el("p", { class: "note fair" }, mark("fair", "Warning"), ` ${warning}`))]),
    el("h3", null, "What made it"),
    facts({ fingerprint: each.fingerprint, made: `${row.made} UTC by ${row.by}`, from: each.from.join(", "), environment: row.environment, aliases: row.aliases,
      "return in training": returned(row.return, row.episodes), ...(each.experiment === null ? {} : { experiment: el("a", { href: at("experiment", each.experiment) }, separated(each.experiment)) }),
      ...(each.run ? { "made in run": runLink(each.run) } : {}), command: each.command ? command(each.command) : "" }),
    Object.keys(each.parameters).length ? el("details", null, el("summary", null, "Parameters that are not at their defaults"), facts(each.parameters)) : null,
    curves ? drawnCurves(curves, each.x) : null,
  ];
}

const lineage = async () => [await part([["graph"]], ({ nodes, edges, left_out: leftOut }) => {
  if (!nodes.length) return [el("p", { class: "quiet" }, "Nothing was made yet.")];
  const wide = 230, high = 68, gap = 60, space = 16;
  const page = (node) => `#${node.page.map(encodeURIComponent).join("/")}`;
  const at = (node) => [10 + node.column * (wide + gap), 10 + node.row * (high + space)];
  const width = 20 + (1 + Math.max(...nodes.map((each) => each.column))) * (wide + gap) - gap, height = 20 + (1 + Math.max(...nodes.map((each) => each.row))) * (high + space) - space;
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `Lineage of ${nodes.length} datasets and policies; the list below says the same` });
  for (const [parent, child] of edges) {
    const [x0, y0] = at(nodes[parent]), [x1, y1] = at(nodes[child]), from = x0 + wide, middle = (from + x1) / 2;
    svg.append(el("path", { d: `M${from} ${y0 + high / 2}C${middle} ${y0 + high / 2} ${middle} ${y1 + high / 2} ${x1} ${y1 + high / 2}` }));
  }
  const kinds = { dataset: "series-1", policy: "series-2", checkpoint: "series-2", files: "series-6" };
  for (const node of nodes) {
    const [x, y] = at(node);
    const round = node.kind === "policy" || node.kind === "checkpoint" ? 20 : 3;
    svg.append(el(node.page ? "svg:a" : "g", node.page && { href: page(node) }, el("title", null, node.lines.join(", ")),
      el("rect", { x, y, width: wide, height: high, rx: round, stroke: `var(--${kinds[node.kind]})`, "stroke-dasharray": node.is_outside ? "5 4" : null }),
      node.lines.slice(0, 4).map((line, i) => el("text", { class: i ? null : "ink", x: x + 12, y: y + 17 + 14.5 * i }, line.length > 36 ? `…${line.slice(-35)}` : line))));
  }
  const made = nodes.map((node, i) => ({ node, from: edges.filter(([, child]) => child === i).map(([parent]) => nodes[parent].lines[0]) }));
  return [
    el("p", { class: "quiet" }, "Square: datasets and files. Round: policies. Dashed: imported, of another root, or deleted since.", leftOut ? ` ${text(leftOut)} more are not drawn.` : ""),
    el("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Lineage" }, svg),
    el("details", null, el("summary", null, "As a list"), el("ul", null, made.map(({ node, from }) => el("li", null, node.page ? el("a", { href: page(node) }, node.lines[0]) : node.lines[0], node.lines.slice(1).map((line) => `, ${line}`), from.length ? `; from ${from.join(", ")}` : "")))),
  ];
})];

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

let shown = 0;
async function show() {
  const number = ++shown, [where, name, , episode] = location.hash.slice(1).split("/").map(decoded);
  const section = IN_SECTION[where] || (SECTIONS[where] ? where : "overview");
  const pages = { overview, datasets, experiments, policies, lineage, dataset: () => dataset(name, episode === undefined ? null : Number(episode)), experiment: () => experiment(name), policy: () => policy(name) };
  PARTS.clear();
  const drawn = await pages[IN_SECTION[where] ? where : section]();
  if (number !== shown) return;
  document.getElementById("nav").replaceChildren(...Object.entries(SECTIONS).map(([each, words]) => el("a", { href: `#${each}`, "aria-current": each === section ? "page" : null }, words)));
  MAIN.replaceChildren(...present(drawn));
  MAIN.dataset.shown = location.hash;
  const opened = document.getElementById("episode");
  if (opened) opened.scrollIntoView(); else { scrollTo(0, 0); if (number > 1) MAIN.focus({ preventScroll: true }); }
}

async function begin() {
  if (IS_SERVED) history.replaceState(null, "", location.pathname + location.hash); // the token stays in no address
  const about = document.getElementById("about"), told = el("span", { role: "status" });
  try {
    ({ root, runs_url: runsUrl } = await load("overview"));
  } catch { /* its own part of the page says why */ }
  about.append(root, told, ...(isLinked() ? [" · ", el("a", { href: runsUrl, rel: "noreferrer" }, "Runs of flows")] : []));
  addEventListener("hashchange", show);
  await show();
  if (IS_SERVED) watch(told); else told.textContent = `, as of ${INLINE.made} UTC`;
}
begin();
