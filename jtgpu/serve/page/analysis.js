// Panels about the evidence, from its probability to sensitivity.

import { button, el, muted, select, setText } from "./dom.js";
import { DecisionPanel } from "./decisions.js";
import { EffectPanel } from "./effect.js";
import { describeFinding } from "./findings.js";
import { clean, cut, percent, points, significant, whole } from "./format.js";
import { mode, totalVariation } from "./measures.js";
import { barRow, countText, figure, heatCell, Panel, panelTable, shareBar, tableLines, td, tr, variableLink } from "./panels.js";

const [MOST_CHANGED, MOST_EXPLAINED, MOST_ROWS_SHOWN, MOST_JOINT] = [8, 14, 10, 400];
const PICK_FIRST = "Select a variable, or mark one as a target.";

const evidenceKey = (store) => JSON.stringify(store.asked);
const isObserved = (store, v) => store.findings[v]?.states?.length === 1;
const isRegular = (store) => Object.values(store.findings).every(({ kind }) => kind !== "soft" && kind !== "do");
const nameOfTarget = ({ network, target }) => network.names[target];

/** A line from `low` to `low + width` with bars [kind, from, to]. */
function track(low, width, ...bars) {
  const spans = bars.map(([kind, from, to]) => {
    const node = el("span", { class: `tornado-${kind}` });
    node.style.left = `${(100 * (Math.min(from, to) - low)) / width}%`;
    node.style.width = `${(100 * Math.abs(to - from)) / width}%`;
    return node;
  });
  return el("span", { class: "tornado-track", "aria-hidden": "true" }, ...spans);
}

/** At the bars of the selected variable: how the findings lead from its prior to its posterior. */
export class WhyPanel extends Panel {
  constructor(store, actions) {
    super(store, "Why", { name: "why", question: "contributions" });
    this.actions = actions;
    this.root.title = "What each finding contributes";
  }

  key() {
    const { picked, hasEvidence } = this.store;
    return picked !== null && hasEvidence && !isObserved(this.store, picked) ? `${evidenceKey(this.store)}/${picked}` : null;
  }

  idle() {
    const { picked } = this.store;
    return picked !== null && isObserved(this.store, picked) ? "It is observed." : "Set evidence to see what each finding contributes.";
  }

  ask(signal) {
    const { network, picked } = this.store;
    return this.store.ask("contributions", { target: network.names[picked] }, signal);
  }

  show({ state, base, total, contributions }) {
    const { store } = this;
    const { network, picked } = store;
    const steps = contributions.slice(0, MOST_ROWS_SHOWN).map((step) => ({ ...step, v: network.number.get(step.variable) }));
    const rest = contributions.slice(MOST_ROWS_SHOWN);
    if (rest.length) steps.push({ finding: `${rest.length} other findings`, contribution: rest.reduce((sum, step) => sum + step.contribution, 0) });
    const places = steps.reduce((ends, { contribution }) => [...ends, ends.at(-1) + contribution], [base]);
    const [low, high] = [Math.min(...places, total), Math.max(...places, total)];
    const rows = steps.map(({ v, variable, finding, contribution, error }, i) => {
      const name = v === undefined ? clean(variable ?? "") : variableLink(store, this.actions, v);
      const size = `${points(contribution)}${error ? ` \u00b1 ${significant(100 * error, 2)}` : ""}`;
      return barRow([name, ` ${cut(clean(finding), 40)}`], size, track(low, high - low || 1, [contribution < 0 ? "low" : "high", places[i], places[i + 1]]));
    });
    this.body.replaceChildren(
      el("p", {}, el("bdi", {}, cut(`${network.texts[picked]} = ${clean(state)}`, 60)), `: from ${percent(base)} % to ${percent(total)} %, in points:`),
      el("ol", { class: "tornado why" }, ...rows),
    );
  }
}

class EvidencePanel extends Panel {
  constructor(store) {
    super(store, "Probability of the evidence", { isOpen: true, name: "evidence" });
    this.conflict = el("p", { class: "conflict" });
    this.value = el("p", { class: "log-evidence" });
    this.body.append(this.value, this.conflict);
    store.on("answer", () => this.showValue());
  }

