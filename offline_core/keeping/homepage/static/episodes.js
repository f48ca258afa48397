// The episodes of a dataset: a list, and one of them over time.
function explorer(dataset, number, chosen) {
  const found = dataset.episodes;
  if (!found) return [el("p", { class: "note fair" }, "The episodes of this version could not be read; see Problems on the overview.")];
  const stored = Object.keys(found.steps).length, rows = found.id.length;
  const said = stored === found.total ? `The steps of all ${counted(stored, "episode")} are in this page.` : `${text(rows)} of ${text(found.total)} episodes are listed; the steps of ${text(stored)} of ${text(found.total)} are in this page: best, worst, median, outliers and a sample.`;
  const why = found.id.map((_, row) => found.chosen[row] || "");
  const link = (row) => found.steps[row] || found.clips[row]
    ? el("a", { href: `#dataset/${number}/episode/${row}`, "aria-current": row === chosen ? "true" : null }, found.id[row]) : el("span", { class: "quiet" }, found.id[row]);
  const columns = [
    { name: "episode", values: found.id, cell: link, class: "long" },
    { name: "return", values: found.return, number: true },
    { name: "steps", values: found.length, number: true },
    { name: "end", values: found.end, class: "short" },
  ];
  if (found.score) columns.push({ name: "outlier score (standard deviations)", values: found.score, number: true });
  if (found.reason && Object.keys(found.reason).length) columns.push({ name: "because", values: found.id.map((_, row) => found.reason[row] || ""), class: "long" });
  columns.push({ name: "opens", stays: true, values: why.map((each, row) => (found.steps[row] ? each || "steps" : "")), cell: (row) => (found.steps[row] ? why[row] || "steps" : "–") });
  const list = table(columns, { caption: "episodes", sort: ["opens", false], chosen: new Set(chosen === null ? [] : [chosen]) });
  const { return: returns, length: lengths } = found.histograms, only = ([, , low = null, high]) => (low === high ? low : null);
  const isOne = JSON.stringify(returns) === JSON.stringify(lengths); // a reward of one a step
  const histograms = el("div", { class: "columns" }, histogram(returns, isOne ? "return (the number of steps)" : "return", only(dataset.versions[0].return)),
    isOne ? null : histogram(lengths, "number of steps", only(dataset.versions[0].length)));
  return [el("p", { class: "quiet" }, said), chosen === null ? histograms : episode(dataset, number, chosen), list.element];
}

function floats(base64) {
  const raw = atob(base64), view = new DataView(new ArrayBuffer(raw.length));
  for (let i = 0; i < raw.length; i++) view.setUint8(i, raw.charCodeAt(i));
  return Float32Array.from({ length: raw.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

function episode(dataset, number, row) {
  const found = dataset.episodes, steps = found.steps[row], clip = found.clips[row];
  const head = el("h3", null, `Episode ${found.id[row]}`);
  const close = el("a", { href: `#dataset/${number}` }, "Close the episode");
  const facts = el("p", null, `Return ${text(found.return[row])}, ${text(found.length[row])} steps, ${found.end[row]}${found.chosen[row] ? `; here as: ${found.chosen[row]}` : ""}. `, close);
  const film = clip ? clipOf(clip) : null;
  const because = found.reason && found.reason[row] ? el("p", { class: "note fair" }, `Outlier: ${found.reason[row]}`) : null;
  if (!steps) return el("section", { id: "episode" }, head, facts, because, film);
  const values = floats(steps.values), points = steps.names.length ? values.length / steps.names.length : 0;
  const x = Array.from({ length: points }, (_, i) => i * steps.stride);
  const charts = ["observations", "actions", "rewards"].flatMap((group) => {
    const of = steps.names.map(([where, name], i) => ({ where, name, i })).filter((each) => each.where === group);
    if (!of.length) return [];
    const series = of.map(({ name, i }) => ({ name, x, y: Array.from(values.subarray(i * points, (i + 1) * points)) }));
    const drawn = lines(series, { x: group === "rewards" ? "step" : "", y: group, height: group === "observations" ? 240 : 140, cursor: true, steps: group !== "observations" });
    return [drawn];
  });
  const frames = steps.frames ? framesOf(steps.frames) : null;
  const told = el("output", { class: "quiet" });
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
    const step = index * steps.stride;
    charts.forEach((each) => each.move(step, index));
    told.textContent = `step ${text(step)} of ${text(steps.steps)}`;
    slider.setAttribute("aria-valuetext", told.textContent);
    if (frames) frames.show(step);
    if (film && film.nodeName === "VIDEO" && Number.isFinite(film.duration)) film.currentTime = (step / Math.max(1, steps.steps)) * film.duration;
  }
  for (const each of charts) each.area.svg.addEventListener("pointermove", (event) => {
    const box = each.area.svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * each.area.width;
    const share = (at - each.area.left) / (each.area.right - each.area.left);
    if (share < 0 || share > 1) return;
    slider.value = Math.round(share * (points - 1));
    move(Number(slider.value));
  });
  const notes = [
    steps.stride > 1 ? `Every ${steps.stride}th step is shown.` : null,
    steps.out ? `${text(steps.out)} more numbers of each step are not shown.` : null,
  ].filter(Boolean).join(" ");
  const player = el("div", { class: "player bar" }, play, slider, told);
  if (points) move(0);
  return el("section", { id: "episode" }, head, facts, because, notes ? el("p", { class: "quiet" }, notes) : null,
    film || frames ? el("div", { class: "bar" }, film, frames && frames.canvas) : null, charts.map((each) => each.figure), points ? player : null);
}

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
