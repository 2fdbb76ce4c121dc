// Numbers and names as text.

// control characters, and those that change the direction of the text after them
const FORBIDDEN = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufffe\uffff]/gu;
const MINUS = "\u2212";

/** A name on one line; characters that could harm the text around it become U+FFFD. */
export function clean(text) {
  return String(text).replace(FORBIDDEN, (c) => ("\t\n\r".includes(c) ? " " : "\ufffd"));
}

/** A probability in percent with one decimal; only 0 and 1 appear as 0 and 100. */
export function percent(p) {
  if (!Number.isFinite(p)) return "?";
  if (p <= 0) return "0";
  if (p >= 1) return "100";
  if (p < 0.0005) return "<0.1";
  return p >= 0.9995 ? ">99.9" : (100 * p).toFixed(1);
}

/** A change of a probability in points, with its sign. */
export function points(change) {
  const text = Math.abs(100 * change).toFixed(1);
  if (text === "0.0") return "0";
  return (change < 0 ? MINUS : "+") + text;
}

/** A number with significant digits, such as 0.0123 or 1.2e\u22129. */
export function significant(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "?";
  if (x === Infinity) return "\u221e";
  if (x === -Infinity) return MINUS + "\u221e";
  const size = Math.abs(x);
  const text = size !== 0 && (size < 1e-4 || size >= 1e7) ? x.toExponential(digits - 1) : String(Number(x.toPrecision(digits)));
  return text.replaceAll("-", MINUS);
}

/** ln P(e); what rounding leaves of 0 is 0. */
export function logText(log, digits) {
  return significant(Math.abs(log) < 1e-12 ? 0 : log, digits);
}

/** P(e) from ln P(e), also where it is below all 64-bit numbers. */
export function probabilityOf(log) {
  if (Math.abs(log) < 1e-12) return "1";
  if (log > -600) return significant(Math.exp(log), 4);
  const exponent = Math.floor(log / Math.LN10);
  return `${Math.exp(log - exponent * Math.LN10).toFixed(2)}e${MINUS}${-exponent}`;
}

export function cut(text, length) {
  const characters = [...text];
  return characters.length <= length ? text : characters.slice(0, length - 1).join("") + "\u2026";
}

/** A whole number with commas. */
export const whole = (n) => n.toLocaleString("en");

export const count = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