  showValue() {
    const { answer, evidenceText } = this.store;
    setText(this.value, evidenceText);
    if (!Object.keys(answer.findings).length) setText(this.conflict, "");
  }

  key() {
    const { network, findings } = this.store;
    const isAsked = Object.keys(findings).length > 1 && isRegular(this.store) && network.isDirected && network.questions.has("conflict");
    return isAsked ? evidenceKey(this.store) : "none";
  }

  async ask(signal) {
    return this.key() === "none" ? null : this.store.ask("conflict", {}, signal);
  }

  show(answer) {
    if (!answer) {
      setText(this.conflict, "");
      return;
    }
    const { conflict } = answer;
    const verdict = conflict > 0 ? "above 0: the findings contradict each other, or the case is rare" : "the findings support each other";
    setText(this.conflict, `Conflict ${significant(conflict, 3)} (${verdict})`);
  }

  say(text) {
    setText(this.conflict, text);
  }
}

class ChangedPanel extends Panel {
  constructor(store, actions) {
    super(store, "What changed most", { isOpen: true, name: "changed" });
    this.actions = actions;
  }

  key() {
    return this.store.hasEvidence ? evidenceKey(this.store) : null;
  }

  idle() {
    return "Set evidence to see which posteriors it changes.";
  }

  show() {
    const { store } = this;
    const { changes, network } = store;
    if (!changes.length) {
      this.say("No other variable changes.");
      return;
    }
    const rows = changes.slice(0, MOST_CHANGED).map(([v, state, prior, p, distance]) => tr(td("cut", variableLink(store, this.actions, v)), td("text", cut(network.stateTexts[v][state], 18)), figure(`${percent(prior)} \u2192 ${percent(p)} %`), figure(points(p - prior), shareBar(distance))));
    this.body.replaceChildren(panelTable(["variable", "state", "prior \u2192 now", "pp"], rows, 2), countText(rows.length, changes.length, "variables that change"));
  }
}

class ExplanationPanel extends Panel {
  constructor(store, actions) {
    super(store, "Most probable explanations", { name: "mpe", question: "mpe" });
    this.actions = actions;
    this.isComplete = false;
  }

  key() {
    return `${evidenceKey(this.store)}${this.isComplete}`;
  }

  ask(signal) {
    return this.store.ask("mpe", { k: 4 }, signal);
  }

  show({ explanations }) {
    const { store } = this;
    const { network, findings, answer, chosen: first } = store;
    const [best, ...others] = explanations;
    const order = network.names.map((_, v) => v).filter((v) => !findings[v]);
    const weight = (v) => (first.includes(v) ? -2 : 0) - totalVariation(answer.posteriors[v], network.prior[v]);
    const keys = new Map(order.map((v) => [v, weight(v)]));
    order.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
    const shown = this.isComplete ? order : order.slice(0, MOST_EXPLAINED);
    const observe = (v, state) => button(network.stateTexts[v][state], () => store.toggle(v, state), { class: "link", title: "Observe" });
    const rows = shown.map((v) => tr(td("cut", variableLink(store, this.actions, v)), td("text", observe(v, best.states[v])), figure(`${percent(answer.posteriors[v][best.states[v]])} %`)));
    const parts = [
      el("p", {}, `The best explanation has ${this.share(best)} of the probability.`),
      panelTable(["variable", "in the best", "alone"], rows, 2),
    ];
    if (shown.length < order.length) {
      const more = () => {
        this.isComplete = true;
        this.show({ explanations });
      };
      parts.push(button(`Show all ${whole(order.length)} variables`, more, { class: "more" }));
    }
    others.forEach((other, i) => {
      const differences = network.names.map((_, v) => v).filter((v) => other.states[v] !== best.states[v]);
      const items = differences.slice(0, MOST_EXPLAINED).map((v) => el("li", {}, variableLink(store, this.actions, v), " = ", network.stateTexts[v][other.states[v]]));
      const ratio = Math.exp(best.log_joint - other.log_joint);
      const compared = ratio < 1.005 ? "as probable as the best" : `${significant(ratio, 3)} times less probable`;
      parts.push(el("div", { class: "next-best" }, el("p", {}, `Number ${i + 2}: ${this.share(other)}, ${compared}. It differs in`), el("ul", {}, ...items)));
    });
    this.body.replaceChildren(...parts);
  }

