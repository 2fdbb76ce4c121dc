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

/** A text of at most `width` pixels; ellipsis at three fifths: names differ in their ends. */
export function fitted(text, width, font = "12px") {
  const characters = [...(text.length > 400 ? text.slice(0, 200) + text.slice(-200) : text)];
  if (text.length <= 400 && widthOf(text, font) <= width) return text;
  const part = (n) => {
    const tail = Math.floor(0.4 * n);
    return `${characters.slice(0, n - tail).join("").trimEnd()}\u2026${tail ? characters.slice(-tail).join("").trimStart() : ""}`;
  };
  let [low, high] = [0, characters.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(part(middle), font) <= width) low = middle;
    else high = middle - 1;
  }
  return part(low);
}
