// The dialog that edits a node: name, states, parents, numbers; and the network that is edited. The server checks it.

import { button, el, setText } from "./dom.js";
import { count } from "./format.js";
import { Grid } from "./grid.js";
import { addVariable, axesOf, canBeNoisy, complete, configuration, find, kindsFor, lagOf, nameOf, normalised, removeVariable, renameVariable, rowsOf, sent, setParents, setStates, setTables, tableSize, whyNoArc, withoutStrengths, withStrengths } from "./model.js";

const MOST_ENTRIES = 3000; // numbers of a table that the dialog shows
const MOST_TABLE = 1 << 16; // numbers of a CPT that is made of strengths
const MARK = / \(edited [0-9a-f]{4}\)$/;
export const KIND_NAMES = { chance: "Variable", decision: "Decision", utility: "Utility", number: "Number" };
const parentText = (p) => (lagOf(p) ? `${nameOf(p)}, ${count(lagOf(p), "slice")} back` : p);

/** The network that is edited, and those before each edit of this page. */
export class EditSession {
  /** @param onEdited called with the name of the network that the server has now */
  constructor(store, onEdited) {
    Object.assign(this, { store, onEdited, past: [], placed: new Set() });
  }

  /** The network that the page shows, with its numbers. */
  async model() {
    const { api, network } = this.store;
    const key = `${network.id}/${network.digest}`;
    if (this.key !== key) {
      const found = complete(await api.model(network.id));
      [this.key, this.current] = [key, { ...found, isPlaced: this.placed.has(network.id) }];
    }
    return this.current;
  }

  /** Serve a changed network in place of the one that the page shows. */
  async send(model, isUndo = false) {
    const { api, network } = this.store;
    const before = await this.model();
    const id = MARK.test(network.id) ? network.id : `${network.id} (edited ${Math.floor(Math.random() * 65536).toString(16).padStart(4, "0")})`;
    await api.put(id, JSON.stringify(sent(model)), "application/json");
    if (isUndo) this.past.pop();
    else this.past.push(before);
    if (model.isPlaced) this.placed.add(id);
    else this.placed.delete(id);
    await this.onEdited(id);
  }

  undo() {
    return this.past.length ? this.send(this.past.at(-1), true) : null;
  }
}

export class EditDialog {
  constructor(session) {
    this.session = session;
    this.store = session.store;
    this.dialog = el("dialog", { class: "dialog edit", "aria-label": "Edit the network", onclose: () => this.dialog.replaceChildren() });
    this.root = this.dialog;
  }

  /** Show a node; of another network than that of the page, one with changes that are not applied yet. */
  async open(name = null, changed = null) {
    const { network, picked } = this.store;
    try {
      this.model = changed ?? (await this.session.model());
    } catch (error) {
      this.model = null;
      this.dialog.replaceChildren(el("p", { class: "message" }, error.message), this.buttons());
      this.dialog.showModal();
      return;
    }
    this.name = name ?? network.names[picked ?? 0] ?? this.model.variables[0]?.name ?? "";
    this.draw();
    this.dialog.showModal();
    if (changed) this.focus("Name");
  }

  get variable() {
    return find(this.model, this.name);
  }

  focus(label) {
    const field = this.dialog.querySelector(`[aria-label="${label}"]`);
    field?.focus();
    if (label === "Name") field.select();
  }

  /** Draw another model or node; `label`: of the field that has the keyboard then. */
  change(model, name, label) {
    [this.model, this.name] = [model, name];
    this.draw();
    this.focus(label);
  }

  draw() {
    const { model, variable } = this;
    this.choice = el("select", { "aria-label": "Variable", onchange: (event) => this.change(this.model, event.target.value, "Variable") }, ...model.variables.map((v) => el("option", { value: v.name, selected: v.name === this.name }, v.kind === "chance" ? v.name : `${v.name} (${v.kind})`)));
    const fresh = (kind) => this.change(...addVariable(this.model, kind), "Name");
    const gone = () => this.change(removeVariable(this.model, this.name), this.model.variables.find((v) => v.name !== this.name)?.name ?? "", "Variable");
    this.message = el("p", { class: "message", role: "alert" });
    this.dialog.replaceChildren(
      el("h2", {}, "Edit the network"),
      el("div", { class: "card-tools" }, this.choice, ...kindsFor(model).map((kind) => button(`New ${KIND_NAMES[kind].toLowerCase()}`, () => fresh(kind))), button(`Remove ${KIND_NAMES[variable?.kind ?? "chance"].toLowerCase()}`, gone, { disabled: model.variables.length < 2 })),
      ...(variable ? [this.fields(), (this.tableNode = this.table())] : []),
      this.message,
      this.buttons(),
    );
  }

