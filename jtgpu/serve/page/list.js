// The list of all variables, searched and sorted; only visible rows exist.

import { el, select, setAttribute, setText } from "./dom.js";
import { KIND_TEXT } from "./findings.js";
import { clean, percent, points, whole } from "./format.js";
import { markIcon } from "./marks.js";
import { mode, sortedVariables, totalVariation } from "./measures.js";
import { numberText } from "./numbers.js";
import { searchIndex, searchVariables } from "./search.js";
import { fitted } from "./text.js";

const ROW_HEIGHT = 44; // pixels, as in page.css
const NAME_WIDTH = 225; // pixels: names of large networks often differ in their ends
const MARGIN_ROWS = 6; // rows above and below the visible part

export class ListView {
  constructor(store, actions) {
    this.store = store;
    this.actions = actions;
    this.order = [];
    this.active = null;
    this.rows = new Map();
    this.search = el("input", {
      type: "search", class: "search", placeholder: "Search ( / )", "aria-label": "Search variables and states",
      autocomplete: "off", spellcheck: "false", oninput: () => this.filter(), onkeydown: (event) => this.key(event),
    });
    const orders = { file: "order of file", name: "name", change: "change", entropy: "uncertainty", value: "value of information" };
    this.sort = select("Sort the list by", Object.entries(orders), "file", () => this.resort());
    this.rowsNode = el("div", { class: "list-rows" });
    this.box = el("div", {
      class: "list", role: "listbox", tabindex: 0, "aria-label": "Variables", onscroll: () => this.scrolled(),
      onkeydown: (event) => this.key(event), onclick: (event) => this.click(event),
    }, this.rowsNode);
    this.countNode = el("span", { class: "list-count" });
    this.root = el(
      "section",
      { class: "list-frame", "aria-label": "List of variables" },
      this.search,
      el("div", { class: "list-tools" }, el("label", {}, "Sort: ", this.sort), this.countNode),
      this.box,
    );
    store.on("network", () => this.reload());
    store.on("answer ranking", () => this.resort(true));
    store.on("findings targets", () => this.render(true));
    store.on("picked", () => this.showPicked());
    this.height = 0; // of the visible part; cached, as is the scroll position: to read them makes the browser lay out the page
    this.top = 0;
    new ResizeObserver(() => {
      this.height = this.box.clientHeight;
      this.render();
    }).observe(this.box);
  }

  reload() {
    this.index = searchIndex(this.store.network);
    this.search.value = "";
    this.rows.clear();
    this.rowsNode.replaceChildren();
    this.resort();
  }

  /** Sort by the latest numbers, unless the mouse is above the list. */
  resort(isAutomatic = false) {
    const { store } = this;
    if (!store.network) return;
    const isOnList = isAutomatic && this.sort.value !== "file" && this.box.matches(":hover") && this.sorted?.length === this.index.length;
    // numbers follow, as if their places were behind those of the variables with states
    if (!isOnList) this.sorted = [...sortedVariables(store.network, this.sort.value, store.answer?.posteriors, store.ranking), ...store.network.numbers.map((_, i) => store.network.size + i)];
    this.filter();
  }

  filter() {
    this.order = searchVariables(this.index, this.search.value, this.sorted);
    const n = this.index.length;
    const found = this.order.length;
    setText(this.countNode, found === n ? whole(n) : `${whole(found)} of ${whole(n)}`);
    this.rowsNode.style.height = `${found * ROW_HEIGHT}px`;
    if (this.search.value !== this.lastSearch) {
      this.lastSearch = this.search.value;
      this.scrollTo(0);
      this.active = this.search.value && found ? this.order[0] : this.store.picked;
    }
    this.render(true);
  }

  scrolled() {
    this.top = this.box.scrollTop;
    this.render();
  }

  scrollTo(top) {
    this.top = Math.max(0, Math.min(top, this.order.length * ROW_HEIGHT - this.height));
    this.box.scrollTop = this.top;
  }

  render(isChanged = false) {
    if (!this.store.network) return;
    const first = Math.max(0, Math.floor(this.top / ROW_HEIGHT) - MARGIN_ROWS);
    const last = Math.min(this.order.length, Math.ceil((this.top + this.height) / ROW_HEIGHT) + MARGIN_ROWS);
    const wanted = new Map();
    for (let i = first; i < last; i += 1) wanted.set(this.order[i], i);
    for (const [v, row] of this.rows) {
      if (!wanted.has(v)) {
        row.node.remove();
        this.rows.delete(v);
      }
    }
    for (const [v, i] of wanted) {
      let row = this.rows.get(v);
      const isNew = !row;
      if (isNew) {
        row = this.newRow(v);
        this.rows.set(v, row);
        this.rowsNode.append(row.node);
      }
      if (row.place !== i) {
        row.place = i;
        row.node.style.transform = `translateY(${i * ROW_HEIGHT}px)`;
        setAttribute(row.node, "aria-posinset", i + 1);
      }
      setAttribute(row.node, "aria-setsize", this.order.length);
      if (isNew || isChanged) this.updateRow(v, row);
    }
    setAttribute(this.box, "aria-activedescendant", this.rows.has(this.active) ? `jtgpu-v${this.active}` : null);
  }

