// Panels about the evidence, from its probability to sensitivity.

import { button, el, setText } from "./dom.js";
import { DecisionPanel } from "./decisions.js";
import { EffectPanel } from "./effect.js";
import { bodyOf, describeFinding, toggleState } from "./findings.js";
import { clean, cut, logText, percent, points, probabilityOf, significant } from "./format.js";
import { mode, totalVariation } from "./measures.js";
import { countText, Panel, panelTable, shareBar } from "./panels.js";

const [MOST_CHANGED, MOST_EXPLAINED, MOST_ROWS_SHOWN, MOST_JOINT] = [8, 14, 10, 400];
const PICK_FIRST = "Select a variable, or mark one as a target.";

const evidenceKey = (store) => JSON.stringify(store.asked);
const isObserved = (store, v) => store.findings[v]?.states?.length === 1;
const isRegular = (store) => Object.values(store.findings).every(({ kind }) => kind !== "soft" && kind !== "do");

function variableLink(store, actions, v) {
  return button(store.network.texts[v], () => actions.open(v), { class: "link", title: store.network.texts[v] });
}

/** Set a state of a variable from a panel. */
function stateLink(store, v, state) {
  return button(store.network.stateTexts[v][state], () => store.setFindings(toggleState(store.findings, v, state)), { class: "link", title: "Observe" });
}

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
    const { picked, findings, network } = this.store;
    const isAsked = picked !== null && !isObserved(this.store, picked) && Object.keys({ ...findings, ...network.values }).length;
    return isAsked ? `${evidenceKey(this.store)}/${picked}` : null;
  }

  idle() {
    const { picked } = this.store;
    return picked !== null && isObserved(this.store, picked) ? "It is observed." : "Set evidence to see what each finding contributes.";
  }

  async ask(signal) {
    const { api, network, findings, picked } = this.store;
    return api.ask(network.id, "contributions", { ...bodyOf(network, findings), target: network.names[picked] }, signal);
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
      return el("li", {}, el("span", { class: "why-finding" }, name, ` ${cut(clean(finding), 40)}`), el("span", { class: "why-size" }, size), track(low, high - low || 1, [contribution < 0 ? "low" : "high", places[i], places[i + 1]]));
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
    const { answer, network } = this.store;
    const log = answer.logEvidence;
    const isDensity = Object.keys(network.values).length > 0;
    const isEmpty = !isDensity && !Object.keys(answer.findings).length;
    if (isDensity) setText(this.value, `ln of the density of the evidence: ${logText(log, 6)}`);
    else if (isEmpty && !network.isDirected) setText(this.value, "No evidence.");
    else setText(this.value, isEmpty ? "No evidence: ln P(e) = 0" : `ln P(e) = ${logText(log, 6)}, P(e) = ${probabilityOf(log)}`);
    if (isEmpty) setText(this.conflict, "");
  }

  key() {
    const { network, findings } = this.store;
    const isAsked = Object.keys(findings).length > 1 && isRegular(this.store) && network.isDirected && network.questions.has("conflict");
    return isAsked ? evidenceKey(this.store) : "none";
  }

  async ask(signal) {
    if (this.key() === "none") return null;
    const { api, network, findings } = this.store;
    return api.ask(network.id, "conflict", bodyOf(network, findings), signal);
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
    return Object.keys({ ...this.store.findings, ...this.store.network.values }).length ? evidenceKey(this.store) : null;
  }

  idle() {
    return "Set evidence to see which posteriors it changes.";
  }

  show() {
    const { store } = this;
    const { network, answer, findings } = store;
    const changes = network.names.map((_, v) => [v, totalVariation(answer.posteriors[v], network.prior[v])]).filter(([v, d]) => d >= 0.0005 && !findings[v]);
    changes.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    if (!changes.length) {
      this.say("No other variable changes.");
      return;
    }
    const rows = changes.slice(0, MOST_CHANGED).map(([v, distance]) => {
      const p = answer.posteriors[v];
      const deltas = p.map((x, i) => x - network.prior[v][i]);
      const state = mode(deltas.map((d) => Math.abs(d) + (d > 0 ? 1e-9 : 0))); // of equal changes, the one upwards
      return el(
        "tr",
        {},
        el("td", { class: "cut" }, variableLink(store, this.actions, v)),
        el("td", { class: "text" }, cut(network.stateTexts[v][state], 18)),
        el("td", { class: "figure" }, `${percent(network.prior[v][state])} \u2192 ${percent(p[state])} %`),
        el("td", { class: "figure" }, points(deltas[state]), shareBar(distance)),
      );
    });
    const note = el("p", { class: "muted" });
    countText(note, rows.length, changes.length, "variables that change");
    this.body.replaceChildren(panelTable(["variable", "state", "prior \u2192 now", "pp"], rows, 2), note);
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

  async ask(signal) {
    const { api, network, findings } = this.store;
    return api.ask(network.id, "mpe", { ...bodyOf(network, findings), k: 4 }, signal);
  }

  show({ explanations }) {
    const { store } = this;
    const { network, findings, answer } = store;
    const [best, ...others] = explanations;
    const first = [...store.targets, ...(store.picked === null ? [] : [store.picked])];
    const order = network.names.map((_, v) => v).filter((v) => !findings[v]);
    const weight = (v) => (first.includes(v) ? -2 : 0) - totalVariation(answer.posteriors[v], network.prior[v]);
    const keys = new Map(order.map((v) => [v, weight(v)]));
    order.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
    const shown = this.isComplete ? order : order.slice(0, MOST_EXPLAINED);
    const rows = shown.map((v) => el("tr", {}, el("td", { class: "cut" }, variableLink(store, this.actions, v)), el("td", { class: "text" }, stateLink(store, v, best.states[v])), el("td", { class: "figure" }, `${percent(answer.posteriors[v][best.states[v]])} %`)));
    const parts = [
      el("p", {}, `The best explanation has ${this.share(best)} of the probability.`),
      panelTable(["variable", "in the best", "alone"], rows, 2),
    ];
    if (shown.length < order.length) {
      const more = () => {
        this.isComplete = true;
        this.show({ explanations });
      };
      parts.push(button(`Show all ${order.length.toLocaleString("en")} variables`, more, { class: "more" }));
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

  async ask(signal) {
    const { api, network, findings, target } = this.store;
    return api.ask(network.id, "voi", { ...bodyOf(network, findings), target: network.names[target], most: MOST_ROWS_SHOWN }, signal);
  }

  show({ observations }) {
    const { store } = this;
    const { network, target } = store;
    const found = observations.map((o) => ({ ...o, v: network.number.get(o.variable) })).filter((o) => o.gain > 1e-9);
    store.ranking = found.filter(({ v }) => v !== undefined).map(({ v }) => v);
    store.emit("ranking");
    const intro = el("p", {}, "Value of information about ", el("b", {}, network.texts[target]), ". Click a name to enter its state.");
    if (!found.length) {
      this.body.replaceChildren(el("p", { class: "muted" }, `No observation is informative about ${network.texts[target]}.`));
      return;
    }
    const largest = found[0].gain;
    const rows = found.slice(0, MOST_ROWS_SHOWN).map(({ variable, v, gain, expected_accuracy: accuracy }) =>
      el("tr", {}, el("td", { class: "cut" }, v === undefined ? button(clean(variable), () => this.actions.openNumber(variable), { class: "link" }) : variableLink(store, this.actions, v)), el("td", { class: "figure" }, significant(gain / Math.LN2, 3), shareBar(gain / largest)), el("td", { class: "figure" }, `${percent(accuracy)} %`)),
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

  async ask(signal) {
    const { api, network, findings, target } = this.store;
    return api.ask(network.id, "importance", { ...bodyOf(network, findings), target: network.names[target] }, signal);
  }

  show({ findings: ranked }) {
    const { store } = this;
    const { network, target, answer, findings } = store;
    const state = mode(answer.posteriors[target]);
    const largest = Math.max(...ranked.map((f) => f.shift_without ?? 0), 1e-12);
    const rows = ranked.slice(0, 2 * MOST_ROWS_SHOWN).map((f) => {
      const v = network.number.get(f.variable);
      const without = f.without ? `${percent(f.without[state])} %` : "?";
      return el("tr", {}, el("td", { class: "cut" }, button(cut(describeFinding(network, v, findings[v]), 40), () => this.actions.open(v), { class: "link" })), el("td", { class: "figure" }, without), el("td", { class: "figure" }, shareBar((f.shift_without ?? 0) / largest)));
    });
    const p = `P(${network.texts[target]} = ${network.stateTexts[target][state]}) = ${percent(answer.posteriors[target][state])} %.`;
    this.body.replaceChildren(el("p", {}, `${p} Without each finding:`), panelTable(["finding", "without it", "change"], rows, 1));
  }
}

class TornadoPanel extends Panel {
  constructor(store, actions) {
    super(store, "Sensitivity to the parameters (tornado)", { name: "tornado", question: "sensitivity" });
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

  async ask(signal) {
    const { api, network, findings, target } = this.store;
    const state = network.keys[target][this.chosenState()];
    return api.ask(network.id, "sensitivity", { ...bodyOf(network, findings), target: [network.names[target], state], n: MOST_ROWS_SHOWN, spread: this.spread }, signal);
  }

  show({ probability, tornado }) {
    const { store } = this;
    const { network, target } = store;
    const bars = tornado.filter((bar) => bar.at_low !== null && bar.at_high !== null && bar.at_low !== bar.at_high);
    const ends = [probability, ...bars.flatMap((bar) => [bar.at_low, bar.at_high])];
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const width = high - low || 1;
    const change = (state) => {
      this.state = { target, state };
      this.answered = null;
      this.actions.rerun();
    };
    const choice = el("select", { "aria-label": "State of the target", onchange: (event) => change(Number(event.target.value)) }, ...network.stateTexts[target].slice(0, 200).map((text, i) => el("option", { value: i, selected: i === this.chosenState() }, cut(text, 30))));
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
      rows.length ? el("ul", { class: "tornado" }, ...rows) : el("p", { class: "muted" }, "No single parameter changes it."),
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

  async ask(signal) {
    const { api, network, findings } = this.store;
    return api.ask(network.id, "joint", { ...bodyOf(network, findings), variables: this.variables().map((v) => network.names[v]) }, signal);
  }

  show({ probabilities, shape }) {
    const { network } = this.store;
    const variables = this.variables();
    const columns = shape.at(-1);
    const lines = probabilities.length / columns;
    const largest = Math.max(...probabilities);
    const rows = [];
    for (let i = 0; i < Math.min(lines, Math.ceil(MOST_JOINT / columns)); i += 1) {
      const states = [];
      let rest = i;
      for (let k = shape.length - 2; k >= 0; k -= 1) {
        states.unshift(network.stateTexts[variables[k]][rest % shape[k]]);
        rest = Math.floor(rest / shape[k]);
      }
      const cells = probabilities.slice(i * columns, (i + 1) * columns).map((p) => {
        const cell = el("td", { class: "figure heat" }, percent(p));
        cell.style.setProperty("--heat", `${Math.round((60 * p) / largest)}%`);
        return cell;
      });
      rows.push(el("tr", {}, el("th", { scope: "row" }, cut(states.join(", "), 40)), ...cells));
    }
    const heads = [variables.slice(0, -1).map((v) => network.texts[v]).join(", "), ...network.stateTexts[variables.at(-1)].map((text) => cut(text, 20))];
    const note = el("p", { class: "muted" });
    countText(note, rows.length, lines, "rows");
    this.body.replaceChildren(el("p", {}, "Percent; columns: ", el("b", {}, network.texts[variables.at(-1)])), el("div", { class: "scroll" }, panelTable(heads, rows, 1)), note);
  }
}

export function analysisPanels(store, actions) {
  return [
    new DecisionPanel(store, actions), new EvidencePanel(store, actions), new ChangedPanel(store, actions), new ValuePanel(store, actions), new ExplanationPanel(store, actions),
    new ImportancePanel(store, actions), new EffectPanel(store, actions), new TornadoPanel(store, actions), new JointPanel(store, actions),
  ];
}
