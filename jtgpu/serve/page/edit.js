// The dialog that edits variables, states, arcs and CPTs; the server checks it.

import { button, el, setText } from "./dom.js";
import { count, significant } from "./format.js";
import { addVariable, configuration, normalised, removeVariable, renameVariable, rowsOf, setParents, setRow, setStates } from "./model.js";

const MOST_ENTRIES = 3000; // numbers of a CPT that the dialog shows
const MARK = / \(edited [0-9a-f]{4}\)$/;

export class EditDialog {
  /** @param onEdited called with the name of the network that the server has now */
  constructor(store, onEdited) {
    this.store = store;
    this.onEdited = onEdited;
    this.past = []; // networks before each edit of this page
    this.dialog = el("dialog", { class: "dialog edit", "aria-label": "Edit the network", onclose: () => this.dialog.replaceChildren() });
    this.root = this.dialog;
  }

  async open() {
    const { api, network, picked } = this.store;
    try {
      this.model = await api.model(network.id);
    } catch (error) {
      this.dialog.replaceChildren(el("p", { class: "message" }, error.message), this.buttons());
      this.dialog.showModal();
      return;
    }
    this.before = this.model;
    this.name = network.names[picked ?? 0] ?? "";
    this.draw();
    this.dialog.showModal();
  }

  get variable() {
    return this.model.variables.find((v) => v.name === this.name);
  }

  /** Draw another model or variable; `label`: of the field that has the keyboard then. */
  change(model, name, label) {
    this.model = model;
    this.name = name;
    this.draw();
    const field = this.dialog.querySelector(`[aria-label="${label}"]`);
    field?.focus();
    if (label === "Name") field.select();
  }

  draw() {
    const { model } = this;
    this.choice = el("select", { "aria-label": "Variable", onchange: (event) => this.change(this.model, event.target.value, "Variable") }, ...model.variables.map((v) => el("option", { value: v.name, selected: v.name === this.name }, v.name)));
    const fresh = () => {
      const taken = new Set(this.model.variables.map((v) => v.name));
      let i = 1;
      while (taken.has(`new_${i}`)) i += 1;
      this.change(addVariable(this.model, `new_${i}`), `new_${i}`, "Name");
    };
    const gone = () => this.change(removeVariable(this.model, this.name), this.model.variables.find((v) => v.name !== this.name)?.name ?? "", "Variable");
    this.message = el("p", { class: "message", role: "alert" });
    this.dialog.replaceChildren(
      el("h2", {}, "Edit the network"),
      el("div", { class: "card-tools" }, this.choice, button("New variable", fresh), button("Remove variable", gone, { disabled: model.variables.length < 2 })),
      ...(this.variable ? [this.fields(), (this.tableNode = this.table())] : []),
      this.message,
      this.buttons(),
    );
  }

  buttons() {
    return el(
      "div",
      { class: "dialog-buttons" },
      this.past.length ? button("Undo the last edit", () => this.send(this.past.at(-1), true)) : null,
      this.model ? button("Apply", () => this.send(this.model, false), { class: "primary" }) : null,
      button("Cancel", () => this.dialog.close()),
    );
  }

  fields() {
    const { model, variable } = this;
    const name = el("input", { type: "text", value: variable.name, "aria-label": "Name", onchange: () => this.rename(name) });
    const states = el("textarea", { rows: Math.min(Math.max(variable.states.length, 2), 6), "aria-label": "States, one a line", onchange: (event) => this.restate(event.target.value.split("\n").map((s) => s.trim()).filter(Boolean)) }, variable.states.join("\n"));
    const setTo = (parents) => this.change(setParents(this.model, this.name, parents), this.name, "Add a parent");
    const parents = variable.parents.map((p) => el("span", { class: "chip" }, p, button("\u00d7", () => setTo(variable.parents.filter((q) => q !== p)), { "aria-label": `Remove the arc from ${p}` })));
    const below = this.descendants();
    const others = model.variables.map((v) => v.name).filter((p) => !below.has(p) && !variable.parents.includes(p));
    const more = el("select", { "aria-label": "Add a parent", onchange: (event) => event.target.value && setTo([...variable.parents, event.target.value]) }, el("option", { value: "" }, "add a parent \u2026"), ...others.map((p) => el("option", { value: p }, p)));
    return el("div", { class: "edit-fields" }, el("label", {}, "Name ", name), el("label", {}, "States ", states), el("div", {}, "Parents ", ...parents, more));
  }

  // A field that is left keeps what the keyboard or the mouse goes to next: only what shows the change is drawn again.

  rename(field) {
    const name = field.value.trim();
    const isTaken = name !== this.name && this.model.variables.some((v) => v.name === name);
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

  /** The variable and all that are below it: an arc from them would close a cycle. */
  descendants() {
    const found = new Set([this.name]);
    for (const name of found) for (const v of this.model.variables) if (v.parents.includes(name)) found.add(v.name);
    return found;
  }

  table() {
    const { model, variable } = this;
    if (variable.cpt.length > MOST_ENTRIES) return el("p", { class: "muted" }, `The CPT has ${count(variable.cpt.length, "number")}, too many to show here.`);
    const rows = rowsOf(variable).map((row, i) => {
      const inputs = row.map((p, k) => el("input", { type: "number", min: 0, step: "any", value: String(Number(p.toPrecision(6))), "aria-label": `P(${variable.states[k]}), row ${i + 1}` }));
      const set = () => {
        const values = inputs.map((input) => Number(input.value || NaN));
        if (values.every((x) => Number.isFinite(x) && x >= 0)) this.model = setRow(this.model, this.name, i, values);
        setText(sum, significant(values.reduce((a, b) => a + b, 0), 6));
      };
      const sum = el("td", { class: "figure muted" }, significant(row.reduce((a, b) => a + b, 0), 6));
      for (const input of inputs) input.addEventListener("input", set);
      return el("tr", {}, ...configuration(model, variable, i).map((text) => el("th", { scope: "row" }, text)), ...inputs.map((input) => el("td", {}, input)), sum);
    });
    const heads = [...variable.parents, ...variable.states, "sum"].map((text) => el("th", { scope: "col" }, el("bdi", {}, text)));
    return el("div", { class: "scroll" }, el("p", { class: "muted" }, "Each row is divided by its sum."), el("table", { class: "panel-table edit-table" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)));
  }

  async send(model, isUndo) {
    const { api, network } = this.store;
    const variables = model.variables.map((v) => ({ ...v, cpt: rowsOf(v).flatMap(normalised) }));
    const id = MARK.test(network.id) ? network.id : `${network.id} (edited ${Math.floor(Math.random() * 65536).toString(16).padStart(4, "0")})`;
    try {
      await api.put(id, JSON.stringify({ ...model, variables }), "application/json");
    } catch (error) {
      setText(this.message, error.message);
      return;
    }
    if (isUndo) this.past.pop();
    else this.past.push(this.before);
    this.dialog.close();
    this.onEdited(id);
  }
}
