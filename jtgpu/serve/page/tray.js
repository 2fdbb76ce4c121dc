// All findings in a line, and what is wrong with them.

import { button, el, isTouch } from "./dom.js";
import { describeFinding, valueTexts } from "./findings.js";
import { cut } from "./format.js";
import { markIcon } from "./marks.js";

export class Tray {
  constructor(store, actions) {
    this.store = store;
    this.actions = actions;
    this.root = el("section", { class: "tray", "aria-label": "Evidence" });
    store.on("network findings", () => this.update());
  }

  update() {
    const { store } = this;
    const { network } = store;
    const chips = store.listed.map(([t, v, finding]) => {
      const isOfSlice = network.slices && !network.slices.fixed.has(v);
      const text = (isOfSlice ? `${t}: ` : "") + describeFinding(network, v, finding);
      const open = () => {
        if (isOfSlice) store.setSlice(t);
        this.actions.open(v);
      };
      return el(
        "span",
        { class: "chip" },
        markIcon(finding.kind),
        button(cut(text, 60), open, { class: "chip-text", title: `${text}: show` }),
        button("\u00d7", () => store.clear(t, v), { class: "chip-clear", "aria-label": `Clear ${text}` }),
      );
    });
    for (const [t, name, key, value] of store.listedValues) {
      const text = (t === undefined ? "" : `${t}: `) + valueTexts({ [name]: value });
      const open = () => {
        if (t !== undefined) store.setSlice(t);
        this.actions.openNumber(name);
      };
      chips.push(el("span", { class: "chip" }, markIcon("observed"), button(cut(text, 60), open, { class: "chip-text" }), button("\u00d7", () => store.setValue(key, null), { class: "chip-clear", "aria-label": `Clear ${text}` })));
    }
    if (!chips.length) {
      this.root.replaceChildren(el("span", { class: "muted hint" }, isTouch() ? "No evidence. Tap a variable, then a state to observe it." : "No evidence. Click a state to observe it; shift-click for one of several; right-click for likelihoods and interventions."));
      return;
    }
    this.root.replaceChildren(...chips, button("Clear all", () => store.clearAll(), { class: "clear-all" }));
  }
}

/** Messages above everything: impossible evidence, a lost server. */
export class Banner {
  constructor(store, actions) {
    this.store = store;
    this.actions = actions;
    this.root = el("div", { class: "banner", role: "alert", hidden: true });
    this.notice = null;
    store.on("problem status network findings", () => this.update());
  }

  say(text) {
    this.notice = text;
    this.update();
  }

  update() {
    const { store } = this;
    const { problem, status } = store;
    const parts = [];
    if (status === "lost") parts.push(el("p", {}, el("strong", {}, "The server does not answer. "), "The bars do not show the posteriors of this evidence; the page tries again."));
    if (problem) parts.push(...this.describe(problem));
    if (this.notice) parts.push(el("p", {}, this.notice), this.dismissButton());
    this.root.hidden = !parts.length;
    this.root.classList.toggle("is-lost", status === "lost");
    this.root.replaceChildren(...parts);
  }

  describe(problem) {
    const { store } = this;
    const lines = [];
    if (problem.isImpossible) {
      const changed = problem.changed.map((text) => cut(text, 120)).join("; ");
      const s = problem.changed.length > 1 ? "" : "s";
      const what = !changed ? "these findings contradict each other" : problem.others.length ? `${changed} contradict${s}` : `${changed} ha${s || "ve"} probability 0`;
      if (problem.isKept) {
        lines.push(el("p", {}, el("strong", {}, "These findings contradict each other"), ": their probability is 0. Clear one of them; until then the bars are those without evidence."));
        return [...lines, el("ul", {}, ...[...problem.changed, ...problem.others].slice(0, 12).map((text) => el("li", {}, cut(text, 120))))];
      }
      lines.push(el("p", {}, el("strong", {}, "Impossible evidence: "), what));
      if (problem.others.length) lines.push(el("ul", {}, ...problem.others.slice(0, 12).map((text) => el("li", {}, cut(text, 120)))));
      lines.push(el("p", {}, "Nothing was changed."));
    } else lines.push(el("p", {}, el("strong", {}, `${problem.title}: `), problem.detail));
    const buttons = [];
    if (problem.isMissingToken) buttons.push(button("Enter the token", () => this.actions.askToken()));
    if (problem.isImpossible && problem.others.length && problem.changed.length) {
      buttons.push(button("Clear the others and set it", () => store.setFindings(problem.tried)));
    }
    buttons.push(this.dismissButton());
    return [...lines, el("div", { class: "banner-buttons" }, ...buttons)];
  }

  dismissButton() {
    return button("Dismiss", () => {
      this.notice = null;
      this.store.dismiss();
      this.update();
    });
  }
}
