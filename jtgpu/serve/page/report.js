// A report as one HTML file.

import { isDecidable, NOT_DECIDABLE, policyTexts, reached } from "./decisions.js";
import { bodyOf, describeFinding, findingList, valueTexts } from "./findings.js";
import { clean, logText, percent, points, significant, whole } from "./format.js";
import { numberText } from "./numbers.js";
import { mapSvg } from "./save.js";

const [MOST_REPORTED, MOST_LISTED, MOST_CONFIGURATIONS] = [15, 10, 200];
const STYLE = `:root{color-scheme:light dark;--fg:light-dark(#1f2328,#e6edf3);--muted:light-dark(#59636e,#9ba4ae);--line:light-dark(#d1d9e0,#333b45);--bg:light-dark(#fff,#0d1117);--panel:light-dark(#f6f8fa,#151b23);--accent:light-dark(#0a5cc2,#6cb0ff);--bar:#4a90d9;--evidence:light-dark(#fdf1e4,#2e2214);--mark:#d9822b}
*{box-sizing:border-box}body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--fg);background:var(--bg);max-width:1180px;margin:0 auto;padding:28px 24px}
h1{font-size:28px;line-height:1.2;margin:0}h2{font-size:17px;margin:0 0 8px}a{color:var(--accent)}.m{color:var(--muted);margin:4px 0 16px}
.map{border:1px solid var(--line);border-radius:10px;padding:10px;background:var(--panel);margin:0 0 20px;text-align:center}svg{max-width:100%;max-height:78vh;height:auto}
.parts{columns:2 420px;column-gap:20px}section{break-inside:avoid;border:1px solid var(--line);border-radius:10px;padding:14px 16px;margin:0 0 20px;overflow-x:auto}section.wide{column-span:all}
ul{display:flex;flex-wrap:wrap;gap:6px;list-style-type:none;padding:0;margin:0}li{background:var(--evidence);border:1px solid var(--mark);border-radius:14px;padding:1px 11px}
table{border-collapse:collapse;width:100%;font-size:14px;margin:0 0 8px}th{font-weight:400;color:var(--muted);font-size:13px}td,th{border-bottom:1px solid var(--line);padding:4px 12px 4px 0;text-align:left;vertical-align:top}tr:last-child td{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td i{display:block;height:10px;margin-top:6px;border-radius:2px;background:var(--bar);min-width:1px}td.b{width:34%}
@media print{body{padding:0}section,.map{border-color:#bbb}}`;

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const table = (heads, rows) => `<table><thead><tr>${heads.map((h, k) => `<th${rows[0]?.[k]?.startsWith('<td class="n"') ? ' class="n"' : ""}>${escaped(h)}</th>`).join("")}</tr></thead><tbody>${rows.map((row) => `<tr>${row.join("")}</tr>`).join("")}</tbody></table>`;
const text = (value) => `<td>${escaped(value)}</td>`;
const figureOf = (value) => `<td class="n">${escaped(value)}</td>`;
const bar = (p) => `<td class="b"><i style="width:${(100 * p).toFixed(1)}%"></i></td>`;
const section = (title, body, isWide = false) => `<section${isWide ? ' class="wide"' : ""}><h2>${escaped(title)}</h2>${body}</section>`;

