// The network: names, states, arcs. Elsewhere these are numbers.

import { clean, count } from "./format.js";

/** States as the API takes them: names, or "#" and the number where a name is empty or another state has it. */
function stateKeys(states) {
  let mark = "#";
  while (states.some((s) => s.startsWith(mark))) mark += "#";
  const count = new Map();
  for (const s of states) count.set(s, (count.get(s) ?? 0) + 1);
  return states.map((s, i) => (s === "" || count.get(s) > 1 ? `${mark}${i}` : s));
}

/** What a person reads: names, with their number where they are empty or equal. */
function stateTexts(states) {
  const texts = states.map((s) => clean(s).trim());
  return texts.map((s, i) => {
    if (s === "") return `state ${i}`;
    return texts.indexOf(s) === texts.lastIndexOf(s) ? s : `${s} (${i})`;
  });
}

export class Network {
  /**
   * @param {string} id name in addresses
   * @param {object} description the answer of GET /v1/networks/{id}
   */
  constructor(id, { title, source, digest, kind, variables, arcs, prior, limits, plan, backend, decisions, utilities, slices, numbers, formats, questions, log_evidence }) {
    this.id = id;
    this.title = clean(title || id);
    this.digest = digest || "";
    this.source = source || ""; // a file or the name of a bundled network
    this.kind = kind;
    this.isDirected = kind !== "markov";
    this.base = this.isDirected ? 0 : log_evidence; // ln of the sum of the factors' products, which P(e) is divided by
    this.limits = limits || {};
    this.formats = formats || null; // suffixes of files that this kind of network can be saved in
    this.questions = new Set(questions || []); // of this kind
    this.plan = plan || {};
    this.backend = backend || "";
    this.names = variables.map((v) => v.name);
    this.number = new Map(this.names.map((name, i) => [name, i]));
    this.texts = this.names.map((name) => clean(name) || "(no name)");
    this.labels = variables.map((v) => (v.label && v.label !== v.name ? clean(v.label) : ""));
    this.states = variables.map((v) => v.states);
    this.keys = this.states.map(stateKeys);
    this.stateTexts = this.states.map(stateTexts);
    this.parents = this.names.map(() => []);
    this.children = this.names.map(() => []);
    for (const [parent, child] of arcs) {
      this.parents[child].push(parent);
      this.children[parent].push(child);
    }
    this.decisions = new Set(decisions || []); // variables that somebody decides; their bars are the best policy
    this.utilities = (utilities || []).map(({ name, parents }) => ({ name, parents, text: clean(name) }));
    this.prior = prior.length ? prior : this.states.map((all) => all.map(() => 0)); // over time: of the slice that is shown; 0: too large a question
    this.numbers = (numbers || []).map((one) => ({ parents: [], earlier: [], ...one, first: one.prior })); // they have no states
    const leaves = [...this.utilities, ...this.numbers].map(({ parents, earlier = [] }) => [...parents, ...earlier]);
    this.arcs = [...leaves, ...(slices?.earlier ?? [])].reduce((n, parents) => n + parents.length, arcs.length); // of all nodes
    this.values = {}; // observed ones, by name
    this.slices = slices ? { fixed: new Set(slices.static), earlier: slices.earlier, order: slices.order } : null; // of networks over time
  }

  /** Names of the numbers with numeric parents that are known in a slice: these are observed, or the number is. */
  answerable(t) {
    const isSeen = (g, s) => this.numbers[g].name in this.values || `${this.numbers[g].name}@${s}` in this.values;
    return this.numbers.filter(({ parents, earlier }, g) => {
      const above = [...parents.map((p) => [p, 0]), ...earlier].filter(([p]) => p >= this.size);
      return above.length && (isSeen(g, t) || above.every(([p, lag]) => lag > t || isSeen(p - this.size, t - lag)));
    }).map(({ name }) => name);
  }

  get sizeText() {
    return `${count(this.size + this.numbers.length, "variable")}, ${count(this.arcs, this.isDirected ? "arc" : "edge")}`;
  }

  get size() {
    return this.names.length;
  }

  /** The state that a key of the API means, or -1. */
  stateNumber(v, key) {
    const found = this.keys[v].indexOf(key);
    const names = this.states[v];
    const named = found >= 0 ? found : names.indexOf(String(key));
    if (named >= 0 || !Number.isInteger(key)) return named;
    // where the name of a state is a number, numbers are names
    const numbers = names.map((s) => (s.trim() === "" ? NaN : Number(s)));
    if (numbers.some(Number.isFinite)) return numbers.indexOf(key);
    return key >= 0 && key < names.length ? key : -1;
  }
}
