// The shape of each kind of evidence, as in jtgpu.draw: not only colours differ.

import { svgEl } from "./dom.js";
import { KIND_TEXT } from "./findings.js";

export const MARK_SHAPES = {
  observed: "M-4-4h8v8h-8z",
  "one of": "M-4-4h8v8h-8z",
  likelihood: "M0-5L5 4H-5z",
  soft: "M0-5L5 0L0 5L-5 0z",
  do: "M-5 0L-2.5-4.5h5L5 0L2.5 4.5h-5z",
};

/** A picture of 14 pixels with the mark of a kind of evidence. */
export function markIcon(kind) {
  return svgEl(
    "svg",
    { class: "mark-icon", viewBox: "-7 -7 14 14", width: 14, height: 14, role: "img", "aria-label": KIND_TEXT[kind] },
    svgEl("path", { class: `mark ${kind === "one of" ? "hollow" : ""}`, d: MARK_SHAPES[kind] }),
  );
}
