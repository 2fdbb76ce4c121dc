// The question that the page shows, as Python, curl and a command. Pure.

import { bodyOf } from "./findings.js";

const shell = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

const sourceOf = (network) => network.source || `${network.id}.${network.formats?.[0] ?? "net"}`;

function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([k, v]) => `${python(k)}: ${python(v)}`).join(", ")}}`;
  return JSON.stringify(value);
}

export function asPython(network, { findings, targets }) {
  const { evidence, ...more } = bodyOf(network, findings);
  const parts = [evidence ? python(evidence) : null, ...Object.entries(more).map(([kind, part]) => `${kind}=${python(part)}`)];
  const names = targets.map((v) => network.names[v]);
  if (names.length) parts.push(`targets=${python(names)}`);
  const unknown = network.source ? "" : "  # the file of this network";
  return `import jtgpu\n\ntree = jtgpu.load(${python(sourceOf(network))}).compile()${unknown}\nprint(tree.posteriors(${parts.filter(Boolean).join(", ")}))\n`;
}

export function asCurl(network, state, address, hasToken = false) {
  const body = { ...state.body, targets: state.targets.length ? state.targets.map((v) => network.names[v]) : null };
  const token = hasToken ? `  -H "Authorization: Bearer $TOKEN" \\\n` : "";
  return `curl -s ${shell(address)} \\\n  -H 'Content-Type: application/json' \\\n${token}  -d ${shell(JSON.stringify(body))}\n`;
}

/** The command; null where there is evidence that it does not take. */
export function asCommand(network, { findings, targets }) {
  const { evidence = {}, ...more } = bodyOf(network, findings);
  if (Object.keys(more).length) return null;
  const parts = Object.entries(evidence).map(([name, state]) => `-e ${shell(`${name}=${[state].flat().join(",")}`)}`);
  parts.push(...targets.map((v) => `-t ${shell(network.names[v])}`));
  return ["jtgpu query", shell(sourceOf(network)), ...parts].join(" ");
}
