// Keeps the page as it is in the monitor: takes what is new, says how old things are, and says it loudly when nothing
// comes any more. Everything is on the page without it.
"use strict";
(() => {
  const body = document.body, live = document.getElementById("live");
  const SILENT_MS = 12000, AGAIN_MS = 2000, HIDDEN_MS = 10000, FORGOTTEN_MS = 180000, LAST_MS = 8.64e15; // beyond it there is no date
  let mark = body.dataset.mark, source = null, heardAt = performance.now(), heardUtc = null, why = "";
  let resting = false, again = 0, title = document.title;
  let ahead = body.dataset.at - Date.now() / 1000; // of the monitor's clock before this machine's

  const two = (n) => String(n).padStart(2, "0");
  const clock = (ms) => { const d = new Date(ms); return `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())} UTC`; };
  const span = (s) => s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;

  function ages() {
    const now = Date.now() / 1000 + ahead; // the monitor's clock: that of this machine may be wrong
    for (const time of document.querySelectorAll("time[data-at]")) {
      const age = Math.max(now - time.dataset.at, 0), at = time.dataset.at * 1000;
      if (!(Math.abs(at) <= LAST_MS)) continue;
      const day = age > 43200 ? `${new Date(at).toISOString().slice(0, 10)} ` : "";
      const text = `${day}${clock(at)}, ${span(age)} ago`;
      if (time.textContent !== text) time.textContent = text;
    }
  }

  function says(state, text) {
    if (live.className !== state) live.className = state;
    body.classList.toggle("lost", state === "lost");
    if (live.textContent !== text) live.textContent = text;
    const named = state === "lost" ? `✕ NOT LIVE: ${title}` : title; // a tab behind others shows nothing else
    if (document.title !== named) document.title = named;
  }

  function standing() {
    const since = heardUtc === null ? "it was loaded" : clock(heardUtc);
    const patience = document.hidden ? FORGOTTEN_MS : SILENT_MS; // browsers let hidden tabs turn once a minute
    if (performance.now() - heardAt > patience || why) says("lost", `NOT LIVE since ${since}: ${why || "the monitor does not answer"}. What you see is old.`);
    else if (heardUtc !== null) says(resting ? "" : "live", resting ? `as of ${since}` : "live");
  }

  function heard(data) {
    heardAt = performance.now();
    heardUtc = data.at * 1000;
    ahead = data.at - Date.now() / 1000;
    why = "";
    if (document.hidden) rest();
    else resting = false;
    standing();
  }

  // A browser opens no more than six connections to one address: a tab that nobody sees holds none, and only asks now
  // and then, or the seventh page would never load.
  function rest() {
    resting = true;
    source.close();
    listenIn(HIDDEN_MS);
  }

  function listenIn(ms) {
    clearTimeout(again);
    again = setTimeout(listen, ms);
  }

  function put(id, html) { // what is open stays open, what has the focus keeps it
    const old = document.getElementById(id);
    const made = document.createElement("template");
    made.innerHTML = html;
    const fresh = made.content.firstElementChild;
    if (!old || !fresh) return;
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const path = focus && focus !== old ? focus.id || focus.getAttribute("href") : null;
    const typed = focus && focus.value !== undefined ? [focus.value, focus.selectionStart] : null;
    for (const open of old.querySelectorAll("details[open][id]")) fresh.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
    const scrolled = [...old.querySelectorAll(".wide")].map((e) => e.scrollLeft);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".wide").forEach((e, n) => { e.scrollLeft = scrolled[n] || 0; });
    fresh.classList.add("news");
    if (!path) return;
    const again = [...fresh.querySelectorAll("[id],a[href]")].find((e) => e.id === path || e.getAttribute("href") === path);
    if (!again) return;
    again.focus({ preventScroll: true });
    if (typed) { again.value = typed[0]; again.setSelectionRange?.(typed[1], typed[1]); }
  }

  function news(event) {
    const data = JSON.parse(event.data);
    if (data.look !== body.dataset.look) return location.reload(); // another version of the monitor
    mark = event.lastEventId;
    for (const [id, html] of Object.entries(data.parts)) put(id, html);
    if (body.dataset.view === "/") title = document.getElementById("verdict")?.dataset.title || title;
    heard(data);
    ages();
  }

  function listen() {
    source?.close();
    source = new EventSource(`/events?view=${encodeURIComponent(body.dataset.view)}&since=${encodeURIComponent(mark)}`);
    source.addEventListener("news", news);
    source.addEventListener("beat", (event) => heard(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      source.close();
      why = navigator.onLine ? "the stream from the monitor broke off" : "this machine is offline";
      standing();
      listenIn(document.hidden ? HIDDEN_MS : AGAIN_MS);
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { if (heardUtc !== null && !why) rest(); return; }
    heardAt = performance.now(); // from now on it has to answer; until it does, the page says of when it is
    resting = true;
    standing();
    listenIn(0);
  });
  setInterval(() => { ages(); standing(); }, 1000);
  ages();
  listen();
})();
