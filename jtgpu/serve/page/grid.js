// A table of numbers to type and to paste into: arrow keys, Enter and Tab go from cell to cell.

import { el, setAttribute, setText } from "./dom.js";
import { significant } from "./format.js";

const NARROW_GRID = 600; // pixels of a window in which the states of the parents share a column

/** Numbers as spreadsheets copy them: tabs or semicolons between cells, else commas or spaces; with decimal commas. */
export function pastedNumbers(text) {
  const lines = text.replace(/\r/g, "").split("\n").filter((line) => line.trim());
  const mark = [/\t/, /;/].find((each) => each.test(text));
  return lines.map((line) => (mark ? line.split(mark) : line.trim().split(/\s*,\s*|\s+/)).map(numberOf));
}

export function numberOf(text) {
  const found = text.trim().replace(",", ".").replace("\u2212", "-");
  if (found.endsWith("%")) return numberOf(found.slice(0, -1)) / 100;
  return found === "" ? NaN : Number(found);
}

export class Grid {
  /**
   * @param {object} parts heads: names of the parents; columns: of the numbers; rows: states of the parents in each
   *   row; values: numbers in each row; sums: whether rows are distributions; least: number that is allowed; hasBars; label(row, column): of a cell;
   *   onChange(values)
   */
  constructor({ heads, columns, rows, values, sums, least = sums ? 0 : -Infinity, hasBars = true, label, onChange }) {
    Object.assign(this, { values: values.map((row) => [...row]), sums, least, hasBars, onChange });
    const isNarrow = window.innerWidth < NARROW_GRID && heads.length > 1;
    const th = (text, scope) => el("th", { scope }, el("bdi", {}, text));
    this.cells = this.values.map((row, i) => row.map((_, k) => el("input", { type: "text", inputmode: "decimal", autocomplete: "off", "data-at": `${i} ${k}`, "aria-label": label(i, k) })));
    this.totals = this.values.map(() => el("td", { class: "figure sum" }));
    const body = this.cells.map((cells, i) => {
      const states = isNarrow ? [rows[i].filter(Boolean).join(", ")] : rows[i];
      return el("tr", {}, ...states.map((text) => th(text, "row")), ...cells.map((input) => el("td", { class: "cell" }, input)), sums ? this.totals[i] : null);
    });
    const titles = [...(isNarrow ? [heads.join(", ")] : heads), ...columns, ...(sums ? ["sum"] : [])];
    this.table = el(
      "table",
      { class: "grid", oninput: (event) => this.typed(event.target), onkeydown: (event) => this.key(event), onpaste: (event) => this.paste(event), onfocusin: (event) => event.target.select?.() },
      el("thead", {}, el("tr", {}, ...titles.map((text, i) => el("th", { scope: "col", class: i >= (isNarrow ? 1 : heads.length) ? "figure" : null }, el("bdi", {}, text))))),
      el("tbody", {}, ...body),
    );
    this.node = el("div", { class: "scroll", tabindex: -1 }, this.table);
    this.values.forEach((row, i) => row.forEach((_, k) => this.write(i, k)) || this.mark(i));
  }

  write(i, k) {
    const x = this.values[i][k];
    this.cells[i][k].value = Number.isFinite(x) ? String(Number(x.toPrecision(6))) : "";
  }

  mark(i) {
    const row = this.values[i];
    const all = this.sums ? [0, 1] : [0, ...this.values.flat().filter(Number.isFinite)];
    const [low, high] = [Math.min(...all), Math.max(...all)];
    row.forEach((x, k) => {
      const share = this.hasBars && Number.isFinite(x) && high > low ? (x - low) / (high - low) : 0;
      this.cells[i][k].parentNode.style.setProperty("--share", `${Math.round(100 * Math.min(Math.max(share, 0), 1))}%`);
      setAttribute(this.cells[i][k], "aria-invalid", this.isValid(x) ? null : "true");
    });
    const total = row.reduce((a, b) => a + b, 0);
    setText(this.totals[i], Number.isFinite(total) ? significant(total, 6) : "?");
    this.totals[i].classList.toggle("off", !(Math.abs(total - 1) < 1e-6));
  }

  isValid(x) {
    return Number.isFinite(x) && x >= this.least;
  }

  get isWrong() {
    return !this.values.flat().every((x) => this.isValid(x));
  }

  set(i, k, x) {
    this.values[i][k] = x;
    this.mark(i);
  }

  typed(input) {
    this.set(...input.dataset.at.split(" ").map(Number), numberOf(input.value));
    this.onChange(this.values);
  }

  key(event) {
    const input = event.target;
    const [i, k] = (input.dataset.at ?? "").split(" ").map(Number);
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || Number.isNaN(i)) return;
    const { selectionStart: start, selectionEnd: end, value } = input;
    const isAll = start === 0 && end === value.length;
    const to = {
      ArrowUp: [i - 1, k], ArrowDown: [i + 1, k], Enter: [i + 1, k],
      ArrowLeft: isAll || end === 0 ? [i, k - 1] : null, ArrowRight: isAll || start === value.length ? [i, k + 1] : null,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    this.cells[to[0]]?.[to[1]]?.focus();
  }

  paste(event) {
    const found = pastedNumbers(event.clipboardData.getData("text"));
    if (found.flat().length < 2) return;
    event.preventDefault();
    const [top, left] = event.target.dataset.at.split(" ").map(Number);
    found.forEach((row, i) => row.forEach((x, k) => {
      if (!this.cells[top + i]?.[left + k]) return;
      this.set(top + i, left + k, x);
      this.write(top + i, left + k);
    }));
    this.onChange(this.values);
  }

  map(change) {
    this.values = this.values.map((row) => change(row.map((x) => (this.isValid(x) ? x : 0))));
    this.values.forEach((row, i) => row.forEach((_, k) => this.write(i, k)) || this.mark(i));
    this.onChange(this.values);
  }
}
