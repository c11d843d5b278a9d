// What the pages need besides htmx: curves, sliders, keys, confirmations. Everything works by the keyboard, and actions
// work without this file.
(() => {
  "use strict";
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
  const POWERS = Array.from({ length: 48 }, (_, n) => 2 ** n);
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

  const flat = (at, value) => at.map(() => value);

  // What is drawn of one device: title, lines, how values are written, and the least upper end.
  function wanted(one) {
    const where = one.device === undefined ? "" : ` on device ${one.device}`;
    const limits = (low, high) => [
      { label: "minimum", values: flat(one.at, low), color: "--u2", dash: [6, 4] },
      { label: "maximum", values: flat(one.at, high), color: "--u3", dash: [2, 3] },
    ];
    const share = [{ label: "share", values: one.share, color: "--u0" }, ...(one.max === undefined ? [] : limits(one.min, one.max))];
    const memory = [{ label: "memory", values: one.memory, color: "--u4" }];
    if (one.limit !== undefined) memory.push({ label: "limit", values: flat(one.at, one.limit), color: "--u3", dash: [2, 3] });
    const found = [
      { title: `Share of SM time${where}`, at: one.at, lines: share, format: percent, most: 1 },
      { title: `Memory${where}`, at: one.at, lines: memory, format: bytes, most: one.limit ?? 0 },
    ];
    if (one.waiting)
      found.push({ title: `Time waited at the gate${where}`, at: one.at, lines: [{ label: "waited", values: one.waiting, color: "--u1" }], format: percent, most: 0.1 });
    return found;
  }

  function create(part, { at, lines, format, most }) {
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    // the node's clock, as in all texts of the page: a date whose local hours are the node's
    const nodes = (t) => {
      const utc = new Date(t * 1000), ahead = Number(document.documentElement.dataset.offset);
      return new Date((t + ahead + utc.getTimezoneOffset() * 60) * 1000);
    };
    const clock = (t, letters) => nodes(t).toTimeString().slice(0, letters);
    return new uPlot({
      tzDate: nodes,
      width: Math.max(200, part.clientWidth - 18),
      height: 190,
      cursor: { y: false },
      scales: {
        x: { range: (_, low, high) => [Math.min(low, high - 300), high] },
        y: { range: (_, low, high) => [0, Math.max(most, high) * 1.04 || 1] },
      },
      axes: [
        { ...axis, space: 70, values: (_, ticks) => ticks.map((t) => clock(t, 5)) },
        { ...axis, size: 68, values: (_, ticks) => ticks.map(format), ...(format === bytes && { incrs: POWERS }) },
      ],
      series: [
        { label: "time", value: (_, t) => (t == null ? "-" : clock(t, 8)) },
        ...lines.map((line) => ({
          label: line.label, stroke: color(line.color), width: line.dash ? 1 : 1.5, dash: line.dash, points: { show: false },
          value: (_, value) => (value == null ? "-" : format(value)),
        })),
      ],
    }, [at, ...lines.map((line) => line.values)], part);
  }

  const drawn = new Map(); // the charts of an element: [{ part, plot }]

  async function draw(charts, again) {
    let found;
    try {
      const answer = await fetch(charts.dataset.curves, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; }
    const all = (found.devices ?? [found]).flatMap(wanted);
    let present = drawn.get(charts) ?? [];
    if (again || present.length !== all.length) {
      for (const { plot } of present) plot?.destroy();
      charts.replaceChildren();
      present = all.map((one) => ({ part: box(charts, one.title), plot: null })); // all first: they share the width
      drawn.set(charts, present);
    }
    all.forEach((one, n) => {
      const last = one.lines[0].values.at(-1);
      present[n].part.setAttribute("aria-label", `${one.title}: ${last == null ? "no value yet" : `${one.format(last)} now`}`);
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
      }
    for (const charts of $$("[data-curves]")) draw(charts, again);
  }
  if (typeof uPlot !== "undefined") {
    let later = 0;
    drawAll(false);
    setInterval(drawAll, 5000, false);
    addEventListener("resize", () => { clearTimeout(later); later = setTimeout(drawAll, 200, true); });
  }
})();
