// The output of a job: follows it, searches it, loads what was before. Without this file the page has the output's end.
(() => {
  "use strict";
  const section = document.querySelector("[data-output]");
  if (!section) return;
  const $ = (selector) => section.querySelector(selector);
  const log = $(".log"), follow = $("[data-follow]"), find = $("[data-find]"), count = $("[data-count]");
  const EVERY_MS = 1000, KEPT_CHARS = 4 << 20, SHOWN_CHARS = 1 << 19, MATCHES_MAX = 9999;
  const lines = document.createTextNode(""); // whole lines
  const rest = document.createTextNode(""); // the line that has no end yet
  let begin = null, next = null, isEnded = "ended" in section.dataset;
  let matches = [], at = -1;

  // ---- the text ----
  async function ask(query) {
    const answer = await fetch(`${section.dataset.output}?${query}`, { headers: { Accept: "application/json" } });
    if (answer.status === 401) location.assign("/login");
    return answer.ok ? answer.json() : null;
  }

  function show(piece) {
    if (piece.begin !== next) { // the first piece; or much came at once, or the file was cut
      lines.data = next !== null && piece.begin > next ? "[output was left out here: Download has all of it]\n" : "";
      begin = piece.begin;
    }
    lines.appendData(piece.text);
    if (lines.length > KEPT_CHARS) {
      lines.deleteData(0, lines.length - (KEPT_CHARS - SHOWN_CHARS));
      begin = null; // where it begins is not known any more: Download has all of it
    }
    rest.data = piece.rest;
    next = piece.next;
  }

  async function update() {
    const piece = await ask(next === null ? "" : `from=${next}`).catch(() => null);
    if (!piece) return;
    if (piece.problem) { $("[data-note]").textContent = piece.problem; return; }
    isEnded = piece.ended;
    const isFirst = next === null;
    const isNew = piece.next !== next || piece.rest !== rest.data;
    if (isFirst) log.replaceChildren(lines, rest);
    if (isNew) show(piece);
    $("[data-note]").textContent = piece.note;
    $("[data-earlier]").hidden = !begin;
    if (isNew && find.value) search(false);
    if (follow.checked || isFirst) log.scrollTop = log.scrollHeight;
  }

  async function loop() {
    if (!document.hidden) await update();
    if (isEnded) { follow.checked = false; return; }
    setTimeout(loop, EVERY_MS);
  }

  $("[data-earlier]").addEventListener("click", async () => {
    const piece = await ask(`before=${begin}`).catch(() => null);
    if (!piece || piece.problem) return;
    follow.checked = false;
    const height = log.scrollHeight;
    lines.insertData(0, piece.text + piece.rest);
    begin = piece.begin;
    log.scrollTop += log.scrollHeight - height; // what was in view stays there
    $("[data-earlier]").hidden = !begin;
    if (find.value) search(false);
  });

  // ---- following: scrolling up ends it, scrolling to the end begins it ----
  const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 8;
  follow.addEventListener("change", () => { if (follow.checked) log.scrollTop = log.scrollHeight; });
  for (const kind of ["wheel", "touchmove", "keydown", "pointerup"])
    log.addEventListener(kind, () => setTimeout(() => { if (!isEnded) follow.checked = isAtEnd(); }, 150), { passive: true });
  $("[data-wrap]").addEventListener("change", (event) => log.classList.toggle("unwrapped", !event.target.checked));

  // ---- searching ----
  const canMark = typeof Highlight !== "undefined" && CSS.highlights;

  function range([from, to]) {
    const found = document.createRange();
    const place = (offset) => (offset <= lines.length ? [lines, offset] : [rest, offset - lines.length]);
    found.setStart(...place(from));
    found.setEnd(...place(to));
    return found;
  }

  function search(moves) {
    const text = find.value;
    matches = [];
    if (text && next !== null) {
      const pattern = new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
      for (const match of (lines.data + rest.data).matchAll(pattern)) {
        matches.push([match.index, match.index + match[0].length]);
        if (matches.length > MATCHES_MAX) break;
      }
    }
    if (moves || at >= matches.length) at = matches.length - 1; // the newest
    if (canMark) CSS.highlights.set("found", new Highlight(...matches.map(range)));
    for (const button of section.querySelectorAll("[data-step]")) button.disabled = !matches.length;
    go(moves);
  }

  function go(moves) {
    const many = matches.length > MATCHES_MAX ? `${MATCHES_MAX}+` : matches.length;
    count.textContent = !find.value ? "" : matches.length ? `${at + 1} of ${many}` : "none";
    const present = matches[at] && range(matches[at]);
    if (canMark) CSS.highlights.set("present", present ? new Highlight(present) : new Highlight());
    if (!present || !moves) return;
    follow.checked = false;
    const where = present.getBoundingClientRect(), box = log.getBoundingClientRect();
    log.scrollTop += where.top - box.top - box.height / 2;
    log.scrollLeft += Math.max(0, where.right - box.right + 40) + Math.min(0, where.left - box.left - 40);
  }

  function step(by) {
    if (!matches.length) return;
    at = (at + by + matches.length) % matches.length;
    go(true);
  }

  find.addEventListener("input", () => search(true));
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? 1 : -1); }
  });
  for (const button of section.querySelectorAll("[data-step]"))
    button.addEventListener("click", () => step(Number(button.dataset.step)));

  loop();
})();
