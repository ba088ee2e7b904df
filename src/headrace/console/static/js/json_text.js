// SPDX-License-Identifier: Apache-2.0
// JSON as text with lines and colours. It is never parsed: numbers of any length, and fields that come twice, stay
// as they were written.
import { h } from "./dom.js";

const TOKEN = /("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*)|(true|false|null)|([{}[\],:])|\s+|[^]/gy;
const COLOURED = 20_000;

// Pieces in order: {kind: "name"|"string"|"number"|"word"|"sign"|"space"|"other", text}.
function* pieces(text) {
  const stack = [];
  let awaitsName = false;
  TOKEN.lastIndex = 0;
  for (const [all, string, number, word, sign] of text.matchAll(TOKEN)) {
    if (string !== undefined) yield { kind: awaitsName ? "name" : "string", text: all };
    else if (number !== undefined) yield { kind: "number", text: all };
    else if (word !== undefined) yield { kind: "word", text: all };
    else if (sign === undefined) {
      if (all.trim()) yield { kind: "other", text: all };
      continue;
    } else {
      if (sign === "{" || sign === "[") stack.push(sign);
      if (sign === "}" || sign === "]") stack.pop();
      yield { kind: "sign", text: sign };
    }
    if (sign !== undefined) awaitsName = (sign === "{" || sign === ",") && stack.at(-1) === "{";
    else awaitsName = false;
  }
}

const newLine = (depth) => `\n${"  ".repeat(Math.min(depth, 40))}`;

// The same pieces with line ends and spaces between them.
function* laidOut(text) {
  let depth = 0;
  let opened = false;
  for (const piece of pieces(text)) {
    const closes = piece.text === "}" || piece.text === "]";
    if (piece.kind === "sign" && closes) {
      depth = Math.max(0, depth - 1);
      if (!opened) yield { kind: "space", text: newLine(depth) };
    } else if (opened) {
      yield { kind: "space", text: newLine(depth) };
    }
    opened = piece.kind === "sign" && (piece.text === "{" || piece.text === "[");
    if (opened) depth += 1;
    yield piece;
    if (piece.kind === "sign" && piece.text === ",") yield { kind: "space", text: newLine(depth) };
    else if (piece.kind === "sign" && piece.text === ":") yield { kind: "space", text: " " };
  }
}

export const prettyJson = (text) => Array.from(laidOut(text), (piece) => piece.text).join("");

const CLASSES = { name: "j-name", string: "j-string", number: "j-number", word: "j-word" };

export function jsonBlock(text) {
  if (text.length > COLOURED) return h("pre", { class: "record-text", tabindex: 0 }, prettyJson(text));
  return h("pre", { class: "record-text", tabindex: 0 },
    Array.from(laidOut(text), (piece) => (CLASSES[piece.kind] ? h("span", { class: CLASSES[piece.kind] }, piece.text) : piece.text)));
}
