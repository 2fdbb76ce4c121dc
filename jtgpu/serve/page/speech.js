// What screen readers say.

import { KIND_TEXT } from "./findings.js";
import { percent } from "./format.js";
import { mode } from "./measures.js";

/** "lung: yes 48.9 %, prior 5.5 %" */
export function spokenState(store, v, state) {
  const { network, answer } = store;
  const p = `${network.stateTexts[v][state]} ${percent(answer.posteriors[v][state])} %`;
  const isChanged = Object.keys(store.findings).length > 0;
  return isChanged ? `${p}, prior ${percent(network.prior[v][state])} %` : p;
}

export function spokenVariable(store, v) {
  const { network, answer, findings } = store;
  const finding = findings[v];
  const kind = finding ? `, ${KIND_TEXT[finding.kind]}` : "";
  const decided = network.decisions.has(v) ? ", decision" : "";
  return `${network.texts[v]}${decided}${kind}: ${spokenState(store, v, mode(answer.posteriors[v]))}`;
}