  buttons() {
    const send = (model, isUndo) => this.send(() => this.session.send(model, isUndo));
    return el(
      "div",
      { class: "dialog-buttons" },
      this.model && this.session.past.length ? button("Undo the last edit", () => send(this.session.past.at(-1), true)) : null,
      this.model ? button("Apply", () => send(this.model, false), { class: "primary" }) : null,
      button("Cancel", () => this.dialog.close()),
    );
  }

  fields() {
    const { model, variable } = this;
    const name = el("input", { type: "text", value: variable.name, "aria-label": "Name", onchange: () => this.rename(name) });
    const what = variable.kind === "decision" ? "Options" : "States";
    const states = el("textarea", { rows: Math.min(Math.max(variable.states.length, 2), 6), "aria-label": `${what}, one a line`, onchange: (event) => this.restate(event.target.value.split("\n").map((s) => s.trim()).filter(Boolean)) }, variable.states.join("\n"));
    const setTo = (parents) => this.change(setParents(this.model, this.name, parents), this.name, "Add a parent");
    const parents = variable.parents.map((p) => el("span", { class: "chip" }, parentText(p), button("\u00d7", () => setTo(variable.parents.filter((q) => q !== p)), { "aria-label": `Remove the arc from ${parentText(p)}` })));
    const names = model.variables.map((v) => v.name);
    const possible = [...names, ...(model.slices ? names.map((p) => `${p}\0${1}`) : [])];
    const others = possible.filter((p) => !variable.parents.includes(p) && !whyNoArc(model, p, this.name));
    const more = el("select", { "aria-label": "Add a parent", onchange: (event) => event.target.value && setTo([...variable.parents, others[event.target.selectedIndex - 1]]) }, el("option", { value: "" }, "add a parent \u2026"), ...others.map((p) => el("option", { value: p }, parentText(p))));
    return el("div", { class: "edit-fields" }, el("label", {}, "Name", name), variable.states.length ? el("label", {}, what, states) : null, el("div", { class: "edit-parents" }, el("span", {}, variable.kind === "decision" ? "Known when deciding" : "Parents"), el("div", {}, ...parents, more)));
  }

  // A field that is left keeps what the keyboard or the mouse goes to next: only what shows the change is drawn again.

  rename(field) {
    const name = field.value.trim();
    const isTaken = name !== this.name && Boolean(find(this.model, name));
    setText(this.message, isTaken ? `There is a variable ${name}.` : "");
    if (isTaken) return;
    field.value = name || this.name;
    if (!name) return;
    const option = this.choice.selectedOptions[0];
    option.value = name;
    setText(option, name);
    this.model = renameVariable(this.model, this.name, name);
    this.name = name;
  }

  restate(states) {
    const isBad = !states.length || new Set(states).size < states.length;
    setText(this.message, isBad ? "States must have different names, one a line." : "");
    if (isBad) return;
    this.model = setStates(this.model, this.name, states);
    setTimeout(() => this.drawTable()); // when the next field has the keyboard
  }

  drawTable() {
    if (!this.dialog.open || !this.tableNode) return;
    const inputs = () => [...this.tableNode.querySelectorAll("input")];
    const at = inputs().indexOf(this.dialog.getRootNode().activeElement);
    const drawn = this.table();
    this.tableNode.replaceWith(drawn);
    this.tableNode = drawn;
    if (at >= 0) inputs()[Math.min(at, inputs().length - 1)]?.focus();
  }

