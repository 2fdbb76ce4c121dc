// The map: a box with bars for each variable, arcs, marks of evidence, rings of targets.

import { el, iconButton, setAttribute, setPressed, setText, svgEl } from "./dom.js";
import { focusNodes, hubOf, MOST_WHOLE } from "./focus.js";
import { clean, percent, points, significant, whole } from "./format.js";
import { MARK_SHAPES } from "./marks.js";
import { leading } from "./measures.js";
import { numberBox } from "./numbers.js";
import { spokenState, spokenVariable } from "./speech.js";
import { fitted } from "./text.js";

const [NEAREST, FARTHEST] = [4, 0.04]; // scales
const [SMALL_ROWS, SMALL_TITLES, LEGIBLE] = [0.62, 0.5, 0.7]; // scales of text below which rows are bars alone, and titles are larger
const [MARGIN, TOOLS] = [20, 36]; // around the map; width of its buttons
const [NARROW, MOST_NARROW] = [600, 20]; // of a narrow window, larger networks are shown in part
const AREA = 24000; // pixels for each box of a neighbourhood
const MOST_BOXES = 300; // of a network that can be shown as a whole
const BAR_TOP = 4; // within a row
const STEP = 1.25;
const ICONS = {
  more: "M8 2.5v11M2.5 8h11",
  less: "M2.5 8h11",
  fit: "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4",
  part: "M8 5.5a2.5 2.5 0 1 0 0 5a2.5 2.5 0 0 0 0-5M8 1v2.5M8 12.5V15M1 8h2.5M12.5 8H15",
  whole: "M2 2h4v4H2zM10 2h4v4h-4zM2 10h4v4H2zM10 10h4v4h-4z",
};

const arcOf = (line, head) => svgEl("g", { class: "arc" }, svgEl("path", { class: "line", d: line }), head ? svgEl("path", { class: "head", d: head }) : null);

export class MapView {
  constructor(store, actions) {
    this.store = store;
    this.actions = actions;
    this.boxes = new Map(); // number of variable -> elements
    this.view = { x: 0, y: 0, scale: 1 };
    [this.width, this.height] = [0, 0]; // of the frame; cached, since to read them makes the browser lay out the page
    this.isWhole = true;
    this.holds = false; // a pick does not change which boxes are shown
    this.canvas = svgEl("g", { class: "canvas" });
    this.svg = svgEl("svg", { class: "map", role: "application", "aria-label": "Map of the network" }, this.canvas);
    this.note = el("p", { class: "map-note", hidden: true });
    this.root = el("div", { class: "map-frame" }, this.svg, this.note, this.tools());
    this.editing = null; // see mapedit.js
    this.listen();
    store.on("network", () => this.reload());
    store.on("answer", () => this.update());
    store.on("findings causal", () => this.updateMarks());
    store.on("targets", () => this.updateMarks());
    store.on("picked", () => this.showPicked());
    store.on("expected", () => this.diamonds?.forEach(({ name, show }) => show(store.expected[name])));
  }

  get isFocus() {
    return !this.isWhole;
  }

  tools() {
    this.wholeButton = iconButton(ICONS.part, "", () => this.setWhole(!this.isWhole));
    return el(
      "div",
      { class: "map-tools", role: "toolbar", "aria-label": "Map" },
      iconButton(ICONS.more, "Zoom in (+)", () => this.zoom(STEP)),
      iconButton(ICONS.less, "Zoom out (\u2212)", () => this.zoom(1 / STEP)),
      iconButton(ICONS.fit, "Fit the map to the window (f)", () => this.fit()),
      this.wholeButton,
    );
  }

  // ---- which boxes, and where

  reload() {
    const { network } = this.store;
    this.boxes.clear(); // those of another network, until the new ones are drawn
    [this.arcs, this.spines, this.curves, this.later, this.shown] = [[], [], [], [], ""];
    this.isWhole = network.size <= (window.innerWidth < NARROW ? MOST_NARROW : MOST_WHOLE);
    this.wholeButton.hidden = network.size > MOST_BOXES;
    return this.relayout(!this.editing?.isOn || this.isFocus || !this.layout);
  }

  setWhole(isWhole) {
    this.isWhole = isWhole;
    return this.relayout(true);
  }

  refocus() {
    return this.relayout(false);
  }

