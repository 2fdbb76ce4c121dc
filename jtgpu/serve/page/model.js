// Changes of a network as JSON; CPTs keep what is known. Pure.
//
// A CPT is flat: the last axis, the variable's own states, varies fastest; a row is the distribution of one
// configuration of the parents.

const find = (model, name) => model.variables.find((v) => v.name === name);
const copy = (model) => ({ ...model, variables: model.variables.map((v) => ({ ...v, states: [...v.states], parents: [...v.parents], cpt: [...v.cpt] })) });
const uniform = (n) => Array(n).fill(1 / n);

export function rowsOf(v) {
  const n = v.states.length;
  return Array.from({ length: v.cpt.length / n }, (_, i) => v.cpt.slice(i * n, (i + 1) * n));
}

/** States of the parents in a row. */
export function configuration(model, v, row) {
  const states = [];
  for (const name of [...v.parents].reverse()) {
    const parent = find(model, name);
    states.unshift(parent.states[row % parent.states.length]);
    row = Math.floor(row / parent.states.length);
  }
  return states;
}

/** Divide a row by its sum; a row of zeros becomes uniform. */
export function normalised(row) {
  const sum = row.reduce((a, b) => a + b, 0);
  return sum > 0 ? row.map((p) => p / sum) : uniform(row.length);
}

export function addVariable(model, name) {
  return { ...copy(model), variables: [...copy(model).variables, { name, states: ["yes", "no"], parents: [], cpt: [0.5, 0.5] }] };
}

export function removeVariable(model, name) {
  let changed = copy(model);
  for (const { name: child, parents } of model.variables) if (parents.includes(name)) changed = setParents(changed, child, parents.filter((p) => p !== name));
  changed.variables = changed.variables.filter((v) => v.name !== name);
  return changed;
}

export function renameVariable(model, name, to) {
  const changed = copy(model);
  for (const v of changed.variables) {
    if (v.name === name) v.name = to;
    v.parents = v.parents.map((p) => (p === name ? to : p));
  }
  return changed;
}

/** Other arcs: rows repeat over a new parent, and are averaged over one that is gone. */
export function setParents(model, name, parents) {
  const changed = copy(model);
  const v = find(changed, name);
  const sizes = (names) => names.map((p) => find(model, p).states.length);
  const [oldSizes, newSizes] = [sizes(v.parents), sizes(parents)];
  const old = rowsOf(v);
  const sums = Array.from({ length: newSizes.reduce((a, b) => a * b, 1) }, () => null);
  const rowNumber = (at, names, all) => names.reduce((row, p, k) => row * all[k] + at[p], 0);
  sums.forEach((_, i) => {
    const at = {};
    let rest = i;
    for (let k = parents.length - 1; k >= 0; k -= 1) {
      at[parents[k]] = rest % newSizes[k];
      rest = Math.floor(rest / newSizes[k]);
    }
    let configurations = [at];
    for (const gone of v.parents.filter((p) => !parents.includes(p))) {
      const n = find(model, gone).states.length;
      configurations = configurations.flatMap((c) => Array.from({ length: n }, (__, s) => ({ ...c, [gone]: s })));
    }
    const rows = configurations.map((c) => old[rowNumber(c, v.parents, oldSizes)]);
    sums[i] = rows.length === 1 ? rows[0] : rows[0].map((_, s) => rows.reduce((total, row) => total + row[s], 0) / rows.length);
  });
  v.parents = [...parents];
  v.cpt = sums.flat();
  return changed;
}

/** Other states: as many are renamed, else those of the same name kept. */
export function setStates(model, name, states) {
  const changed = copy(model);
  const v = find(changed, name);
  const kept = states.map((s, i) => (states.length === v.states.length ? i : v.states.indexOf(s)));
  v.cpt = rowsOf(v).flatMap((row) => normalised(kept.map((i) => (i < 0 ? 0 : row[i]))));
  for (const child of changed.variables) {
    const axis = child.parents.indexOf(name);
    if (axis < 0) continue;
    const inner = child.parents.slice(axis + 1).reduce((n, p) => n * find(model, p).states.length, 1) * child.states.length;
    const block = inner * v.states.length;
    const cpt = [];
    for (let at = 0; at < child.cpt.length; at += block) {
      for (const i of kept) cpt.push(...(i < 0 ? Array(inner).fill(1 / child.states.length) : child.cpt.slice(at + i * inner, at + (i + 1) * inner)));
    }
    child.cpt = cpt;
  }
  v.states = [...states];
  return changed;
}

export function setRow(model, name, row, values) {
  const changed = copy(model);
  const v = find(changed, name);
  v.cpt.splice(row * v.states.length, v.states.length, ...values);
  return changed;
}
