// SPDX-License-Identifier: Apache-2.0
// Bytes as lines of hex digits with their place and their letters.
import { h } from "./dom.js";

const WIDTH = 16;

const letter = (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".");

export const fromHex = (digits) => Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));

export function hexLines(bytes) {
  const lines = [];
  for (let place = 0; place < bytes.length; place += WIDTH) {
    const row = bytes.subarray(place, place + WIDTH);
    const digits = Array.from(row, (byte) => byte.toString(16).padStart(2, "0"));
    const halves = `${digits.slice(0, 8).join(" ")}  ${digits.slice(8).join(" ")}`.padEnd(WIDTH * 3);
    lines.push(`${place.toString(16).padStart(8, "0")}  ${halves}  ${Array.from(row, letter).join("")}`);
  }
  return lines.join("\n");
}

export const hexBlock = (bytes) => h("pre", { class: "record-text hex", tabindex: 0 }, hexLines(bytes) || "no bytes");