  /** Which numbers the grid shows, and how it stores them. */
  shown() {
    const { model, variable: v } = this;
    const store = (tables) => (this.model = setTables(this.model, this.name, tables));
    const axes = axesOf(model, v);
    const rowsAt = (parents, n) => Array.from({ length: n }, (_, i) => configuration(model, parents, i));
    const label = (i, k) => `P(${v.states[k]}), row ${i + 1}`;
    if (v.noisy.length) {
      const rows = v.parents.flatMap((p) => find(model, p).states.map((s) => [p, s]));
      return { heads: ["cause", "its state"], columns: v.states, rows: [...rows, ["leak", ""]], values: v.noisy, sums: true, label, onChange: (noisy) => store({ noisy }) };
    }
    const t = v.start.length && this.first !== "later" ? Number(this.first ?? 0) : -1;
    if (v.kind === "number") {
      const [means, terms, sd] = t < 0 ? [v.cpt, v.coefficients, v.sd] : [v.start[t], v.startCoefficients[t], v.startSd[t]];
      const numeric = Object.keys(terms);
      const columns = ["mean", ...numeric.map((p) => `\u00d7 ${parentText(p)}`), "sd"];
      const values = means.map((mean, i) => [mean, ...numeric.map((p) => terms[p][i]), sd[i]]);
      const column = (all, k) => all.map((row) => row[k]);
      const at = (list, x) => list.map((old, s) => (s === t ? x : old));
      const onChange = (all) => {
        const coefficients = Object.fromEntries(numeric.map((p, k) => [p, column(all, k + 1)]));
        const [cpt, sds] = [column(all, 0), column(all, columns.length - 1)];
        store(t < 0 ? { cpt, sd: sds, coefficients } : { start: at(v.start, cpt), startSd: at(v.startSd, sds), startCoefficients: at(v.startCoefficients, coefficients) });
      };
      return { heads: axes, columns, rows: rowsAt(axes, values.length), values, sums: false, hasBars: false, label: (i, k) => `${columns[k]}, row ${i + 1}`, onChange };
    }
    if (v.kind === "utility") return { heads: axes, columns: ["utility"], rows: rowsAt(axes, v.cpt.length), values: v.cpt.map((x) => [x]), sums: false, label: (i) => `Utility, row ${i + 1}`, onChange: (all) => store({ cpt: all.flat() }) };
    const [parents, table] = t < 0 ? [axes, v.cpt] : [axes.filter((p) => lagOf(p) <= t), v.start[t]];
    const onChange = (all) => store(t < 0 ? { cpt: all.flat() } : { start: v.start.map((given, s) => (s === t ? all.flat() : given)) });
    const values = rowsOf(v, table);
    return { heads: parents.map(parentText), columns: v.states, rows: rowsAt(parents, values.length), values, sums: true, label, onChange };
  }

  table() {
    const { model, variable: v } = this;
    if (v.kind === "decision") return el("p", { class: "muted" }, "A decision has no probabilities: the best policy is computed from what is known and from the utilities.");
    const parts = this.shown();
    const n = parts.values.length * parts.columns.length;
    const redraw = (changed) => {
      if (changed) this.model = changed;
      this.drawTable();
    };
    const asked = {
      strengths: "Numbers: P(effect) if only this cause acts, and the leak if none does.",
      number: "Given the states in a row: mean + the sum of coefficient \u00d7 parent, and the standard deviation around it.",
      utility: "Utilities are in any unit; a decision maximises the expectation of their total.",
      chance: "Each row is divided by its sum. Arrow keys move; cells of a spreadsheet can be pasted.",
    }[v.noisy.length ? "strengths" : v.kind];
    const form = v.noisy.length || canBeNoisy(model, v) ? el("select", { "aria-label": "Form of the numbers", onchange: (event) => redraw((event.target.value === "noisy" ? withStrengths : withoutStrengths)(this.model, this.name)) }, el("option", { value: "table", disabled: tableSize(model, v) > MOST_TABLE }, "table"), el("option", { value: "noisy", selected: v.noisy.length > 0 }, v.states.length > 2 ? "noisy-MAX" : "noisy-OR")) : null;
    const first = v.start.length ? el("select", { "aria-label": "Slices", onchange: (event) => redraw((this.first = event.target.value) && null) }, ...v.start.map((_, t) => el("option", { value: t, selected: String(t) === this.first }, `slice ${t}`)), el("option", { value: "later", selected: this.first === "later" }, "later slices")) : null;
    if (n > MOST_ENTRIES) return el("div", {}, form, el("p", { class: "muted" }, `The CPT has ${count(n, "number")}, too many to show here.`));
    this.grid = new Grid(parts);
    const tools = parts.sums ? [button("Normalise", () => this.grid.map(normalised), { title: "Divide each row by its sum" }), button("Uniform", () => this.grid.map((row) => row.map(() => 1 / row.length)))] : [];
    return el("div", {}, el("div", { class: "card-tools" }, form, first, ...tools, el("span", { class: "muted small" }, asked)), this.grid.node);
  }

  async send(work) {
    if (this.grid?.node.isConnected && this.grid.isWrong) {
      setText(this.message, this.grid.sums ? "Every cell needs a number that is 0 or more." : "Every cell needs a number.");
      this.dialog.querySelector("[aria-invalid]")?.focus();
      return;
    }
    this.dialog.setAttribute("aria-busy", "true");
    try {
      await work();
      this.dialog.close();
    } catch (error) {
      setText(this.message, error.message);
    } finally {
      this.dialog.removeAttribute("aria-busy");
    }
  }
}