  newRow(v) {
    const { network } = this.store;
    const row = {
      mark: el("span", { class: "list-mark" }),
      state: el("span", { class: "list-state" }),
      change: el("span", { class: "list-change" }),
      bar: el("span", { class: "list-bar" }),
    };
    const text = this.nameAt(v);
    row.node = el(
      "div",
      { class: "list-row", role: "option", id: `jtgpu-v${v}`, "data-v": v, title: network.labels[v] || text },
      el("span", { class: "list-name" }, row.mark, el("bdi", {}, fitted(text, NAME_WIDTH, "600 13px"))),
      el("span", { class: "list-line" }, this.numberAt(v) ? null : el("span", { class: "list-track" }, row.bar), row.state, row.change),
    );
    return row;
  }

  /** The number of a row, or undefined. */
  numberAt(v) {
    const { network } = this.store;
    return network.numbers[v - network.size];
  }

  nameAt(v) {
    return this.store.network.texts[v] ?? clean(this.numberAt(v).name);
  }

  /** Choose a variable; of a number, go to its value. */
  choose(v, isOpened = false) {
    const number = this.numberAt(v);
    if (number && isOpened) this.actions.openNumber(number.name);
    if (!number) this.store.pick(v);
  }

  updateRow(v, row) {
    const { store } = this;
    const { network, answer, findings, picked, targets } = store;
    const number = this.numberAt(v);
    if (!answer) return;
    let kind = findings[v]?.kind;
    let text;
    if (number) {
      kind = store.valueOf(number.name) === undefined ? undefined : "observed";
      text = numberText(store.numberOf(number.name));
      setAttribute(row.state, "title", "mean \u00b1 standard deviation");
    } else {
      const p = answer.posteriors[v];
      const best = mode(p);
      text = `${network.stateTexts[v][best]} ${percent(p[best])} %`;
      row.bar.style.width = `${100 * p[best]}%`;
      setText(row.change, totalVariation(p, network.prior[v]) >= 0.0005 && !kind ? points(p[best] - network.prior[v][best]) : "");
    }
    setText(row.state, text);
    if (row.kind !== kind) {
      row.kind = kind;
      row.mark.replaceChildren(...(kind ? [markIcon(kind)] : []));
    }
    const isTarget = targets.includes(v);
    setAttribute(row.node, "class", `list-row${kind ? " has-evidence" : ""}${isTarget ? " target" : ""}${v === this.active ? " active" : ""}`);
    setAttribute(row.node, "aria-selected", v === picked ? "true" : "false");
    setAttribute(row.node, "aria-label", `${this.nameAt(v)}: ${text}${kind ? `, ${KIND_TEXT[kind]}` : ""}${isTarget ? ", target" : ""}`);
  }

  showPicked() {
    this.active = this.store.picked;
    this.reveal();
    this.render(true);
  }

  reveal() {
    const i = this.order.indexOf(this.active);
    if (i < 0) return;
    const top = i * ROW_HEIGHT;
    if (top < this.top) this.scrollTo(top);
    else if (top + ROW_HEIGHT > this.top + this.height) this.scrollTo(top + ROW_HEIGHT - this.height);
  }

  click(event) {
    const row = event.target.closest(".list-row");
    if (!row) return;
    const v = Number(row.dataset.v);
    this.active = v;
    if (v === this.store.picked || this.numberAt(v)) this.render(true);
    this.choose(v, true);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.order.length) return;
    const isSearch = event.target === this.search;
    const { store } = this;
    const page = Math.max(1, Math.floor(this.height / ROW_HEIGHT) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (!isSearch) Object.assign(steps, { Home: -Infinity, End: Infinity });
    if (event.key in steps) {
      const i = this.order.indexOf(this.active);
      const next = i < 0 ? 0 : Math.min(Math.max(i + steps[event.key], 0), this.order.length - 1);
      this.active = this.order[next];
      this.reveal();
      this.render(true);
      if (!isSearch) this.choose(this.active);
    } else if (event.key === "Enter") {
      if (this.active === null || !this.order.includes(this.active)) this.active = this.order[0];
      this.choose(this.active, true);
      this.render(true);
      if (!this.numberAt(this.active)) this.actions.open(this.active);
    } else if (event.key === "Escape" && isSearch && this.search.value) {
      this.search.value = "";
      this.filter();
    } else return; // the page has the other keys
    event.preventDefault();
    event.stopPropagation();
  }
}
