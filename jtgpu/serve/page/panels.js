// Panels: each asks its question after the bars, while it is open.

import { Lost, Problem } from "./api.js";
import { button, el, muted } from "./dom.js";
import { whole } from "./format.js";

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
    this.body.replaceChildren(muted(text));
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

export const tr = (...cells) => el("tr", {}, ...cells);
export const td = (kind, ...parts) => el("td", { class: kind }, ...parts);
export const figure = (...parts) => td("figure", ...parts);

/** A number on a background of its size, `share` from 0 to 1. */
export function heatCell(text, share, more = null, kind = "") {
  const cell = td(`figure heat${kind}`, text, more);
  cell.style.setProperty("--heat", `${Math.round(60 * share)}%`);
  return cell;
}

/** A button with the name of a variable, or another text, that selects it. */
export function variableLink({ network }, actions, v, text = network.texts[v]) {
  return button(text, () => actions.open(v), { class: "link", title: text });
}

/** The numbers of the states in a row of a table of this shape, the last axis left out. */
function statesAt(shape, row) {
  return shape.slice(0, -1).reduceRight(([states, rest], n) => [[rest % n, ...states], Math.floor(rest / n)], [[], row])[0];
}

/** Lines of a table of this shape: `head(states)` and `cell(number, column, line)` make their cells. */
export function tableLines(numbers, shape, from, to, head, cell) {
  const n = shape.at(-1);
  return Array.from({ length: Math.max(Math.min(to, numbers.length / n) - from, 0) }, (_, i) => tr(...head(statesAt(shape, from + i)), ...numbers.slice((from + i) * n, (from + i + 1) * n).map((x, j) => cell(x, j, from + i))));
}

/** A bar of a list of findings or states: its name, its size, what `track` draws. */
export const barRow = (name, size, track) => el("li", {}, el("span", { class: "why-finding" }, ...name), el("span", { class: "why-size" }, size), track);

/** A table; columns from number `figures` on are numbers. */
export function panelTable(heads, rows, figures = Infinity) {
  return el(
    "table",
    { class: "panel-table" },
    heads ? el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i >= figures ? "figure" : null }, head)))) : null,
    el("tbody", {}, ...rows),
  );
}

export const countText = (shown, all, noun) => muted(shown < all ? `${shown} of ${whole(all)} ${noun}` : "");
