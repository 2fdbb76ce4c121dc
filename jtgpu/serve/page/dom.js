// Elements. Text reaches the page as text nodes and attributes only, never as markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes: strings, booleans, `on...`: event listeners. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svgEl(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children.flat().filter(Boolean));
  return node;
}

/** Replace the children of an element; null is none. */
export function fill(node, ...children) {
  node.replaceChildren(...children.filter(Boolean));
}

/** A button with a picture of 16 pixels in place of a sign that a font may lack. */
export function iconButton(path, label, onclick) {
  const icon = svgEl("svg", { class: "icon", viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, svgEl("path", { d: path }));
  return el("button", { type: "button", title: label, "aria-label": label, onclick }, icon);
}

/** Set or remove an attribute; unchanged attributes are not touched. */
export function setAttribute(node, name, value) {
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

/** Set the text of an element that has no other children. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

/** A paragraph in grey. */
export const muted = (text, attributes = {}) => el("p", { class: "muted", ...attributes }, text);

/** A menu of [value, text]; `onchange` gets the value that is chosen. */
export function select(label, options, chosen, onchange) {
  const all = options.map(([value, text, more = {}]) => el("option", { value, selected: String(value) === String(chosen), ...more }, text));
  return el("select", { "aria-label": label, onchange: (event) => onchange?.(event.target.value) }, ...all);
}

export const setPressed = (node, isPressed) => setAttribute(node, "aria-pressed", isPressed ? "true" : "false");

/** A dialog; what is in it goes when it closes, unless it is `lasting`. */
export class Dialog {
  constructor(name, label, isLasting = false) {
    this.dialog = el("dialog", { class: `dialog ${name}`, "aria-label": label, onclose: () => isLasting || this.dialog.replaceChildren() });
    this.root = this.dialog;
  }

  closeButton(text = "Close") {
    return button(text, () => this.dialog.close());
  }

  open() {
    if (!this.dialog.open) this.dialog.showModal();
  }
}

export const dialogButtons = (...buttons) => el("div", { class: "dialog-buttons" }, ...buttons);

/** Whether the keyboard writes text at the moment. */
export function isTyping(target) {
  if (!target || !target.closest) return false;
  const field = target.closest("input, textarea, select, [contenteditable]");
  return Boolean(field) && !["checkbox", "radio", "range", "button"].includes(field.type);
}

/** Whether fingers are what points: there is no right button and no Shift. */
export function isTouch() {
  return window.matchMedia("(hover: none)").matches;
}
