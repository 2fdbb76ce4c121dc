// Values of numbers in links, undo and scenarios, without a browser: node numbers_check.mjs FOLDER_OF_THE_PAGE
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/${name}.js`));
const [{ Network }, { Store }, { bodyOf, findingsOf, valueTexts }, { decodeLink, encodeLink }, { Problem }] = await Promise.all(["network", "store", "findings", "link", "api"].map(load));
const network = () => new Network("w", { variables: [{ name: "s", states: ["a", "b"] }], arcs: [], prior: [[0.5, 0.5]], numbers: [{ name: "x:1" }, { name: "y" }] });
const asked = [];
const api = {
  ask: async (id, question, body) => {
    asked.push([question, body.evidence]);
    if (body.evidence.y === 13) throw new Problem({ title: "no", detail: "no 13" }, 422);
    return { posteriors: { s: [0.4, 0.6] }, numbers: {}, log_evidence: -1, ms: 1 };
  },
};
const store = new Store(api);
await store.setNetwork(network());
await store.setValue("x:1", 1.5);
await store.setFindings({ 0: { kind: "observed", states: [1] } });
await store.setValue("y", [null, 2]);
assert.deepEqual({ ...asked.at(-1)[1] }, { s: "b", "x:1": 1.5, y: [null, 2] });
assert.equal(asked.at(-1)[0], "posteriors");
const link = encodeLink(store.network, store);
assert.equal(link, "n=w&e=s:b&x=x%3A1:1.5&x=y:..2");
store.setScenarios([{ title: "A", findings: store.findings }]);
await store.undo();
assert.deepEqual(store.network.values, { "x:1": 1.5 });
await store.undo();
await store.undo();
assert.deepEqual([store.network.values, { ...store.findings }], [{}, {}]);
await store.redo();
assert.deepEqual(store.network.values, { "x:1": 1.5 });
await store.setValue("y", 13); // refused: taken back
await new Promise((resolve) => setTimeout(resolve, 10));
assert.deepEqual(store.network.values, { "x:1": 1.5 });
assert.equal(store.problem.title, "Not answered");
await store.setFindings(store.scenarios[0].findings);
assert.deepEqual(store.network.values, { "x:1": 1.5, y: [null, 2] });
const body = bodyOf(store.network, store.scenarios[0].findings);
await store.clearAll();
assert.deepEqual([store.network.values, { ...store.findings }], [{}, {}]);
assert.deepEqual(findingsOf(store.network, JSON.parse(JSON.stringify(body))).values, { "x:1": 1.5, y: [null, 2] });
assert.deepEqual({ ...bodyOf(store.network, store.scenarios[0].findings).evidence }, { ...body.evidence });

const other = new Store(api);
const { unknown, ...state } = decodeLink(network(), `#${link}&x=z:1&x=y:warm&c=B&x=y:3`);
assert.deepEqual(unknown, ["z:1", "y:warm"]);
await other.setNetwork(network(), state);
assert.deepEqual(other.network.values, { "x:1": 1.5, y: [null, 2] });
assert.deepEqual(valueTexts(other.scenarios[0].findings.values), ["y = 3"]);
assert.equal(encodeLink(other.network, other), `${link}&c=B&x=y:3`);
