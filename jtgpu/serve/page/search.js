// Search in names, labels and states: substrings first, then subsequences. Pure.

import { clean } from "./format.js";

/** Lower-case texts of each variable, made once. */
export function searchIndex(network) {
  const numbers = network.numbers.map(({ name }) => ({ name: clean(name).toLowerCase(), label: "", states: "" }));
  return network.names.map((_, v) => ({
    name: network.texts[v].toLowerCase(),
    label: network.labels[v].toLowerCase(),
    states: network.stateTexts[v].slice(0, 50).join("\n").toLowerCase(),
  })).concat(numbers);
}

function isSubsequence(query, text) {
  let i = 0;
  for (let j = 0; j < text.length && i < query.length; j += 1) if (text[j] === query[i]) i += 1;
  return i === query.length;
}

function rank({ name, label, states }, query) {
  if (name === query) return 0;
  if (name.startsWith(query)) return 1;
  if (name.includes(query)) return 2;
  if (label.includes(query)) return 3;
  if (states.includes(query)) return 4;
  return isSubsequence(query, name) ? 5 : -1;
}

/** Variables in `order` that match, the best first. */
export function searchVariables(index, query, order) {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return order;
  const groups = [[], [], [], [], [], []];
  for (const v of order) {
    const found = rank(index[v], wanted);
    if (found >= 0) groups[found].push(v);
  }
  return groups.flat();
}
