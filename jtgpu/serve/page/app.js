// The whole page in one element: the same in a browser and in a notebook.

import { analysisPanels, WhyPanel } from "./analysis.js";
import { Card } from "./card.js";
import { CptViewer } from "./cpt.js";
import { EditDialog, EditSession } from "./edit.js";
import { button, el, isTyping, setAttribute, setPressed, setText } from "./dom.js";
import { Editor } from "./editor.js";
import { count, logText, probabilityOf, significant } from "./format.js";
import { HelpDialog, ThemeButton, TokenDialog } from "./frame.js";
import { ListView } from "./list.js";
import { MapView } from "./map.js";
import { MapEdit } from "./mapedit.js";
import { NumberPanel } from "./numbers.js";
import { Overview } from "./overview.js";
import { PanelRunner } from "./panels.js";
import { ScenarioPanel } from "./scenarios.js";
import { ShareDialog } from "./share.js";
import { spokenVariable } from "./speech.js";
import { Store } from "./store.js";
import { TablePanel } from "./tables.js";
import { TimeBar, TimePanel } from "./time.js";
import { Banner, Tray } from "./tray.js";

const TABS = { list: "Variables", map: "Map", side: "Analysis" };
const NARROW_HEAD = 560; // pixels of a window, as in page.css
const NETWORK_FILE = /^(.+?)\.((?:dynamic\.json|mixed\.json|net|oobn|bif|xmlbif|bifxml|xml|xdsl|dsl|dsc|dne|dnet|uai|erg|fg)(?:\.gz|\.xz)?)$/i;
const OF_TABLES = new Set(["tornado", "joint", "scenarios", "tables"]); // panels
const SLOW = 150; // ms after which the page says that it waits