/** The report as text, with answers of the server. */
export async function reportHtml(store, map, address) {
  const { network, answer, scenarios, chosen, changes } = store;
  const list = store.listed.map(([t, v, finding]) => describeFinding(network, v, finding) + (network.slices && !network.slices.fixed.has(v) ? ` in slice ${t}` : ""));
  list.push(...store.listedValues.map(([t, name, , value]) => valueTexts({ [name]: value }) + (t === undefined ? "" : ` in slice ${t}`)));
  const head = [`<h1>${escaped(network.title)}</h1>`, `<p class="m">${network.sizeText}. Created ${escaped(new Date().toISOString().slice(0, 16).replace("T", " "))} UTC with jtgpu.${address ? ` <a href="${escaped(address)}">Open in jtgpu</a>` : ""}</p>`, `<div class="map">${mapSvg(map, network.title).text}</div>`];
  const slice = network.slices ? `<p class="m">Bars of slice ${store.slice} (${store.length} slices, 0 to ${store.length - 1}), ${store.question === "filter" ? "given the slices so far" : "given all slices"}.</p>` : "";
  const parts = [section("Evidence", `${list.length ? `<ul>${list.map((line) => `<li>${escaped(line)}</li>`).join("")}</ul><p>${escaped(store.evidenceText)}</p>` : "<p>None.</p>"}${slice}`)];
  for (const v of chosen) {
    const rows = network.stateTexts[v].map((state, i) => [text(state), bar(answer.posteriors[v][i]), figureOf(`${percent(answer.posteriors[v][i])} %`), figureOf(`${percent(network.prior[v][i])} %`)]);
    parts.push(section(network.texts[v], table(["state", "", "posterior", "prior"], rows)));
  }
  if (changes.length) {
    const rows = changes.slice(0, MOST_REPORTED).map(([v, i, prior, p]) => [text(network.texts[v]), text(network.stateTexts[v][i]), figureOf(`${percent(prior)} %`), figureOf(`${percent(p)} %`), figureOf(points(p - prior))]);
    parts.push(section("What changed most", table(["variable", "state", "prior", "posterior", "change (pp)"], rows)));
  }
  const { target } = store;
  if (target !== null && network.questions.has("voi") && answer.findings[target]?.states?.length !== 1) {
    const { observations } = await store.ask("voi", { target: network.names[target], most: MOST_LISTED });
    const rows = observations.filter((o) => o.gain > 1e-9).map((o) => [text(o.variable), figureOf(significant(o.gain / Math.LN2, 3)), figureOf(`${percent(o.expected_accuracy)} %`)]);
    if (rows.length) parts.push(section(`What to observe next about ${network.texts[target]}`, table(["variable", "gain (bits)", "expected accuracy"], rows)));
  }
  const numbers = network.numbers.map(({ name, prior }) => [text(clean(name)), figureOf(numberText(store.numberOf(name))), figureOf(prior ? numberText(prior) : "")]);
  if (numbers.length) parts.push(section("Numbers", table(["variable", "mean \u00b1 sd", "prior"], numbers)));
  if (network.decisions.size) parts.splice(1, 0, await decisionPart(store));
  if (scenarios.length) parts.push(await scenarioTable(store, chosen));
  return `<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escaped(network.title)}</title><style>${STYLE}</style></head><body>\n${head.join("\n")}\n<div class="parts">\n${parts.join("\n")}\n</div>\n</body></html>\n`;
}

async function decisionPart(store) {
  const { api, network, answer: { findings } } = store;
  const listed = (expected) => network.utilities.map(({ name, text: shown, parents }) => [text(shown), text(parents.map((v) => network.texts[v]).join(", ") || "nothing"), figureOf(expected ? significant(expected[name], 6) : "")]);
  const heads = ["utility", "depends on", "expected"];
  if (!isDecidable(network, findings)) return section("Decisions", `${table(heads, listed(null))}<p>${NOT_DECIDABLE}</p>`);
  const { evidence, do: made } = bodyOf(network, findings);
  const best = await api.ask(network.id, "policy", { evidence: { ...evidence, ...made } });
  const [before, after] = policyTexts(store, best);
  const parts = [`<p>${before}<b>${escaped(significant(best.expected_utility, 6))}</b>${escaped(after)}</p>`, table(heads, listed(best.utilities))];
  for (const [d, rows] of Object.entries(best.policy)) {
    const known = reached(rows);
    const shown = (known.length ? known : rows.filter(({ option }) => option !== null)).slice(0, MOST_CONFIGURATIONS);
    const choices = shown.map(({ known: row, option }) => [text(Object.entries(row).map(([v, s]) => `${v} = ${s}`).join(", ") || "nothing"), text(option)]);
    parts.push(table(["best policy: if it is known that", d], choices));
    if (known.length > shown.length) parts.push(`<p class="m">${shown.length} of ${whole(known.length)} rows</p>`);
  }
  return section("Decisions", parts.join("\n"));
}

async function scenarioTable({ api, network, scenarios }, variables) {
  const { results } = await api.ask(network.id, "posteriors", { cases: scenarios.map((s) => bodyOf(network, s.findings)) });
  const head = ["", ...scenarios.map((s) => s.title)];
  const rows = [[text("evidence"), ...scenarios.map((s) => text(findingList(s.findings).map(([v, f]) => describeFinding(network, v, f)).join("; ") || "none"))]];
  rows.push([text("ln P(e)"), ...results.map((r) => figureOf(r.error ? r.error.title : logText(r.log_evidence - network.base, 5)))]);
  for (const v of variables) network.stateTexts[v].forEach((state, i) => rows.push([text(`${network.texts[v]} = ${state}`), ...results.map((r) => figureOf(r.error ? "" : `${percent(r.posteriors[network.names[v]][i])} %`))]));
  return section("Scenarios", table(head, rows), true);
}
