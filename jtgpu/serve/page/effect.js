// Panel: the effect of the selected variable on the target, the paths that confound it, and what to adjust for.

import { el } from "./dom.js";
import { clean, cut, percent } from "./format.js";
import { barRow, Panel, variableLink } from "./panels.js";

const MOST_STATES = 12;
const METHOD = { "no effect": "There is no directed path: no effect.", "front-door": "By a front door: ", general: "By the general formula: " };

/** All nodes that are reached from some by steps of `next`, those included, without passing `closed`. */
function closure(from, next, closed = null) {
  const seen = new Set(from.filter((v) => v !== closed));
  for (const v of seen) for (const w of next[v]) if (w !== closed) seen.add(w);
  return seen;
}

/** Arcs "parent>child" of paths from a common cause to both variables, which are open while nothing is observed. */
export function openPaths(network, cause, outcome) {
  const children = network.parents.map(() => []);
  network.parents.forEach((parents, v) => parents.forEach((p) => children[p].push(v)));
  const above = closure(network.parents[cause], network.parents);
  const toOutcome = closure([outcome], network.parents, cause);
  const below = closure([...above].filter((v) => toOutcome.has(v)), children, cause);
  const arcs = new Set();
  for (const u of below) {
    for (const w of children[u]) {
      if ((above.has(u) && (w === cause || above.has(w))) || (w !== cause && toOutcome.has(w))) arcs.add(`${u}>${w}`);
    }
  }
  return arcs;
}

export class EffectPanel extends Panel {
  constructor(store, actions) {
    super(store, "Effect of the selected variable", { name: "effect", question: "effect" });
    this.actions = actions;
    this.hidden = new Set(); // variables that are not measured
    store.on("network", () => this.hidden.clear());
    store.on("network picked targets", () => this.mark(null));
    this.root.addEventListener("toggle", () => {
      if (!this.root.open) this.mark(null);
      this.answered = null;
    });
  }

  /** What the map shows of it. */
  mark(causal) {
    if (this.store.causal === causal) return;
    this.store.causal = causal;
    this.store.emit("causal");
  }

  key() {
    const { targets, picked } = this.store;
    return !targets.length || picked === null || targets[0] === picked ? null : `${picked}/${targets[0]}/${[...this.hidden]}`;
  }

  idle() {
    return "Mark the outcome as a target, then select its cause.";
  }

  async ask(signal) {
    const { api, network, targets, picked } = this.store;
    const [outcome, of] = [network.names[targets[0]], network.names[picked]];
    const hidden = [...this.hidden].filter((v) => v !== targets[0] && v !== picked).map((v) => network.names[v]);
    return Promise.all([
      api.ask(network.id, "effect", { outcome, of }, signal),
      api.ask(network.id, "identify", { outcome, do: of, ...(hidden.length ? { hidden } : {}) }, signal),
    ]);
  }

  show([effect, found]) {
    const { network, targets, picked } = this.store;
    const outcome = targets[0];
    const table = effect.probabilities.map((row) => (Array.isArray(row) ? row : network.keys[outcome].map((key) => row[key])));
    const spread = table[0].map((_, s) => Math.max(...table.map((row) => row[s])) - Math.min(...table.map((row) => row[s])));
    const state = spread.indexOf(Math.max(...spread));
    const rows = table.slice(0, MOST_STATES).map((row, i) => {
      const bar = el("span", { class: "tornado-high" });
      bar.style.width = `${100 * row[state]}%`;
      return barRow([cut(network.stateTexts[picked][i], 40)], `${percent(row[state])} %`, el("span", { class: "tornado-track", "aria-hidden": "true" }, bar));
    });
    const [minimal] = found.adjustment_sets;
    const set = (minimal?.length === 0 ? [] : found.best ?? minimal ?? []).map((name) => network.number.get(name));
    const arcs = openPaths(network, picked, outcome);
    this.mark({ set: new Set(set), arcs });
    const parts = [
      el("p", {}, "P(", el("bdi", {}, cut(`${network.texts[outcome]} = ${network.stateTexts[outcome][state]}`, 60)), ") where ", el("bdi", {}, network.texts[picked]), " is set to"),
      el("ol", { class: "tornado why" }, ...rows),
      el("p", {}, ...this.advice(found, set, arcs.size > 0)),
    ];
    const switches = [...new Set([...set, ...this.hidden])].filter((v) => v !== outcome && v !== picked);
    if (switches.length) parts.push(el("div", { class: "near", role: "group", "aria-label": "Not measured" }, "Not measured: ", ...switches.map((v) => this.switchOf(v))));
    this.body.replaceChildren(...parts);
  }

  advice(found, set, isConfounded) {
    const { network } = this.store;
    if (!found.identified) return [clean(found.reason)];
    if (found.method !== "back-door") return [METHOD[found.method] ?? "", found.method === "no effect" ? "" : el("bdi", {}, cut(clean(found.formula), 300))];
    if (!set.length) return ["Data show it without adjustment."];
    const names = set.flatMap((v, i) => [i ? ", " : "", variableLink(this.store, this.actions, v)]);
    return [isConfounded ? "The red paths confound it. In data, adjust for " : "In data, adjust for ", ...names, "."];
  }

  switchOf(v) {
    const change = () => {
      if (!this.hidden.delete(v)) this.hidden.add(v);
      this.store.emit("targets");
    };
    return el("label", {}, el("input", { type: "checkbox", checked: this.hidden.has(v), onchange: change }), ` ${this.store.network.texts[v]}`);
  }
}
