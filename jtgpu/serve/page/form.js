// A form: questions in groups, and what their answers mean for the targets.

import { httpApi, insisted, Problem } from "./api.js";
import { button, el, setAttribute, setText } from "./dom.js";
import { percent } from "./format.js";
import { ThemeButton, TokenDialog } from "./frame.js";
import { Network } from "./network.js";
import { savedToken, saveToken, takeToken } from "./token.js";

const MOST_BUTTONS = 5; // states; more are a menu

/** Texts of a form for states; one may be called "constructor". */
const textOf = (states, name) => (Object.hasOwn(states, name) ? states[name] : "");

/** A question: one of the states of a variable, or none. */
class Question {
  constructor(form, { variable, text, help, states }) {
    const { network } = form;
    this.form = form;
    this.v = network.number.get(variable);
    this.texts = network.states[this.v].map((name, i) => textOf(states, name) || network.stateTexts[this.v][i]);
    this.name = `q${form.questions.length}`;
    this.state = null;
    const title = text || network.labels[this.v] || network.texts[this.v];
    const isShort = this.texts.length <= MOST_BUTTONS;
    this.field = isShort ? el("div", { class: "form-choices" }) : this.menu(title);
    if (isShort) this.field.append(this.choice(null, "Not known"), ...this.texts.map((name, i) => this.choice(i, name)));
    this.root = el(
      isShort ? "fieldset" : "div",
      { class: "form-question" },
      el(isShort ? "legend" : "label", isShort ? {} : { for: this.name }, el("bdi", {}, title)),
      help ? el("p", { class: "muted" }, help) : null,
      this.field,
    );
  }

  choice(state, text) {
    const input = el("input", { type: "radio", name: this.name, value: state ?? "", checked: state === null, onchange: () => this.answer(state) });
    return el("label", { class: "form-choice" }, input, el("bdi", {}, text));
  }

  menu(title) {
    const options = this.texts.map((text, i) => el("option", { value: i }, text));
    return el("select", { id: this.name, "aria-label": title, onchange: (event) => this.answer(event.target.value === "" ? null : Number(event.target.value)) }, el("option", { value: "" }, "Not known"), ...options);
  }

  answer(state) {
    this.state = state;
    this.form.refresh();
  }

  /** Show a state that was not chosen here: of a link, or none. */
  set(state) {
    this.state = state;
    if (this.field.tagName === "SELECT") this.field.value = state ?? "";
    else for (const input of this.field.querySelectorAll("input")) input.checked = input.value === String(state ?? "");
  }
}

class Target {
  constructor({ network }, { variable, text, states, shown }) {
    this.v = network.number.get(variable);
    this.rows = network.states[this.v].flatMap((name, i) => {
      if (shown && !shown.includes(name)) return [];
      const row = { state: i, text: textOf(states, name) || network.stateTexts[this.v][i], bar: el("span", { class: "state-bar" }), number: el("span", { class: "state-number" }) };
      row.node = el("li", { class: "form-state" }, el("bdi", {}, row.text), el("span", { class: "state-track", "aria-hidden": "true" }, row.bar), row.number);
      return [row];
    });
    this.title = text || network.labels[this.v] || network.texts[this.v];
    this.root = el("section", { class: "form-target", "aria-label": this.title }, el("h2", {}, el("bdi", {}, this.title)), el("ul", {}, ...this.rows.map((row) => row.node)));
  }

  show(p) {
    for (const { state, bar, number } of this.rows) {
      bar.style.width = `${100 * p[state]}%`;
      setText(number, `${percent(p[state])} %`);
    }
  }

  get spoken() {
    return `${this.title}: ${this.rows.map(({ text, number }) => `${text} ${number.textContent}`).join(", ")}`;
  }
}

