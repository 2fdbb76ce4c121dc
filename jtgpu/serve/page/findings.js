// Evidence: an immutable object from number of variable to finding. Pure functions.
//
// A finding is {kind: "observed" | "one of" | "do", states: [i, ...]} or {kind: "likelihood" | "soft", weights: [...]}.

import { clean } from "./format.js";

export const KIND_TEXT = {
  observed: "observed",
  "one of": "one of several states",
  likelihood: "likelihood",
  soft: "soft evidence",
  do: "intervention",
};
export const KINDS = Object.keys(KIND_TEXT);

/** The findings with one replaced, or without it (null). */
export function withFinding(findings, v, finding) {
  const { [v]: _, ...others } = findings;
  return finding === null ? others : { ...others, [v]: finding };
}

/** Observe a state; if it is observed, clear it. An intervention stays one. */
export function toggleState(findings, v, state) {
  const old = findings[v];
  const isSame = old && old.states && old.states.length === 1 && old.states[0] === state;
  if (isSame) return withFinding(findings, v, null);
  return withFinding(findings, v, { kind: old && old.kind === "do" ? "do" : "observed", states: [state] });
}

/** Add or remove a possible state; all states together are no evidence. */
export function toggleOneOf(findings, v, state, n) {
  const old = findings[v];
  const before = old && old.states && old.kind !== "do" ? old.states : [];
  const states = before.includes(state) ? before.filter((s) => s !== state) : [...before, state].sort((a, b) => a - b);
  if (states.length === 0 || states.length === n) return withFinding(findings, v, null);
  return withFinding(findings, v, { kind: states.length === 1 ? "observed" : "one of", states });
}

/** An option that somebody chose is an intervention: the policy may never choose it. */
export function decided(network, findings) {
  const made = findingList(findings).filter(([v, { kind }]) => kind === "observed" && network.decisions.has(v));
  return Object.assign({ ...findings }, Object.fromEntries(made.map(([v, { states }]) => [v, { kind: "do", states }])));
}

export function findingList(findings) {
  return Object.entries(findings).map(([v, finding]) => [Number(v), finding]);
}

/** The body of a question: what the API calls evidence, likelihood, soft and do. */
export function bodyOf(network, findings) {
  // without a prototype: a variable may be called __proto__
  const body = { evidence: Object.create(null), likelihood: Object.create(null), soft: Object.create(null), do: Object.create(null) };
  for (const [v, { kind, states, weights }] of findingList(findings)) {
    const name = network.names[v];
    if (kind === "observed") body.evidence[name] = network.keys[v][states[0]];
    else if (kind === "one of") body.evidence[name] = states.map((s) => network.keys[v][s]);
    else if (kind === "do") body.do[name] = network.keys[v][states[0]];
    else body[kind][name] = weights;
  }
  Object.assign(body.evidence, findings.values ?? network.values); // questions that do not take numbers refuse them
  return Object.fromEntries(Object.entries(body).filter(([, part]) => Object.keys(part).length));
}

export function findingsOf(network, { evidence = {}, likelihood = {}, soft = {}, do: interventions = {} }) {
  const findings = {};
  const states = (part, make) => {
    for (const [name, given] of Object.entries(part || {})) {
      const v = network.number.get(name);
      if (v === undefined) continue;
      const found = [...new Set([given].flat().map((key) => network.stateNumber(v, key)))].filter((s) => s >= 0).sort((a, b) => a - b);
      if (found.length) findings[v] = make(found);
    }
  };
  states(evidence, (found) => ({ kind: found.length > 1 ? "one of" : "observed", states: found }));
  states(interventions, (found) => ({ kind: "do", states: found.slice(0, 1) }));
  for (const [kind, part] of [["likelihood", likelihood], ["soft", soft]]) {
    for (const [name, weights] of Object.entries(part || {})) {
      const v = network.number.get(name);
      if (v !== undefined && Array.isArray(weights) && weights.length === network.states[v].length) findings[v] = { kind, weights };
    }
  }
  const known = new Set(network.numbers.map(({ name }) => name));
  return valued(findings, Object.fromEntries(Object.entries(evidence || {}).filter(([name]) => known.has(name))));
}

/** Findings with `values` of numbers, which `Object.entries` leaves out. */
export const valued = (findings, value = {}) => Object.defineProperty({ ...findings }, "values", { value });

/** A value, or [low, high] of 30..40; null: none, undefined: no number. */
export function valueOf(text) {
  if (!text.trim()) return null;
  const ends = text.split("..").map((part) => (part.trim() ? Number(part) : null));
  if (ends.length > 2 || ends.some((x) => x !== null && !Number.isFinite(x)) || ends.every((x) => x === null)) return undefined;
  return ends.length === 1 ? ends[0] : ends;
}

/** The text that `valueOf` reads. */
export const valueText = (value) => [value].flat().map((x) => x ?? "").join("..");

export const valueTexts = (values = {}) => Object.entries(values).map(([name, value]) => `${clean(name)} = ${valueText(value)}`);

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

/** A name that, written from right to left, does not reorder its line. */
const isolated = (text) => (RIGHT_TO_LEFT.test(text) ? `\u2068${text}\u2069` : text);

export function describeFinding(network, v, { kind, states, weights }) {
  const name = isolated(network.texts[v]);
  const state = (i) => isolated(network.stateTexts[v][i]);
  if (kind === "observed") return `${name} = ${state(states[0])}`;
  if (kind === "do") return `do(${name} = ${state(states[0])})`;
  if (kind === "one of") return `${name} is ${states.map(state).join(" or ")}`;
  const numbers = weights.slice(0, 4).map((w) => Number(w.toPrecision(3))).join(" : ");
  return `${name}, ${kind} ${numbers}${weights.length > 4 ? " : \u2026" : ""}`;
}

export function isSameEvidence(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}
