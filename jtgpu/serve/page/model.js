// Changes of a network as JSON; tables keep what is known. Pure.
//
// A table is flat: the last axis, the node's own states, varies fastest; a row is what holds for one configuration of
// the parents. A parent in an earlier slice is its name, NUL and the number of slices back.

const MOST_SUMMED = 1 << 16; // numbers of a factor that takes the place of others
const NONE = ["no", "false", "absent", "negative", "0", "off", "none"]; // states without an effect
const copy = (model) => ({ ...model, variables: model.variables.map((v) => ({ ...v, states: [...v.states], parents: [...v.parents] })) });
const uniform = (n) => Array(n).fill(1 / n);
const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

export const nameOf = (parent) => parent.split("\0")[0];
export const lagOf = (parent) => Number(parent.split("\0")[1] ?? 0);
export const find = (model, name) => model.variables.find((v) => v.name === nameOf(name));
export const width = (v) => v.states.length || 1;
const termOf = (p) => (lagOf(p) ? `${nameOf(p)}[t-${lagOf(p)}]` : p); // how the server calls a coefficient
const mapped = (terms, key, table) => Object.fromEntries(Object.entries(terms).map(([p, c]) => [key(p), table(c)]));
const same = (x) => x;
const hasTable = (v) => v.kind !== "decision" && !v.noisy.length;

/** The network of the server with every field. */
export function complete(model) {
  const variables = model.variables.map(({ lags = [], parents: names = [], coefficients = {}, start_coefficients = [], start_sd = [], ...v }) => {
    const parents = names.map((p, i) => (lags[i] ? `${p}\0${lags[i]}` : p));
    const own = (terms) => mapped(terms, (term) => parents.find((p) => termOf(p) === term) ?? term, same);
    return { kind: "chance", states: [], cpt: [], start: [], sd: [], noisy: [], attributes: {}, ...v, parents, coefficients: own(coefficients), startCoefficients: start_coefficients.map(own), startSd: start_sd };
  });
  return { ...model, variables };
}

/** The network as the server takes it. */
export function sent({ isPlaced: _, renamed: __, ...model }) {
  const divided = (v, table) => (v.kind === "chance" ? rowsOf(v, table).flatMap(normalised) : table);
  const variables = model.variables.map(({ startCoefficients, startSd, ...v }) => ({
    ...v, parents: v.parents.map(nameOf), lags: v.parents.some(lagOf) ? v.parents.map(lagOf) : [],
    coefficients: mapped(v.coefficients, termOf, same), start_coefficients: startCoefficients.map((terms) => mapped(terms, termOf, same)), start_sd: startSd,
    cpt: divided(v, v.cpt), start: v.start.map((table) => divided(v, table)), noisy: v.noisy.map(normalised),
  }));
  return { ...model, variables };
}

export function rowsOf(v, table = v.cpt) {
  const n = width(v);
  return Array.from({ length: table.length / n }, (_, i) => table.slice(i * n, (i + 1) * n));
}

/** The parents that are axes of the tables: those with states. */
export const axesOf = (model, v, parents = v.parents) => parents.filter((p) => find(model, p).states.length);
const sizesOf = (model, axes) => axes.map((p) => find(model, p).states.length);

export function configuration(model, axes, row) {
  const states = [];
  for (const p of [...axes].reverse()) {
    const all = find(model, p).states;
    states.unshift(all[row % all.length]);
    row = Math.floor(row / all.length);
  }
  return states;
}

/** Divide a row by its sum, if that is not 1 up to rounding; a row of zeros becomes uniform. */
export function normalised(row) {
  const sum = row.reduce((a, b) => a + b, 0);
  if (Math.abs(sum - 1) < 1e-12) return row;
  return sum > 0 ? row.map((p) => p / sum) : uniform(row.length);
}

/** The kinds of nodes that go with those of a network. */
export function kindsFor(model) {
  if (model.factors) return ["chance"];
  if (model.slices) return ["chance", "number"];
  const has = (...kinds) => model.variables.some((v) => kinds.includes(v.kind));
  if (has("number")) return ["chance", "number"];
  return has("decision", "utility") ? ["chance", "decision", "utility"] : ["chance", "decision", "utility", "number"];
}

