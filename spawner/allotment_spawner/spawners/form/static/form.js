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
  const titleOf = (input) => input.closest(".allot-card").querySelector(".allot-title").textContent.trim();

  function describe() {
    const environment = picked("environment");
    const flavor = picked("flavor");
    start.disabled = !(environment && flavor);
    if (!environment || !flavor) {
      const open = ["environment", "flavor"].every((name) => form.querySelector(`input[name="${name}"]:enabled`));
      summary.textContent = open ? "Choose an environment and a size." : "You cannot start anything here; the cards say why.";
      return;
    }
    const outcome = flavor.closest(".allot-card").querySelector(".allot-outcome");
    const waits = outcome.dataset.tone === "wait";
    start.textContent = waits ? "Join the queue" : "Start";
    summary.textContent =
      `${titleOf(environment)} on ${titleOf(flavor)}: ${flavor.dataset.price}. ${outcome.textContent.trim()} ` +
      (waits ? "Waiting is free." : "");
  }

  function show(flavors) {
    for (const one of flavors) {
      const card = form.querySelector(`[data-flavor="${CSS.escape(one.id)}"]`);
      if (!card) continue;
      const outcome = card.querySelector(".allot-outcome");
      const input = card.querySelector("input");
      if (outcome.textContent.trim() !== one.outcome && input.checked) live.textContent = one.outcome;
      outcome.textContent = one.outcome;
      outcome.dataset.tone = one.tone;
      // A choice that is made stays, even if it became impossible: the refusal will say why.
      input.disabled = !one.available && !input.checked;
      card.classList.toggle("allot-off", !one.available);
    }
    describe();
  }

  async function refresh() {
    timer = null;
    last = Date.now();
    try {
      const answer = await fetch(form.dataset.choices, { headers: { Accept: "application/json" } });
      if (answer.ok) show((await answer.json()).flavors);
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
  describe();
})();
