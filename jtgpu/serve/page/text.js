// Widths of texts in pictures, and texts that fit a width.

let measuring = null;
const widths = new Map();
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";

function widthOf(text, font) {
  const key = `${font}|${text}`;
  let found = widths.get(key);
  if (found === undefined) {
    if (!measuring) measuring = document.createElement("canvas").getContext("2d");
    measuring.font = `${font} ${FONT}`;
    found = measuring.measureText(text).width;
    if (widths.size > 20000) widths.clear();
    widths.set(key, found);
  }
  return found;
}

/** A text that is not wider than `width` pixels; one that is cut ends in an ellipsis. */
export function fitted(text, width, font = "12px") {
  const start = text.length > 200 ? text.slice(0, 200) : text;
  if (start === text && widthOf(text, font) <= width) return text;
  const characters = [...start];
  let [low, high] = [0, characters.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(`${characters.slice(0, middle).join("")}\u2026`, font) <= width) low = middle;
    else high = middle - 1;
  }
  return `${characters.slice(0, low).join("").trimEnd()}\u2026`;
}
