// The dialog that edits a node: name, states, parents, numbers; and the network that is edited. The server checks it.

import { button, Dialog, dialogButtons, el, muted, select, setText } from "./dom.js";
import { count } from "./format.js";
import { Grid } from "./grid.js";
import { addVariable, axesOf, canBeNoisy, complete, configuration, find, kindsFor, lagOf, nameOf, normalised, renameVariable, rowsOf, scoped, sent, setParents, setScope, setStates, setTables, tableSize, whyNoArc, withoutStrengths, withStrengths } from "./model.js";

const MOST_ENTRIES = 3000; // numbers of a table that the dialog shows
const MOST_TABLE = 1 << 16; // numbers of a CPT that is made of strengths
const MARK = / \(edited [0-9a-f]{4}\)$/;
export const KIND_NAMES = { chance: "Variable", decision: "Decision", utility: "Utility", number: "Number" };
const parentText = (p) => (lagOf(p) ? `${nameOf(p)}, ${count(lagOf(p), "slice")} back` : p);

const chip = (text, label, onclick) => el("span", { class: "chip" }, text, button("\u00d7", onclick, { "aria-label": label }));
const factorText = ({ scope }) => `factor of ${scope.join(", ")}`;

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

export class EditDialog extends Dialog {
  constructor(session) {
    super("edit", "Edit the network");
    this.session = session;
    this.store = session.store;
  }

  /** Show a node; of another network than that of the page, one with changes that are not applied yet. */
  async open(name = null, changed = null) {
    const { network, picked } = this.store;
    try {
      this.model = changed ?? (await this.session.model());
    } catch (error) {
      this.model = null;
      this.dialog.replaceChildren(el("p", { class: "message" }, error.message), this.buttons());
      super.open();
      return;
    }
    this.name = name ?? network.names[picked ?? 0] ?? this.model.variables[0]?.name ?? "";
    this.draw();
    super.open();
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
    this.choice = select("Variable", model.variables.map((v) => [v.name, v.kind === "chance" ? v.name : `${v.name} (${v.kind})`]), this.name, (to) => this.change(this.model, to, "Variable"));
    this.message = el("p", { class: "message", role: "alert" });
    this.dialog.replaceChildren(
      el("h2", {}, "Edit the network"),
      // a decision needs a utility, so that both are applied at once
      el("div", { class: "card-tools" }, this.choice, ...kindsFor(model).map((kind) => button(`New ${KIND_NAMES[kind].toLowerCase()}`, () => this.change(...addVariable(this.model, kind), "Name")))),
      ...(variable ? [this.fields(), (this.tableNode = this.table())] : []),
      this.message,
      this.buttons(),
    );
  }

  buttons() {
    return dialogButtons(this.model ? button("Apply", () => this.send(() => this.session.send(this.model)), { class: "primary" }) : null, this.closeButton("Cancel"));
  }

  fields() {
    const { model, variable } = this;
    const name = el("input", { type: "text", value: variable.name, "aria-label": "Name", onchange: () => this.rename(name) });
    const what = variable.kind === "decision" ? "Options" : "States";
    const states = el("textarea", { rows: Math.min(Math.max(variable.states.length, 2), 6), "aria-label": `${what}, one a line`, onchange: (event) => this.restate(event.target.value.split("\n").map((s) => s.trim()).filter(Boolean)) }, variable.states.join("\n"));
    const node = (above) => el("div", { class: "edit-fields" }, el("label", {}, "Name", name), variable.states.length ? el("label", {}, what, states) : null, el("div", { class: "edit-parents" }, ...above));
    if (model.factors) return node(this.factors());
    const setTo = (parents) => this.change(setParents(this.model, this.name, parents), this.name, "Add a parent");
    const parents = variable.parents.map((p) => chip(parentText(p), `Remove the arc from ${parentText(p)}`, () => setTo(variable.parents.filter((q) => q !== p))));
    const names = model.variables.map((v) => v.name);
    const possible = [...names, ...(model.slices ? names.map((p) => `${p}\0${1}`) : [])];
    const others = possible.filter((p) => !variable.parents.includes(p) && !whyNoArc(model, p, this.name));
    const more = select("Add a parent", [["", "add a parent \u2026"], ...others.map((p, i) => [i, parentText(p)])], "", (i) => i && setTo([...variable.parents, others[i]]));
    return node([el("span", {}, variable.kind === "decision" ? "Known when deciding" : "Parents"), el("div", {}, ...parents, more)]);
  }

