// The dialog with the conditional probability table of a variable.

import { button, el } from "./dom.js";
import { significant } from "./format.js";

const MOST_LINES = 500;

export class CptViewer {
  constructor(store) {
    this.store = store;
    this.dialog = el("dialog", { class: "dialog cpt", "aria-label": "Conditional probability table", onclose: () => this.dialog.replaceChildren() });
    this.root = this.dialog;
  }

  async open(v, entry = null) {
    const { network, api } = this.store;
    const close = el("div", { class: "dialog-buttons" }, button("Close", () => this.dialog.close()));
    this.dialog.replaceChildren(el("h2", {}, "P(", el("bdi", {}, network.texts[v]), network.parents[v].length ? " | " : "", el("bdi", {}, network.parents[v].map((p) => network.texts[p]).join(", ")), ")"), el("p", { class: "muted" }, "Loading \u2026"), close);
    if (!this.dialog.open) this.dialog.showModal();
    let body;
    try {
      const reply = await api.cpt(network.id, network.names[v]);
      body = reply.strengths && !(entry && reply.probabilities.length) ? this.strengths(v, reply) : this.table(v, reply, entry);
    } catch (error) {
      body = el("p", { class: "message" }, error.message);
    }
    this.dialog.children[1]?.replaceWith(body);
    this.dialog.querySelector(".highlight")?.scrollIntoView({ block: "center", inline: "center" });
  }

  strengths(v, reply) {
    const { network } = this.store;
    const causes = reply.parents.map((name) => network.number.get(name)).flatMap((p) => network.stateTexts[p].map((state) => [network.texts[p], state]));
    const rows = [...causes, ["leak", ""]].slice(-MOST_LINES);
    const values = reply.strengths.slice(-MOST_LINES);
    const heads = ["cause", "its state", ...network.stateTexts[v]].map((text, i) => el("th", { scope: "col", class: i > 1 ? "figure" : null }, el("bdi", {}, text)));
    const lines = rows.map((row, i) => el("tr", {}, ...row.map((text) => el("th", { scope: "row" }, el("bdi", {}, text))), ...values[i].map((p) => {
      const cell = el("td", { class: "figure heat" }, significant(p));
      cell.style.setProperty("--heat", `${Math.round(60 * p)}%`);
      return cell;
    })));
    const size = reply.shape.reduce((n, card) => n * card, 1);
    const whole = reply.probabilities.length ? button("Table", () => body.replaceWith(this.table(v, reply, null))) : null;
    const body = el(
      "div",
      { class: "scroll" },
      el("p", { class: "muted" }, `Strengths, in place of a table of ${size.toLocaleString("en")} entries: the child takes the strongest of its causes' effects`),
      el("table", { class: "panel-table" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...lines)),
      whole,
    );
    return body;
  }

  table(v, { parents, shape, probabilities }, entry) {
    const { network } = this.store;
    const numbers = parents.map((name) => network.number.get(name));
    const columns = shape.at(-1);
    const lines = probabilities.length / columns;
    const wanted = entry ? entry.slice(0, -1).reduce((at, i, k) => at * shape[k] + i, 0) : 0;
    const first = Math.min(Math.max(0, wanted - MOST_LINES / 2), Math.max(0, lines - MOST_LINES));
    const rows = [];
    for (let i = first; i < Math.min(lines, first + MOST_LINES); i += 1) {
      const states = [];
      let rest = i;
      for (let k = numbers.length - 1; k >= 0; k -= 1) {
        states.unshift(el("th", { scope: "row" }, network.stateTexts[numbers[k]][rest % shape[k]]));
        rest = Math.floor(rest / shape[k]);
      }
      const cells = probabilities.slice(i * columns, (i + 1) * columns).map((p, j) => {
        const isWanted = entry && i === wanted && j === entry.at(-1);
        const cell = el("td", { class: `figure heat${isWanted ? " highlight" : ""}` }, significant(p));
        cell.style.setProperty("--heat", `${Math.round(60 * p)}%`);
        return cell;
      });
      rows.push(el("tr", {}, ...states, ...cells));
    }
    const heads = [...numbers.map((p) => network.texts[p]), ...network.stateTexts[v]].map((text, i) => el("th", { scope: "col", class: i >= numbers.length ? "figure" : null }, el("bdi", {}, text)));
    return el(
      "div",
      { class: "scroll" },
      el("table", { class: "panel-table" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)),
      lines > rows.length ? el("p", { class: "muted" }, `Lines ${first + 1} to ${first + rows.length} of ${lines.toLocaleString("en")}`) : null,
    );
  }
}