  share({ log_posterior: log }) {
    return log > -600 ? `${significant(100 * Math.exp(log), 3)} %` : probabilityOf(log);
  }
}

class ValuePanel extends Panel {
  constructor(store, actions) {
    super(store, "What to observe next", { name: "voi", question: "voi" });
    this.actions = actions;
  }

  key() {
    const { target, findings } = this.store;
    return target === null || isObserved(this.store, target) ? null : `${evidenceKey(this.store)}/${target}`;
  }

  idle() {
    return this.store.target === null ? PICK_FIRST : "The target is observed: no observation is informative.";
  }

  ask(signal) {
    return this.store.ask("voi", { target: nameOfTarget(this.store), most: MOST_ROWS_SHOWN }, signal);
  }

  show({ observations }) {
    const { store } = this;
    const { network, target } = store;
    const found = observations.map((o) => ({ ...o, v: network.number.get(o.variable) })).filter((o) => o.gain > 1e-9);
    store.ranking = found.filter(({ v }) => v !== undefined).map(({ v }) => v);
    store.emit("ranking");
    const intro = el("p", {}, "Value of information about ", el("b", {}, network.texts[target]), ". Click a name to enter its state.");
    if (!found.length) {
      this.say(`No observation is informative about ${network.texts[target]}.`);
      return;
    }
    const largest = found[0].gain;
    const rows = found.slice(0, MOST_ROWS_SHOWN).map(({ variable, v, gain, expected_accuracy: accuracy }) =>
      tr(td("cut", v === undefined ? button(clean(variable), () => this.actions.openNumber(variable), { class: "link" }) : variableLink(store, this.actions, v)), figure(significant(gain / Math.LN2, 3), shareBar(gain / largest)), figure(`${percent(accuracy)} %`)),
    );
    this.body.replaceChildren(intro, panelTable(["variable", "gain (bits)", "expected accuracy"], rows, 1));
  }
}

class ImportancePanel extends Panel {
  constructor(store, actions) {
    super(store, "Importance of findings", { name: "importance", question: "importance" });
    this.actions = actions;
  }

  key() {
    const { target, findings } = this.store;
    const n = Object.keys(findings).length;
    return target === null || !n || findings[target] || !isRegular(this.store) ? null : `${evidenceKey(this.store)}/${target}`;
  }

  idle() {
    const { target, findings } = this.store;
    if (!Object.keys(findings).length) return "Set evidence first.";
    if (target === null) return PICK_FIRST;
    return findings[target] ? "The target has evidence itself." : "There is no such ranking with soft evidence or interventions.";
  }

  ask(signal) {
    return this.store.ask("importance", { target: nameOfTarget(this.store) }, signal);
  }

  show({ findings: ranked }) {
    const { store } = this;
    const { network, target, answer, findings } = store;
    const state = mode(answer.posteriors[target]);
    const largest = Math.max(...ranked.map((f) => f.shift_without ?? 0), 1e-12);
    const rows = ranked.slice(0, 2 * MOST_ROWS_SHOWN).map((f) => {
      const v = network.number.get(f.variable);
      const without = f.without ? `${percent(f.without[state])} %` : "?";
      return tr(td("cut", variableLink(store, this.actions, v, cut(describeFinding(network, v, findings[v]), 40))), figure(without), figure(shareBar((f.shift_without ?? 0) / largest)));
    });
    const p = `P(${network.texts[target]} = ${network.stateTexts[target][state]}) = ${percent(answer.posteriors[target][state])} %.`;
    this.body.replaceChildren(el("p", {}, `${p} Without each finding:`), panelTable(["finding", "without it", "change"], rows, 1));
  }
}

class TornadoPanel extends Panel {
  constructor(store, actions) {
    super(store, "Sensitivity (tornado)", { name: "tornado", question: "sensitivity" });
    this.actions = actions;
    this.state = null;
    this.spread = 0.1;
  }

  key() {
    const { target, network } = this.store;
    if (target === null || !network.isDirected || isObserved(this.store, target)) return null;
    return `${evidenceKey(this.store)}/${target}/${this.chosenState()}/${this.spread}`;
  }

  idle() {
    const { network, target } = this.store;
    if (!network.isDirected) return "Markov networks have no CPTs.";
    return target === null ? PICK_FIRST : "The target is observed: no parameter changes its probability.";
  }

