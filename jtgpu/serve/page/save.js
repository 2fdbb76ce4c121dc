// Files for the user, made in the browser.

import { svgEl } from "./dom.js";

/** The name of a file about a network, without its suffix. */
export const fileStem = ({ id }) => id.replace(/ \((edited|opened)[^()]*\)$/, "-$1").replace(/[^\w.-]+/g, "_") || "network";

export function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const saveText = (text, type, name) => saveFile(new Blob([text], { type }), name);
export const saveJson = (data, name) => saveText(JSON.stringify(data, null, 1), "application/json", name);

const COPIED = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];

/** The map as SVG: styles become attributes, what is invisible is left out. */
export function mapSvg(map, title) {
  const { width, height } = map.layout;
  const margin = 16;
  map.svg.classList.remove("far", "distant");
  const copy = withStyles(map.canvas);
  map.applyView();
  copy.setAttribute("transform", `translate(${margin},${margin})`);
  const background = getComputedStyle(map.root).backgroundColor;
  const sheet = svgEl("svg", { xmlns: "http://www.w3.org/2000/svg", width: width + 2 * margin, height: height + 2 * margin, viewBox: `0 0 ${width + 2 * margin} ${height + 2 * margin}`, role: "img", "aria-label": title });
  sheet.append(svgEl("rect", { width: "100%", height: "100%", fill: background }), copy);
  return { text: new XMLSerializer().serializeToString(sheet), width: width + 2 * margin, height: height + 2 * margin };
}

function withStyles(node) {
  const style = getComputedStyle(node);
  if (style.display === "none") return null;
  const copy = document.createElementNS(node.namespaceURI, node.localName);
  for (const { name, value } of node.attributes) if (["d", "x", "y", "width", "height", "rx", "transform"].includes(name)) copy.setAttribute(name, value);
  if (node.localName !== "g" && node.localName !== "title") for (const name of COPIED) copy.setAttribute(name, style.getPropertyValue(name));
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.textContent);
    else {
      const found = withStyles(child);
      if (found) copy.append(found);
    }
  }
  return copy;
}

export async function svgToPng({ text, width, height }) {
  const scale = Math.min(2, 8000 / width, 8000 / height);
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
