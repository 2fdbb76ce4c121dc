// Panels: each asks its question after the bars, while it is open.

import { Lost, Problem } from "./api.js";
import { el, setText } from "./dom.js";

/** A panel that opens and closes; it asks again when `key()` changes. */
export class Panel {
  constructor(store, title, { isOpen = false, name, question = null } = {}) {
    Object.assign(this, { store, name });
    this.body = el("div", { class: "panel-body" });
    this.heading = el("summary", {}, title);
    this.root = el("details", { class: `panel panel-${name}`, open: isOpen }, this.heading, this.body);
    this.answered = null;
    if (question) store.on("network", () => (this.root.hidden = !store.network.questions.has(question)));
  }

  get isVisible() {
    return this.root.open && this.root.offsetParent !== null && !document.hidden;
  }

  /** What the answer depends on; null: there is nothing to ask, and `idle` says why. */
  key() {
    return "";
  }

  idle() {
    return "";
  }

  async ask(_signal) {
    return null;
  }

  show(_answer) {}

  say(text) {
    this.body.replaceChildren(el("p", { class: "muted" }, text));
  }
}

/** Runs the panels; a newer answer cancels what still waits. */
export class PanelRunner {
  constructor(store, panels, status) {
    this.store = store;
    this.panels = panels;
    this.status = status;
    this.controller = null;
    for (const panel of panels) panel.root.addEventListener("toggle", () => panel.root.open && this.run());
    store.on("network", () => panels.forEach((panel) => (panel.answered = null))); // answers about another one
    store.on("answer picked targets scenarios", () => this.schedule());
    store.on("asking", () => {
      this.controller?.abort();
      for (const panel of panels) panel.root.classList.toggle("stale", panel.answered !== null && panel.answered !== panel.key());
    });
    document.addEventListener("visibilitychange", () => this.schedule());
  }

  /** After the bars are painted. */
  schedule() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), 0);
  }

  async run() {
    const { store } = this;
    if (!store.network || !store.isFresh || store.status !== "ready") return;
    this.controller?.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    for (const panel of this.panels) {
      if (!panel.isVisible) continue;
      const key = panel.key();
      if (key !== null && key === panel.answered) {
        panel.root.classList.remove("stale");
        continue;
      }
      if (key === null) {
        panel.answered = null;
        panel.root.classList.remove("stale");
        panel.say(panel.idle());
        continue;
      }
      panel.root.classList.add("stale");
      panel.root.setAttribute("aria-busy", "true");
      try {
        const answer = await panel.ask(signal);
        if (signal.aborted) return;
        panel.show(answer);
        panel.answered = key;
      } catch (error) {
        if (signal.aborted || error.name === "AbortError") return;
        if (!(error instanceof Problem) && !(error instanceof Lost)) throw error;
        panel.answered = null;
        panel.say(error.message);
      } finally {
        panel.root.removeAttribute("aria-busy");
      }
      panel.root.classList.remove("stale");
    }
  }
}

/** A bar in a table of a panel, `share` from 0 to 1. */
export function shareBar(share, kind = "") {
  const bar = el("span", { class: `ratio ${kind}` });
  bar.style.width = `${Math.round(100 * Math.min(Math.max(share, 0), 1))}%`;
  return el("span", { class: "ratio-track", "aria-hidden": "true" }, bar);
}

/** A table; columns from number `figures` on are numbers. */
export function panelTable(heads, rows, figures = Infinity) {
  return el(
    "table",
    { class: "panel-table" },
    heads ? el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i >= figures ? "figure" : null }, head)))) : null,
    el("tbody", {}, ...rows),
  );
}

export function countText(node, shown, all, noun) {
  setText(node, shown < all ? `${shown} of ${all.toLocaleString("en")} ${noun}` : "");
}
