// What the list sorts by: the change of a variable and its entropy. Pure.

export function totalVariation(p, q) {
  let sum = 0;
  for (let i = 0; i < p.length; i += 1) sum += Math.abs(p[i] - q[i]);
  return sum / 2;
}

/** Entropy relative to that of the uniform distribution, 0 to 1. */
export function relativeEntropy(p) {
  if (p.length < 2) return 0;
  let sum = 0;
  for (const x of p) if (x > 0) sum -= x * Math.log(x);
  return sum / Math.log(p.length);
}

export function mode(p) {
  let best = 0;
  for (let i = 1; i < p.length; i += 1) if (p[i] > p[best]) best = i;
  return best;
}

/** The `n` states that are set or most probable, in their order. */
export function leading(p, n, set = []) {
  const all = p.map((_, i) => i);
  if (all.length <= n) return all;
  return all.sort((a, b) => set.includes(b) - set.includes(a) || p[b] - p[a] || a - b).slice(0, n).sort((a, b) => a - b);
}

const ORDERS = {
  change: (v, p, prior) => -totalVariation(p[v], prior[v]),
  entropy: (v, p) => -relativeEntropy(p[v]),
};

/** Variables sorted by "name", "file", "change", "entropy" or a ranking. */
export function sortedVariables(network, by, posteriors, ranking = []) {
  const all = network.names.map((_, v) => v);
  if (by === "file" || !posteriors) return by === "name" ? byName(network, all) : all;
  if (by === "name") return byName(network, all);
  if (by === "value") {
    const place = new Map(ranking.map((v, i) => [v, i]));
    return all.sort((a, b) => (place.get(a) ?? Infinity) - (place.get(b) ?? Infinity) || a - b);
  }
  const keys = all.map((v) => ORDERS[by](v, posteriors, network.prior));
  return all.sort((a, b) => keys[a] - keys[b] || a - b);
}

function byName(network, all) {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  return all.sort((a, b) => collator.compare(network.texts[a], network.texts[b]) || a - b);
}