class Form {
  constructor(root, api, page, network) {
    Object.assign(this, { root, api, page, network, questions: [] });
    document.title = page.title;
    this.message = el("p", { class: "banner", role: "alert", hidden: true });
    this.live = el("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
    const groups = page.groups.map(({ title, text, questions }) => {
      const made = questions.map((question) => {
        const found = new Question(this, question);
        this.questions.push(found);
        return found.root;
      });
      return el("section", { class: "form-group" }, title ? el("h2", {}, title) : null, text ? el("p", {}, text) : null, ...made);
    });
    this.targets = page.targets.map((target) => new Target(this, target));
    const head = el("header", { class: "jtgpu-head" }, el("h1", {}, page.title), el("div", { class: "head-tools" }, button("Clear all", () => this.clear()), new ThemeButton(root).root, el("a", { class: "link", href: `map#n=${encodeURIComponent(network.id)}` }, "Network")));
    const results = el("div", { class: "form-targets" }, ...this.targets.map((target) => target.root), page.note ? el("p", { class: "muted" }, page.note) : null);
    root.replaceChildren(head, this.message, el("main", { class: "form-main" }, el("div", { class: "form-questions" }, page.text ? el("p", {}, page.text) : null, ...groups), results), this.live);
    window.addEventListener("hashchange", () => this.follow());
    this.follow();
  }

  clear() {
    for (const question of this.questions) question.set(null);
    this.refresh();
  }

  /** Take the answers of the address. */
  follow() {
    takeToken();
    if (window.location.hash === this.written) return;
    const given = new URLSearchParams(window.location.hash.slice(1));
    for (const question of this.questions) {
      const name = given.get(this.network.names[question.v]);
      const state = name === null ? -1 : this.network.stateNumber(question.v, /^\d+$/.test(name) ? Number(name) : name);
      question.set(state < 0 ? null : state);
    }
    this.refresh();
  }

  writeLink() {
    const { network } = this;
    const parts = new URLSearchParams();
    for (const { v, state } of this.questions) if (state !== null) parts.set(network.names[v], String(network.keys[v][state]));
    const text = parts.toString();
    this.written = text ? `#${text}` : "";
    window.history.replaceState(null, "", `${window.location.pathname}${window.location.search}${this.written}`);
  }

  say(text) {
    this.message.hidden = !text;
    setText(this.message, text || "");
  }

  /** Ask for the targets; newer calls cancel it. A lost server is asked again. */
  async refresh() {
    const { network, root, page } = this;
    this.writeLink();
    this.controller?.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    setAttribute(root, "data-state", "asking");
    const evidence = Object.fromEntries(this.questions.filter(({ state }) => state !== null).map(({ v, state }) => [network.names[v], network.keys[v][state]]));
    try {
      const ask = () => this.api.ask(network.id, "posteriors", { evidence, targets: page.targets.map(({ variable }) => variable) }, signal);
      const found = await insisted(ask, () => this.say("The server does not answer; the page tries again by itself."), () => signal.aborted);
      if (signal.aborted) return;
      for (const target of this.targets) target.show(found.posteriors[network.names[target.v]]);
      this.say("");
      setText(this.live, this.targets.map((target) => target.spoken).join(". "));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      this.say(error.kind === "impossible-evidence" ? "These answers cannot all be true. Change or clear one of them." : error.message);
    }
    root.classList.toggle("is-stale", !this.message.hidden);
    setAttribute(root, "data-state", "ready");
  }
}

async function start(root) {
  const base = new URL(".", window.location.href).pathname.replace(/\/$/, "");
  const api = httpApi({ base, token: savedToken });
  const token = new TokenDialog((text) => {
    saveToken(text);
    start(root);
  });
  root.classList.add("jtgpu", "jtgpu-form");
  try {
    const page = await api.form();
    new Form(root, api, page, new Network(page.network, await api.network(page.network)));
  } catch (error) {
    root.replaceChildren(el("p", { class: "banner", role: "alert" }, error.message), token.root);
    if (error instanceof Problem && error.kind === "missing-token") token.open();
  }
}

takeToken();
start(document.getElementById("app"));
