// The state of the page, and the one request that keeps its bars true to the evidence.

import { insisted, Problem } from "./api.js";
import { bodyOf, decided, describeFinding, findingList, isSameEvidence, toggleOneOf, toggleState, valued, withFinding } from "./findings.js";
import { drop, newHistory, record, redo, undo } from "./history.js";
import { logText, probabilityOf } from "./format.js";
import { mode, totalVariation } from "./measures.js";
import { atSlice, differingSlice, findingsAt, lastSlice, sequenceOf, withSlice } from "./slices.js";

const MAX_SCENARIOS = 4;
const FIRST_LENGTH = 12; // slices

export class Store {
  constructor(api) {
    this.api = api;
    this.network = null;
    this.listeners = new Map();
    this.reset();
  }

  reset() {
    this.history = newHistory({});
    this.slice = 0;
    this.length = FIRST_LENGTH;
    this.question = "smooth"; // "filter": given the evidence up to the slice
    this.priors = new Map(); // of slices
    this.targets = [];
    this.picked = null;
    this.scenarios = [];
    this.answer = null; // {findings, posteriors, logEvidence, ms}; over time later: posteriors by slices ahead
    this.expected = {}; // utilities under the best policy
    this.problem = null; // {title, detail, findings, tried}
    this.status = "ready"; // "pending", "lost"
    this.ranking = []; // of the value of information
    this.causal = null; // variables to adjust for and arcs of open paths, as the map shows them
    this.controller?.abort();
    this.controller = null;
    this.serial = (this.serial || 0) + 1;
  }

  on(events, listener) {
    for (const event of events.split(" ")) {
      if (!this.listeners.has(event)) this.listeners.set(event, []);
      this.listeners.get(event).push(listener);
    }
  }

  emit(event) {
    for (const listener of this.listeners.get(event) || []) listener(this);
  }

  get findings() {
    return this.network?.slices ? findingsAt(this.network, this.history.value, this.slice) : this.history.value;
  }

  get body() {
    const { network, history, length } = this;
    return network.slices ? sequenceOf(network, history.value, length) : bodyOf(network, history.value);
  }

  /** All findings as [slice, variable, finding]. */
  get listed() {
    const { network, history } = this;
    const parts = network.slices ? Object.entries(history.value) : [[0, history.value]];
    return parts.flatMap(([t, findings]) => findingList(findings).map(([v, finding]) => [Number(t), v, finding]));
  }

  /** The values of numbers as [slice or undefined, name, key, value]. */
  get listedValues() {
    const { network } = this;
    return Object.entries(network.values).map(([key, value]) => {
      const [name, t] = network.slices ? atSlice(key) : [key];
      return [t, name, key, value];
    });
  }

  /** The probability of the evidence, or its density, in words. */
  get evidenceText() {
    const { answer: { logEvidence: log }, network } = this;
    if (this.isImpossible) return "P(e) = 0";
    if (Object.keys(network.values).length) return `ln of the density of the evidence: ${logText(log, 6)}`;
    return Object.keys(this.answer.findings).length ? `ln P(e) = ${logText(log, 6)}, P(e) = ${probabilityOf(log)}` : "No evidence: ln P(e) = 0";
  }

  clear(t, v) {
    const { network, history } = this;
    if (!network.slices) return this.setFindings(withFinding(history.value, v, null));
    return this.setEvidence(withSlice(network, history.value, t, withFinding(findingsAt(network, history.value, t), v, null)));
  }

  ask(question, more = {}, signal = undefined) {
    const { api, network, findings } = this;
    return api.ask(network.id, question, { ...bodyOf(network, findings), ...more }, signal);
  }

  get chosen() {
    return [...new Set([...this.targets, ...(this.picked === null ? [] : [this.picked])])];
  }

  get hasEvidence() {
    return Object.keys({ ...this.findings, ...this.network.values }).length > 0;
  }

  /** Observe a state, or clear it; `isOneOf`: add it to those that are possible. */
  toggle(v, state, isOneOf = false) {
    const { findings, network } = this;
    return this.setFindings(isOneOf ? toggleOneOf(findings, v, state, network.states[v].length) : toggleState(findings, v, state));
  }

  unset(v) {
    return this.setFindings(withFinding(this.findings, v, null));
  }