  /** Which factor of a variable the grid shows, and the variables of it; the names may have changed since. */
  factors() {
    const { model, name } = this;
    const own = model.factors.flatMap(({ scope }, i) => (scope.includes(name) ? [i] : []));
    if (!own.includes(this.factor)) this.factor = own[0] ?? -1;
    const scope = () => this.model.factors[this.factor]?.scope ?? [];
    const setTo = (to, label = "Add a variable") => this.change(setScope(this.model, this.factor, to), this.name, label);
    const fresh = () => {
      this.factor = model.factors.length;
      setTo([this.name]);
    };
    const show = (i) => {
      this.factor = Number(i);
      this.change(this.model, this.name, "Factor");
    };
    const picked = own.length ? select("Factor", own.map((i) => [i, factorText(model.factors[i])]), this.factor, show) : null;
    const others = model.variables.map((v) => v.name).filter((v) => !scope().includes(v));
    const chips = scope().filter((v) => v !== name).map((v) => chip(v, `Remove ${v} from the factor`, () => setTo(scope().filter((w) => w !== v))));
    const more = own.length ? select("Add a variable", [["", "add a variable \u2026"], ...others.map((v) => [v, v])], "", (v) => v && setTo([...scope(), v])) : null;
    return [el("span", {}, "Factors"), el("div", { class: "card-tools" }, picked, button("New factor", fresh), own.length ? button("Remove factor", () => setTo([], "Factor")) : null), el("div", {}, ...chips, more)];
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
    for (const each of this.dialog.querySelector('[aria-label="Factor"]')?.options ?? []) setText(each, factorText(this.model.factors[each.value]));
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
    if (model.factors) {
      const { factor } = this;
      const scope = [...model.factors[factor].scope.filter((p) => p !== v.name), v.name];
      const { table } = scoped(model, model.factors[factor], scope);
      const others = scope.slice(0, -1);
      const rows = rowsOf(v, table);
      const onChange = (all) => (this.model = { ...this.model, factors: this.model.factors.map((f, i) => (i === factor ? { scope, table: all.flat() } : f)) });
      return { heads: others, columns: v.states, rows: rowsAt(others, rows.length), values: rows, sums: false, least: 0, label: (i, k) => `${v.states[k]}, row ${i + 1}`, onChange };
    }
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
    if (v.kind === "decision") return muted("A decision has no probabilities: the best policy is computed from what is known and from the utilities.");
    if (model.factors && this.factor < 0) return muted("It is in no factor: all its states have the same probability.");
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
      factor: "Numbers of 0 or more; the probability of a configuration is in proportion to the product of all factors.",
    }[model.factors ? "factor" : v.noisy.length ? "strengths" : v.kind];
    const form = v.noisy.length || canBeNoisy(model, v) ? select("Form of the numbers", [["table", "table", { disabled: tableSize(model, v) > MOST_TABLE }], ["noisy", v.states.length > 2 ? "noisy-MAX" : "noisy-OR"]], v.noisy.length ? "noisy" : "table", (to) => redraw((to === "noisy" ? withStrengths : withoutStrengths)(this.model, this.name))) : null;
    const first = v.start.length ? select("Slices", [...v.start.map((_, t) => [t, `slice ${t}`]), ["later", "later slices"]], this.first ?? 0, (t) => redraw((this.first = t) && null)) : null;
    if (n > MOST_ENTRIES) return el("div", {}, form, muted(`The CPT has ${count(n, "number")}, too many to show here.`));
    this.grid = new Grid(parts);
    const tools = parts.sums ? [button("Normalise", () => this.grid.map(normalised), { title: "Divide each row by its sum" }), button("Uniform", () => this.grid.map((row) => row.map(() => 1 / row.length)))] : [];
    return el("div", {}, el("div", { class: "card-tools" }, form, first, ...tools, el("span", { class: "muted small" }, asked)), this.grid.node);
  }

  async send(work) {
    if (this.grid?.node.isConnected && this.grid.isWrong) {
      setText(this.message, this.grid.least === 0 ? "Every cell needs a number that is 0 or more." : "Every cell needs a number.");
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
