// The dialog with the conditional probability table of a variable.

import { button, Dialog, dialogButtons, el, muted } from "./dom.js";
import { significant, whole } from "./format.js";
import { heatCell, panelTable, tableLines, tr } from "./panels.js";

const MOST_LINES = 500;
const bdi = (text) => el("bdi", {}, text);
const stateHead = (text) => el("th", { scope: "row" }, bdi(text));

export class CptViewer extends Dialog {
  constructor(store) {
    super("cpt", "Conditional probability table");
    this.store = store;
  }

  async open(v, entry = null) {
    const { network, api } = this.store;
    this.dialog.replaceChildren(el("h2", {}, "P(", bdi(network.texts[v]), network.parents[v].length ? " | " : "", bdi(network.parents[v].map((p) => network.texts[p]).join(", ")), ")"), muted("Loading \u2026"), dialogButtons(this.closeButton()));
    super.open();
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
    const rows = [...causes, ["leak", ""]].map((row, i) => tr(...row.map(stateHead), ...reply.strengths[i].map((p) => heatCell(significant(p), p))));
    const size = reply.shape.reduce((n, card) => n * card, 1);
    const body = el(
      "div",
      { class: "scroll" },
      muted(`Strengths, in place of a table of ${whole(size)} entries: the child takes the strongest of its causes' effects`),
      panelTable(["cause", "its state", ...network.stateTexts[v]].map(bdi), rows.slice(-MOST_LINES), 2),
      reply.probabilities.length ? button("Table", () => body.replaceWith(this.table(v, reply, null))) : null,
    );
    return body;
  }

  table(v, { parents, shape, probabilities }, entry) {
    const { network } = this.store;
    const numbers = parents.map((name) => network.number.get(name));
    const lines = probabilities.length / shape.at(-1);
    const wanted = entry ? entry.slice(0, -1).reduce((at, i, k) => at * shape[k] + i, 0) : 0;
    const first = Math.min(Math.max(0, wanted - MOST_LINES / 2), Math.max(0, lines - MOST_LINES));
    const isWanted = (j, i) => entry && i === wanted && j === entry.at(-1);
    const head = (states) => states.map((state, k) => stateHead(network.stateTexts[numbers[k]][state]));
    const rows = tableLines(probabilities, shape, first, first + MOST_LINES, head, (p, j, i) => heatCell(significant(p), p, null, isWanted(j, i) ? " highlight" : ""));
    return el(
      "div",
      { class: "scroll" },
      panelTable([...numbers.map((p) => network.texts[p]), ...network.stateTexts[v]].map(bdi), rows, numbers.length),
      lines > rows.length ? muted(`Lines ${first + 1} to ${first + rows.length} of ${whole(lines)}`) : null,
    );
  }
}
