// Numbers: a curve of the density, the prior as a thin curve, and a field for a value.

import { el, setAttribute, setText, svgEl } from "./dom.js";
import { valueOf, valueText } from "./findings.js";
import { clean, significant } from "./format.js";
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

export const numberText = ({ mean, sd }) => (sd ? `${significant(mean, 4)} \u00b1 ${significant(sd, 3)}` : `= ${significant(mean, 6)}`);

/** The box of a number on the map, and a function that shows a posterior in it. */
export function numberBox(name, prior, [x, y, width, height], onclick) {
  const [curve, thin, text] = [svgEl("path", { class: "curve" }), svgEl("path", { class: "curve prior" }), svgEl("text", { x: 8, y: height - 6 })];
  const node = svgEl(
    "g",
    { class: "number-box", role: "img", "data-name": name, transform: `translate(${x},${y})` },
    svgEl("rect", { class: "frame", width, height, rx: 18 }),
    svgEl("text", { class: "title", x: 10, y: 18 }, fitted(clean(name), width - 20, "600 12px")),
    svgEl("g", { transform: "translate(10,26)" }, thin, curve),
    text,
  );
  node.addEventListener("click", () => node.closest(".editing") || onclick());
  return { node, show: (posterior) => showCurves(node, curve, thin, text, name, [posterior, prior], width - 20, height - 46) };
}

function showCurves(node, curve, thin, text, name, both, width, height) {
  const [now, before] = curvePaths(both, width, height);
  setAttribute(curve, "d", now);
  setAttribute(thin, "d", before);
  setText(text, numberText(both[0]));
  setAttribute(node, "aria-label", `${clean(name)}: ${numberText(both[0])}`);
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

  row({ name, prior }) {
    const [curve, thin, text] = [svgEl("path", { class: "curve" }), svgEl("path", { class: "curve prior" }), el("span", { class: "figure" })];
    const input = el("input", { type: "text", inputmode: "decimal", size: 8, placeholder: "value", "aria-label": `Value of ${clean(name)}`, title: "A value such as 1.5, or an interval such as 1..2; empty: not observed", onchange: () => this.enter(name, input) });
    const svg = svgEl("svg", { width: WIDE, height: HIGH + 4, role: "img" }, thin, curve);
    this.rows.set(name, { input, show: (posterior) => showCurves(svg, curve, thin, text, name, [posterior, prior], WIDE, HIGH) });
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
    const { network, answer } = this.store;
    for (const { name, prior } of network.numbers) {
      const { input, show } = this.rows.get(name);
      show([answer.numbers?.[name] ?? prior].flat()[0]);
      const value = network.values[this.store.keyOf(name)];
      if (document.activeElement !== input) input.value = valueText(value);
    }
  }
}
