// Numbers: a curve of the density, the prior as a thin curve, and a field for a value.

import { el, setAttribute, setText, svgEl } from "./dom.js";
import { valueOf, valueText } from "./findings.js";
import { clean, significant } from "./format.js";
import { MARK_SHAPES } from "./marks.js";
import { Panel } from "./panels.js";
import { fitted } from "./text.js";

const [WIDE, HIGH] = [90, 36]; // of a curve in the panel

/** Path data of densities, each as high as the frame; of an observed number a line. */
export function curvePaths(shown, width, height) {
  const ends = shown.flatMap(({ mean, density }) => (density ? [density.x[0], density.x.at(-1)] : [mean]));
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const place = (x) => Math.round((high > low ? (x - low) / (high - low) : 0.5) * width * 10) / 10;
  return shown.map(({ mean, density }) => {
    if (!density) return `M${place(mean)} 0V${height}`;
    const top = Math.max(...density.y);
    return density.x.map((x, i) => `${i ? "L" : "M"}${place(x)} ${Math.round((1 - density.y[i] / top) * height * 10) / 10}`).join("");
  });
}

/** Mean and standard deviation to the same place; over time, the parents may have to be observed first. */
export function numberText(found) {
  if (!found) return "observe its parents";
  const { mean, sd } = found;
  if (!sd) return `= ${significant(mean, 6)}`;
  const digits = Math.floor(Math.log10(Math.abs(mean) || sd)) - Math.floor(Math.log10(sd)) + 3;
  return `${significant(mean, Math.min(Math.max(digits, 1), 9))} \u00b1 ${significant(sd, 3)}`;
}

/** Curves of a posterior and a prior, a text, and what shows them. */
function curvesOf(name, text, width, height) {
  const [curve, thin] = [svgEl("path", { class: "curve" }), svgEl("path", { class: "curve prior" })];
  const show = (node, posterior, prior) => {
    const paths = curvePaths([posterior, prior].filter(Boolean), width, height);
    setAttribute(curve, "d", posterior ? paths[0] : null);
    setAttribute(thin, "d", prior ? paths.at(-1) : null);
    setText(text, numberText(posterior));
    setAttribute(node, "aria-label", `${clean(name)}: ${numberText(posterior)}`);
  };
  return { curve, thin, show };
}

/** The box of a number on the map, and a function that shows a posterior in it. */
export function numberBox(name, [x, y, width, height], onclick) {
  const text = svgEl("text", { x: 10, y: height - 7 });
  const [title, mark] = [svgEl("text", { class: "title", x: 10, y: 18 }), svgEl("path", { class: "mark", transform: `translate(${width - 14},14)` })];
  const { curve, thin, show } = curvesOf(name, text, width - 20, height - 46);
  const node = svgEl("g", { role: "img", "data-name": name, transform: `translate(${x},${y})` }, svgEl("rect", { class: "frame", width, height, rx: 18 }), title, mark, svgEl("g", { transform: "translate(10,26)" }, thin, curve), text);
  node.addEventListener("click", () => node.closest(".editing") || onclick());
  return {
    node,
    show: (posterior, prior, isObserved, suffix = "") => {
      setText(title, fitted(clean(name) + suffix, width - 30, "600 12px"));
      setAttribute(node, "class", `number-box${isObserved ? " has-evidence" : ""}`);
      setAttribute(mark, "d", isObserved ? MARK_SHAPES.observed : null);
      show(node, posterior, prior);
    },
  };
}

export class NumberPanel extends Panel {
  constructor(store) {
    super(store, "Numbers", { isOpen: true, name: "numbers" });
    this.rows = new Map();
    store.on("network", () => {
      this.rows.clear();
      this.root.hidden = !store.network.numbers.length;
      this.body.replaceChildren(...store.network.numbers.map((number) => this.row(number)));
    });
  }

  row({ name }) {
    const text = el("span", { class: "figure" });
    const { curve, thin, show } = curvesOf(name, text, WIDE, HIGH);
    const input = el("input", { type: "text", inputmode: "decimal", size: 8, placeholder: "value", "aria-label": `Value of ${clean(name)}`, title: "A value such as 1.5, or an interval such as 1..2; empty: not observed", onchange: () => this.enter(name, input) });
    const svg = svgEl("svg", { width: WIDE, height: HIGH + 4, role: "img" }, thin, curve);
    this.rows.set(name, { input, show: (posterior, prior) => show(svg, posterior, prior) });
    return el("div", { class: "number-row" }, el("b", { class: "cut" }, el("bdi", {}, clean(name))), svg, text, input);
  }

  enter(name, input) {
    const value = valueOf(input.value);
    input.setCustomValidity(value === undefined ? "Expected a number, or an interval such as 1..2" : "");
    if (value === undefined) input.reportValidity();
    else this.store.setValue(name, value);
  }

  focus(name) {
    this.root.open = true;
    this.rows.get(name)?.input.focus();
  }

  key() {
    return this.store.network.numbers.length ? JSON.stringify(this.store.asked) : null;
  }

  say() {}

  show() {
    for (const { name, prior } of this.store.network.numbers) {
      const { input, show } = this.rows.get(name);
      show(this.store.numberOf(name), prior);
      const value = this.store.valueOf(name);
      if (document.activeElement !== input) input.value = valueText(value);
    }
  }
}
