// Evidence over time: slice to findings; static variables: slice 0. Pure.

const parted = ({ slices: { fixed } }, findings) => {
  const entries = Object.entries(findings).filter(([, { kind }]) => kind !== "soft");
  return [true, false].map((isFixed) => Object.fromEntries(entries.filter(([v]) => fixed.has(Number(v)) === isFixed)));
};

export function findingsAt(network, bySlice, t) {
  return t === 0 ? bySlice[0] || {} : { ...parted(network, bySlice[0] || {})[0], ...bySlice[t] };
}

export function withSlice(network, bySlice, t, findings) {
  const [fixed, own] = parted(network, findings);
  const first = t === 0 ? own : parted(network, bySlice[0] || {})[1];
  const changed = { ...bySlice, [t]: own, 0: { ...fixed, ...first } };
  return Object.fromEntries(Object.entries(changed).filter(([, part]) => Object.keys(part).length));
}

/** The name of a number and the slice of a key such as load@3. */
export function atSlice(key) {
  const at = key.lastIndexOf("@");
  return [key.slice(0, at), Number(key.slice(at + 1))];
}

export function differingSlice(one, other) {
  return Object.keys({ ...one, ...other }).find((t) => JSON.stringify(one[t]) !== JSON.stringify(other[t]));
}

export function lastSlice(bySlice) {
  return Math.max(0, ...Object.keys(bySlice).map(Number));
}

export function sequenceOf(network, bySlice, length) {
  const body = { evidence: Object.create(null), likelihood: Object.create(null), do: Object.create(null) };
  const listed = (part, name) => (part[name] ??= Array(length).fill(null));
  for (const [slice, findings] of Object.entries(bySlice)) {
    const t = Number(slice);
    for (const [number, { kind, states, weights }] of Object.entries(findings)) {
      const [name, keys] = [network.names[number], network.keys[number]];
      if (kind === "do" && network.slices.fixed.has(Number(number))) body.do[name] = keys[states[0]];
      else if (kind === "do") (body.do[name] ??= {})[t] = keys[states[0]];
      else if (kind === "observed") listed(body.evidence, name)[t] = keys[states[0]];
      else listed(body.likelihood, name)[t] = weights ?? keys.map((_, s) => (states.includes(s) ? 1 : 0));
    }
  }
  for (const [key, value] of Object.entries(network.values)) {
    const [name, t] = atSlice(key);
    if (t < length) listed(body.evidence, name)[t] = value;
  }
  return { ...Object.fromEntries(Object.entries(body).filter(([, part]) => Object.keys(part).length)), length };
}
