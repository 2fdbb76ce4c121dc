// The page: the token, the server's networks, the address as state.

import { httpApi, insisted } from "./api.js";
import { App } from "./app.js";
import { encodeLink, decodeLink, linkedNetwork } from "./link.js";
import { Network } from "./network.js";
import { savedToken, saveToken, takeToken } from "./token.js";

const LINK_DELAY = 120; // ms between a change and the address that has it: browsers limit how often it may change

class Page {
  constructor(root) {
    const base = new URL(".", window.location.href).pathname.replace(/\/$/, ""); // the page may be mounted in a folder
    const api = httpApi({ base, token: savedToken });
    this.api = api;
    this.app = new App(root, api, {
      canLink: true,
      hasTables: true,
      onNetwork: (id) => this.load(id, ""),
      onEdited: (id) => this.showEdited(id),
      onToken: (token) => {
        saveToken(token);
        this.start();
      },
    });
    const { store } = this.app;
    store.on("network findings picked targets scenarios", () => this.scheduleLink());
    window.addEventListener("hashchange", () => this.follow());
  }

  async start() {
    const { networks, formats } = await this.insist(() => this.api.networks());
    this.networks = networks;
    this.app.share.formats = formats;
    const linked = linkedNetwork(window.location.hash);
    const names = networks.map((network) => network.name);
    const id = names.includes(linked) ? linked : names[0];
    if (linked !== null && linked !== id) this.app.banner.say(`The link is about the network ${linked}, which this server does not have.`);
    await this.load(id, window.location.hash);
  }

  async load(id, fragment) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.app.setNetworks(this.networks, id);
    const network = new Network(id, await this.insist(() => this.api.network(id)));
    if (turn !== this.turn) return; // another one was chosen while this one came
    document.title = `${network.title} \u2013 jtgpu`;
    const { unknown, ...state } = decodeLink(network, fragment);
    if (linkedNetwork(fragment) === id && unknown.length) this.app.banner.say(`Left out of the link, since this network does not have it: ${unknown.slice(0, 5).join(", ")}`);
    await this.app.setNetwork(network, state);
  }

  /** Show a new network, with the present evidence as far as it fits. */
  async showEdited(id) {
    const { store } = this.app;
    const fragment = encodeLink(store.network, store).replace(/^n=[^&]*/, `n=${encodeURIComponent(id)}`);
    this.networks = (await this.insist(() => this.api.networks())).networks;
    await this.load(id, `#${fragment}`);
  }

  async insist(question) {
    const { banner, token } = this.app;
    try {
      const answer = await insisted(question, () => banner.say("The server does not answer; the page tries again by itself."));
      banner.say(null);
      return answer;
    } catch (error) {
      if (error.kind !== "missing-token") {
        banner.say(error.message);
        throw error;
      }
      token.open();
      return new Promise(() => {});
    }
  }

  scheduleLink() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.writeLink(), LINK_DELAY);
  }

  writeLink() {
    const { store } = this.app;
    this.written = `#${encodeLink(store.network, store)}`;
    if (window.location.hash !== this.written) window.history.replaceState(null, "", this.written);
  }

  /** Another fragment in the address: somebody pasted a link. */
  follow() {
    takeToken();
    const { store } = this.app;
    const { hash } = window.location;
    if (!store.network || hash === this.written) return;
    const id = linkedNetwork(hash);
    if (id !== null && (id !== store.network.id || store.network.slices) && this.networks.some((network) => network.name === id)) {
      this.load(id, hash);
      return;
    }
    const { findings, targets, picked, scenarios } = decodeLink(store.network, hash);
    store.targets = targets;
    store.emit("targets");
    store.pick(picked);
    store.setScenarios(scenarios);
    store.setFindings(findings);
  }
}

takeToken();
new Page(document.getElementById("app")).start();
