// Tables of cases: first rows of a file, and all of it as CSV or Parquet.

import { button, el, muted, setText } from "./dom.js";
import { bodyOf } from "./findings.js";
import { count, cut, percent, whole } from "./format.js";
import { mode } from "./measures.js";
import { Panel, panelTable, td, tr } from "./panels.js";
import { saveFile } from "./save.js";

const PREVIEW_ROWS = 20;
const HEAD_BYTES = 512 * 1024;
const MOST_COLUMNS = 8; // in the preview
const TYPES = { csv: "text/csv", tsv: "text/csv", txt: "text/csv", parquet: "application/vnd.apache.parquet", pq: "application/vnd.apache.parquet" };
const POLL = 400; // ms between two looks at a job

export class TablePanel extends Panel {
  constructor(store, actions) {
    super(store, "Table of cases (CSV, Parquet)", { name: "tables" });
    this.actions = actions;
    this.file = null;
    this.input = el("input", { type: "file", accept: ".csv,.tsv,.txt,.parquet,.pq,.arrow,.feather,.ipc", class: "visually-hidden", id: "jtgpu-file", onchange: () => this.input.files.length && this.take(this.input.files[0]) });
    this.zone = el("label", { class: "drop", for: "jtgpu-file" }, "Drop a CSV or Parquet file here, or ", el("span", { class: "link" }, "choose one"));
    this.result = el("div", { class: "table-result" });
    this.body.replaceChildren(this.zone, this.input, this.result);
    store.on("network", () => {
      this.root.hidden = store.network.numbers.length > 0 || store.network.slices !== null;
      this.clear();
    });
  }

  key() {
    return "static";
  }

  say(text) {
    this.result.replaceChildren(muted(text));
  }

  clear() {
    this.file = null;
    this.input.value = "";
    this.result.replaceChildren();
  }

  async take(file) {
    this.file = file;
    this.root.open = true;
    this.suffix = file.name.replace(/\.gz$/i, "").split(".").at(-1).toLowerCase();
    const type = TYPES[this.suffix] || "application/octet-stream";
    this.say(`Reading ${cut(file.name, 60)} \u2026`);
    this.buttons = el("div", { class: "card-tools" }, button("Download answers (CSV)", () => this.run("csv", type)), button("Parquet", () => this.run("parquet", type)));
    this.progress = muted("", { role: "status" });
    const head = el("p", {}, el("b", {}, cut(file.name, 60)), `, ${whole(Math.ceil(file.size / 1024))} kB`);
    try {
      const preview = type === "text/csv" && !/\.gz$/i.test(file.name) ? await this.preview(file) : [muted("Only CSV files have a preview.")];
      this.result.replaceChildren(head, ...preview, el("p", {}, this.targetText()), this.buttons, this.progress);
      const panels = this.root.parentNode;
      panels.scrollTop += this.root.getBoundingClientRect().top - panels.getBoundingClientRect().top;
    } catch (error) {
      this.result.replaceChildren(head, el("p", { class: "message" }, error.message));
    }
  }

  targetText() {
    const { targets, network } = this.store;
    if (targets.length) return `Answers: ${targets.slice(0, 6).map((v) => network.texts[v]).join(", ")}${targets.length > 6 ? ", \u2026" : ""}, ln P(e)`;
    return "Mark targets to choose the answers; without them, all variables that are not in the file are answered.";
  }

  async preview(file) {
    const { store } = this;
    const { network, api } = store;
    const text = await file.slice(0, HEAD_BYTES).text();
    const { columns, rows } = await api.columns(network.id, text);
    const matched = columns.map((column, i) => ({ ...column, i })).filter((column) => column.variable !== null && column.variable !== undefined);
    const parts = [el("p", {}, `${count(matched.length, "column")} of ${columns.length} are variables.`)];
    const unknown = columns.filter((column) => column.variable === null || column.variable === undefined);
    if (unknown.length) {
      const texts = unknown.slice(0, 8).map(({ name, closest }) => el("li", {}, el("bdi", {}, cut(name, 50)), closest?.length ? `: did you mean ${closest.slice(0, 2).join(" or ")}?` : ""));
      parts.push(el("details", {}, el("summary", {}, `${count(unknown.length, "column")} left out`), el("ul", {}, ...texts)));
    }
    if (matched.length) parts.push(...(await this.answers(matched, rows.slice(0, PREVIEW_ROWS))));
    return parts;
  }

