// A large network as dots below the map: where the map is, and what changed.

import { el, setAttribute, svgEl } from "./dom.js";
import { MOST_WHOLE } from "./focus.js";
import { totalVariation } from "./measures.js";

const [ACROSS, DOWN] = [1000, 180];
const LEVELS = [["changed-much", 0.2], ["changed", 0.02]]; // total variation
const CLASSES = ["plain", "changed", "changed-much", "shown", "evidence"];

export class Overview {
  constructor(store, mapNodes) {
    this.store = store;
    this.mapNodes = mapNodes;
    this.paths = Object.fromEntries(CLASSES.map((name) => [name, svgEl("path", { class: `dots ${name}` })]));
    this.svg = svgEl(
      "svg",
      { class: "overview", viewBox: `0 0 ${ACROSS} ${DOWN}`, preserveAspectRatio: "none", role: "img", "aria-label": "Overview of the whole network; the list has the same variables", onclick: (event) => this.click(event) },
      ...Object.values(this.paths),
    );
    this.root = el("div", { class: "overview-frame", hidden: true }, this.svg);
    store.on("network", () => this.reload());
    store.on("answer findings", () => this.update());
  }

  async reload() {
    const { store } = this;
    const { network } = store;
    this.places = null;
    this.root.hidden = network.size <= MOST_WHOLE;
    if (this.root.hidden) return;
    try {
      const { x, y } = await store.api.overview(network.id);
      if (network !== store.network) return;
      this.places = x.map((at, v) => [at, 6 + (y[v] * (DOWN - 12)) / 1000]);
    } catch {
      this.places = [];
    }
    this.root.hidden = !this.places.length;
    this.update();
  }

  update() {
    const { store } = this;
    if (this.root.hidden || !this.places || !store.answer) return;
    const shown = new Set(this.mapNodes());
    const data = Object.fromEntries(CLASSES.map((name) => [name, []]));
    this.places.forEach(([x, y], v) => {
      const change = totalVariation(store.answer.posteriors[v], store.network.prior[v]);
      const level = LEVELS.find(([, least]) => change >= least);
      const dot = `M${x} ${y.toFixed(1)}h0`;
      if (shown.has(v)) data.shown.push(dot);
      if (store.findings[v]) data.evidence.push(dot);
      else data[level ? level[0] : "plain"].push(dot);
    });
    for (const name of CLASSES) setAttribute(this.paths[name], "d", data[name].join("") || null);
  }

  click(event) {
    if (!this.places?.length) return;
    const box = this.svg.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    const ratio = box.height / box.width;
    let best = 0;
    let distance = Infinity;
    this.places.forEach(([a, b], v) => {
      const d = (a / ACROSS - x) ** 2 + ((b / DOWN - y) * ratio) ** 2;
      if (d < distance) [best, distance] = [v, d];
    });
    this.store.pick(best);
  }
}