  async relayout(fit) {
    const { store } = this;
    const { network } = store;
    setAttribute(this.wholeButton.firstChild.firstChild, "d", this.isWhole ? ICONS.part : ICONS.whole);
    const label = this.isWhole ? "Show the neighbourhood of the selected variable only" : "Show the whole network";
    setAttribute(this.wholeButton, "aria-label", label);
    setAttribute(this.wholeButton, "title", label);
    const canvas = this.canvasSize();
    const nodes = this.isWhole ? null : focusNodes(network, store, Math.round((canvas[0] * canvas[1]) / AREA));
    const wanted = `${network.id}/${network.digest}/${nodes ? nodes.join() : "all"}`;
    if (wanted === this.shown) {
      this.updateMarks();
      return;
    }
    this.controller?.abort();
    this.controller = new AbortController();
    let layout;
    try {
      layout = await store.api.layout(network.id, nodes, canvas, Boolean(this.editing?.session.placed.has(network.id)), this.controller.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.say(`The map cannot be drawn: ${error.message}`);
      return;
    }
    if (network !== store.network) return;
    this.shown = wanted;
    const before = this.anchor;
    this.draw(layout);
    // while the map is edited, what stays in its place stays there on the screen
    const after = this.anchor;
    if (!fit && this.editing?.isOn && before && after) {
      this.view.x += (before[0] - after[0]) * this.view.scale;
      this.view.y += (before[1] - after[1]) * this.view.scale;
      this.applyView();
      return;
    }
    const of = `${layout.nodes.length} of ${whole(network.size)} variables`;
    const isChosen = store.chosen.length || store.hasEvidence;
    this.say(!nodes ? "" : isChosen ? `${of}: those near the evidence, the targets and the selected variable` : `${of}, around ${network.texts[hubOf(network)]}: select another to see its neighbourhood`);
    if (fit || this.isFocus) this.fit();
    // where names would be too small, the map begins at the hub; a button shows all
    const least = store.picked !== null && layout.style.rows === 1 ? SMALL_ROWS : SMALL_TITLES;
    if (fit && this.view.scale < least) this.view.scale = LEGIBLE;
    this.centre(store.picked ?? (nodes ? layout.nodes[0] : hubOf(network)), fit);
    this.actions.onMapDrawn?.(layout.nodes);
  }

  get noteHeight() {
    return this.isFocus ? 28 : 0;
  }

  /** Pixels for the drawing; of a map that is not visible yet, those of the window. */
  canvasSize() {
    const [width, height] = this.width ? [this.width, this.height] : [window.innerWidth, window.innerHeight - 220];
    return [Math.max(width - 2 * MARGIN - TOOLS, 80), Math.max(height - 2 * MARGIN - this.noteHeight, 80)].map(Math.round);
  }

  say(text) {
    this.note.hidden = !text;
    setText(this.note, text);
  }

  get anchor() {
    return this.layout?.boxes[0];
  }

  // ---- drawing

  draw(layout) {
    this.layout = layout;
    this.boxes.clear();
    const arcs = svgEl("g", { class: "arcs", "aria-hidden": "true" });
    this.arcs = layout.arcs.map(([parent, child, line, head]) => {
      return { parent, child, node: arcOf(line, head) };
    });
    this.spines = layout.spines.map(([parent, line]) => ({ parent, child: -1, node: arcOf(line, "") }));
    arcs.append(...[...this.arcs, ...this.spines].map((arc) => arc.node));
    if (layout.heads) arcs.append(svgEl("path", { class: "head", d: layout.heads }));
    this.svg.classList.toggle("compact", layout.style.rows < 1);
    const boxes = layout.nodes.map((v, i) => this.drawBox(v, layout.boxes[i], layout.titles[i], layout.hidden[i]));
    this.later = layout.later.map((each) => this.drawLater(each));
    this.canvas.replaceChildren(arcs, ...this.later.map(({ node }) => node), ...boxes);
    this.diamonds = layout.utilities.map((utility) => this.drawUtility(utility));
    this.canvas.append(...this.diamonds.map(({ node }) => node));
    const { numbers } = this.store.network;
    this.curves = layout.numbers.map(([g, ...box]) => [numbers[g], numberBox(numbers[g].name, box, () => this.actions.openNumber(numbers[g].name))]);
    this.canvas.append(...this.curves.map(([, { node }]) => node));
    this.setTabStop(this.store.picked);
    this.update();
  }

  /** A diamond; it has no states, and cannot be selected. */
  drawUtility([name, x, y, width, height]) {
    const [w, h] = [width / 2, height / 2];
    const [title, value] = [svgEl("text", { class: "title", x: w }, fitted(clean(name), width - 36, "600 12px")), svgEl("text", { class: "expected", x: w, y: h + 15 })];
    const node = svgEl(
      "g",
      { class: "utility", role: "img", "data-name": name, transform: `translate(${x},${y})` },
      svgEl("title", {}, `utility ${clean(name)}: its expectation under the best policy`),
      svgEl("path", { class: "frame", d: `M${w} 0L${width} ${h}L${w} ${height}L0 ${h}z` }),
      title,
      value,
      svgEl("text", { class: "far-title", x: w, y: h + 7 }, fitted(clean(name), width - 30, "600 20px")),
    );
    const show = (expected) => {
      setAttribute(title, "y", expected === undefined ? h + 4 : h);
      setText(value, expected === undefined ? "" : significant(expected, 4));
      setAttribute(node, "aria-label", `utility ${clean(name)}${expected === undefined ? "" : `, expected ${significant(expected, 4)}`}`);
    };
    show(this.store.expected?.[name]);
    return { name, node, show };
  }

  /** A variable of a later slice, and the arcs to it. */
  drawLater([v, lag, x, y, width, height, lines, head]) {
    const { network } = this.store;
    const number = network.numbers[v - network.size];
    if (number) {
      const { node, show } = numberBox(number.name, [x, y, width, height], () => this.store.setSlice(this.store.slice + lag));
      delete node.dataset.name; // what is edited is the slice itself
      return { v, lag, number, show, node: svgEl("g", { class: "later" }, arcOf(lines, head), node) };
    }
    const { pad, row, rows: scale, line } = this.layout.style;
    const top = line * this.layout.titles[this.layout.nodes.indexOf(v)].length + pad;
    const [rows, group] = this.drawRows(top, Math.min(Math.floor((height - top) / (row * scale)), network.states[v].length), width);
    const box = { v, lag, rows, title: svgEl("text", { class: "title", x: pad, y: line + 1 }) };
    box.node = svgEl("g", { class: "later" }, arcOf(lines, head), svgEl("g", { transform: `translate(${x},${y})` }, svgEl("rect", { class: "frame", width, height, rx: 5 }), box.title, group));
    box.node.addEventListener("click", () => this.store.setSlice(this.store.slice + lag));
    return box;
  }

  drawBox(v, [x, y, width, height], lines, [parents, children]) {
    const { network } = this.store;
    const { line, pad, most_rows: most, row: rowHeight, rows: scale } = this.layout.style;
    const n = network.states[v].length;
    const title = lines.map((text, i) => svgEl("tspan", { x: pad, y: line * (i + 1) + 1 }, fitted(text, width - 2 * pad, "600 12px")));
    const top = line * lines.length + pad;
    const box = {
      ring: svgEl("rect", { class: "ring", x: -5, y: -5, width: width + 10, height: height + 10, rx: 9 }),
      mark: svgEl("path", { class: "mark", transform: `translate(${width - pad - 2},${line / 2 + 5})` }),
      far: svgEl("text", { class: "far-title", x: width / 2, y: 20 }, fitted(network.texts[v], width - 8, "600 20px")),
    };
    box.node = svgEl(
      "g",
      { class: "box", role: "group", tabindex: -1, "data-v": v, "data-name": network.names[v], transform: `translate(${x},${y})` },
      svgEl("title", {}, network.labels[v] ? `${network.texts[v]}: ${network.labels[v]}` : network.texts[v]),
      box.ring,
      svgEl("rect", { class: "frame", width, height, rx: network.decisions.has(v) ? 0 : 5 }),
      svgEl("text", { class: "title" }, ...title),
      box.far,
      box.mark,
    );
    const shownRows = n > most ? most - 1 : n;
    const [drawn, rows] = this.drawRows(top, shownRows, width);
    box.rows = drawn;
    if (n > most) rows.append(svgEl("text", { class: "more", y: shownRows * rowHeight + 13 }, `${whole(n - shownRows)} more states`));
    box.summary = svgEl("text", { class: "summary", x: pad, y: top + 10 });
    box.percent = svgEl("text", { class: "summary number", x: width - pad, y: top + 10 });
    box.shares = svgEl("g", { class: "summary", transform: `translate(${pad},${top + 14})` }, svgEl("path", { class: "bar" }), svgEl("path", { class: "bar faint" }));
    [box.inner, box.high] = [width - 2 * pad, Math.min(Math.max(height - top - 18, 4), 9)];
    const { bar, number } = this.layout.style;
    const wide = Math.round((width - 2 * pad) / scale); // of a row
    rows.style.setProperty("--shift", `${bar + number - wide}px`);
    rows.style.setProperty("--stretch", wide / bar);
    box.node.append(rows, box.summary, box.percent, box.shares);
    if (parents) box.node.append(svgEl("path", { class: "stub", d: "M12 0V-9" }), svgEl("text", { class: "stub-text", x: 16, y: -2 }, `+${parents}`));
    if (children) {
      box.node.append(svgEl("path", { class: "stub", d: `M${width - 12} ${height}v9` }), svgEl("text", { class: "stub-text end", x: width - 16, y: height + 10 }, `+${children}`));
    }
    this.boxes.set(v, box);
    return box.node;
  }

  drawRows(top, n, width) {
    const { pad, row, rows: scale } = this.layout.style;
    const rows = Array.from({ length: n }, (_, k) => this.drawRow(k * row, Math.round((width - 2 * pad) / scale)));
    return [rows, svgEl("g", { transform: `translate(${pad},${top}) scale(${scale})` }, ...rows.map(({ node }) => node))];
  }

  drawRow(y, width) {
    const { bar, number, row: height } = this.layout.style;
    const left = width - bar - number;
    const row = {
      state: -1,
      left,
      label: svgEl("text", { class: "label", y: 13 }),
      bar: svgEl("rect", { class: "bar", x: left, y: BAR_TOP, width: 0, height: height - 2 * BAR_TOP }),
      tick: svgEl("path", { class: "tick" }),
      number: svgEl("text", { class: "number", x: width, y: 13 }),
      title: svgEl("title"),
    };
    row.node = svgEl(
      "g",
      { class: "row", role: "button", transform: `translate(0,${y})` },
      row.title,
      svgEl("rect", { class: "hit", x: -6, y: 0, width: width + 12, height, rx: 3 }),
      row.label,
      svgEl("rect", { class: "track", x: left, y: BAR_TOP, width: bar, height: height - 2 * BAR_TOP }),
      row.bar,
      row.tick,
      row.number,
    );
    return row;
  }

  update() {
    if (!this.store.answer || !this.layout) return;
    const { answer, network, findings } = this.store;
    const { bar: length, row: height } = this.layout.style;
    const isChanged = Object.keys({ ...answer.findings, ...network.values }).length > 0;
    for (const [{ name, prior }, { show }] of this.curves) show(this.store.numberOf(name), prior, this.store.valueOf(name) !== undefined);
    for (const [v, box] of this.boxes) {
      const p = answer.posteriors[v];
      const prior = network.prior[v];
      leading(p, box.rows.length, findings[v]?.states).forEach((state, k) => {
        const row = box.rows[k];
        if (row.state !== state) {
          row.state = state;
          row.node.dataset.s = state;
          setText(row.label, fitted(network.stateTexts[v][state], row.left - 5));
        }
        setAttribute(row.bar, "width", Math.round(length * p[state] * 100) / 100);
        setText(row.number, percent(p[state]));
        const at = row.left + Math.round(length * prior[state] * 10) / 10;
        setAttribute(row.tick, "d", isChanged ? `M${at} 2v${height - 4}` : null);
        setAttribute(row.node, "aria-label", spokenState(this.store, v, state));
        const change = isChanged ? `, prior ${percent(prior[state])} %, ${points(p[state] - prior[state])} percentage points` : "";
        setText(row.title, `${network.stateTexts[v][state]}: ${percent(p[state])} %${change}`);
      });
      this.summarise(box, v, p);
      setAttribute(box.node, "aria-label", spokenVariable(this.store, v));
    }
    for (const box of this.later) this.updateLater(box);
    this.updateMarks(findings);
  }

  /** The most probable state, and the shares of all in their order, where rows are too small to read. */
  summarise(box, v, p) {
    const { network } = this.store;
    const best = p.indexOf(Math.max(...p));
    setText(box.percent, p[best] > 0.995 && p[best] < 1 ? ">99" : String(Math.round(100 * p[best])));
    setText(box.summary, fitted(network.stateTexts[v][best], box.inner - 24, "11px"));
    const paths = ["", ""];
    let at = 0;
    p.forEach((share, k) => {
      const wide = Math.max(box.inner * share - 0.8, 0);
      paths[k % 2] += `M${at.toFixed(1)} 0h${wide.toFixed(1)}v${box.high}h-${wide.toFixed(1)}z`;
      at += box.inner * share;
    });
    [...box.shares.querySelectorAll("path")].forEach((path, i) => setAttribute(path, "d", paths[i] || null));
  }

  updateLater({ v, lag, rows, title, node, number, show }) {
    const { network, answer, slice, length } = this.store;
    const t = slice + lag;
    const p = number ? answer.laterNumbers?.[lag]?.[number.name]?.[0] : answer.later?.[lag]?.[v];
    node.classList.toggle("absent", number ? t >= length : !p);
    if (number) {
      show(p, null, this.store.valueOf(number.name, t) !== undefined, `, slice ${t}`);
      return;
    }
    setText(title, fitted(`${network.texts[v]}, slice ${t}`, 170, "600 12px"));
    setAttribute(node, "aria-label", t < length ? `${network.texts[v]} in slice ${t}` : `${network.texts[v]}: there is no slice ${t}`);
    rows.forEach((row, s) => {
      setText(row.label, fitted(network.stateTexts[v][s], row.left - 5));
      setAttribute(row.bar, "width", p ? Math.round(this.layout.style.bar * p[s] * 100) / 100 : 0);
      setText(row.number, p ? percent(p[s]) : "");
    });
  }

  updateMarks() {
    const { findings, targets, picked, causal } = this.store;
    for (const [v, box] of this.boxes) {
      const finding = findings[v];
      const isDecision = this.store.network.decisions.has(v);
      setAttribute(box.node, "class", `box${isDecision ? " decision" : ""}${finding ? ` has-evidence ${finding.kind.replace(" ", "-")}` : ""}${v === picked ? " picked" : ""}${targets.includes(v) ? " target" : ""}${causal?.set.has(v) ? " adjusted" : ""}`);
      setAttribute(box.mark, "d", finding ? MARK_SHAPES[finding.kind] : null);
      setAttribute(box.mark, "class", `mark${finding?.kind === "one of" ? " hollow" : ""}`);
      for (const row of box.rows) {
        const isSet = finding?.states?.includes(row.state);
        setAttribute(row.node, "class", isSet ? "row set" : "row");
        setPressed(row.node, isSet);
      }
    }
    for (const { parent, child, node } of [...(this.arcs || []), ...(this.spines || [])]) {
      const isNear = picked !== null && (parent === picked || child === picked);
      const isKnown = this.store.network.decisions.has(child);
      setAttribute(node, "class", `arc${isKnown ? " information" : ""}${findings[child]?.kind === "do" ? " cut" : ""}${isNear ? " near" : ""}${causal?.arcs.has(`${parent}>${child}`) ? " open" : ""}`);
    }
  }

  showPicked() {
    const { picked } = this.store;
    this.setTabStop(picked);
    if (this.isFocus && !(this.holds && this.boxes.has(picked))) {
      this.refocus();
      return;
    }
    this.updateMarks();
    this.centre(picked, false);
  }

  // ---- the visible part

  applyView() {
    const { x, y, scale } = this.view;
    setAttribute(this.canvas, "transform", `translate(${x.toFixed(1)},${y.toFixed(1)}) scale(${scale.toFixed(4)})`);
    this.svg.classList.toggle("far", scale * (this.layout?.style.rows ?? 1) < SMALL_ROWS);
    this.svg.classList.toggle("distant", scale < SMALL_TITLES);
    this.actions.onView?.();
  }

  fit() {
    const { width, height } = this;
    if (!this.layout || !width || !height) return;
    const [inner, tall] = this.canvasSize();
    const scale = Math.min(inner / this.layout.width, tall / this.layout.height, 1.3);
    this.view.scale = Math.max(scale, FARTHEST);
    this.view.x = MARGIN + (inner - this.layout.width * this.view.scale) / 2;
    this.view.y = Math.max((height - this.layout.height * this.view.scale) / 2, MARGIN) + this.noteHeight / 2;
    this.applyView();
  }

  zoom(factor, at = null) {
    const [px, py] = at || this.middle();
    const scale = Math.min(Math.max(this.view.scale * factor, FARTHEST), NEAREST);
    const ratio = scale / this.view.scale;
    this.view = { x: px - (px - this.view.x) * ratio, y: py - (py - this.view.y) * ratio, scale };
    this.applyView();
  }

  /** Where keys enlarge the map: at the selected variable, else in the middle. */
  middle() {
    const i = this.layout ? this.layout.nodes.indexOf(this.store.picked) : -1;
    const { x: left, y: top, scale } = this.view;
    const [x, y, w, h] = i < 0 ? [] : this.layout.boxes[i];
    const at = [left + (x + w / 2) * scale, top + (y + h / 2) * scale];
    const isVisible = at[0] >= 0 && at[1] >= 0 && at[0] <= this.width && at[1] <= this.height;
    return isVisible ? at : [this.width / 2, this.height / 2];
  }

  /** Move a box into view; `always` moves it to the middle, too, where it is visible. */
  centre(v, always) {
    const i = this.layout ? this.layout.nodes.indexOf(v) : -1;
    const { width, height } = this;
    if (i < 0 || !width) return;
    const [x, y, w, h] = this.layout.boxes[i];
    const { scale } = this.view;
    const [left, top] = [this.view.x + x * scale, this.view.y + y * scale];
    const isVisible = left >= 0 && top >= 0 && left + w * scale <= width && top + h * scale <= height;
    if (isVisible && !always) return;
    if (always && this.view.scale * this.layout.width <= width && this.view.scale * this.layout.height <= height) return;
    const place = (middle, side, length) => Math.max(Math.min(side / 2 - middle * scale, MARGIN), Math.min(side - MARGIN - length * scale, side / 2 - middle * scale));
    this.view.x = place(x + w / 2, width, this.layout.width);
    this.view.y = place(y + h / 2, height, this.layout.height);
    this.applyView();
  }

  // ---- mouse, touch, keyboard

  listen() {
    const { svg } = this;
    const pointers = new Map();
    let moved = false;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      const delta = event.deltaMode === 1 ? 33 * event.deltaY : event.deltaY;
      this.zoom(Math.exp(-delta / (event.ctrlKey ? 120 : 500)), [event.clientX - box.left, event.clientY - box.top]);
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      if (event.button > 1) return;
      if (!pointers.size) moved = false;
      if (!pointers.size && this.editing?.down(event)) return;
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    svg.addEventListener("pointermove", (event) => {
      if (this.editing?.held) {
        this.editing.move(event);
        moved = this.editing.held.moved;
        return;
      }
      const last = pointers.get(event.pointerId);
      if (!last) return;
      const [dx, dy] = [event.clientX - last[0], event.clientY - last[1]];
      if (!moved && Math.hypot(dx, dy) < 5) return;
      if (!moved) svg.setPointerCapture(event.pointerId);
      moved = true;
      if (pointers.size === 2) this.pinch(pointers, event);
      else {
        this.view.x += dx;
        this.view.y += dy;
        this.applyView();
      }
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    svg.addEventListener("pointerup", (event) => this.editing?.held && this.editing.up(event));
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) svg.addEventListener(name, (event) => pointers.delete(event.pointerId));
    svg.addEventListener("click", (event) => {
      if (!moved && this.editing?.isOn) this.editing.click(event.target);
      else if (!moved) this.click(event);
    });
    svg.addEventListener("dblclick", (event) => {
      const name = this.editing?.isOn ? this.editing.nameAt(event.target) : null;
      if (name !== null) this.editing.dialog.open(name);
    });
    svg.addEventListener("contextmenu", (event) => {
      const v = this.variableAt(event.target);
      if (v === null) return;
      event.preventDefault();
      this.store.pick(v);
      this.actions.edit(v);
    });
    svg.addEventListener("keydown", (event) => {
      if (!this.editing?.key(event)) this.key(event);
      else {
        event.preventDefault();
        event.stopPropagation();
      }
    });
    svg.addEventListener("focusin", (event) => {
      const v = this.variableAt(event.target);
      if (v !== null && event.target.matches(":focus-visible")) this.centre(v, false);
    });
    new ResizeObserver(() => this.resize()).observe(this.root);
  }

  resize() {
    const { clientWidth, clientHeight } = this.root;
    if (!clientWidth || (clientWidth === this.width && clientHeight === this.height)) return;
    const isFirst = !this.width;
    const { x, y, scale } = this.view;
    const wasWhole = this.layout && x >= 0 && y >= 0 && x + this.layout.width * scale <= this.width && y + this.layout.height * scale <= this.height;
    [this.width, this.height] = [clientWidth, clientHeight];
    if (isFirst || wasWhole) this.fit();
    // next to the card of a telephone, what is selected stays legible
    const isSmall = (isFirst || wasWhole) && this.boxes.has(this.store.picked) && this.layout.style.rows === 1 && this.view.scale < SMALL_ROWS;
    if (isSmall) this.view.scale = LEGIBLE;
    this.centre(this.store.picked, isSmall);
  }

  pinch(pointers, event) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const before = pointers.get(event.pointerId);
    const distance = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
    const box = this.svg.getBoundingClientRect();
    const now = [event.clientX, event.clientY];
    this.zoom(distance(now) / distance(before), [(now[0] + other[0]) / 2 - box.left, (now[1] + other[1]) / 2 - box.top]);
  }

  variableAt(target) {
    const box = target.closest?.(".box");
    return box ? Number(box.dataset.v) : null;
  }

  click(event) {
    const v = this.variableAt(event.target);
    if (v === null) return;
    const row = event.target.closest(".row");
    const { store } = this;
    if (row) {
      store.toggle(v, Number(row.dataset.s), event.shiftKey);
    }
    this.pickHere(v);
    if (!row && this.isFocus) this.refocus();
    this.boxes.get(v)?.node.focus({ preventScroll: true });
  }

  setTabStop(v) {
    const stop = this.boxes.has(v) ? v : this.layout?.nodes[0];
    for (const [w, box] of this.boxes) setAttribute(box.node, "tabindex", w === stop ? 0 : -1);
  }

  /** Pick a box of the map, whose part of a large network stays. */
  pickHere(v) {
    this.holds = true;
    this.store.pick(v);
    this.holds = false;
  }

  focusBox(v) {
    this.pickHere(v);
    this.setTabStop(v);
    this.boxes.get(v)?.node.focus({ preventScroll: true });
    this.centre(v, false);
  }

  key(event) {
    const v = this.variableAt(event.target);
    if (v === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const { store } = this;
    const next = this.neighbour(v, event.key);
    if (next !== undefined) {
      if (next !== null) this.focusBox(next);
    } else if (/^[1-9]$/.test(event.key)) {
      const box = this.boxes.get(v);
      const state = box.rows[Number(event.key) - 1]?.state;
      if (state !== undefined) store.toggle(v, state, event.shiftKey);
    } else if (event.key === "0" || event.key === "Delete" || event.key === "Backspace") store.unset(v);
    else if (event.key === "Enter" || event.key === " ") {
      store.pick(v);
      if (this.isFocus) this.refocus();
      this.actions.open(v);
    } else if (event.key === "t") store.toggleTarget(v);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The box of an arrow key: a parent, a child, or a neighbour within the layer. */
  neighbour(v, key) {
    const { network } = this.store;
    const along = { ArrowUp: network.parents[v], ArrowDown: network.children[v] }[key];
    const place = new Map(this.layout.nodes.map((w, i) => [w, this.layout.boxes[i]]));
    const [x, y, w, h] = place.get(v);
    const middle = x + w / 2;
    const nearest = (list) => {
      const sorted = list.filter((u) => place.has(u)).sort((a, b) => Math.abs(place.get(a)[0] - x) - Math.abs(place.get(b)[0] - x));
      return sorted[0] ?? null;
    };
    if (along) return nearest(along);
    if (key === "Home") return this.layout.nodes[0];
    if (key === "End") return this.layout.nodes.at(-1);
    if (key !== "ArrowLeft" && key !== "ArrowRight") return undefined;
    const sign = key === "ArrowLeft" ? -1 : 1;
    let best = null;
    let distance = Infinity;
    for (const [u, box] of place) {
      const dx = sign * (box[0] + box[2] / 2 - middle);
      if (u === v || dx < 0 || (dx === 0 && sign * (u - v) < 0)) continue;
      const dy = Math.abs(box[1] + box[3] / 2 - (y + h / 2));
      if (dx + 4 * dy < distance) {
        distance = dx + 4 * dy;
        best = u;
      }
    }
    return best;
  }
}