  /** The first rows with their answers; a click on one makes it the evidence. */
  async answers(matched, rows) {
    const { store } = this;
    const { network, api } = store;
    const cases = rows.map((row) => this.findingsOf(matched, row));
    const target = store.target ?? network.names.findIndex((_, v) => !matched.some((column) => column.variable === v));
    const isAnswered = target >= 0;
    const body = { cases: cases.map(({ findings }) => bodyOf(network, findings)), targets: isAnswered ? [network.names[target]] : null };
    const { results } = await api.ask(network.id, "posteriors", body);
    const shown = matched.slice(0, MOST_COLUMNS);
    const lines = rows.map((row, i) => {
      const { posteriors, error } = results[i];
      const p = isAnswered && posteriors ? posteriors[network.names[target]] : null;
      const note = cases[i].problem || error?.title || "";
      const answer = p && !note ? `${network.stateTexts[target][mode(p)]} ${percent(p[mode(p)])} %` : note;
      const show = () => {
        store.setFindings(cases[i].findings);
        if (store.picked === null && isAnswered) store.pick(target);
      };
      return tr(td(null, button(String(i + 1), show, { class: "link", "aria-label": `Row ${i + 1}: make it the evidence`, disabled: Boolean(note) })), ...shown.map((column) => td("text", cut(row[column.i] ?? "", 16))), td("text answer", answer));
    });
    const heads = ["row", ...shown.map((column) => cut(column.name, 18)), isAnswered ? network.texts[target] : "answer"];
    return [el("div", { class: "scroll" }, panelTable(heads, lines)), muted(`The first ${count(rows.length, "row")}. Click a number to see the row on the map.`)];
  }

  findingsOf(matched, row) {
    const findings = {};
    let problem = "";
    for (const { variable, i, name } of matched) {
      const text = (row[i] ?? "").trim();
      if (text === "" || ["?", "NA", "NaN", "nan", "null"].includes(text)) continue;
      const { network } = this.store;
      const readings = [row[i], text, /^\d+$/.test(text) ? Number(text) : text];
      const state = readings.map((key) => network.stateNumber(variable, key)).find((s) => s >= 0) ?? -1;
      if (state < 0) problem = `${cut(name, 20)}: no state ${cut(text, 20)}`;
      else findings[variable] = { kind: "observed", states: [state] };
    }
    return { findings, problem };
  }

  async run(format, type) {
    const { store } = this;
    const { network, api, targets } = store;
    const query = new URLSearchParams({ format, log_evidence: "1", on_error: "flag" });
    for (const v of targets) query.append("targets", network.names[v]);
    setText(this.progress, "Uploading \u2026");
    for (const node of this.buttons.children) node.disabled = true;
    const started = performance.now();
    try {
      let response = await api.table(network.id, query, this.file, type);
      if (response.status === 202) response = await this.wait((await response.json()).url);
      const file = await response.blob();
      saveFile(file, `${this.file.name.replace(/\.[^.]*$/, "")}-answers.${format}`);
      const report = response.headers?.get("X-Jtgpu-Report");
      setText(this.progress, `${this.reportText(report ? JSON.parse(report) : this.report)} in ${((performance.now() - started) / 1000).toFixed(1)} s`);
    } catch (error) {
      setText(this.progress, error.message);
    }
    for (const node of this.buttons.children) node.disabled = false;
  }

  reportText(report) {
    if (!report) return "Done";
    return `${count(report.cases ?? 0, "case")} answered${report.flagged ? `, ${whole(report.flagged)} of them flagged` : ""}`;
  }

  async wait(url) {
    for (;;) {
      const job = await this.store.api.job(url);
      if (job.state === "done") {
        this.report = job.report;
        return this.store.api.file(job.url);
      }
      if (job.state === "failed" || job.state === "cancelled") throw new Error(job.error?.detail || `The table was ${job.state}.`);
      const share = job.total ? ` (${Math.round((100 * (job.read || 0)) / job.total)} %)` : "";
      setText(this.progress, `${count(job.done || 0, "row")} answered${share} \u2026`);
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
  }
}
