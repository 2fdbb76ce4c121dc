// The state of the page, and the one request that keeps its bars true to the evidence.

import { Lost, Problem } from "./api.js";
import { bodyOf, decided, describeFinding, findingList, isSameEvidence, valued, withFinding } from "./findings.js";
import { drop, newHistory, record, redo, undo } from "./history.js";
import { differingSlice, findingsAt, lastSlice, sequenceOf, withSlice } from "./slices.js";

const LONGEST_WAIT = 8; // seconds between tries
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

  clear(t, v) {
    const { network, history } = this;
    if (!network.slices) return this.setFindings(withFinding(history.value, v, null));
    return this.setEvidence(withSlice(network, history.value, t, withFinding(findingsAt(network, history.value, t), v, null)));
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
    this.history = newHistory(network.slices ? bySlice : valued(decided(network, findings), network.values));
    this.length = length || Math.max(this.length, lastSlice(bySlice) + 1);
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
    if (!network.slices && !Object.keys(findings).length && !Object.keys(network.values).length) {
      this.settle({ findings, posteriors: network.prior, logEvidence: 0, ms: null });
      return;
    }
    this.setStatus("pending");
    for (let wait = 0.5; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
      try {
        const answer = await (network.slices ? this.askSlice(signal) : this.askCase(signal));
        if (serial !== this.serial) return;
        this.settle(answer);
        return;
      } catch (error) {
        if (serial !== this.serial || error.name === "AbortError") return;
        if (error instanceof Problem) {
          this.refuse(error, findings);
          return;
        }
        if (!(error instanceof Lost)) throw error;
        this.setStatus("lost");
        await new Promise((resolve) => setTimeout(resolve, 1000 * (error.wait || wait)));
        if (serial !== this.serial) return;
      }
    }
  }

  async askCase(signal) {
    const { api, network, findings } = this;
    const more = network.numbers.length ? { points: 60 } : {};
    const found = await api.ask(network.id, "posteriors", { ...this.body, ...more }, signal);
    return { findings, posteriors: network.names.map((name) => found.posteriors[name]), numbers: found.numbers, logEvidence: found.log_evidence, ms: found.ms };
  }

  /** Posteriors of the slice, with and without evidence. */
  async askSlice(signal) {
    const { api, network, slice, length, priors } = this;
    const ahead = Array.from({ length: network.slices.order }, (_, i) => i + 1).filter((lag) => slice + lag < length);
    const ask = (body, more = []) => api.ask(network.id, this.question, { ...body, at: [slice, ...more.map((lag) => slice + lag)], points: 60 }, signal);
    const barsOf = (found) => network.names.map((name) => found.posteriors[name][0]);
    const found = await ask(this.body, ahead);
    const later = Object.fromEntries(ahead.map((lag, i) => [lag, network.names.map((name) => found.posteriors[name][i + 1] ?? found.posteriors[name][0])]));
    if (!priors.has(slice)) priors.set(slice, barsOf(await ask({ length: slice + 1 })));
    network.prior = priors.get(slice);
    const findings = Object.assign({}, ...Object.values(this.history.value));
    return { findings, later, posteriors: barsOf(found), numbers: found.numbers, logEvidence: found.log_evidence, ms: found.ms };
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
    if (!isSameEvidence(this.network.values, earlier.value.values ?? {})) {
      this.setHistory(earlier);
      this.problem = { title: "Not answered", detail: error.message, changed: [], others: [], tried: {} };
      this.emit("findings");
      this.emit("problem");
      this.refresh();
      return;
    }
    const { network } = this;
    const past = this.history.past.length ? this.history.past.at(-1) : {};
    const before = network.slices ? findingsAt(network, past, this.slice) : past;
    const changed = Object.keys(findings).filter((v) => !isSameEvidence(findings[v], before[v])).map(Number);
    const isImpossible = error.kind === "impossible-evidence";
    // of a link or a scenario: the user decides which finding goes
    const isKept = isImpossible && (!this.history.past.length || changed.length > 1);
    if (!isKept) this.history = earlier;
    const others = (error.data.findings || network.names).filter((name) => {
      const v = network.number.get(name);
      return v !== undefined && findings[v] && !changed.includes(v);
    });
    this.problem = {
      title: isImpossible ? "Impossible evidence" : error.data.title || "Not answered",
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
