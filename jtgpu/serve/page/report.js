// A report as one HTML file.

import { isDecidable, NOT_DECIDABLE, reached } from "./decisions.js";
import { bodyOf, describeFinding, findingList } from "./findings.js";
import { logText, percent, points, probabilityOf, significant } from "./format.js";
import { totalVariation } from "./measures.js";
import { mapSvg } from "./save.js";

const [MOST_REPORTED, MOST_LISTED, MOST_CONFIGURATIONS] = [15, 10, 200];
const STYLE = "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:24px auto;padding:0 16px;color:#1f2328}table{border-collapse:collapse;margin:8px 0}td,th{border-bottom:1px solid #d1d9e0;padding:3px 12px 3px 0;text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}i{display:inline-block;height:9px;background:#4a90d9}svg{max-width:100%;height:auto}.m{color:#59636e}";

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const table = (heads, rows) => `<table><thead><tr>${heads.map((h) => `<th>${escaped(h)}</th>`).join("")}</tr></thead><tbody>${rows.map((row) => `<tr>${row.join("")}</tr>`).join("")}</tbody></table>`;
const text = (value) => `<td>${escaped(value)}</td>`;
const figure = (value) => `<td class="n">${escaped(value)}</td>`;
const bar = (p) => `<td><i style="width:${Math.round(160 * p)}px"></i></td>`;

/** The report as text, with answers of the server. */
export async function reportHtml(store, map, address) {
  const { api, network, answer, targets, picked, scenarios, findings } = store;
  const list = findingList(answer.findings).map(([v, finding]) => describeFinding(network, v, finding));
  const parts = [`<h1>${escaped(network.title)}</h1>`, `<p class="m">${network.size} variables, ${network.arcs} arcs. Made ${escaped(new Date().toISOString().slice(0, 16).replace("T", " "))} UTC with jtgpu.${address ? ` <a href="${escaped(address)}">Open</a>` : ""}</p>`];
  parts.push("<h2>Evidence</h2>", list.length ? `<ul>${list.map((line) => `<li>${escaped(line)}</li>`).join("")}</ul><p>ln P(e) = ${escaped(logText(answer.logEvidence, 6))}, P(e) = ${escaped(probabilityOf(answer.logEvidence))}</p>` : "<p>None.</p>");
  const chosen = [...new Set([...targets, ...(picked === null ? [] : [picked])])];
  for (const v of chosen) {
    const rows = network.stateTexts[v].map((state, i) => [text(state), bar(answer.posteriors[v][i]), figure(`${percent(answer.posteriors[v][i])} %`), figure(`${percent(network.prior[v][i])} %`)]);
    parts.push(`<h2>${escaped(network.texts[v])}</h2>`, table(["state", "", "posterior", "prior"], rows));
  }
  const changes = network.names.map((_, v) => [v, totalVariation(answer.posteriors[v], network.prior[v])]).filter(([v, d]) => d >= 0.0005 && !findings[v]);
  changes.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  if (changes.length) {
    const rows = changes.slice(0, MOST_REPORTED).map(([v]) => {
      const deltas = answer.posteriors[v].map((p, i) => p - network.prior[v][i]);
      const i = deltas.indexOf(Math.max(...deltas));
      return [text(network.texts[v]), text(network.stateTexts[v][i]), figure(`${percent(network.prior[v][i])} %`), figure(`${percent(answer.posteriors[v][i])} %`), figure(points(deltas[i]))];
    });
    parts.push("<h2>What changed most</h2>", table(["variable", "state", "prior", "posterior", "change (pp)"], rows));
  }
  const { target } = store;
  if (target !== null && answer.findings[target]?.states?.length !== 1) {
    const { observations } = await api.ask(network.id, "voi", { ...bodyOf(network, answer.findings), target: network.names[target], most: MOST_LISTED });
    const rows = observations.filter((o) => o.gain > 1e-9).map((o) => [text(o.variable), figure(significant(o.gain / Math.LN2, 3)), figure(`${percent(o.expected_accuracy)} %`)]);
    if (rows.length) parts.push(`<h2>What to observe next about ${escaped(network.texts[target])}</h2>`, table(["variable", "gain (bits)", "expected accuracy"], rows));
  }
  if (network.decisions.size) parts.push(...(await decisionParts(store)));
  if (scenarios.length) parts.push(...(await scenarioTable(store, chosen)));
  parts.push("<h2>Map</h2>", mapSvg(map, network.title).text);
  return `<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escaped(network.title)}</title><style>${STYLE}</style></head><body>\n${parts.join("\n")}\n</body></html>\n`;
}

/** Utilities, the expected utility and the best policy. */
async function decisionParts({ api, network, answer: { findings } }) {
  const list = network.utilities.map(({ text: name, parents }) => [text(name), text(parents.map((v) => network.texts[v]).join(", ") || "nothing")]);
  const parts = ["<h2>Decisions</h2>", table(["utility", "depends on"], list)];
  if (!isDecidable(network, findings)) return [...parts, `<p>${NOT_DECIDABLE}</p>`];
  const { evidence, do: made } = bodyOf(network, findings);
  const best = await api.ask(network.id, "policy", { evidence: { ...evidence, ...made } });
  parts.push(`<p>Expected utility <b>${escaped(significant(best.expected_utility, 6))}</b> (${escaped(best.method)}).</p>`);
  for (const [d, rows] of Object.entries(best.policy)) {
    const known = reached(rows);
    const shown = (known.length ? known : rows.filter(({ option }) => option !== null)).slice(0, MOST_CONFIGURATIONS);
    const choices = shown.map(({ known: row, option }) => [text(Object.entries(row).map(([v, s]) => `${v} = ${s}`).join(", ") || "nothing"), text(option)]);
    parts.push(table(["best policy: if it is known that", d], choices));
    if (known.length > shown.length) parts.push(`<p class="m">${shown.length} of ${known.length.toLocaleString("en")} rows</p>`);
  }
  return parts;
}

async function scenarioTable({ api, network, scenarios }, variables) {
  const { results } = await api.ask(network.id, "posteriors", { cases: scenarios.map((s) => bodyOf(network, s.findings)) });
  const head = ["", ...scenarios.map((s) => s.title)];
  const rows = [[text("evidence"), ...scenarios.map((s) => text(findingList(s.findings).map(([v, f]) => describeFinding(network, v, f)).join("; ") || "none"))]];
  rows.push([text("ln P(e)"), ...results.map((r) => figure(r.error ? r.error.title : logText(r.log_evidence, 5)))]);
  for (const v of variables) network.stateTexts[v].forEach((state, i) => rows.push([text(`${network.texts[v]} = ${state}`), ...results.map((r) => figure(r.error ? "" : `${percent(r.posteriors[network.names[v]][i])} %`))]));
  return ["<h2>Scenarios</h2>", table(head, rows)];
}
