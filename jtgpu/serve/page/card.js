// The selected variable: states with bars, parents, children, and actions.

import { button, el, fill, muted, setAttribute, setPressed, setText } from "./dom.js";
import { KIND_TEXT } from "./findings.js";
import { count, percent, points } from "./format.js";
import { markIcon } from "./marks.js";
import { leading } from "./measures.js";
import { variableLink } from "./panels.js";

const MOST_ROWS = 60; // states; more are shown on request

export class Card {
  constructor(store, actions, why) {
    this.store = store;
    this.actions = actions;
    this.why = why; // the panel at the bars
    this.isComplete = false;
    this.root = el("section", { class: "card", "aria-label": "Selected variable", tabindex: -1, onkeydown: (event) => this.key(event) });
    store.on("network picked", () => this.rebuild());
    store.on("answer", () => this.update());
    store.on("findings targets", () => this.update());
  }

  rebuild() {
    const { network, picked } = this.store;
    this.rows = [];
    this.isComplete = false;
    this.root.hidden = picked === null;
    if (picked === null) {
      this.root.replaceChildren();
      return;
    }
    this.mark = el("span", { class: "card-mark" });
    this.targetButton = button("Target", () => this.store.toggleTarget(picked), { title: "Mark as a target (t): rankings are about it" });
    this.clearButton = button("Clear", () => this.store.unset(picked), { title: "Clear its evidence (0)" });
    this.rowsNode = el("div", { class: "states", role: "group", "aria-label": `States of ${network.texts[picked]}` });
    this.moreButton = button("", () => this.showAll(), { class: "more" });
    fill(
      this.root,
      el(
        "header",
        { class: "card-head" },
        el("h2", {}, this.mark, el("bdi", {}, network.texts[picked])),
        button("\u00d7", () => this.store.pick(null), { class: "close", "aria-label": "Close", title: "Close (Escape)" }),
      ),
      network.labels[picked] ? muted(el("bdi", {}, network.labels[picked])) : null,
      this.rowsNode,
      this.moreButton,
      network.decisions.has(picked) ? muted("How often the best policy takes each option; choose one to decide so.") : null,
      this.why.root,
      el("div", { class: "card-tools" }, button("Evidence\u2026", () => this.actions.edit(picked), { title: "One of, likelihood, soft evidence, intervention (e)" }), this.targetButton, this.clearButton, network.isDirected ? button(...(network.decisions.has(picked) ? ["Policy", () => this.actions.showCpt(picked), { title: "Show the best policy" }] : ["CPT", () => this.actions.showCpt(picked), { title: "Show its conditional probability table" }])) : null),
      ...this.neighbours(network.isDirected ? "Parents" : "Neighbours", network.isDirected ? network.parents[picked] : [...network.parents[picked], ...network.children[picked]]),
      ...(network.isDirected ? this.neighbours("Children", network.children[picked]) : []),
    );
    this.fillStates(MOST_ROWS);
    this.update();
  }

  neighbours(title, variables) {
    if (!variables.length) return [];
    const { network } = this.store;
    const links = variables.slice(0, 40).map((v) => variableLink(this.store, this.actions, v));
    if (variables.length > 40) links.push(el("span", { class: "muted" }, `and ${variables.length - 40} more`));
    return [el("p", { class: "near" }, el("span", { class: "muted" }, `${title} `), ...links)];
  }

  showAll() {
    this.isComplete = true;
    this.fillStates(Infinity);
    this.update();
  }

  fillStates(most) {
    const { network, picked, answer, findings } = this.store;
    const n = network.states[picked].length;
    const states = leading(answer.posteriors[picked], most, findings[picked]?.states);
    this.rows = states.map((state) => this.row(state));
    this.rowsNode.replaceChildren(...this.rows.map((row) => row.node));
    this.moreButton.hidden = states.length === n;
    setText(this.moreButton, `Show all ${count(n, "state")}`);
  }

  row(state) {
    const { store } = this;
    const v = store.picked;
    const row = {
      state,
      bar: el("span", { class: "state-bar" }),
      tick: el("span", { class: "state-tick" }),
      number: el("span", { class: "state-number" }),
      change: el("span", { class: "state-change" }),
    };
    row.node = el(
      "button",
      {
        type: "button", class: "state", "data-s": state, title: "Click to observe, shift-click for one of several states",
        onclick: (event) => store.toggle(v, state, event.shiftKey),
      },
      el("bdi", { class: "state-name" }, store.network.stateTexts[v][state]),
      el("span", { class: "state-track" }, row.bar, row.tick),
      row.number,
      row.change,
    );
    return row;
  }

  update() {
    const { network, picked, answer, findings, targets } = this.store;
    if (picked === null || !this.rows.length || !answer) return;
    const finding = findings[picked];
    const isChanged = Object.keys(answer.findings).length > 0;
    for (const row of this.rows) {
      const p = answer.posteriors[picked][row.state];
      const prior = network.prior[picked][row.state];
      row.bar.style.width = `${100 * p}%`;
      row.tick.style.left = `${100 * prior}%`;
      row.tick.hidden = !isChanged;
      setText(row.number, `${percent(p)} %`);
      setText(row.change, isChanged ? points(p - prior) : "");
      setPressed(row.node, finding?.states?.includes(row.state));
      setAttribute(row.node, "aria-label", `${network.stateTexts[picked][row.state]}, ${percent(p)} %${isChanged ? `, prior ${percent(prior)} %` : ""}`);
    }
    this.mark.replaceChildren(...(finding ? [markIcon(finding.kind)] : []));
    this.root.classList.toggle("has-evidence", Boolean(finding));
    setPressed(this.targetButton, targets.includes(picked));
    this.clearButton.hidden = !finding;
    if (finding) setAttribute(this.clearButton, "title", `Clear: ${KIND_TEXT[finding.kind]} (0)`);
  }

  key(event) {
    if (event.key === "Escape") {
      this.store.pick(null);
      event.stopPropagation();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = this.rows?.findIndex((row) => row.node === event.target) ?? -1;
    if (!step || at < 0) return;
    this.rows[Math.min(Math.max(at + step, 0), this.rows.length - 1)].node.focus();
    event.preventDefault();
  }

  focus() {
    const pressed = this.rows?.find((row) => row.node.getAttribute("aria-pressed") === "true") || this.rows?.[0];
    (pressed?.node || this.root).focus();
  }
}
