
// What happens in the browser: the parts of the page that change are morphed in, times count up, and keys work. Without
// this script everything works but liveness, keys and relative times.
(() => {
  "use strict";

  const lost = document.getElementById("lost");
  const keys = document.getElementById("keys");
  const main = () => document.getElementById("main");

  // Times

  const units = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const relative = (seconds) => {
    const [name, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? ["s", 1];
    const count = Math.floor(Math.abs(seconds) / size);
    const words = `${count} ${name}${name === "day" && count !== 1 ? "s" : ""}`;
    return seconds < 0 ? `in ${words}` : `${words} ago`;
  };
  const countTimes = () => {
    for (const time of document.querySelectorAll("main time[datetime]")) {
      const text = relative((Date.now() - Date.parse(time.dateTime)) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(countTimes, 1000);

  // Live updates

  let source = null;
  let retry = 0;
  let warning = 0;
  let page = { of: document.body.dataset.live, have: document.body.dataset.have ?? "" };

  // What a person is doing stays: the text of a field, an open fold, the row that the keys are at. If a filter has found
  // other rows, the folds are as the server shows them: a fold must not hide what was found.
  const keeping = (folds) => ({
    beforeNodeMorphed: (old, next) => {
      if (next.dataset?.kept !== undefined) return false;
      if (old.matches?.("input, textarea, select")) {
        if (next.hasAttribute?.("aria-invalid")) old.setAttribute("aria-invalid", "true");
        else old.removeAttribute("aria-invalid");
        return false;
      }
      if (folds && old.matches?.("details") && next.matches?.("details")) next.open = old.open;
      if (old.matches?.("time") && next.matches?.("time") && old.dateTime === next.dateTime) return false;
      if (old.classList?.contains("at")) next.classList.add("at");
      return true;
    },
  });
  const keeps = keeping(true);
  const mark = (element) => {
    element.classList.add("changed");
    setTimeout(() => element.classList.remove("changed"), 2000);
  };
  const show = (html, isMain) => {
    if (isMain) {
      Idiomorph.morph(main(), html, { morphStyle: "innerHTML", callbacks: keeps });
      // A part that was to be kept was not here.
      if (main().querySelector("[data-kept]")) location.reload();
    } else {
      const template = document.createElement("template");
      template.innerHTML = html;
      const part = template.content.firstElementChild;
      const shown = part && document.getElementById(part.id);
      if (!shown) return;
      Idiomorph.morph(shown, part, { morphStyle: "outerHTML", callbacks: keeps });
      mark(document.getElementById(part.id));
    }
    countTimes();
  };
  const connect = () => {
    source?.close();
    if (!page.of || document.hidden) return;
    const query = new URLSearchParams({ of: page.of, have: page.have });
    source = new EventSource(`/live?${query}`);
    source.onopen = () => {
      clearTimeout(warning);
      lost.hidden = true;
      retry = 0;
    };
    source.addEventListener("part", (event) => show(event.data, false));
    source.addEventListener("main", (event) => show(event.data, true));
    source.addEventListener("gone", () => location.reload());
    source.addEventListener("signed-out", () => location.reload());
    source.onerror = () => {
      // The browser would connect again with the fingerprint of the first page, and might be told that nothing has changed.
      source.close();
      page.have = "";
      clearTimeout(warning);
      warning = setTimeout(() => { lost.hidden = false; }, retry ? 0 : 2000);
      // After a restart of the server, the session is over: reloading leads to the sign-in.
      retry = Math.min(retry + 1, 6);
      setTimeout(async () => {
        const answer = await fetch(page.of, { method: "HEAD" }).catch(() => null);
        if (answer?.redirected) location.reload();
        else connect();
      }, retry * 1000);
    };
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
      source = null;
      page.have = "";
    } else if (!source) {
      connect();
    }
  });
  window.addEventListener("pagehide", () => source?.close());

  // Folds: what a person has opened or closed stays so in this window.

  const nameOfFold = (fold) => {
    const id = fold?.id || fold?.firstElementChild.id;
    return id && `fold ${location.pathname} ${id}`;
  };
  // In a search, folds are as the server shows them: a fold must not hide what was found.
  const isSearch = () => new URLSearchParams(location.search).get("q");
  const restoreFolds = () => {
    if (isSearch()) return;
    for (const fold of document.querySelectorAll("main details")) {
      const name = nameOfFold(fold);
      const state = name && sessionStorage.getItem(name);
      if (state) fold.open = state === "open";
    }
  };
  document.addEventListener("click", (event) => {
    const fold = event.target.closest("main summary")?.parentElement;
    const name = nameOfFold(fold);
    // The click opens or closes it after this.
    if (name && !isSearch()) sessionStorage.setItem(name, fold.open ? "closed" : "open");
  });

  // Filters: the list follows the typing, and its address too.

  let typing = 0;
  let turn = 0;
  const filter = async (form) => {
    const query = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    const address = `${form.getAttribute("action")}${query.size ? `?${query}` : ""}`;
    const mine = ++turn;
    const answer = await fetch(address).catch(() => null);
    if (mine !== turn) return;
    if (!answer?.ok || answer.redirected) return form.submit();
    const text = await answer.text();
    if (mine !== turn) return;
    const next = new DOMParser().parseFromString(text, "text/html");
    history.replaceState(null, "", address);
    Idiomorph.morph(main(), next.getElementById("main").innerHTML, { morphStyle: "innerHTML", callbacks: keeping(false) });
    restoreFolds();
    countTimes();
    page = { of: next.body.dataset.live, have: next.body.dataset.have ?? "" };
    connect();
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form.filters");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => filter(form), 120);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form.filters")) return;
    event.preventDefault();
    clearTimeout(typing);
    filter(event.target);
  });

  // The form for a pipeline: what is wrong and the preview follow the typing. Buttons send the form as without the script.

  let looking = null;
  const look = async (form) => {
    looking?.abort();
    const mine = (looking = new AbortController());
    const body = new URLSearchParams(new FormData(form));
    const options = { method: "POST", body, signal: mine.signal };
    const answer = await fetch(location.pathname, options).catch(() => null);
    if (!answer?.ok || answer.redirected) return;
    const text = await answer.text().catch(() => "");
    if (mine.signal.aborted || !text) return;
    const next = new DOMParser().parseFromString(text, "text/html");
    Idiomorph.morph(main(), next.getElementById("main").innerHTML, { morphStyle: "innerHTML", callbacks: keeps });
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form.draft-form");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => look(form), 250);
  });

  // Keys

  const search = () => document.querySelector("main input[type=search]");
  const addresses = { p: "/", r: "/promotions", c: "/clusters", h: "/charts", i: "/images" };
  let going = false;
  const step = (by) => {
    const isShown = (row) => row.querySelector("a") && !row.closest("details:not([open])");
    const rows = [...document.querySelectorAll(".row, .timeline li, tbody tr")].filter(isShown);
    if (!rows.length) return;
    const now = rows.findIndex((row) => row.classList.contains("at"));
    const next = rows[Math.max(0, Math.min(rows.length - 1, now + by))];
    rows[now]?.classList.remove("at");
    next.classList.add("at");
    next.querySelector("a").focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (going) {
      going = false;
      if (addresses[event.key]) location.assign(addresses[event.key]);
      return;
    }
    const act = {
      "/": () => (search() ? search().focus() : location.assign("/#search")),
      "?": () => keys.showModal(),
      j: () => step(1),
      k: () => step(-1),
      g: () => (going = true),
      a: () => document.querySelector("[data-key=a]")?.click(),
    }[event.key];
    if (!act || keys.open) return;
    event.preventDefault();
    act();
  });

  // Another page was left by the key for the search.
  if (location.hash === "#search") {
    history.replaceState(null, "", location.pathname + location.search);
    search()?.focus();
  }
  countTimes();
  connect();
  // Last: the browser may forbid to store anything.
  restoreFolds();
})();