export function whyNoArc(model, parent, child) {
  const [p, v] = [find(model, parent), find(model, child)];
  if (p.kind === "utility") return "A utility has no children.";
  if (p.kind === "number" && v.kind !== "number") return `The number ${p.name} can be a parent of numbers only.`;
  if (v.kind === "number" && p.kind !== "number" && lagOf(parent)) return `${p.name} has states: it can be a parent of a number in the same slice only.`;
  return !lagOf(parent) && below(model, child).has(p.name) ? `The arc from ${p.name} to ${v.name} would close a cycle.` : "";
}

/** A node and all that are below it. */
export function below(model, name) {
  const found = new Set([name]);
  for (const each of found) for (const v of model.variables) if (v.parents.includes(each)) found.add(v.name);
  return found;
}

export function addVariable(model, kind, position = null) {
  let i = 1;
  while (find(model, `${kind}_${i}`)) i += 1;
  const states = kind === "utility" || kind === "number" ? [] : ["yes", "no"];
  const cpt = model.factors ? [] : { chance: [0.5, 0.5], decision: [], utility: [0], number: [0] }[kind];
  const attributes = position ? { position } : {};
  const made = { name: `${kind}_${i}`, kind, states, parents: [], cpt, start: [], coefficients: {}, startCoefficients: [], startSd: [], sd: kind === "number" ? [1] : [], noisy: [], attributes };
  return [{ ...model, variables: [...model.variables, made] }, made.name];
}

export function removeVariable(model, name) {
  let changed = model.factors ? summedOut(model, name) : model;
  for (const { name: child, parents } of model.variables) if (parents.some((p) => nameOf(p) === name)) changed = setParents(changed, child, parents.filter((p) => nameOf(p) !== name));
  return { ...changed, variables: changed.variables.filter((v) => v.name !== name) };
}

export function renameVariable(model, name, to) {
  const changed = copy(model);
  changed.factors = model.factors?.map(({ scope, table }) => ({ scope: scope.map((v) => (v === name ? to : v)), table }));
  for (const v of changed.variables) {
    if (v.name === name) v.name = to;
    const other = (p) => (nameOf(p) === name ? to + p.slice(name.length) : p);
    v.parents = v.parents.map(other);
    v.coefficients = mapped(v.coefficients, other, same);
    v.startCoefficients = v.startCoefficients.map((terms) => mapped(terms, other, same));
  }
  return changed;
}

/** A table with other axes: rows repeat over a new one, and are averaged over one that is gone. */
function moved(model, table, before, after, n) {
  const sizes = new Map([...before, ...after].map((p) => [p, find(model, p).states.length]));
  const gone = before.filter((p) => !after.includes(p));
  return Array.from({ length: product(sizesOf(model, after)) }, (_, row) => {
    const at = {};
    for (const p of [...after].reverse()) {
      at[p] = row % sizes.get(p);
      row = Math.floor(row / sizes.get(p));
    }
    let all = [at];
    for (const p of gone) all = all.flatMap((c) => Array.from({ length: sizes.get(p) }, (__, s) => ({ ...c, [p]: s })));
    const starts = all.map((c) => n * before.reduce((sum, p) => sum * sizes.get(p) + c[p], 0));
    return Array.from({ length: n }, (__, k) => starts.reduce((sum, start) => sum + table[start + k], 0) / starts.length);
  }).flat();
}

