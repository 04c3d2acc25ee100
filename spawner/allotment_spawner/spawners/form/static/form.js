// Keeps the form's counts live and says in one line what "Start" will do. The form works without it.
(() => {
  "use strict";
  const form = document.getElementById("spawn_form");
  if (!form || !form.querySelector("[data-form]")) return;
  const summary = document.getElementById("allot-summary");
  const start = document.getElementById("allot-start");
  const live = document.getElementById("allot-live");
  let chosen = null;
  let timer = null;
  let last = 0;

  const picked = (name) => form.querySelector(`input[name="${name}"]:checked`);
  const openIn = { lab: "JupyterLab", notebook: "Notebook", terminal: "a terminal" };
  const about = (input, what) => JSON.parse((input && input.dataset[what]) || "{}");
  const charge = () => form.querySelector('select[name="charge_to"]');
  const titleOf = (input) => input.closest(".allot-card").querySelector(".allot-title").textContent.trim();

  function clock(text) {
    // As the person's own clock shows it; the weekday where it is not today.
    const when = new Date(text);
    const how = { hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
    if (when.toDateString() !== new Date().toDateString()) how.weekday = "short";
    return when.toLocaleString([], how);
  }

  function paid(input) {
    // {"price", "change", "longest", "to", "lasts", "why"} of a size, for the group that is chosen to pay.
    const money = about(input, "money");
    const charges = money.charges || {};
    const chosen = charge();
    return { ...money, ...(charges[chosen ? chosen.value : ""] || charges[""] || {}) };
  }

  function priced(card, money, possible) {
    card.querySelector("[data-price]").textContent = money.price;
    card.querySelector("[data-change]").textContent = money.change
      ? `${money.change.price} from ${clock(money.change.at)}`
      : "";
    const pays = possible ? [money.lasts, money.longest].filter(Boolean).join(" ") : "";
    card.querySelector("[data-lasts]").textContent = pays;
  }

  function together() {
    // What a size says by itself, or why the chosen environment or group cannot go with it.
    const environment = picked("environment");
    const reasons = about(environment, "reasons");
    for (const card of form.querySelectorAll("[data-flavor]")) {
      const outcome = card.querySelector(".allot-outcome");
      const input = card.querySelector("input");
      outcome.dataset.own = outcome.dataset.own || outcome.textContent.trim();
      outcome.dataset.ownTone = outcome.dataset.ownTone || outcome.dataset.tone;
      const possible = input.dataset.available === "1";
      const money = paid(input);
      const why = possible ? reasons[card.dataset.flavor] || money.why : undefined;
      priced(card, money, possible && !why);
      outcome.textContent = why || outcome.dataset.own;
      outcome.dataset.tone = why ? "no" : outcome.dataset.ownTone;
      // A choice that is made stays, even if it became impossible: the refusal will say why.
      input.disabled = !possible && !input.checked;
      card.classList.toggle("allot-off", !possible || Boolean(why));
    }
    for (const group of form.querySelectorAll("[data-versions]")) {
      group.hidden = !environment || group.dataset.versions !== environment.value;
    }
  }

  function describe() {
    together();
    const environment = picked("environment");
    const flavor = picked("flavor");
    const closed = document.getElementById("allot-closed");
    start.disabled = !(environment && flavor && closed.hidden);
    if (!closed.hidden) {
      summary.textContent = `Nothing new is started just now. ${document.getElementById("allot-closed-why").textContent}`;
      return;
    }
    if (!environment || !flavor) {
      const open = ["environment", "flavor"].every((name) => form.querySelector(`input[name="${name}"]:enabled`));
      summary.textContent = open ? "Choose an environment and a size." : "You cannot start anything here; the cards say why.";
      return;
    }
    const outcome = flavor.closest(".allot-card").querySelector(".allot-outcome");
    const money = paid(flavor);
    const clash = about(environment, "reasons")[flavor.value];
    if (!clash && money.why) {
      start.disabled = true;
      start.textContent = "Start";
      summary.textContent = `${titleOf(flavor)} cannot be started: ${money.why}`;
      return;
    }
    if (clash) {
      start.disabled = true;
      start.textContent = "Start";
      summary.textContent = `${titleOf(environment)} cannot run on ${titleOf(flavor)}: ${clash}`;
      return;
    }
    const waits = outcome.dataset.tone === "wait";
    const door = picked("app");
    const note = about(environment, "notes")[flavor.value];
    const fetched = form.querySelectorAll('[data-dataset][data-state]:not([data-state="ready"]) input:checked').length;
    start.textContent = waits ? "Join the queue" : "Start";
    summary.textContent = [
      `${titleOf(environment)} on ${titleOf(flavor)}: ${money.price}.`,
      outcome.textContent.trim(),
      waits ? "Waiting is free." : "",
      money.to ? `${money.to} pays.` : "",
      money.lasts || "",
      money.longest || "",
      fetched ? "Data is fetched first; that is free, too." : "",
      door && door.value !== "lab" ? `It opens ${openIn[door.value]}.` : "",
      note || "",
    ].filter(Boolean).join(" ");
  }

  function left(budgets) {
    for (const one of budgets || []) {
      const box = form.querySelector(`[data-budget="${CSS.escape(one.id)}"]`);
      if (!box) continue;
      const meter = box.querySelector("[role=meter]");
      box.querySelector("[data-line]").textContent = one.line;
      meter.setAttribute("aria-valuenow", String(one.percent));
      meter.dataset.tone = one.tone;
      meter.firstElementChild.style.width = `${one.percent}%`;
    }
  }

  function show({ flavors, environments, datasets, closed, budgets }) {
    left(budgets);
    document.getElementById("allot-closed").hidden = !closed;
    document.getElementById("allot-closed-why").textContent = closed || "";
    for (const one of environments) {
      const input = form.querySelector(`input[name="environment"][value="${CSS.escape(one.id)}"]`);
      if (!input) continue;
      input.dataset.reasons = JSON.stringify(one.reasons || {});
      input.dataset.notes = JSON.stringify(one.notes || {});
    }
    for (const one of flavors) {
      const card = form.querySelector(`[data-flavor="${CSS.escape(one.id)}"]`);
      if (!card) continue;
      const outcome = card.querySelector(".allot-outcome");
      const input = card.querySelector("input");
      if (outcome.dataset.own !== one.outcome && input.checked) live.textContent = one.outcome;
      outcome.dataset.own = one.outcome;
      outcome.dataset.ownTone = one.tone;
      input.dataset.available = one.available ? "1" : "0";
      input.dataset.money = JSON.stringify(one.money);
    }
    for (const one of datasets || []) {
      const line = form.querySelector(`[data-dataset="${CSS.escape(one.name)}"]`);
      if (!line) continue;
      line.dataset.state = one.state;
      line.querySelector("[data-line]").textContent = one.line;
    }
    describe();
  }

  async function refresh() {
    timer = null;
    last = Date.now();
    try {
      const answer = await fetch(form.dataset.choices, { headers: { Accept: "application/json" } });
      if (answer.ok) show(await answer.json());
    } catch {
      // the hub restarts; the stream below comes back and asks again
    }
  }

  function soon() {
    // Everybody with this page open is told at once: spread the questions, at most one in two seconds.
    if (timer === null) timer = setTimeout(refresh, Math.max(100, last + 2000 - Date.now()) + Math.random() * 400);
  }

  form.addEventListener("change", describe);
  form.addEventListener("submit", () => {
    if (chosen) return;
    chosen = true;
    start.disabled = true;
    start.textContent = "Asking…";
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) {
      chosen = null;
      describe();
      soon();
    }
  });
  const events = new EventSource(form.dataset.events);
  events.addEventListener("changed", soon);
  // prices change by the clock, and what runs costs money meanwhile, without an event
  setInterval(() => document.hidden || soon(), 60000);
  // with the time: the house's midnight may be yesterday evening, or this one, on the person's clock
  const moment = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
  for (const until of form.querySelectorAll("time[data-until]")) {
    until.textContent = new Date(until.dateTime).toLocaleString([], moment);
  }
  describe();
})();
