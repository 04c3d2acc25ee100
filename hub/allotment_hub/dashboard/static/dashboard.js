// Keeps the page live: a stream says that something changed, the server renders what changed.
"use strict";
(() => {
  const csrf = document.querySelector('meta[name="allotment-csrf"]').content;
  const board = document.getElementById("board");
  const live = document.getElementById("live");
  const news = document.getElementById("news");
  const ask = document.getElementById("ask");
  const headers = { "X-Allotment-CSRF": csrf };
  const pollMs = 15000;
  let shown = "";
  let busy = false;
  let again = false;
  let later = 0;
  let silence = 0;

  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
  const day = new Intl.DateTimeFormat(undefined, {
    day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
  });

  function localTimes() {
    const today = new Date().toDateString();
    for (const one of board.querySelectorAll("time")) {
      const moment = new Date(one.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      one.textContent = (moment.toDateString() === today ? clock : day).format(moment);
      one.title = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
    }
  }

  function ages() {
    for (const one of board.querySelectorAll("[data-since]")) {
      const minutes = Math.max(0, Math.floor((Date.now() - Date.parse(one.dataset.since)) / 60000));
      const hours = Math.floor(minutes / 60);
      one.textContent = hours ? `(${hours} h ${minutes % 60} min)` : `(${minutes} min)`;
    }
  }

  function states() {
    const found = new Map();
    for (const one of board.querySelectorAll("[data-lease]")) {
      found.set(one.dataset.lease, `${one.dataset.server}: ${one.dataset.state}`);
    }
    return found;
  }

  function say(words) {
    news.textContent = words;
    clearTimeout(silence);
    silence = setTimeout(() => { news.textContent = ""; }, 10000);
  }

  function tell(before, after) {
    const lines = [];
    for (const [lease, words] of after) if (before.get(lease) !== words) lines.push(words);
    for (const [lease, words] of before) if (!after.has(lease)) lines.push(`${words.split(": ")[0]}: Ended`);
    if (lines.length) say(lines.join(". "));
  }

  function swap(html) {
    if (html === shown) return;
    const before = states();
    const focused = document.activeElement && board.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...board.querySelectorAll("details[open]")].map((one) => one.id);
    board.innerHTML = html; // our own server's rendering, escaped there; the policy runs no inline script
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    if (shown) tell(before, states());
    shown = html;
    localTimes();
    ages();
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        const answer = await fetch("board", { headers, cache: "no-store" });
        if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
        if (answer.ok) swap(await answer.text());
      } while (again);
    } finally {
      busy = false;
    }
  }

  function show(state, words) {
    if (live.dataset.state === state) return;
    live.dataset.state = state;
    live.textContent = words;
  }

  async function listen() {
    const answer = await fetch("live", { headers, cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    show("on", "Live");
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop();
      if (events.some((one) => one.startsWith("event: changed"))) {
        await refresh();
        // The machine itself is looked at every two seconds: what was just cut shows then.
        clearTimeout(later);
        later = setTimeout(() => refresh().catch(() => {}), 2500);
      }
    }
  }

  async function stayLive() {
    for (let waitMs = 1000; ; waitMs = Math.min(waitMs * 2, 30000)) {
      const began = Date.now();
      try { await listen(); } catch { /* said below */ }
      if (Date.now() - began > 30000) waitMs = 1000;
      show("off", "Not connected; trying again…");
      await new Promise((wake) => setTimeout(wake, waitMs));
    }
  }

  function confirmEnd(button) {
    const card = button.closest("[data-lease]");
    const word = button.dataset.word;
    document.getElementById("ask-title").textContent = `${word} “${card.dataset.server}”?`;
    document.getElementById("ask-text").textContent = word === "Stop"
      ? "Running kernels end; files in your home stay."
      : "It gives up its place; nothing has been billed.";
    document.getElementById("ask-yes").textContent = word;
    ask.returnValue = "";
    ask.onclose = () => { if (ask.returnValue === "yes") end(card.dataset.lease, word); };
    ask.showModal();
  }

  async function end(lease, word) {
    const button = document.getElementById(`end-${lease}`);
    if (button) button.disabled = true;
    say(word === "Stop" ? "Stopping…" : "Cancelling…");
    try {
      const answer = await fetch(`api/v1/leases/${encodeURIComponent(lease)}`, { method: "DELETE", headers });
      if (!answer.ok) {
        const problem = await answer.json().catch(() => ({ detail: "It did not work.", next_step: "Try again." }));
        say(`${problem.detail} ${problem.next_step}`);
      }
    } catch {
      say("The broker does not answer. Try again in a moment.");
    }
    if (button) button.disabled = false;
    await refresh().catch(() => {});
  }

  board.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-end]");
    if (button) confirmEnd(button);
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh().catch(() => {}); });
  setInterval(() => { ages(); if (!document.hidden) refresh().catch(() => {}); }, pollMs);
  localTimes();
  ages();
  refresh().catch(() => {});
  stayLive();
})();
