// Undo and redo over immutable values. Pure.

const LIMIT = 500;

export function newHistory(value) {
  return { past: [], value, future: [] };
}

export function record(history, value) {
  return { past: [...history.past, history.value].slice(-LIMIT), value, future: [] };
}

export function undo({ past, value, future }) {
  if (!past.length) return { past, value, future };
  return { past: past.slice(0, -1), value: past.at(-1), future: [value, ...future] };
}

export function redo({ past, value, future }) {
  if (!future.length) return { past, value, future };
  return { past: [...past, value], value: future[0], future: future.slice(1) };
}

/** Take the last change back without a redo. */
export function drop(history) {
  return history.past.length ? { ...undo(history), future: [] } : history;
}
