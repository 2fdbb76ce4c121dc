// Networks over time: the slice that is shown, and the course of the target.

import { el, setAttribute, setText, svgEl } from "./dom.js";
import { cut, percent } from "./format.js";
import { Panel } from "./panels.js";

const [MOST_COURSES, MOST_SLICES] = [4, 10000];
const [X0, X1, Y0, Y1] = [26, 314, 132, 6]; // of the chart

export class TimeBar {
  constructor(store) {
    this.store = store;
    this.range = el("input", { type: "range", min: 0, "aria-label": "Slice", oninput: () => store.setSlice(Number(this.range.value)) });
    this.number = el("output", {});
    this.length = el("input", { type: "number", min: 1, "aria-label": "Number of slices", onchange: () => store.setSlice(store.slice, Math.min(Math.max(Math.round(Number(this.length.value)) || 1, 1), MOST_SLICES)) });
    this.given = el("select", { "aria-label": "Evidence that counts", onchange: () => store.setSlice(store.slice, store.length, this.given.value) }, el("option", { value: "smooth" }, "given all slices"), el("option", { value: "filter" }, "given the slices so far"));
    this.root = el("section", { class: "time-bar", "aria-label": "Time" }, this.number, this.range, el("label", {}, "of ", this.length, (this.last = el("span", { class: "muted" }))), this.given);
    store.on("network findings", () => this.update());
  }

  update() {
    const { network, slice, length, question } = this.store;
    this.root.hidden = !network.slices;
    setAttribute(this.range, "max", length - 1);
    this.number.value = `Slice ${slice}`;
    setText(this.last, ` slices, 0 to ${length - 1}`);
    [this.range.value, this.length.value, this.given.value] = [slice, length, question];
  }
}

export class TimePanel extends Panel {
  constructor(store) {
    super(store, "Over time", { isOpen: true, name: "time" });
    store.on("network", () => (this.root.hidden = !store.network.slices));
  }

  /** The target, or the first variable with a parent in an earlier slice. */
  variable() {
    const { network, target } = this.store;
    return target ?? Math.max(network.slices.earlier.findIndex((parents) => parents.length), 0);
  }

  key() {
    // another network may be shown by now: this is asked before the panel hides
    return this.store.network.slices ? JSON.stringify([this.store.asked, this.variable()]) : null;
  }

  async ask(signal) {
    const { api, network, question } = this.store;
    const body = { ...this.store.body, targets: [network.names[this.variable()]] };
    const value = JSON.stringify([body, question]);
    if (this.kept?.value !== value) this.kept = { value, found: await api.ask(network.id, question, body, signal) };
    return Object.values(this.kept.found.posteriors)[0];
  }

  show(course) {
    const { network, slice } = this.store;
    const v = this.variable();
    const mean = (s) => course.reduce((sum, row) => sum + row[s], 0);
    const shown = network.states[v].map((_, s) => s).sort((a, b) => mean(b) - mean(a) || a - b).slice(0, MOST_COURSES).sort((a, b) => a - b);
    const keys = shown.map((s, i) => el("li", { class: `line-${i}` }, `${cut(network.stateTexts[v][s], 30)} `, el("b", {}, `${percent(course[slice][s])} %`)));
    this.body.replaceChildren(el("p", {}, `P(${cut(network.texts[v], 40)}) in slice ${slice}`), el("ul", { class: "legend" }, ...keys), this.chart(v, course, shown));
  }

  chart(v, course, shown) {
    const { store } = this;
    const last = Math.max(course.length - 1, 1);
    const x = (t) => X0 + ((X1 - X0) * t) / last;
    const y = (p) => Y0 + (Y1 - Y0) * p;
    const text = (left, top, label) => svgEl("text", { x: left, y: top, "text-anchor": "end" }, String(label));
    const grid = svgEl("path", { class: "grid", d: [0, 0.5, 1].map((p) => `M${X0} ${y(p)}H${X1}`).join("") });
    const now = svgEl("path", { class: "now", d: `M${x(store.slice)} ${Y1}V${Y0}` });
    const lines = shown.map((s, i) => svgEl("polyline", { class: `line-${i}`, points: course.map((row, t) => `${x(t).toFixed(1)},${y(row[s]).toFixed(1)}`).join(" ") }));
    const seen = Object.entries(store.history.value).map(([t, findings]) => svgEl("circle", { cx: x(t), cy: Y0, r: findings[v] ? 4 : 2 }));
    const go = (event) => {
      const { left, width } = chart.getBoundingClientRect();
      store.setSlice(Math.round((last * (((event.clientX - left) / width) * (X1 + 6) - X0)) / (X1 - X0)));
    };
    const chart = svgEl("svg", { class: "course", viewBox: `0 0 ${X1 + 6} ${Y0 + 18}`, role: "img", "aria-label": `P(${store.network.texts[v]}) in each slice`, onclick: go }, grid, now, ...lines, ...seen, text(X0 - 4, Y1 + 4, 1), text(X0 - 4, Y0 + 4, 0), text(X0 + 4, Y0 + 14, 0), text((X0 + X1) / 2 + 14, Y0 + 14, "slice"), text(X1, Y0 + 14, last));
    return chart;
  }
}