  /** [variable, state, prior, posterior, distance] of the variables that the evidence changes most. */
  get changes() {
    const { network, answer, findings } = this;
    const all = network.names.map((_, v) => [v, totalVariation(answer.posteriors[v], network.prior[v])]).filter(([v, d]) => d >= 0.0005 && !findings[v]);
    return all.sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([v, distance]) => {
      const [p, prior] = [answer.posteriors[v], network.prior[v]];
      const deltas = p.map((x, i) => x - prior[i]);
      const state = mode(deltas.map((d) => Math.abs(d) + (d > 0 ? 1e-9 : 0))); // of equal changes, the one upwards
      return [v, state, prior[state], p[state], distance];
    });
  }

  /** What the bars depend on. */
  get asked() {
    return [this.history.value, this.slice, this.length, this.question, this.network?.values];
  }

  get target() {
    return this.targets.length ? this.targets[0] : this.picked;
  }

  /** Whether the bars show the answer to the present evidence. */
  get isFresh() {
    return this.answer !== null && isSameEvidence(this.answer.asked, this.asked);
  }

  /** Whether the findings of a link contradict each other. */
  get isImpossible() {
    return Boolean(this.problem?.isKept);
  }

  setNetwork(network, { findings = {}, bySlice = {}, slice = 0, length = 0, targets = [], picked = null, scenarios = [] } = {}) {
    this.reset();
    this.network = network;
    network.values = findings.values ?? {};
    this.history = newHistory(valued(network.slices ? bySlice : decided(network, findings), network.values));
    this.length = Math.max(length || this.length, lastSlice(bySlice) + 1);
    this.slice = Math.min(slice, this.length - 1);
    this.targets = targets;
    this.picked = picked;
    this.scenarios = scenarios.slice(0, MAX_SCENARIOS);
    this.answer = { asked: null, findings: {}, posteriors: network.prior, logEvidence: 0, ms: null };
    this.emit("network");
    return this.refresh();
  }

  setFindings(findings) {
    const set = decided(this.network, findings);
    if (!findings.values && isSameEvidence(set, this.findings)) return Promise.resolve();
    return this.setEvidence(this.network.slices ? withSlice(this.network, this.history.value, this.slice, set) : set, findings.values);
  }

  setEvidence(value, values = this.network.values) {
    if (isSameEvidence([value, values], [this.history.value, this.network.values])) return Promise.resolve();
    return this.changeHistory(record(this.history, valued(value, values)));
  }

  setSlice(slice, length = this.length, question = this.question) {
    this.length = Math.max(length, lastSlice(this.history.value) + 1);
    this.slice = Math.min(Math.max(slice, 0), this.length - 1);
    this.question = question;
    this.emit("findings");
    return this.refresh();
  }

  undo() {
    return this.changeHistory(undo(this.history));
  }

  redo() {
    return this.changeHistory(redo(this.history));
  }

  changeHistory(history) {
    if (history.value === this.history.value) return Promise.resolve();
    if (this.network.slices) {
      this.slice = Number(differingSlice(history.value, this.history.value) ?? this.slice);
      this.length = Math.max(this.length, lastSlice(history.value) + 1);
    }
    this.setHistory(history);
    this.problem = null;
    if (!Object.keys(history.value).length) {
      this.emit("findings");
      return this.refresh();
    }
    const asked = this.refresh(); // first, so that the server computes while the page shows the findings
    this.emit("findings");
    return asked;
  }

  setHistory(history) {
    this.history = history;
    this.network.values = history.value.values ?? {};
  }

  pick(v) {
    if (v === this.picked) return;
    this.picked = v;
    this.emit("picked");
  }

  toggleTarget(v) {
    this.targets = this.targets.includes(v) ? this.targets.filter((t) => t !== v) : [...this.targets, v];
    this.emit("targets");
  }

  setScenarios(scenarios) {
    this.scenarios = scenarios.slice(0, MAX_SCENARIOS);
    this.emit("scenarios");
  }

  setExpected(expected) {
    this.expected = expected;
    this.emit("expected");
  }

  dismiss() {
    this.problem = null;
    this.emit("problem");
  }

  setStatus(status) {
    if (status === this.status) return;
    this.status = status;
    this.emit("status");
  }

  /** Ask for all bars; a newer call cancels this one. A lost server is asked again. */
  async refresh() {
    this.controller?.abort();
    this.controller = new AbortController();
    this.serial += 1;
    const { serial, findings, network } = this;
    const { signal } = this.controller;
    this.emit("asking");
    if (!network.slices && !this.hasEvidence) {
      this.settle({ findings, posteriors: network.prior, logEvidence: 0, ms: null });
      return;
    }
    this.setStatus("pending");
    const isStale = () => serial !== this.serial;
    try {
      const answer = await insisted(() => (network.slices ? this.askSlice(signal) : this.askCase(signal)), () => this.setStatus("lost"), isStale);
      if (!isStale()) this.settle(answer);
    } catch (error) {
      if (isStale() || error.name === "AbortError") return;
      if (!(error instanceof Problem)) throw error;
      this.refuse(error, findings);
    }
  }

  async askCase(signal) {
    const { api, network, findings } = this;
    const more = network.numbers.length ? { points: 60 } : {};
    const found = await api.ask(network.id, "posteriors", { ...this.body, ...more }, signal);
    return { findings, posteriors: network.names.map((name) => found.posteriors[name]), numbers: found.numbers, logEvidence: found.log_evidence - network.base, ms: found.ms };
  }

  async askSlice(signal) {
    const { api, network, slice, length, priors } = this;
    const ahead = Array.from({ length: network.slices.order }, (_, i) => i + 1).filter((lag) => slice + lag < length);
    const ask = (body, more = [], at = slice) => api.ask(network.id, this.question, { ...body, at: [at, ...more.map((lag) => at + lag)], points: 60 }, signal);
    const barsOf = (found) => network.names.map((name) => found.posteriors[name][0]);
    const found = await ask(this.body, ahead);
    const later = Object.fromEntries(ahead.map((lag, i) => [lag, network.names.map((name) => found.posteriors[name][i + 1] ?? found.posteriors[name][0])]));
    if (!priors.has(slice)) {
      const before = await ask({ length: slice + 1 });
      priors.set(slice, { bars: barsOf(before), numbers: before.numbers });
    }
    const { bars, numbers: before } = priors.get(slice);
    network.prior = bars;
    for (const one of network.numbers) one.prior = slice ? before[one.name]?.at(-1) : one.first;
    const numbersAt = async (t, i) => {
      const targets = network.answerable(t);
      const own = Object.fromEntries(Object.entries(found.numbers ?? {}).map(([name, all]) => [name, [all[i] ?? all[0]]]));
      return targets.length ? { ...own, ...(await ask({ ...this.body, targets }, [], t)).numbers } : own;
    };
    const [numbers, ...others] = await Promise.all([slice, ...ahead.map((lag) => slice + lag)].map(numbersAt));
    const laterNumbers = Object.fromEntries(ahead.map((lag, i) => [lag, others[i]]));
    const findings = Object.assign({}, ...Object.values(this.history.value));
    return { findings, later, laterNumbers, posteriors: barsOf(found), numbers: slice || this.listed.length || Object.keys(network.values).length ? numbers : null, logEvidence: found.log_evidence, ms: found.ms };
  }

  /** The posterior of a number; undefined if its parents have to be observed first. */
  numberOf(name) {
    const { answer, network } = this;
    const found = answer.numbers ? answer.numbers[name] : network.numbers.find((one) => one.name === name).prior;
    return [found].flat()[0];
  }

  /** The value of a number that is observed, or undefined. */
  valueOf(name, t = this.slice) {
    const { values, slices } = this.network;
    return values[slices && !(name in values) ? `${name}@${t}` : name];
  }

  /** The key of a number's value: over time with the slice. */
  keyOf(name) {
    const { network, slice } = this;
    return network.slices && !(name in network.values) ? `${name}@${slice}` : name;
  }

  /** Observe a number: a value, [low, high], or null. */
  setValue(name, value) {
    const { [this.keyOf(name)]: _, ...others } = this.network.values;
    return this.setEvidence(this.history.value, value === null ? others : { ...others, [this.keyOf(name)]: value });
  }

  clearAll() {
    return this.setEvidence({}, {});
  }

  settle(answer) {
    this.answer = { ...answer, asked: this.asked };
    this.setStatus("ready");
    this.emit("answer");
  }

  /** Take the last change back and say why; earlier ones without an answer are asked again. */
  refuse(error, findings) {
    const earlier = this.history.past.length ? drop(this.history) : newHistory({});
    const isOfNumbers = !isSameEvidence(this.network.values, earlier.value.values ?? {});
    const { network } = this;
    const past = this.history.past.length ? this.history.past.at(-1) : {};
    const before = network.slices ? findingsAt(network, past, this.slice) : past;
    const changed = Object.keys(findings).filter((v) => !isSameEvidence(findings[v], before[v])).map(Number);
    const isImpossible = error.kind === "impossible-evidence" && !isOfNumbers;
    // of a link or a scenario: the user decides which finding goes
    const isKept = isImpossible && (!this.history.past.length || changed.length > 1);
    if (!isKept) this.setHistory(earlier);
    const others = (error.data.findings || network.names).filter((name) => {
      const v = network.number.get(name);
      return v !== undefined && findings[v] && !changed.includes(v);
    });
    this.problem = {
      title: isImpossible ? "Impossible evidence" : (!isOfNumbers && error.data.title) || "Not answered",
      detail: isImpossible ? "" : error.message,
      isImpossible,
      isKept,
      isMissingToken: error.kind === "missing-token",
      changed: changed.map((v) => describeFinding(network, v, findings[v])),
      others: others.map((name) => describeFinding(network, network.number.get(name), findings[network.number.get(name)])),
      tried: Object.fromEntries(changed.map((v) => [v, findings[v]])),
    };
    this.emit("findings");
    this.emit("problem");
    if (isKept) this.answer = { asked: this.asked, findings: {}, posteriors: network.prior, logEvidence: 0, ms: null };
    else if (!this.isFresh) {
      this.refresh();
      return;
    }
    this.setStatus("ready");
    this.emit("answer");
  }
}