  chosenState() {
    const { target, answer } = this.store;
    if (this.state?.target !== target) this.state = { target, state: mode(answer.posteriors[target]) };
    return this.state.state;
  }

  ask(signal) {
    const state = this.store.network.keys[this.store.target][this.chosenState()];
    return this.store.ask("sensitivity", { target: [nameOfTarget(this.store), state], n: MOST_ROWS_SHOWN, spread: this.spread }, signal);
  }

  show({ probability, tornado }) {
    const { store } = this;
    const { network, target } = store;
    const bars = tornado.filter((bar) => bar.at_low !== null && bar.at_high !== null && bar.at_low !== bar.at_high);
    const ends = [probability, ...bars.flatMap((bar) => [bar.at_low, bar.at_high])];
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const width = high - low || 1;
    const change = (state) => {
      this.state = { target, state: Number(state) };
      this.answered = null;
      this.actions.rerun();
    };
    const choice = select("State of the target", network.stateTexts[target].slice(0, 200).map((text, i) => [i, cut(text, 30)]), this.chosenState(), change);
    const rows = bars.map((bar) => {
      const { variable, state, given, value, entry } = bar.parameter;
      const v = network.number.get(variable);
      const text = `P(${variable} = ${state}${given.length ? ` | ${given.map(([name, s]) => `${name} = ${s}`).join(", ")}` : ""}) = ${significant(value, 3)}`;
      return el(
        "li",
        {},
        button(cut(text, 90), () => this.actions.showCpt(v, entry), { class: "link", title: `${text}: show it in its table` }),
        track(low, width, ["low", bar.at_low, probability], ["high", bar.at_high, probability]),
        el("span", { class: "muted" }, `${significant(Math.min(bar.at_low, bar.at_high))} to ${significant(Math.max(bar.at_low, bar.at_high))}`),
      );
    });
    this.body.replaceChildren(
      el("p", {}, `P(${network.texts[target]} = `, choice, `) = ${significant(probability)}, when one parameter is ${100 * this.spread} % smaller (blue) or larger (green).`),
      rows.length ? el("ul", { class: "tornado" }, ...rows) : muted("No single parameter changes it."),
    );
  }
}

class JointPanel extends Panel {
  constructor(store) {
    super(store, "Joint table", { name: "joint", question: "joint" });
  }

  variables() {
    const { targets, picked } = this.store;
    return [...new Set([...targets.slice(0, 3), ...(picked === null ? [] : [picked])])].slice(-3);
  }

  key() {
    const variables = this.variables();
    return variables.length < 2 ? null : `${evidenceKey(this.store)}/${variables.join()}`;
  }

  idle() {
    return "Mark a target and pick another variable: their joint distribution appears here.";
  }

  ask(signal) {
    return this.store.ask("joint", { variables: this.variables().map((v) => this.store.network.names[v]) }, signal);
  }

  show({ probabilities, shape }) {
    const { network } = this.store;
    const variables = this.variables();
    const columns = shape.at(-1);
    const lines = probabilities.length / columns;
    const largest = Math.max(...probabilities);
    const head = (states) => [el("th", { scope: "row" }, cut(states.map((state, k) => network.stateTexts[variables[k]][state]).join(", "), 40))];
    const rows = tableLines(probabilities, shape, 0, Math.ceil(MOST_JOINT / columns), head, (p) => heatCell(percent(p), p / largest));
    const heads = [variables.slice(0, -1).map((v) => network.texts[v]).join(", "), ...network.stateTexts[variables.at(-1)].map((text) => cut(text, 20))];
    this.body.replaceChildren(el("p", {}, "Percent; columns: ", el("b", {}, network.texts[variables.at(-1)])), el("div", { class: "scroll" }, panelTable(heads, rows, 1)), countText(rows.length, lines, "rows"));
  }
}

export function analysisPanels(store, actions) {
  return [
    new DecisionPanel(store, actions), new EvidencePanel(store, actions), new ChangedPanel(store, actions), new ValuePanel(store, actions), new ExplanationPanel(store, actions),
    new ImportancePanel(store, actions), new EffectPanel(store, actions), new TornadoPanel(store, actions), new JointPanel(store, actions),
  ];
}