export function setParents(model, name, parents) {
  const changed = copy(model);
  const v = find(changed, name);
  const old = find(model, name);
  const [before, after] = [axesOf(model, old), axesOf(model, v, parents)];
  const other = (table) => moved(model, table, before, after, width(v));
  if (hasTable(v)) v.cpt = other(v.cpt);
  const numeric = parents.filter((p) => !after.includes(p));
  const terms = (given, t) => Object.fromEntries(numeric.filter((p) => lagOf(p) <= t).map((p) => [p, given[p] ? other(given[p]) : v.cpt.map(() => 0)]));
  if (v.kind === "number") {
    v.sd = other(v.sd);
    v.coefficients = terms(old.coefficients, Infinity);
  }
  if (v.noisy.length) v.noisy = [...parents.flatMap((p) => effects(model, old, p) ?? newEffects(model, v, p)), old.noisy.at(-1)];
  const exist = (all, t) => all.filter((p) => lagOf(p) <= t);
  v.start = Array.from({ length: Math.max(0, ...parents.map(lagOf)) }, (_, t) => {
    const given = old.start[t];
    return moved(model, given ?? old.cpt, given ? exist(before, t) : before, exist(after, t), width(v));
  });
  const first = v.kind === "number" ? v.start : []; // its axes are in the same slice
  v.startSd = first.map((_, t) => other(old.startSd[t] ?? old.sd));
  v.startCoefficients = first.map((_, t) => terms(old.startCoefficients[t] ?? old.coefficients, t));
  v.parents = [...parents];
  delete v.potential; // it may describe the old numbers
  return changed;
}

/** Other states: as many are renamed, else those of the same name kept. */
export function setStates(model, name, states) {
  const changed = copy(model);
  const v = find(changed, name);
  const kept = states.map((s, i) => (states.length === v.states.length ? i : v.states.indexOf(s)));
  const own = (table) => rowsOf(v, table).flatMap((row) => normalised(kept.map((i) => (i < 0 ? 0 : row[i]))));
  v.cpt = own(v.cpt);
  v.start = v.start.map(own);
  v.noisy = v.noisy.map((row) => normalised(kept.map((i) => (i < 0 ? 0 : row[i]))));
  delete v.potential;
  const selected = (table, child, axes) => {
    let result = table;
    axes.forEach((p, axis) => {
      if (nameOf(p) !== name) return;
      const sizes = (list) => product(list.map((q) => (nameOf(q) === name ? (axes.indexOf(q) < axis ? kept.length : v.states.length) : find(model, q).states.length)));
      const inner = sizes(axes.slice(axis + 1)) * width(child);
      const block = inner * v.states.length;
      const made = [];
      for (let at = 0; at < result.length; at += block) {
        for (const i of kept) made.push(...(i >= 0 ? result.slice(at + i * inner, at + (i + 1) * inner) : child.states.length ? Array(inner).fill(1 / child.states.length) : result.slice(at, at + inner)));
      }
      result = made;
    });
    return result;
  };
  for (const child of changed.variables) {
    if (!child.parents.some((p) => nameOf(p) === name)) continue;
    const axes = axesOf(model, child);
    const other = (table) => selected(table, child, axes);
    if (child.noisy.length) child.noisy = [...child.parents.flatMap((p) => (p === name ? kept.map((i) => (i < 0 ? noEffect(child) : effects(model, child, p)[i])) : effects(model, child, p))), child.noisy.at(-1)];
    if (hasTable(child)) child.cpt = other(child.cpt);
    child.sd = other(child.sd);
    child.coefficients = mapped(child.coefficients, same, other);
    child.startSd = child.startSd.map(other);
    child.startCoefficients = child.startCoefficients.map((terms) => mapped(terms, same, other));
    child.start = child.start.map((table, t) => selected(table, child, axes.filter((p) => lagOf(p) <= t)));
    delete child.potential;
  }
  changed.factors = model.factors?.map(({ scope, table }) => ({ scope, table: selected(table, { states: [] }, scope) }));
  v.states = [...states];
  return changed;
}

// ---- factors of a Markov network: {scope, table}

/** A factor with other variables: it repeats over new ones, and is averaged over those that are gone. */
export const scoped = (model, { scope, table }, to) => ({ scope: to, table: moved(model, table, scope, to, 1) });
const ONES = { scope: [], table: [1] };

/** Other variables of a factor; one more factor of ones; no variables: the factor is removed. */
export function setScope(model, i, scope) {
  const factor = scoped(model, model.factors[i] ?? ONES, scope);
  return { ...model, factors: [...model.factors.slice(0, i), ...(scope.length ? [factor] : []), ...model.factors.slice(i + 1)] };
}

