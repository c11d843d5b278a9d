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
  const percent = (value) => `${+(100 * value).toFixed(1)} %`;
  const plots = [];

  function box(parent, title, latest) {
    const part = document.createElement("div");
    part.className = "chart";
    part.setAttribute("role", "img");
    const head = document.createElement("h3");
    head.textContent = title;
    part.append(head);
    part.setAttribute("aria-label", `${title}: ${latest}`);
    parent.append(part);
    return part;
  }

  function plot(parent, title, at, lines, format, most) {
    const last = lines[0].values[lines[0].values.length - 1];
    const part = box(parent, title, last === undefined || last === null ? "no value yet" : `${format(last)} now`);
    if (at.length < 2) {
      const text = document.createElement("p");
      text.className = "quiet";
      text.textContent = "Two points are needed: some seconds more.";
      part.append(text);
      return;
    }
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const options = {
      width: Math.max(200, part.clientWidth - 18),
      height: 170,
      cursor: { y: false },
      legend: { live: true },
      scales: { x: { range: (_, low, high) => [Math.min(low, high - 300), high] }, y: { range: (_, low, high) => [0, Math.max(most, high) * 1.04 || 1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toTimeString().slice(0, 5)) },
        { ...axis, size: 62, values: (_, ticks) => ticks.map(format) },
      ],
      series: [
        { label: "time", value: (_, t) => (t == null ? "-" : new Date(t * 1000).toTimeString().slice(0, 8)) },
        ...lines.map((line) => ({
          label: line.label, stroke: color(line.color), width: line.dash ? 1 : 1.5, dash: line.dash, points: { show: false },
          value: (_, value) => (value == null ? "-" : format(value)),
        })),
      ],
    };
    plots.push(new uPlot(options, [at, ...lines.map((line) => line.values)], part));
  }

  const flat = (at, value) => at.map(() => value);

  async function draw(charts) {
    let found;
    try {
      const answer = await fetch(charts.dataset.curves, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; }
    const rest = $$(".chart", charts);
    for (const one of found.devices ?? [found]) {
      const where = one.device === undefined ? "" : ` on device ${one.device}`;
      const lines = [{ label: "share", values: one.share, color: "--u0" }];
      if (one.max !== undefined) {
        lines.push({ label: "minimum", values: flat(one.at, one.min), color: "--u2", dash: [6, 4] });
        lines.push({ label: "maximum", values: flat(one.at, one.max), color: "--u3", dash: [2, 3] });
      }
      plot(charts, `Share of SM time${where}`, one.at, lines, percent, 1);
      const memory = [{ label: "memory", values: one.memory, color: "--u4" }];
      if (one.limit !== undefined) memory.push({ label: "limit", values: flat(one.at, one.limit), color: "--u3", dash: [2, 3] });
      plot(charts, `Memory${where}`, one.at, memory, bytes, one.limit ?? 0);
      if (one.waiting) plot(charts, `Threads waiting at the gate${where}`, one.at, [{ label: "waiting", values: one.waiting, color: "--u1" }], percent, 0);
    }
    for (const old of rest) old.remove();
  }

  function drawAll() {
    if (document.hidden || typeof uPlot === "undefined") return;
    for (const plot of plots.splice(0)) plot.destroy();
    for (const charts of $$("[data-curves]")) draw(charts);
  }
  if ($("[data-curves]")) {
    drawAll();
    setInterval(drawAll, 5000);
    addEventListener("resize", () => { clearTimeout(drawAll.timer); drawAll.timer = setTimeout(drawAll, 200); });
  }
})();
