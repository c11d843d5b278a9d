// The terminal of a job: output comes as events, keys go as forms, in order and one request at a time.
(() => {
  "use strict";
  const place = document.getElementById("terminal");
  if (!place || typeof Terminal === "undefined") return;
  const csrf = document.querySelector("#terminal-form [name=csrf]").value;
  const state = document.getElementById("terminal-state");
  const RETRY_MS = 200, PIECE_CHARS = 16 * 1024;

  // The policy of the console's pages allows no style element and no style attribute that is written as text. xterm.js
  // makes both through this document, which has a style sheet and the object model do the same.
  const createElement = (tag, options) => {
    const isStyle = tag.toLowerCase() === "style";
    const made = document.createElement(isStyle ? "span" : tag, options);
    if (isStyle) {
      const sheet = new CSSStyleSheet();
      document.adoptedStyleSheets.push(sheet);
      made.hidden = true;
      Object.defineProperty(made, "textContent", { set: (text) => sheet.replaceSync(text) });
    }
    return made;
  };
  HTMLSpanElement.prototype.setAttribute = function (name, value) { // of a cell with a colour of its own
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
  const documentOverride = new Proxy(document, {
    get(target, name) {
      if (name === "createElement") return createElement;
      const found = Reflect.get(target, name);
      return typeof found === "function" ? found.bind(target) : found;
    },
  });

  const size = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const terminal = new Terminal({
    documentOverride, fontSize: Math.round(size), lineHeight: 1.15, scrollback: 5000, cursorBlink: false, screenReaderMode: false,
    fontFamily: 'ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, monospace',
    theme: { background: "#16181b", foreground: "#e6e8ea" },
  });
  const fit = new FitAddon.FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  fit.fit();
  terminal.attachCustomKeyEventHandler((event) => {
    if (!(event.ctrlKey && event.shiftKey && event.key === "Enter")) return true;
    if (event.type === "keydown") document.getElementById("leave").focus();
    return false;
  });

  // ---- keys ----
  let key = "", waiting = "", isSending = false, newSize = null; // `waiting`: bytes, one in each character

  async function send() {
    if (isSending || !key || !(waiting || newSize)) return;
    isSending = true;
    const piece = waiting.slice(0, PIECE_CHARS), sized = newSize;
    const form = new URLSearchParams({ csrf, terminal: key, keys: btoa(piece), ...sized });
    let status = 0;
    try {
      status = (await fetch(place.dataset.keys, { method: "POST", body: form })).status;
    } catch { /* tried again */ }
    if (status === 204 || status === 404) { // 404: another page has the terminal; what was typed is lost
      waiting = waiting.slice(piece.length);
      if (newSize === sized) newSize = null;
    } else if (status === 401 || status === 403) return void location.reload();
    isSending = false;
    if (status !== 204) await new Promise((done) => setTimeout(done, RETRY_MS));
    send();
  }
  const bytes = new TextEncoder();
  const type = (data) => { waiting += data; send(); };
  terminal.onData((text) => type([...bytes.encode(text)].map((byte) => String.fromCharCode(byte)).join("")));
  terminal.onBinary(type);

  // ---- the window ----
  function resize() {
    fit.fit();
    newSize = { rows: terminal.rows, columns: terminal.cols };
    send();
  }
  new ResizeObserver(() => resize()).observe(place);

  // ---- output ----
  const decode = (event) => Uint8Array.from(atob(event.data), (letter) => letter.charCodeAt(0));
  const say = (text) => { state.textContent = text; };
  const events = new EventSource(place.dataset.stream);
  events.addEventListener("open", (event) => { if (event.data) { key = JSON.parse(event.data); waiting = ""; resize(); } });
  events.addEventListener("replay", (event) => { terminal.reset(); terminal.write(decode(event)); say("Joined."); resize(); terminal.focus(); });
  events.addEventListener("output", (event) => terminal.write(decode(event)));
  for (const kind of ["job", "note"]) events.addEventListener(kind, (event) => say(JSON.parse(event.data)));
  events.addEventListener("end", (event) => { events.close(); key = ""; say(`${JSON.parse(event.data)}.`); });
  events.addEventListener("error", () => {
    key = "";
    say(events.readyState === EventSource.CLOSED ? "The connection has ended: load the page again." : "Joining again…");
  });
})();
