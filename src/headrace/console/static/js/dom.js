// SPDX-License-Identifier: Apache-2.0
// Elements from values. Text always becomes a text node, so names and records of strangers stay text.
const SVG = "http://www.w3.org/2000/svg";

// h("a", {href: "/topics", class: "name", "data-x": 1, onclick: f}, "text", [more, nodes], null)
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(element, name, value);
  element.append(...nodes(children));
  return element;
}

// null, undefined and false take an attribute away; true sets it without a value; a function is a listener.
export function setAttribute(element, name, value) {
  if (typeof value === "function" && name.startsWith("on")) {
    element.addEventListener(name.slice(2), value);
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else if (name === "style" || name.startsWith("on")) {
    throw new Error(`${name} is not set by attribute: the content security policy forbids it`);
  } else if (name === "href") {
    element.setAttribute(name, safeLink(String(value)));
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

const safeLink = (address) => (/^(\/(?!\/)|#|\?|https:\/\/)/.test(address) ? address : "#");

const nodes = (children) =>
  children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "string" ? legible(child) : child));

// Characters that are not seen, and turn or hide the text around them, are shown by their number.
const UNSEEN = /[\u0000-\u0008\u000b-\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

export const legible = (text) =>
  text.replace(UNSEEN, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);

export function replace(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

// Writes only what changed, so that a selection survives an update.
export function setText(element, text) {
  const wanted = legible(String(text));
  if (element.textContent !== wanted) element.textContent = wanted;
}

// Makes the children of `parent` those of `items`, in order. A child is kept for as long as its key is there:
// create(item) makes it, update(child, item) changes it.
export function keyed(parent, items, key, create, update) {
  const before = parent.keyedChildren ?? new Map();
  const after = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const name = String(key(item));
    if (after.has(name)) continue;
    const child = before.get(name) ?? create(item);
    update?.(child, item);
    after.set(name, child);
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  for (const [name, child] of before) if (!after.has(name) && child.parentNode === parent) child.remove();
  parent.keyedChildren = after;
}

export const path = (...parts) => "/" + parts.map((part) => encodeURIComponent(part)).join("/");
