// Export: link, picture, posteriors, and the query as code.

import { asCommand, asCurl, asPython } from "./code.js";
import { writeCsv } from "./csv.js";
import { button, Dialog, dialogButtons, el, select } from "./dom.js";
import { encodeLink } from "./link.js";
import { reportHtml } from "./report.js";
import { fileStem, mapSvg, saveFile, saveJson, saveText, svgToPng } from "./save.js";

export class ShareDialog extends Dialog {
  constructor(store, map, canLink) {
    super("share", "Export");
    Object.assign(this, { store, map, canLink });
  }

  open() {
    const { store } = this;
    const { network } = store;
    const part = (title, text) => (text ? [el("h3", {}, title), el("pre", { tabindex: 0 }, text), button("Copy", (event) => this.copy(text, event.target))] : []);
    const link = this.canLink ? `${window.location.href.split("#")[0]}#${encodeLink(network, store)}` : null;
    this.status = el("p", { role: "status", class: "muted" });
    this.dialog.replaceChildren(
      el("h2", {}, "Export"),
      ...part("Link to this evidence", link),
      el("h3", {}, "Files"),
      el("div", { class: "card-tools" }, button("Map as SVG", () => this.save("svg")), button("Map as PNG", () => this.save("png")), button("Posteriors as CSV", () => this.save("csv")), button("Posteriors as JSON", () => this.save("json")), button("Report (HTML)", () => this.save("html")), ...this.networkFile()),
      ...(network.slices ? [] : part("Python", asPython(network, store))),
      ...(this.canLink ? part("curl", asCurl(network, store, store.api.address(network.id, network.slices ? "/smooth" : "/posteriors"), store.api.hasToken())) : []),
      ...(network.slices ? [] : part("Command line", asCommand(network, store))),
      this.status,
      dialogButtons(this.closeButton()),
    );
    super.open();
  }

  networkFile() {
    if (!this.formats) return [];
    const format = select("Format of the network", (this.store.network.formats ?? this.formats).map((name) => [name, `.${name}`]));
    return [el("span", {}, button("Network as", () => this.save("network", format.value)), " ", format)];
  }

  async copy(text, node) {
    try {
      await navigator.clipboard.writeText(text);
      node.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(node.previousSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      node.textContent = "Selected: press Ctrl+C";
    }
  }

  async save(kind, format = kind) {
    const { store } = this;
    const { network, answer } = store;
    const name = fileStem(network);
    try {
      if (kind === "network") saveFile(await (await store.api.saved(network.id, format)).blob(), `${name}.${format}`);
      else if (kind === "html") saveText(await reportHtml(store, this.map, this.canLink ? window.location.href : ""), "text/html", `${name}.html`);
      else if (kind === "svg") saveText(mapSvg(this.map, network.title).text, "image/svg+xml", `${name}.svg`);
      else if (kind === "png") saveFile(await svgToPng(mapSvg(this.map, network.title)), `${name}.png`);
      else if (kind === "csv") {
        const rows = network.names.flatMap((variable, v) => network.states[v].map((state, i) => [variable, state, answer.posteriors[v][i], network.prior[v][i]]));
        saveText(writeCsv([["variable", "state", "posterior", "prior"], ...rows]), "text/csv", `${name}.csv`);
      } else {
        const posteriors = Object.fromEntries(network.names.map((variable, v) => [variable, answer.posteriors[v]]));
        const states = Object.fromEntries(network.names.map((variable, v) => [variable, network.states[v]]));
        const data = { network: network.id, ...store.body, log_evidence: answer.logEvidence, states, posteriors };
        saveJson(data, `${name}.json`);
      }
      this.status.textContent = `Saved ${name}.${format}${/^(uai|fg)$/.test(format) ? ", which has no names" : ""}`;
    } catch (error) {
      this.status.textContent = `Not saved: ${error.message}`;
    }
  }
}
