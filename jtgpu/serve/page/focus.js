// Which variables the map shows. Pure.

export const MOST_WHOLE = 150; // variables of a network that is shown as a whole
const MOST_FOCUS = 60; // boxes around the picked variable: more are hard to read

/** Evidence, targets and the picked variable, their Markov blankets, then wider rings, ascending. */
export function focusNodes(network, { findings, targets, picked }, most = MOST_FOCUS) {
  const start = picked === null ? [] : [picked];
  const found = new Set([...start, ...targets, ...Object.keys(findings).map(Number)].slice(0, most));
  if (!found.size) found.add(hubOf(network));
  for (const v of [...found]) for (const w of network.blanket(v)) if (found.size < most) found.add(w);
  let ring = [...found];
  while (ring.length && found.size < most / 4) {
    const next = [];
    for (const v of ring) {
      for (const w of [...network.parents[v], ...network.children[v]]) {
        if (!found.has(w) && found.size < most / 4) {
          found.add(w);
          next.push(w);
        }
      }
    }
    ring = next;
  }
  return [...found].sort((a, b) => a - b);
}

export function hubOf(network) {
  let best = 0;
  const degree = (v) => network.parents[v].length + network.children[v].length;
  for (let v = 1; v < network.size; v += 1) if (degree(v) > degree(best)) best = v;
  return best;
}
