// The state of the page as a fragment such as #n=asia&e=xray:yes&t=lung&v=lung. Pure.
//
// Names are percent-encoded, so ":" and "," separate. A state is its name, or "#" and its number; x: a number.

import { findingList, valued, valueOf, valueText } from "./findings.js";
import { atSlice } from "./slices.js";

const LETTER = { observed: "e", "one of": "e", likelihood: "l", soft: "s", do: "d" };
const coded = (text) => encodeURIComponent(text).replaceAll("'", "%27");

function pairs(network, findings) {
  const values = Object.entries(findings.values ?? {}).map(([name, value]) => `x=${coded(name)}:${valueText(value)}`);
  return findingList(findings).map(([v, { kind, states, weights }]) => {
    const parts = states ? states.map((s) => coded(network.keys[v][s])) : weights.map((w) => Number(w.toPrecision(6)));
    return `${LETTER[kind]}=${coded(network.names[v])}:${parts.join(",")}`;
  }).concat(values);
}

export function encodeLink(network, { findings, targets, picked, scenarios, history, slice, length }) {
  const parts = [`n=${coded(network.id)}`, ...(network.slices ? [] : pairs(network, findings))];
  if (network.slices) {
    parts.push(`k=${slice},${length}`);
    const values = Object.entries(network.values).map(([key, value]) => [...atSlice(key), value]);
    for (const t of new Set([...Object.keys(history.value).map(Number), ...values.map(([, s]) => s)])) {
      const own = Object.fromEntries(values.filter(([, s]) => s === t).map(([name, , value]) => [name, value]));
      parts.push(`i=${t}`, ...pairs(network, valued(history.value[t] ?? {}, own)));
    }
  }
  parts.push(...targets.map((v) => `t=${coded(network.names[v])}`));
  if (picked !== null) parts.push(`v=${coded(network.names[picked])}`);
  for (const { title, findings: others } of scenarios) parts.push(`c=${coded(title)}`, ...pairs(network, others));
  return parts.join("&");
}

/** The name of the network in a fragment, or null. */
export function linkedNetwork(fragment) {
  const found = /(?:^|&)n=([^&]*)/.exec(fragment.replace(/^#/, ""));
  return found ? decoded(found[1]) : null;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Read a fragment; `unknown` lists what the network does not have. */
export function decodeLink(network, fragment) {
  const state = { findings: valued({}), bySlice: {}, slice: 0, length: 0, targets: [], picked: null, scenarios: [], unknown: [] };
  let [findings, at] = [state.findings, network.slices ? "@0" : ""];
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const [letter] = part.split("=", 1);
    const text = part.slice(letter.length + 1);
    if (letter === "c") {
      findings = valued({});
      state.scenarios.push({ title: decoded(text), findings });
    } else if (network.slices && (letter === "i" || letter === "k")) {
      const [t, length] = text.split(",").map((word) => (/^\d{1,5}$/.test(word) ? Number(word) : 0));
      if (letter === "i") [findings, at] = [(state.bySlice[t] = {}), `@${t}`];
      else [state.slice, state.length] = [t, length || 0];
    } else if (letter === "t" || letter === "v") {
      const v = network.number.get(decoded(text));
      if (v === undefined) state.unknown.push(decoded(text));
      else if (letter === "t") state.targets.push(v);
      else state.picked = v;
    } else if (letter === "x") {
      const [, name, value] = /^(.*):(.*)$/.exec(text)?.map(decoded) ?? [];
      const number = valueOf(value ?? "") ?? null;
      if (number !== null && network.numbers.some((other) => other.name === name)) (network.slices ? state.findings : findings).values[name + at] = number;
      else state.unknown.push(decoded(text));
    } else if ("elsd".includes(letter) && letter) {
      const [v, finding] = decodeFinding(network, letter, text);
      if (finding) findings[v] = finding;
      else state.unknown.push(decoded(text));
    }
  }
  return state;
}

function decodeFinding(network, letter, text) {
  const colon = text.lastIndexOf(":");
  const v = network.number.get(decoded(text.slice(0, colon)));
  if (v === undefined) return [null, null];
  const values = text.slice(colon + 1).split(",").map(decoded);
  const n = network.states[v].length;
  if (letter === "l" || letter === "s") {
    const weights = values.map(Number);
    const isValid = weights.length === n && weights.every((w) => Number.isFinite(w) && w >= 0) && weights.some((w) => w > 0);
    return [v, isValid ? { kind: letter === "l" ? "likelihood" : "soft", weights } : null];
  }
  const states = values.map((s) => (network.keys[v].includes(s) ? network.keys[v].indexOf(s) : /^#\d+$/.test(s) ? Number(s.slice(1)) : -1));
  if (!states.length || states.some((s) => !(s >= 0 && s < n))) return [v, null];
  if (letter === "d") return [v, { kind: "do", states: states.slice(0, 1) }];
  const unique = [...new Set(states)].sort((a, b) => a - b);
  return [v, { kind: unique.length > 1 ? "one of" : "observed", states: unique }];
}
