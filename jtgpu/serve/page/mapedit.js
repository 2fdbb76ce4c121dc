// Editing on the map: nodes are moved and added, arcs drawn. Each change is applied at once, and can be undone.

import { button, el, fill, setAttribute, setText, svgEl } from "./dom.js";
import { KIND_NAMES } from "./edit.js";
import { addVariable, find, kindsFor, removeVariable, setParents, toggleEdge, whyNoArc } from "./model.js";

const GAP = 20; // pixels between boxes, as in map_layout.py

export class MapEdit {
  constructor(session, dialog, map) {
    Object.assign(this, { session, dialog, map, isOn: false, tool: "move", from: null });
    this.root = el("div", { class: "map-edit", role: "toolbar", "aria-label": "Edit", hidden: true });
    this.line = svgEl("path", { class: "new-arc" });
    map.editing = this;
    session.store.on("network", () => this.isOn && this.draw());
    session.store.on("picked", () => this.isOn && !this.message && this.draw());
  }

  async set(isOn) {
    [this.isOn, this.from, this.message] = [isOn, null, ""];
    this.root.hidden = !isOn;
    this.map.svg.classList.toggle("editing", isOn);
    this.onSet?.(isOn);
    if (isOn) await this.draw();
  }

  async draw() {
    const model = await this.session.model().catch((error) => this.say(error.message));
    if (!model) return;
    const tool = (name, text, title) => button(text, () => this.choose(name), { title, "aria-pressed": this.tool === name ? "true" : "false" });
    const name = this.picked();
    const arc = model.factors ? "edge" : "arc";
    this.note = el("output", { class: "muted small" }, this.message || (model.renamed?.length && !this.session.past.length ? `Equal names of states are numbered: ${model.renamed.join(", ")}.` : "") || (this.tool === "arc" ? (this.from ? `From ${this.from} to \u2026` : `${model.factors ? "Between two variables" : "From a parent to a child"}: drag, or choose one after the other; once more removes the ${arc}.`) : "Drag nodes; a double click edits one."));
    this.root.dataset.edits = this.session.past.length;
    fill(
      this.root,
      tool("move", "Move", "Move nodes"),
      tool("arc", model.factors ? "Edge" : "Arc", `Draw an ${arc}, or remove it by drawing it again`),
      ...kindsFor(model).map((kind) => button(`+ ${KIND_NAMES[kind]}`, () => this.add(kind))),
      button("Edit node", () => this.dialog.open(name)),
      name ? button("Remove", () => this.apply((m) => removeVariable(m, name)), { title: `Remove ${name}`, disabled: model.variables.length < 2 }) : null,
      button("Undo", () => this.work(() => this.session.undo()), { disabled: !this.session.past.length, "aria-label": "Undo the edit" }),
      button("Done", () => this.set(false), { class: "primary" }),
      this.note,
    );
  }

  choose(tool) {
    [this.tool, this.from, this.message] = [tool, null, ""];
    this.draw();
  }

  say(text) {
    this.message = text;
    if (this.note) setText(this.note, text);
    else this.root.replaceChildren(el("output", { class: "message" }, text), button("Done", () => this.set(false)));
  }

  picked() {
    const { network, picked } = this.session.store;
    return this.leaf ?? (picked === null ? null : network.names[picked]);
  }

  /** One change after the other, each of what the server has then. */
  work(change) {
    this.queue = (this.queue ?? Promise.resolve()).then(async () => {
      setAttribute(this.root, "aria-busy", "true");
      try {
        await change();
        this.message = "";
        await this.draw();
      } catch (error) {
        this.say(error.message);
      } finally {
        setAttribute(this.root, "aria-busy", null);
      }
    });
    return this.queue;
  }

  apply(change) {
    return this.work(async () => this.session.send(change(this.placed(await this.session.model()))));
  }

  boxes() {
    const { layout, store: { network } } = this.map;
    return new Map([
      ...layout.nodes.map((v, i) => [network.names[v], layout.boxes[i]]),
      ...layout.utilities.map(([name, ...box]) => [name, box]),
      ...layout.numbers.map(([g, ...box]) => [network.numbers[g].name, box]),
    ]);
  }

  /** The network with nodes where the map shows them, if it shows all. */
  placed(model) {
    const boxes = this.boxes();
    if (!model.variables.every((v) => boxes.has(v.name))) return model;
    const at = ([x, y, w, h]) => [Math.round(x + w / 2), Math.round(y + Math.floor(h / 2))];
    return { ...model, isPlaced: true, variables: model.variables.map((v) => ({ ...v, attributes: { ...v.attributes, position: at(boxes.get(v.name)) } })) };
  }

  async add(kind) {
    const { view, width, height } = this.map;
    const model = this.placed(await this.session.model());
    const [w, h] = [120, 90];
    const box = this.free([(width / 2 - view.x) / view.scale - w / 2, (height / 2 - view.y) / view.scale - h / 2, w, h], null);
    const [changed, name] = addVariable(model, kind, model.isPlaced ? [Math.round(box[0] + w / 2), Math.round(box[1] + h / 2)] : null);
    this.dialog.open(name, changed);
  }

