// Shows place, expected start and reason live, and opens the server when it is ready.
(() => {
  "use strict";
  const page = document.getElementById("allot-wait");
  if (!page) return;
  const $ = (id) => document.getElementById(id);
  let leaving = false;
  let asked = 0;

  function moment(text) {
    const when = new Date(text);
    if (Number.isNaN(when.getTime())) return "unknown";
    return when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
  }

  function log(message) {
    const item = document.createElement("li");
    item.textContent = message;
    const list = $("progress-log");
    if (list.lastChild && list.lastChild.textContent === message) return;
    list.append(item);
  }

  function show(event) {
    if (event.progress !== undefined) {
      $("progress-bar").style.width = `${event.progress}%`;
      $("allot-progress").setAttribute("aria-valuenow", String(event.progress));
    }
    if (event.message) {
      $("progress-message").textContent = event.message;
      log(event.message);
    }
    const mine = event.allotment;
    if (!mine) return;
    const waiting = mine.stage === "queued" || mine.stage === "queued_away";
    onTheWay(mine.work);
    $("allot-place-box").hidden = !waiting;
    // data is fetched for a CPU session just as long
    $("allot-cpu").hidden = !waiting || Boolean(mine.work);
    $("allot-heading").textContent = !waiting ? "Starting your server" : mine.work ? "Getting your data ready" : "Waiting for a device";
    if (mine.stage === "queued") {
      $("allot-place").textContent = mine.place === null ? "–" : String(mine.place);
      const expected = mine.expected_start;
      $("allot-expected").textContent = expected ? `${moment(expected.earliest)} to ${moment(expected.latest)}` : "unknown";
      why();
    }
    document.title = `${waiting && mine.place ? `Place ${mine.place}` : "Starting"} · ${page.dataset.title}`;
  }

  function onTheWay(work) {
    // Data or an image that is brought here: its own bar, since the whole start has one already.
    $("allot-work").hidden = !work;
    if (!work) return;
    $("allot-work-line").textContent = work.sentence;
    const known = work.got_bytes !== null && work.total_bytes;
    $("allot-work-bar").hidden = !known;
    if (!known) return;
    const percent = Math.min(100, Math.round((100 * work.got_bytes) / work.total_bytes));
    $("allot-work-bar").setAttribute("aria-valuenow", String(percent));
    $("allot-work-bar").firstElementChild.style.width = `${percent}%`;
    $("allot-work-bytes").textContent = `${inWords(work.got_bytes)} of ${inWords(work.total_bytes)}`;
  }

  function inWords(bytes) {
    const steps = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let step = 0;
    while (bytes >= 1024 && step < steps.length - 1) {
      bytes /= 1024;
      step += 1;
    }
    return `${bytes.toFixed(step && bytes < 100 ? 1 : 0).replace(/\.0$/, "")} ${steps[step]}`;
  }

  async function why() {
    if (Date.now() - asked < 2000) return;
    asked = Date.now();
    try {
      const answer = await fetch(page.dataset.lease, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const { explanation, lease } = await answer.json();
      if (lease && lease.charged_to) $("allot-charged").textContent = `${lease.charged_to} pays.`;
      if (explanation && explanation.sentence) $("allot-why").textContent = [explanation.sentence, ...(explanation.help || [])].join(" ");
    } catch {
      // it stays as it was
    }
  }

  function price({ price: now, change }) {
    return change ? `${now}, and ${change.price} from ${moment(change.at)}` : now;
  }

  async function titles() {
    try {
      const answer = await fetch(page.dataset.choices, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const choices = await answer.json();
      for (const name of document.querySelectorAll("[data-asked]")) {
        const one = choices[name.dataset.asked].find((offered) => offered.id === name.dataset.id);
        if (!one) continue;
        name.textContent = one.title;
        if (one.money) $("allot-then").textContent = `Then ${price(one.money)}.`;
      }
    } catch {
      // the names that scripts use stay
    }
  }

  async function again() {
    // The hub went away or the start is over: look at this page anew once the hub answers.
    if (leaving) return;
    leaving = true;
    for (;;) {
      try {
        const answer = await fetch(window.location.href, { redirect: "manual" });
        if (answer.status < 500 || answer.headers.get("x-jupyterhub-version")) break;
      } catch {
        // not yet
      }
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
    window.location.reload();
  }

  const events = new EventSource(page.dataset.progress);
  events.onmessage = (message) => {
    const event = JSON.parse(message.data);
    show(event);
    if (event.ready || event.failed) {
      events.close();
      again();
    }
  };
  events.onerror = () => {
    events.close();
    setTimeout(again, 1000);
  };
  for (const form of document.querySelectorAll("#allot-cancel, #allot-cpu")) {
    form.addEventListener("submit", () => {
      leaving = true;
      events.close();
      for (const button of document.querySelectorAll(".allot-actions button")) button.disabled = true;
    });
  }
  titles();
  setInterval(why, 15000);
  // signal that the page has finished loading, as the hub's own page does
  window._jupyterhub_page_loaded = true;
})();
