// The page in a notebook: questions are messages, evidence is shared.

import { Problem } from "./api.js";
import { App } from "./app.js";
import { bodyOf, findingsOf, isSameEvidence } from "./findings.js";
import { Network } from "./network.js";

const KIND_TRAITS = ["evidence", "likelihood", "soft", "do"];

/** The methods of `httpApi` that a notebook has, as messages. */
function messageApi(model) {
  const waiting = new Map();
  let serial = 0;
  const receive = ({ id, answer, problem }) => {
    const call = waiting.get(id);
    if (!call) return;
    waiting.delete(id);
    if (problem) call.reject(new Problem(problem));
    else call.resolve(answer);
  };
  model.on("msg:custom", receive);
  const call = (method, parameters, signal) =>
    new Promise((resolve, reject) => {
      const id = `${Date.now()}-${(serial += 1)}`;
      waiting.set(id, { resolve, reject });
      signal?.addEventListener("abort", () => {
        waiting.delete(id);
        reject(new DOMException("cancelled", "AbortError"));
      });
      model.send({ id, method, arguments: parameters });
    });
  return {
    stop: () => model.off("msg:custom", receive),
    network: () => call("network", []),
    layout: (_, nodes, canvas, __, signal) => call("layout", [nodes, canvas], signal),
    overview: () => call("overview", []),
    cpt: (_, name, signal) => call("cpt", [name], signal),
    ask: (_, question, body, signal) => call("ask", [question, body], signal),
  };
}

function render({ model, el: root }) {
  const api = messageApi(model);
  const frame = document.createElement("div");
  frame.style.height = `${model.get("height")}px`;
  root.append(frame);
  const app = new App(frame, api);
  const { store } = app;
  const traits = () => Object.fromEntries(KIND_TRAITS.map((kind) => [kind, model.get(kind) || {}]));
  const targets = (network) => (model.get("targets") || []).map((name) => network.number.get(name)).filter((v) => v !== undefined);
  const push = () => {
    const body = bodyOf(store.network, store.findings);
    for (const kind of KIND_TRAITS) {
      const part = { ...(body[kind] || {}) };
      if (!isSameEvidence(part, model.get(kind))) model.set(kind, part);
    }
    model.set("targets", store.targets.map((v) => store.network.names[v]));
    model.save_changes();
  };
  const pull = () => {
    if (!store.network) return;
    const findings = findingsOf(store.network, traits());
    if (!isSameEvidence(bodyOf(store.network, findings), bodyOf(store.network, store.findings))) store.setFindings(findings);
  };
  api.network().then(async (description) => {
    const network = new Network("network", description);
    app.setNetworks([], null);
    await app.setNetwork(network, { findings: findingsOf(network, traits()), targets: targets(network) });
    store.on("answer targets", push);
    for (const kind of KIND_TRAITS) model.on(`change:${kind}`, pull);
  });
  return () => api.stop();
}

export default { render };
