// The dialog for every kind of evidence on one variable.

import { button, Dialog, dialogButtons, el, muted, setText } from "./dom.js";
import { KINDS, KIND_TEXT, withFinding } from "./findings.js";
import { significant } from "./format.js";

const HELP = {
  observed: "The variable is in this state.",
  "one of": "The variable is in one of these states.",
  likelihood: "A report that is more probable in some states than in others: the ratios of the numbers count.",
  soft: "The posterior that the variable must have (Jeffrey's rule). Numbers are divided by their sum.",
  do: "The variable is set from outside: its parents have no influence on it.",
};
const SLIDER_STEPS = 1000;

export class Editor extends Dialog {
  constructor(store) {
    super("editor", "Evidence");
    this.store = store;
  }

  open(v) {
    const { network, findings } = this.store;
    this.v = v;
    const old = findings[v];
    this.kind = old?.kind || "observed";
    this.chosen = new Set(old?.states || []);
    this.weights = old?.weights ? [...old.weights] : network.states[v].map(() => 1);
    this.hasWeights = Boolean(old?.weights);
    this.rowsNode = el("div", { class: "editor-rows" });
    this.help = muted("");
    this.message = el("p", { class: "message", role: "alert" });
    const kinds = KINDS.filter((kind) => (kind !== "do" || network.isDirected) && (kind !== "soft" || (!network.slices && !network.numbers.length)));
    const radios = kinds.map((kind) =>
      el("label", {}, el("input", { type: "radio", name: "kind", value: kind, checked: kind === this.kind, onchange: () => this.setKind(kind) }), ` ${KIND_TEXT[kind]}`),
    );
    const form = el(
      "form",
      { method: "dialog", onsubmit: (event) => this.submit(event) },
      el("h2", {}, "Evidence on ", el("bdi", {}, network.texts[v])),
      el("div", { class: "editor-kinds", role: "radiogroup", "aria-label": "Kind of evidence" }, ...radios),
      this.help,
      this.rowsNode,
      this.message,
      dialogButtons(el("button", { type: "submit", class: "primary" }, "Apply"), button("Clear", () => this.finish(null)), this.closeButton("Cancel")),
    );
    this.dialog.replaceChildren(form);
    this.setKind(this.kind);
    super.open();
    form.querySelector("input[type=radio]:checked")?.focus();
  }

  setKind(kind) {
    this.kind = kind;
    setText(this.help, HELP[kind]);
    setText(this.message, "");
    const { network, answer } = this.store;
    if (kind === "soft" && !this.hasWeights) this.weights = answer.posteriors[this.v].map((p) => Number(p.toPrecision(3)));
    if (kind === "likelihood" && !this.hasWeights) this.weights = network.states[this.v].map(() => 1);
    const draw = kind === "likelihood" || kind === "soft" ? (i) => this.weightRow(i) : (i) => this.choiceRow(i);
    this.rowsNode.replaceChildren(...network.states[this.v].map((_, i) => draw(i)));
  }

  choiceRow(i) {
    const type = this.kind === "one of" ? "checkbox" : "radio";
    const onchange = (event) => {
      if (type === "radio") this.chosen.clear();
      if (event.target.checked) this.chosen.add(i);
      else this.chosen.delete(i);
    };
    const isChecked = this.chosen.has(i) && (type === "checkbox" || this.chosen.size === 1);
    return el("label", { class: "choice" }, el("input", { type, name: "state", checked: isChecked, onchange }), el("bdi", {}, this.store.network.stateTexts[this.v][i]));
  }

  weightRow(i) {
    const text = this.store.network.stateTexts[this.v][i];
    const number = el("input", { type: "number", min: 0, step: "any", value: this.weights[i], "aria-label": `${this.kind} of ${text}` });
    const slider = el("input", { type: "range", min: 0, max: SLIDER_STEPS, value: SLIDER_STEPS * Math.min(this.weights[i], 1), "aria-label": `${this.kind} of ${text}, slider` });
    number.addEventListener("input", () => {
      this.weights[i] = number.value === "" ? NaN : Number(number.value);
      this.hasWeights = true;
      slider.value = SLIDER_STEPS * Math.min(this.weights[i] || 0, 1);
    });
    slider.addEventListener("input", () => {
      this.weights[i] = Number(slider.value) / SLIDER_STEPS;
      this.hasWeights = true;
      number.value = this.weights[i];
    });
    return el("div", { class: "weight" }, el("bdi", {}, text), slider, number);
  }

  submit(event) {
    event.preventDefault();
    const n = this.store.network.states[this.v].length;
    const states = [...this.chosen].sort((a, b) => a - b);
    if (this.kind === "likelihood" || this.kind === "soft") {
      const sum = this.weights.reduce((a, b) => a + b, 0);
      if (!this.weights.every((w) => Number.isFinite(w) && w >= 0) || sum <= 0) {
        setText(this.message, "Every number must be 0 or more, and one of them more than 0.");
        return;
      }
      const weights = this.kind === "soft" ? this.weights.map((w) => w / sum) : [...this.weights];
      if (this.kind === "likelihood" && weights.every((w) => w === weights[0])) {
        setText(this.message, `Equal numbers (${significant(weights[0])}) are no evidence.`);
        return;
      }
      this.finish({ kind: this.kind, weights });
    } else if (!states.length) setText(this.message, "Choose a state.");
    else if (this.kind === "one of") {
      if (states.length === n) this.finish(null);
      else this.finish({ kind: states.length === 1 ? "observed" : "one of", states });
    } else this.finish({ kind: this.kind, states: states.slice(0, 1) });
  }

  finish(finding) {
    this.dialog.close();
    this.store.setFindings(withFinding(this.store.findings, this.v, finding));
  }
}
