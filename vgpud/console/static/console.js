// What the pages need besides htmx: curves, sliders, keys, confirmations. Everything works by the keyboard, and actions
// work without this file.
(() => {
  "use strict";
  document.documentElement.classList.add("has-scripts");
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---- keys ----
  let wentG = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=range]), select, textarea, dialog")) return;
    if (event.key === "?") return void $("#keys")?.showModal();
    if (event.key === "/") {
      const search = $("[data-search]");
      if (search) { event.preventDefault(); search.focus(); }
      return;
    }
    if (event.key === "g") { wentG = event.timeStamp; return; }
    if (event.timeStamp - wentG < 1500) {
      wentG = 0;
      $(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
    }
  });
  $("#show-keys")?.addEventListener("click", () => $("#keys").showModal());

  // ---- confirmations, and forms that are sent once ----
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  // ---- sliders and the fields that they fill in ----
  for (const slider of $$("input[type=range][data-for]")) {
    const field = document.getElementById(slider.dataset.for);
    slider.addEventListener("input", () => { field.value = String(Number(slider.value)); });
    field.addEventListener("input", () => { if (field.value !== "" && !isNaN(field.value)) slider.value = field.value; });
  }

  // ---- the way back to the log-in when the session has ended ----
  document.addEventListener("htmx:sse:error", (event) => {
    if (event.detail.status === 401) location.assign("/login");
  });

  // ---- curves ----
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const bytes = (value) => {
    for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
      if (value >= size) return `${+(value / size).toFixed(1)} ${unit}`;
    return `${Math.round(value)} B`;
  };
  const EM = Math.max(14, parseFloat(getComputedStyle(document.documentElement).fontSize)); // of the page, in pixels
  const FONT = `${Math.round(0.82 * EM)}px system-ui, sans-serif`;
  const POWERS = Array.from({ length: 48 }, (_, n) => 2 ** n);
  const PARTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, ...Array.from({ length: 16 }, (_, n) => 2 ** n)]; // of GPUs
  const percent = (value) => `${+(100 * value).toFixed(1)} %`;

  function box(parent, title) {
    const part = document.createElement("div");
    part.className = "chart";
    part.setAttribute("role", "img");
    const head = document.createElement("h3");
    head.textContent = title;
    part.append(head);
    parent.append(part);
    return part;
  }

  // What is drawn: title, lines, how values are written, the least upper end, and the limit that the right axis has as
  // 100 %. Points of more than ten seconds have their highest value besides their mean.
  function wanted(found) {
    const any = (values) => values.some((value) => value);
    const most = (values) => Math.max(0, ...values.filter((value) => value != null));
    const peak = (values) => (found.step > 10 ? [{ label: "highest", values, color: "--quiet", dash: [1, 3] }] : []);
    const limit = (label, values, color, dash) => (any(values) ? [{ label, values, color, dash }] : []);
    const { at, begin, end } = found;
    const common = { at, begin, end };
    const all = [
      {
        ...common, title: "SM time in GPUs", format: (value) => `${+value.toFixed(2)}`, most: most(found.max) || 0.1,
        lines: [
          { label: "used", values: found.share, color: "--u0" }, ...peak(found.peak),
          ...limit("minimum", found.min, "--u2", [6, 4]), ...limit("maximum", found.max, "--u3", [2, 3]),
        ],
      },
      {
        ...common, title: "Memory", format: bytes, most: most(found.limit), whole: found.limit.at(-1),
        lines: [
          { label: "used", values: found.memory, color: "--u4" }, ...peak(found.memory_peak),
          ...limit("limit", found.limit, "--u3", [2, 3]),
        ],
      },
    ];
    if (any(found.waiting))
      all.push({ ...common, title: "Time waited at the gate", format: percent, most: 0.1, lines: [{ label: "waited", values: found.waiting, color: "--u1" }] });
    return all;
  }

  // the node's clock, as in all texts of the page; of a zone without a name its present offset
  const { zone, offset } = document.documentElement.dataset;
  const nodes = (t) => {
    const at = new Date(t * 1000);
    return zone ? uPlot.tzDate(at, zone) : new Date((t + Number(offset) + at.getTimezoneOffset() * 60) * 1000);
  };
  // ticks by their distance: label, and below it what has changed since the tick before: the year, the day
  const [MINUTE, HOUR, DAY] = [60, 3600, 86400];
  const TICKS = [
    [365 * DAY, "{YYYY}", null, null, null, null, null, null, 1],
    [28 * DAY, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [DAY, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [HOUR, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [MINUTE, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  ];
  const SECONDS = [1, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
    ...[1, 2, 3, 7, 14, 28, 61, 92, 183, 365].map((n) => n * DAY)];

  function create(part, { at, lines, format, most, whole }) {
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: FONT };
    const moment = uPlot.fmtDate("{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}");
    return new uPlot({
      tzDate: nodes,
      width: Math.max(200, part.clientWidth),
      height: Math.round(Math.min(460, Math.max(200, innerHeight / 5))),
      padding: [8, whole ? 0 : 1.7 * EM, 0, 0],
      cursor: { y: false },
      scales: {
        x: { range: () => part.span },
        y: { range: (_, low, high) => [0, Math.max(most, high) * 1.04 || 1] },
        ...(whole && { part: { from: "y", range: (_, low, high) => [low / part.whole, high / part.whole] } }),
      },
      axes: [
        { ...axis, space: 5.4 * EM, size: 3.2 * EM, incrs: SECONDS, values: TICKS },
        { ...axis, size: 4.9 * EM, space: 2.4 * EM, values: (_, ticks) => ticks.map(format), incrs: format === bytes ? POWERS : PARTS },
        ...(whole ? [{ ...axis, scale: "part", side: 1, size: 3.9 * EM, space: 2.4 * EM, grid: { show: false }, incrs: [0.1, 0.2, 0.25, 0.5, 1], values: (_, ticks) => ticks.map(percent) }] : []),
      ],
      series: [
        { label: "time", value: (_, t) => (t == null ? "-" : moment(nodes(t))) },
        ...lines.map((line) => ({
          label: line.label, stroke: color(line.color), width: line.dash ? 1 : 1.5, dash: line.dash, points: { show: false },
          value: (_, value) => (value == null ? "-" : format(value)),
        })),
      ],
    }, [at, ...lines.map((line) => line.values)], part);
  }

  const drawn = new Map(); // the charts of an element: [{ part, plot }]
  const due = new Map(); // when the curves of an element may have changed

  function say(charts, sentence) {
    for (const { plot } of drawn.get(charts) ?? []) plot?.destroy();
    drawn.delete(charts);
    const note = document.createElement("p");
    note.className = "quiet";
    note.textContent = sentence;
    charts.replaceChildren(note);
  }

  async function draw(charts, again) {
    if (!again && Date.now() < (due.get(charts) ?? 0)) return;
    due.set(charts, Date.now() + 4000);
    let found;
    try {
      const answer = await fetch(charts.dataset.curves, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; }
    if (found.problem) return void say(charts, found.problem);
    if (!found.at.length) return void say(charts, "Nothing was recorded in this time.");
    due.set(charts, Date.now() + Math.max(10, found.step / 2) * 1000);
    const all = wanted(found);
    let present = drawn.get(charts) ?? [];
    if (again || present.map(({ lines }) => lines).join() !== all.map((one) => one.lines.length).join()) {
      for (const { plot } of present) plot?.destroy();
      charts.replaceChildren();
      // all first: they share the width
      present = all.map((one) => ({ part: box(charts, one.title), plot: null, lines: one.lines.length }));
      drawn.set(charts, present);
    }
    all.forEach((one, n) => {
      const last = one.lines[0].values.at(-1);
      present[n].part.setAttribute("aria-label", `${one.title}: ${last == null ? "no value yet" : `${one.format(last)} at last`}`);
      present[n].part.span = [one.begin, one.end];
      present[n].part.whole = one.whole;
      if (present[n].plot) present[n].plot.setData([one.at, ...one.lines.map((line) => line.values)]);
      else present[n].plot = create(present[n].part, one);
      const plot = present[n].plot; // without a pointer the legend has the newest values; after uPlot's own update
      setTimeout(() => { if (plot.cursor.left < 0 || plot.cursor.idx == null) plot.setLegend({ idx: one.at.length - 1 }, false); });
    });
  }

  function drawAll(again) {
    if (document.hidden || typeof uPlot === "undefined") return;
    for (const [charts, present] of drawn)
      if (!charts.isConnected) {
        for (const { plot } of present) plot?.destroy();
        drawn.delete(charts);
        due.delete(charts);
      }
    for (const charts of $$("[data-curves]")) draw(charts, again);
  }
  if (typeof uPlot !== "undefined") {
    let later = 0;
    drawAll(false);
    setInterval(drawAll, 5000, false);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
    addEventListener("resize", () => { clearTimeout(later); later = setTimeout(drawAll, 200, true); });
  }
})();