  /** The nearest place, on rings around this one, at which a box overlaps no other. */
  free([x, y, w, h], name) {
    const others = [...this.boxes()].filter(([other]) => other !== name).map(([, box]) => box);
    const overlaps = (a, b) => others.some(([u, v, s, t]) => a < u + s + GAP && u < a + w + GAP && b < v + t + GAP && v < b + h + GAP);
    for (let r = 0; r < 4000; r += 12) {
      for (let k = 0; k < 16; k += 1) {
        const [a, b] = [x + r * Math.cos((k * Math.PI) / 8), y + r * Math.sin((k * Math.PI) / 8)].map(Math.round);
        if (!overlaps(a, b)) return [a, b, w, h];
      }
    }
    return [x, y, w, h];
  }

  nameAt(target) {
    return target.closest?.("[data-name]")?.dataset.name ?? null;
  }

  // ---- the pointer; the map asks first

  down(event) {
    const name = this.nameAt(event.target);
    if (!this.isOn || name === null) return false;
    const box = this.boxes().get(name);
    this.held = { name, box: [...box], at: [event.clientX, event.clientY], moved: false };
    return true;
  }

  move(event) {
    const { held, map } = this;
    const [dx, dy] = [(event.clientX - held.at[0]) / map.view.scale, (event.clientY - held.at[1]) / map.view.scale];
    if (!held.moved && Math.hypot(dx, dy) * map.view.scale < 5) return;
    if (!held.moved) map.svg.setPointerCapture(event.pointerId);
    held.moved = true;
    const [x, y, w, h] = held.box;
    if (this.tool === "arc") {
      setAttribute(this.line, "d", `M${x + w / 2} ${y + h / 2}L${x + w / 2 + dx} ${y + h / 2 + dy}`);
      map.canvas.append(this.line);
      return;
    }
    held.to = [x + dx, y + dy, w, h];
    this.show(held.name, held.to);
  }

  show(name, [x, y]) {
    const node = [...this.map.canvas.querySelectorAll("[data-name]")].find((each) => each.dataset.name === name);
    setAttribute(node, "transform", `translate(${x},${y})`);
    const v = this.map.store.network.number.get(name);
    for (const arc of [...this.map.arcs, ...this.map.spines]) if (arc.parent === v || arc.child === v) arc.node.classList.add("moving");
  }

  up(event) {
    const { held } = this;
    this.held = null;
    this.line.remove();
    if (!held.moved) return;
    if (this.tool === "arc") {
      const to = this.nameAt(document.elementFromPoint(event.clientX, event.clientY) ?? {});
      if (to !== null && to !== held.name) this.join(held.name, to);
    } else this.put(held.name, this.free(held.to, held.name));
  }

  async put(name, box) {
    const shown = this.boxes();
    if (!(await this.session.model()).variables.every((v) => shown.has(v.name))) {
      this.say("Nodes can be moved while the map shows the whole network.");
      this.map.draw(this.map.layout);
      return null;
    }
    this.show(name, box);
    const { layout, store: { network } } = this.map;
    const leaf = [...layout.utilities.filter((u) => u[0] === name), ...layout.numbers.filter((g) => network.numbers[g[0]].name === name)][0];
    if (leaf) leaf.splice(1, 2, box[0], box[1]);
    else layout.boxes[layout.nodes.indexOf(network.number.get(name))] = [...box];
    return this.apply((model) => model);
  }

  click(target) {
    const name = this.nameAt(target);
    if (name === null) return;
    this.message = "";
    const { store } = this.session;
    this.leaf = store.network.number.has(name) ? null : name;
    if (this.leaf === null) this.map.pickHere(store.network.number.get(name));
    else store.pick(null);
    if (this.tool === "arc" && this.from !== null && this.from !== name) this.join(this.from, name);
    else {
      this.from = this.tool === "arc" ? name : null;
      this.draw();
    }
  }

  join(parent, child) {
    this.from = null;
    this.apply((model) => {
      if (model.factors) return toggleEdge(model, parent, child);
      const { parents } = find(model, child);
      const isThere = parents.includes(parent);
      const why = isThere ? "" : whyNoArc(model, parent, child);
      if (why) throw new Error(why);
      return setParents(model, child, isThere ? parents.filter((p) => p !== parent) : [...parents, parent]);
    });
  }

  key(event) {
    const name = this.nameAt(event.target);
    const step = { ArrowLeft: [-GAP, 0], ArrowRight: [GAP, 0], ArrowUp: [0, -GAP], ArrowDown: [0, GAP] }[event.key];
    if (!this.isOn || name === null) return false;
    if (event.key === "Enter") this.tool === "arc" ? this.click(event.target) : this.dialog.open(name);
    else if (event.key === "Delete") this.apply((model) => removeVariable(model, name));
    else if (step && event.shiftKey) {
      const [x, y, w, h] = this.boxes().get(name);
      this.put(name, this.free([x + step[0], y + step[1], w, h], name));
    } else return false;
    return true;
  }
}