export class App {
  /**
   * @param {HTMLElement} root
   * @param {object} api see api.js
   * @param {object} options canLink: the address holds the state; hasTables; onNetwork(id): the user chose another network
   */
  constructor(root, api, { canLink = false, hasTables = false, onNetwork = null, onToken = null, onEdited = null } = {}) {
    this.root = root;
    this.isPage = canLink; // and not a part of a notebook
    this.store = new Store(api);
    const { store } = this;
    const actions = {
      open: (v) => this.open(v),
      edit: (v) => this.editor.open(v),
      showCpt: (v, entry) => this.cpt.open(v, entry),
      rerun: () => this.runner.run(),
      askToken: () => this.token.open(),
      onMapDrawn: () => this.overview.update(),
    };
    this.map = new MapView(store, actions);
    this.overview = new Overview(store, () => this.map.layout?.nodes || []);
    this.list = new ListView(store, actions);
    const why = new WhyPanel(store, actions);
    this.card = new Card(store, actions, why);
    this.tray = new Tray(store, actions);
    this.time = new TimeBar(store);
    this.banner = new Banner(store, actions);
    this.editor = new Editor(store);
    this.cpt = new CptViewer(store);
    this.share = new ShareDialog(store, this.map, canLink);
    if (onEdited) {
      const session = new EditSession(store, onEdited);
      this.edit = new EditDialog(session);
      this.mapEdit = new MapEdit(session, this.edit, this.map);
    }
    this.onEdited = onEdited;
    this.help = new HelpDialog();
    this.token = new TokenDialog(onToken);
    const numbers = new NumberPanel(store);
    actions.openNumber = (name) => {
      this.showTab("side");
      numbers.focus(name);
    };
    const panels = [new TimePanel(store), numbers, ...analysisPanels(store, actions), new ScenarioPanel(store, actions)];
    if (hasTables) panels.push((this.tables = new TablePanel(store, actions)));
    this.runner = new PanelRunner(store, [why, ...panels]);
    this.live = el("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
    const group = (title, parts) => el("section", { class: "panel-group", "aria-label": title }, el("h2", {}, title), ...parts.map((panel) => panel.root));
    this.sheet = el("div", { class: "jtgpu-main", "data-tab": "list" }, this.list.root, el("section", { class: "map-column", "aria-label": "Map" }, this.mapEdit?.root, this.map.root, this.overview.root), this.card.root, el("section", { class: "panels", "aria-label": "Analysis" }, group("This case", panels.filter((panel) => !OF_TABLES.has(panel.name))), group("Tables and scenarios", panels.filter((panel) => OF_TABLES.has(panel.name)))));
    const dialogs = [this.editor, this.cpt, this.share, this.help, this.token, this.edit].filter(Boolean).map((part) => part.root);
    root.classList.add("jtgpu");
    root.append(this.header(onNetwork), this.banner.root, this.tray.root, this.time.root, this.sheet, this.tabs(), this.live, ...dialogs);
    this.listen();
  }

  header(onNetwork) {
    const { store } = this;
    this.networkSelect = el("select", { class: "network-select", "aria-label": "Network", onchange: () => onNetwork?.(this.networkSelect.value) });
    this.title = el("h1", {}, "jtgpu");
    this.status = el("output", { class: "status", "aria-live": "off" });
    this.undoButton = button("\u21b6", () => store.undo(), { title: "Undo (u)", "aria-label": "Undo" });
    this.redoButton = button("\u21b7", () => store.redo(), { title: "Redo (U)", "aria-label": "Redo" });
    return el(
      "header",
      { class: "jtgpu-head" },
      this.title,
      this.networkSelect,
      this.status,
      el(
        "div",
        { class: "head-tools", role: "toolbar", "aria-label": "Page" },
        this.undoButton,
        this.redoButton,
        ...this.fileButtons(),
        button("Export", () => this.share.open(), { title: "Link, picture, posteriors, code" }),
        new ThemeButton(this.root).root,
        button("?", () => this.help.open(), { title: "Help and keys (?)", "aria-label": "Help and keys" }),
      ),
    );
  }

  /** Open a file and edit the network, where the server takes networks. */
  fileButtons() {
    if (!this.edit) return [];
    this.fileInput = el("input", { type: "file", class: "visually-hidden", "aria-label": "Network file", tabindex: -1, onchange: () => this.fileInput.files.length && this.openFile(this.fileInput.files[0]) });
    const toggle = () => {
      this.showTab("map");
      this.mapEdit.set(!this.mapEdit.isOn);
    };
    this.editButton = button("Edit", toggle, { title: "Edit nodes, arcs and numbers", "aria-pressed": "false" });
    this.mapEdit.onSet = (isOn) => setPressed(this.editButton, isOn);
    this.openButton = button("Open", () => this.fileInput.click(), { title: "Open a network file" });
    this.store.on("network", () => {
      const { network } = this.store;
      this.openButton.hidden = this.editButton.hidden = Boolean(network.limits.read_only);
    });
    return [this.fileInput, this.openButton, this.editButton];
  }

  async openFile(file) {
    const found = NETWORK_FILE.exec(file.name);
    this.fileInput.value = "";
    if (!found) {
      this.banner.say(`${file.name} is not a network file (.net, .bif, .xdsl, .dne ...)`);
      return;
    }
    const taken = [...this.networkSelect.options].map((option) => option.value);
    const id = taken.includes(found[1]) ? `${found[1]} (opened ${new Date().toISOString().slice(11, 19)})` : found[1];
    try {
      await this.store.api.put(id, file, "application/octet-stream", found[2].toLowerCase());
    } catch (error) {
      this.banner.say(`${file.name}: ${error.message}`);
      return;
    }
    this.banner.say(null);
    this.onEdited(id);
  }

  tabs() {
    this.tabButtons = Object.entries(TABS).map(([name, text]) => button(text, () => this.showTab(name), { "data-tab": name, "aria-pressed": name === "list" ? "true" : "false" }));
    return el("nav", { class: "tabs", "aria-label": "Parts of the page" }, ...this.tabButtons);
  }

  showTab(name) {
    this.sheet.dataset.tab = name;
    for (const node of this.tabButtons) setPressed(node, node.dataset.tab === name);
    if (name === "side") this.runner.run();
    if (name === "map") this.map.centre(this.store.picked, false);
  }

  setNetworks(networks, chosen) {
    this.root.dataset.state = "loading";
    this.networkSelect.replaceChildren(...networks.map(({ name, variables }) => el("option", { value: name, selected: name === chosen }, window.innerWidth < NARROW_HEAD ? name : `${name} (${count(variables, "variable")})`)));
    this.networkSelect.hidden = networks.length === 0;
  }

  setNetwork(network, state) {
    return this.store.setNetwork(network, state);
  }

  listen() {
    const { store, root } = this;
    store.on("asking", () => {
      root.dataset.state = "asking";
      clearTimeout(this.slow);
      this.slow = setTimeout(() => root.classList.add("is-waiting"), SLOW);
    });
    store.on("answer", () => {
      clearTimeout(this.slow);
      root.classList.remove("is-waiting");
      root.classList.toggle("is-impossible", store.isImpossible);
      root.dataset.state = "ready";
      this.showStatus();
      this.speak();
    });
    store.on("status", () => {
      root.classList.toggle("is-lost", store.status === "lost");
      this.showStatus();
    });
    store.on("network findings", () => {
      this.undoButton.disabled = !store.history.past.length;
      this.redoButton.disabled = !store.history.future.length;
    });
    store.on("picked", () => {
      root.classList.toggle("has-card", store.picked !== null);
      this.speak();
    });
    store.on("network", () => {
      root.classList.toggle("has-card", store.picked !== null);
      root.classList.toggle("over-time", store.network.slices !== null);
    });
    (this.isPage ? document : root).addEventListener("keydown", (event) => this.key(event));
    if (this.tables) this.acceptFiles();
  }

  acceptFiles() {
    const { root } = this;
    root.addEventListener("dragover", (event) => {
      event.preventDefault();
      root.classList.add("is-dropping");
    });
    root.addEventListener("dragleave", (event) => event.relatedTarget || root.classList.remove("is-dropping"));
    root.addEventListener("drop", (event) => {
      event.preventDefault();
      root.classList.remove("is-dropping");
      if (!event.dataTransfer.files.length || !this.store.network) return;
      if (this.edit && NETWORK_FILE.test(event.dataTransfer.files[0].name)) {
        this.openFile(event.dataTransfer.files[0]);
        return;
      }
      this.showTab("side");
      this.tables.take(event.dataTransfer.files[0]);
      this.tables.root.scrollIntoView({ block: "nearest" });
    });
  }

  showStatus() {
    const { store } = this;
    const { answer, network, status } = store;
    if (!network || !answer) return;
    if (status === "lost") {
      setText(this.status, "no answer from the server");
      return;
    }
    if (store.isImpossible) {
      setText(this.status, "P(e) = 0");
      return;
    }
    const n = Object.keys(answer.findings).length;
    if (Object.keys(network.values).length) setText(this.status, `ln density = ${logText(answer.logEvidence, 5)}`);
    else if (!n) setText(this.status, network.sizeText);
    else setText(this.status, `ln P(e) = ${logText(answer.logEvidence, 5)}  \u00b7  P(e) = ${probabilityOf(answer.logEvidence)}`);
    setAttribute(this.status, "title", answer.ms ? `computed in ${significant(answer.ms.computed, 3)} ms` : null);
  }

  speak() {
    const { store } = this;
    clearTimeout(this.speaking);
    // by then, another network may be shown
    this.speaking = setTimeout(() => store.target !== null && store.isFresh && setText(this.live, spokenVariable(store, store.picked ?? store.target)), 100);
  }

  observe(v, state) {
    const { store } = this;
    if (state < store.network.states[v].length) store.toggle(v, state);
  }

  open(v) {
    this.store.pick(v);
    const active = this.root.contains(document.activeElement) ? document.activeElement : null;
    if (active && active.matches(".box, .search, .list")) this.card.focus();
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("dialog") || this.root.querySelector("dialog[open]") || isTyping(event.target) || !this.store.network) return;
    const { store } = this;
    const { picked } = store;
    const keys = {
      "/": () => {
        this.showTab("list");
        this.list.search.focus();
        this.list.search.select();
      },
      u: () => store.undo(),
      U: () => store.redo(),
      e: () => picked !== null && this.editor.open(picked),
      t: () => picked !== null && store.toggleTarget(picked),
      0: () => picked !== null && store.unset(picked),
      f: () => this.map.fit(),
      "+": () => this.map.zoom(1.25),
      "-": () => this.map.zoom(0.8),
      m: () => {
        this.showTab("map");
        this.map.focusBox(picked !== null && this.map.boxes.has(picked) ? picked : this.map.layout?.nodes[0]);
      },
      "?": () => this.help.open(),
      Escape: () => store.pick(null),
    };
    if (/^[1-9]$/.test(event.key) && picked !== null) this.observe(picked, Number(event.key) - 1);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  }
}
