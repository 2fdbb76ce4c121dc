// Which variables the map shows. Pure.

export const MOST_WHOLE = 60; // variables of a network that is shown as a whole
const [FEWEST, MOST] = [8, 26]; // boxes around the selected variable: more are hard to read
const BRANCHES = 6; // parents or children of a variable that come before those of others

/** Evidence, targets, selected variable, their blankets, wider rings. */
export function focusNodes(network, { findings, targets, picked }, most = MOST) {
  const limit = Math.min(Math.max(most, FEWEST), MOST);
  const start = [...(picked === null ? [] : [picked]), ...targets, ...Object.keys(findings).map(Number)];
  const nodes = new Set(start.length ? start : [hubOf(network)]);
  const add = (list) => {
    for (const w of list) if (nodes.size < Math.max(limit, start.length)) nodes.add(w);
  };
  // some of each first: a variable may have a hundred children
  for (const branches of [BRANCHES, Infinity]) {
    let ring = [...nodes];
    for (let step = 0; ring.length && step < 4 && nodes.size < limit; step += 1) {
      const before = nodes.size;
      for (const v of ring) add(network.parents[v].slice(0, branches));
      for (const v of ring) add(network.children[v].slice(0, branches));
      for (const v of step ? [] : ring) for (const child of network.children[v].slice(0, branches)) add(network.parents[child].slice(0, branches));
      ring = [...nodes].slice(before);
    }
  }
  return [...nodes].sort((a, b) => a - b);
}

export function hubOf(network) {
  let best = 0;
  const degree = (v) => network.parents[v].length + network.children[v].length;
  for (let v = 1; v < network.size; v += 1) if (degree(v) > degree(best)) best = v;
  return best;
}
