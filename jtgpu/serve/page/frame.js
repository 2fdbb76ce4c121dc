// Dialogs about the page itself, and the switch between dark and light.

import { button, Dialog, dialogButtons, el, isTouch, setAttribute, setText } from "./dom.js";
import { KIND_TEXT } from "./findings.js";
import { markIcon } from "./marks.js";

const KEYS = [
  ["/", "search variables, labels and states"],
  ["m", "go to the map"],
  ["arrows", "on the map: to a parent, a child, a neighbour; in the list: up and down"],
  ["1 to 9", "observe this state of the variable; with Shift: one of several"],
  ["0", "clear its evidence"],
  ["Enter", "go to its states"],
  ["e", "likelihood, soft evidence, intervention"],
  ["t", "mark as a target"],
  ["u, U", "undo, redo"],
  ["+, \u2212, f", "zoom the map, fit it"],
  ["Shift+arrows", "while the map is edited: move a node; Enter edits, Delete removes it"],
  ["?", "this help"],
  ["Escape", "close"],
];

export class HelpDialog extends Dialog {
  constructor() {
    super("help", "Help", true);
    this.dialog.append(
      el("h2", {}, "How it works"),
      el("p", {}, `${isTouch() ? "Tap" : "Click"} a state to observe it; every bar shows the probability of its state given all evidence. A thin line marks the prior. ${isTouch() ? "Evidence\u2026 of the selected variable" : "Shift-click selects several states, one of which holds; a right click"} offers likelihoods, soft evidence and interventions. Rankings are about the first target, or the selected variable. Boxes of a large map show the most probable state: select one, or enlarge the map.`),
      el("table", { class: "panel-table" }, el("tbody", {}, ...KEYS.map(([key, text]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, key)), el("td", {}, text))))),
      el("h3", {}, "Evidence"),
      el("ul", { class: "legend" }, ...Object.entries(KIND_TEXT).map(([kind, text]) => el("li", {}, markIcon(kind), ` ${text}`))),
      dialogButtons(this.closeButton()),
    );
  }
}

export class TokenDialog extends Dialog {
  constructor(onToken) {
    super("token", "Token", true);
    const input = el("input", { type: "password", "aria-label": "Token", autocomplete: "off" });
    const submit = () => input.value && onToken?.(input.value.trim());
    this.dialog.append(el("form", { method: "dialog", onsubmit: submit }, el("h2", {}, "This server needs a token"), el("p", {}, "It is part of the address that jtgpu serve prints, after #token="), input, dialogButtons(el("button", { type: "submit", class: "primary" }, "Continue"))));
  }
}

const THEMES = { auto: ["\u25d0", "as the system"], light: ["\u2600", "light"], dark: ["\u263e", "dark"] };
const THEME_KEY = "jtgpu-theme";

export class ThemeButton {
  constructor(page) {
    this.page = page;
    this.root = button("", () => this.next(), { class: "theme" });
    let saved = "auto";
    try {
      saved = localStorage.getItem(THEME_KEY) || "auto";
    } catch {
      // no storage: the choice lasts as long as the page
    }
    this.set(saved in THEMES ? saved : "auto");
  }

  next() {
    const names = Object.keys(THEMES);
    this.set(names[(names.indexOf(this.theme) + 1) % names.length]);
    try {
      localStorage.setItem(THEME_KEY, this.theme);
    } catch {
      // as above
    }
  }

  set(theme) {
    this.theme = theme;
    const [sign, text] = THEMES[theme];
    setText(this.root, sign);
    setAttribute(this.root, "aria-label", `Colours: ${text}`);
    setAttribute(this.root, "title", `Colours: ${text}`);
    setAttribute(this.page, "data-theme", theme === "auto" ? null : theme);
  }
}