/** Join two variables by a factor of ones, or remove their factors. */
export function toggleEdge(model, a, b) {
  const isOfBoth = ({ scope }) => scope.includes(a) && scope.includes(b);
  const larger = model.factors.find((f) => isOfBoth(f) && f.scope.length > 2);
  if (larger) throw new Error(`${a} and ${b} are in the factor of ${larger.scope.join(", ")}: change it at one of them.`);
  const rest = model.factors.filter((f) => !isOfBoth(f));
  return rest.length < model.factors.length ? { ...model, factors: rest } : setScope(model, rest.length, [a, b]);
}

/** The others keep their distribution: a variable's factors become one, their product, that is summed over its states. */
function summedOut(model, name) {
  const own = model.factors.filter(({ scope }) => scope.includes(name));
  const scope = [...new Set(own.flatMap((f) => f.scope))].filter((v) => v !== name);
  const n = product(sizesOf(model, [...scope, name]));
  if (n > MOST_SUMMED) throw new Error(`Without ${name}, its ${scope.length} neighbours would share a factor of ${n} numbers; remove some of its factors first.`);
  const tables = own.map((f) => scoped(model, f, [...scope, name]).table);
  const whole = { scope: [...scope, name], table: tables.reduce((a, b) => a.map((x, i) => x * b[i]), Array(n).fill(1)) };
  return { ...model, factors: [...model.factors.filter((f) => !own.includes(f)), ...(scope.length ? [scoped(model, whole, scope)] : [])] };
}

/** Set tables of a node: `cpt`, `sd`, `coefficients`, those of the first slices, or `noisy`. */
export function setTables(model, name, tables) {
  const changed = copy(model);
  const v = find(changed, name);
  Object.assign(v, tables);
  delete v.potential;
  return changed;
}

// ---- noisy-OR and noisy-MAX: the last state is that without the effect

const noEffect = (v) => v.states.map((_, i) => (i === v.states.length - 1 ? 1 : 0));

/** The rows of a parent, or undefined. */
export function effects(model, v, parent) {
  const at = v.parents.indexOf(parent);
  const sizes = sizesOf(model, v.parents);
  const first = sizes.slice(0, at).reduce((a, b) => a + b, 0);
  return at < 0 ? undefined : v.noisy.slice(first, first + sizes[at]);
}

function newEffects(model, v, parent) {
  const { states } = find(model, parent);
  const none = states.findIndex((s) => NONE.includes(s.toLowerCase()));
  const last = none < 0 ? states.length - 1 : none;
  const half = v.states.map((_, i) => (i === 0 || i === v.states.length - 1 ? 0.5 : 0));
  return states.map((_, i) => (i === last ? noEffect(v) : half));
}

/** Whether the states allow strengths: none of the first is a name for no effect. */
export const canBeNoisy = (model, v) => v.kind === "chance" && !model.slices && v.states.length > 1 && v.parents.length > 0 && !NONE.includes(v.states[0].toLowerCase());

export function withStrengths(model, name) {
  const v = find(model, name);
  return setTables(model, name, { cpt: [], noisy: [...v.parents.flatMap((p) => newEffects(model, v, p)), noEffect(v)] });
}

/** Numbers of the CPT that the strengths stand for. */
export const tableSize = (model, v) => product(sizesOf(model, v.parents)) * v.states.length;

/** The CPT that the strengths mean, in their place. */
export function withoutStrengths(model, name) {
  const v = find(model, name);
  const weaker = (row) => row.map((_, k) => row.slice(k).reduce((a, b) => a + b, 0)); // P(this effect or a weaker one)
  const all = v.parents.map((p) => effects(model, v, p).map(weaker));
  const cpt = Array.from({ length: product(sizesOf(model, v.parents)) }, (_, row) => {
    const at = [];
    for (const rows of [...all].reverse()) {
      at.unshift(rows[row % rows.length]);
      row = Math.floor(row / rows.length);
    }
    const joint = v.states.map((__, k) => [weaker(v.noisy.at(-1)), ...at].reduce((p, each) => p * each[k], 1));
    return joint.map((p, k) => p - (joint[k + 1] ?? 0));
  }).flat();
  return setTables(model, name, { cpt, noisy: [] });
}
