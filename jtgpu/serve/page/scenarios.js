// Up to four named sets of evidence, side by side, with differences to the first.

import { button, el, muted } from "./dom.js";
import { bodyOf, describeFinding, findingList, findingsOf, valueTexts } from "./findings.js";
import { clean, cut, logText, percent, points } from "./format.js";
import { totalVariation } from "./measures.js";
import { numberText } from "./numbers.js";
import { figure, heatCell, Panel, panelTable, tr, variableLink } from "./panels.js";
import { fileStem, saveJson } from "./save.js";

const MOST_VARIABLES = 6; // in the comparison, where no target is marked
const MOST_SCENARIOS = 4;

export class ScenarioPanel extends Panel {
  constructor(store, actions) {
    super(store, "Scenarios side by side", { name: "scenarios" });
    this.actions = actions;
  }

  key() {
    const { scenarios, targets, picked } = this.store;
    return JSON.stringify([scenarios.map(({ title, findings }) => [title, findings, findings.values]), targets, picked, this.store.asked]);
  }

  async ask(signal) {
    const { api, network, scenarios } = this.store;
    if (!scenarios.length) return { results: [] };
    return api.ask(network.id, "posteriors", { cases: scenarios.map(({ findings }) => bodyOf(network, findings)) }, signal);
  }

  show({ results }) {
    const { store } = this;
    const { scenarios, network } = store;
    const posteriors = results.map((result) => (result.posteriors ? network.names.map((name) => result.posteriors[name]) : null));
    const save = button("Save the evidence as a scenario", () => this.save(), { disabled: scenarios.length >= MOST_SCENARIOS });
    const input = el("input", { type: "file", accept: ".json", class: "visually-hidden", tabindex: -1, "aria-label": "Scenario file", onchange: () => input.files.length && this.read(input.files[0]) });
    const parts = [el("div", { class: "card-tools" }, save, button("To a file", () => this.write(), { disabled: !scenarios.length, title: "Save all scenarios as a file" }), button("From a file", () => input.click()), input)];
    if (!scenarios.length) parts.push(muted("Save the present evidence, change it and save it again: both appear side by side."));
    else parts.push(el("div", { class: "scroll scenarios" }, panelTable(null, [this.heads(), this.evidenceRow(), this.logRow(results), ...this.rows(posteriors, results)])));
    this.body.replaceChildren(...parts);
  }

  save() {
    const { scenarios, findings } = this.store;
    const taken = new Set(scenarios.map((s) => s.title));
    const title = [..."ABCDEFGH"].find((letter) => !taken.has(letter));
    this.store.setScenarios([...scenarios, { title, findings }]);
  }

  write() {
    const { network, scenarios } = this.store;
    const data = { network: network.id, scenarios: scenarios.map(({ title, findings }) => ({ title, ...bodyOf(network, findings) })) };
    saveJson(data, `${fileStem(network)}-scenarios.json`);
  }

  async read(file) {
    const { store } = this;
    try {
      const { scenarios } = JSON.parse(await file.text());
      store.setScenarios(scenarios.map(({ title, ...body }, i) => ({ title: String(title ?? i + 1).slice(0, 40), findings: findingsOf(store.network, body) })));
    } catch {
      this.say(`${cut(file.name, 60)} is not a file of scenarios.`);
    }
  }

  heads() {
    const { store } = this;
    const cells = store.scenarios.map((scenario, i) => {
      const replace = (title) => store.setScenarios(store.scenarios.map((s, j) => (i === j ? { ...s, title } : s)));
      const name = el("input", { type: "text", value: scenario.title, class: "scenario-name", maxlength: 40, title: scenario.title, "aria-label": `Name of scenario ${i + 1}`, onchange: (event) => replace(event.target.value || scenario.title) });
      return el(
        "th",
        { scope: "col" },
        name,
        el("span", { class: "scenario-tools" }, button("Show", () => store.setFindings(scenario.findings), { title: "Make it the evidence of the map" }), button("\u00d7", () => store.setScenarios(store.scenarios.filter((_, j) => j !== i)), { "aria-label": `Remove ${scenario.title}` })),
      );
    });
    return tr(el("td"), ...cells);
  }

  evidenceRow() {
    const { network, scenarios } = this.store;
    const cells = scenarios.map(({ findings }) => {
      const texts = findingList(findings).map(([v, finding]) => describeFinding(network, v, finding));
      texts.push(...valueTexts(findings.values));
      return el("td", { class: "text small", title: texts.join("\n") }, texts.length ? texts.slice(0, 5).map((text) => el("div", {}, cut(text, 34))) : "none", texts.length > 5 ? `and ${texts.length - 5} more` : null);
    });
    return tr(el("th", { scope: "row" }, "evidence"), ...cells);
  }

  logRow(results) {
    const cells = results.map((result) => figure(result.error ? result.error.title || "no result" : logText(result.log_evidence - this.store.network.base, 5)));
    return tr(el("th", { scope: "row" }, "ln P(e)"), ...cells);
  }

  rows(posteriors, results) {
    const { network } = this.store;
    const rows = network.numbers.map(({ name }) => tr(el("th", { scope: "row" }, clean(name)), ...results.map(({ numbers }) => figure(numbers ? numberText(numbers[name]) : ""))));
    for (const v of this.variables(posteriors)) {
      rows.push(el("tr", { class: "scenario-variable" }, el("th", { colspan: posteriors.length + 1, scope: "rowgroup" }, variableLink(this.store, this.actions, v))));
      network.stateTexts[v].slice(0, 12).forEach((text, state) => {
        const cells = posteriors.map((found, i) => {
          if (!found) return figure("");
          const p = found[v][state];
          const change = i && posteriors[0] ? points(p - posteriors[0][v][state]) : "";
          return heatCell(`${percent(p)} %`, p, change && change !== "0" ? el("span", { class: "difference" }, ` ${change}`) : null);
        });
        rows.push(tr(el("th", { scope: "row", class: "state-head" }, cut(text, 24)), ...cells));
      });
    }
    return rows;
  }

  /** Targets and the selected variable, or those that differ most. */
  variables(posteriors) {
    const { network, targets, chosen } = this.store;
    if (targets.length) return chosen;
    const [first, ...others] = posteriors;
    if (!first || !others.some(Boolean)) return chosen;
    const differences = network.names.map((_, v) => Math.max(...others.filter(Boolean).map((found) => totalVariation(found[v], first[v]))));
    const ranked = network.names.map((_, v) => v).filter((v) => differences[v] > 0.0005);
    ranked.sort((a, b) => differences[b] - differences[a] || a - b);
    return [...new Set([...chosen, ...ranked.slice(0, MOST_VARIABLES)])];
  }
}
