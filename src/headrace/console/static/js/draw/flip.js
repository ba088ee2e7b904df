// SPDX-License-Identifier: Apache-2.0
// Elements that glide from where they were to where they are now (FLIP: first, last, invert, play).
const DURATION_MS = 550;

export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Runs `change`, then lets each of `elements` that moved glide. Elements keep their identity over the change.
export function glide(elements, change) {
  if (still() || document.hidden) {
    change();
    return;
  }
  const before = new Map();
  for (const element of elements) before.set(element, element.getBoundingClientRect());
  change();
  for (const [element, old] of before) {
    if (!element.isConnected) continue;
    const now = element.getBoundingClientRect();
    const [x, y] = [old.left - now.left, old.top - now.top];
    if (Math.abs(x) + Math.abs(y) < 1 || !old.width) continue;
    element.classList.add("moving");
    const moving = element.animate(
      [{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }],
      { duration: DURATION_MS, easing: "cubic-bezier(.3, .8, .3, 1)" });
    moving.onfinish = moving.oncancel = () => element.classList.remove("moving");
  }
}
