// The panel of decisions: utilities, the best policy, what to know.

import { button, el, select } from "./dom.js";
import { bodyOf, describeFinding, findingList } from "./findings.js";
import { cut, significant } from "./format.js";
import { countText, figure, Panel, panelTable, shareBar, td, tr, variableLink } from "./panels.js";

const METHODS = { exact: "the optimum", "local optimum": "a local optimum" };
const [MOST_CHOICES, MOST_GAINS] = [40, 8]; // rows of a policy and of the value of information

/** Whether policies are computed for the evidence: states that are observed, and decisions that are made. */
export function isDecidable(network, findings) {
  return Object.entries(findings).every(([v, { kind }]) => kind === (network.decisions.has(Number(v)) ? "do" : "observed"));
}

/** The rows of a policy, if the decision knows something, that the best policy leads to. */
export const reached = (rows) => rows.filter(({ known, option }) => option !== null && Object.keys(known).length);
export const NOT_DECIDABLE = "Policies are computed for observed states, and not with likelihoods, soft evidence or interventions.";

/** What stands before and after the expected utility of the best policy: given what, and which optimum it is. */
export function policyTexts({ network, findings }, { method }) {
  const known = findingList(findings).map(([v, finding]) => describeFinding(network, v, finding)).join(", ");
  return ["Expected utility ", ` under the best policy, ${cut(known ? `given ${known}` : "nothing observed", 120)} (${METHODS[method] ?? method}). Bars of decisions are those of this policy.`];
}

export class DecisionPanel extends Panel {
  constructor(store, actions) {
    super(store, "Decisions", { isOpen: true, name: "decisions", question: "policy" });
    this.actions = actions;
    this.chosen = null;
    store.on("network", () => (this.chosen = null));
    store.on("network picked", () => {
      if (store.network.decisions.has(store.picked)) this.chosen = store.picked;
    });
  }

  /** Asked behind another tab of a telephone, too: the map shows the expected utilities. */
  get isVisible() {
    return !this.root.hidden && this.root.open && !document.hidden;
  }

  /** The decision selected last, or the first that is not made. */
  decision() {
    const { network, findings } = this.store;
    const all = [...network.decisions];
    return this.chosen ?? all.find((d) => !findings[d]) ?? all[0];
  }

  key() {
    const { network, findings } = this.store;
    return network.decisions.size && isDecidable(network, findings) ? `${JSON.stringify(findings)}/${this.decision()}` : null;
  }

  idle() {
    return this.store.network.decisions.size ? NOT_DECIDABLE : "";
  }

  say(text) {
    this.store.setExpected({}); // there is no policy
    super.say(text);
  }

  async ask(signal) {
    const { api, network, findings } = this.store;
    const { evidence: seen, do: made } = bodyOf(network, findings);
    const evidence = { ...seen, ...made };
    const decision = network.names[this.decision()];
    const others = Object.fromEntries(Object.entries(evidence).filter(([name]) => name !== decision));
    const policy = await api.ask(network.id, "policy", { evidence }, signal);
    const options = await api.ask(network.id, "options", { decision, evidence: others }, signal);
    const gains = decision in evidence ? null : await api.ask(network.id, "decision-value", { decision, evidence: others }, signal);
    return { policy, options: options.options, gains: gains?.gains ?? [] };
  }

  show({ policy, options, gains }) {
    const { store } = this;
    const { network } = store;
    const d = this.decision();
    const choose = (v) => {
      this.chosen = Number(v);
      this.answered = null;
      this.actions.rerun();
    };
    const choice = select("Decision", [...network.decisions].map((v) => [v, cut(network.texts[v], 40)]), d, choose);
    store.setExpected(policy.utilities);
    const { length } = Object.keys(store.findings);
    const [before, after] = policyTexts(store, policy);
    this.body.replaceChildren(
      el("p", {}, before, el("b", { class: "expected-utility" }, significant(policy.expected_utility, 6)), after),
      el("p", {}, "Options of ", choice, ` if it were decided now, ${length ? "knowing only the evidence" : "knowing nothing"}:`),
      this.options(d, options),
      ...this.choices(d, policy.policy[network.names[d]] || []),
      ...this.gains(d, gains),
    );
  }

  options(d, options) {
    const { store } = this;
    const { network, findings } = store;
    const values = options.map((o) => o.expected_utility);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const rows = options.map(({ option, expected_utility: value }) => {
      const state = network.states[d].indexOf(option);
      const isBest = value === high && options.length > 1;
      const isMade = findings[d]?.states?.[0] === state;
      const name = button(cut(network.stateTexts[d][state] ?? option, 40), () => store.toggle(d, state), { class: "link", "aria-pressed": isMade ? "true" : "false", title: isMade ? "Take the decision back" : "Decide so" });
      return el("tr", { class: isBest ? "best-option" : null }, td("cut", name), td(null, shareBar(high > low ? 0.04 + (0.96 * (value - low)) / (high - low) : 1, isBest ? "best" : "")), figure(significant(value, 6)), td(null, isBest ? "best" : ""));
    });
    const table = panelTable(["option", "", "expected utility", ""], rows, 2);
    table.classList.add("options");
    return table;
  }

  choices(d, rows) {
    const known = reached(rows);
    if (!known.length) return [];
    const shown = known.slice(0, MOST_CHOICES).map(({ known: row, option }) => tr(td(null, cut(Object.entries(row).map(([name, state]) => `${name} = ${state}`).join(", "), 80)), td(null, cut(option, 30))));
    return [el("div", { class: "scroll" }, panelTable(["best policy: if it is known that", this.store.network.texts[d]], shown)), countText(shown.length, known.length, "rows")];
  }

  gains(d, gains) {
    const found = gains.filter(({ gain }) => gain > 1e-9).slice(0, MOST_GAINS);
    if (!found.length) return [];
    const { network } = this.store;
    const largest = found[0].gain;
    const rows = found.map(({ variable, gain }) => tr(td("cut", variableLink(this.store, this.actions, network.number.get(variable))), figure(significant(gain, 4), shareBar(gain / largest))));
    return [panelTable([`worth knowing before ${cut(network.texts[d], 24)}`, "gain in utility"], rows, 1)];
  }
}
