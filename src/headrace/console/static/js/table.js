// SPDX-License-Identifier: Apache-2.0
// A table whose head sorts. Columns: {name, label, cell(row) -> text or node, value(row): what it sorts by,
// numeric: right-aligned, biggest first, biggestFirst, title, wide: left out on narrow screens}.
import { h, keyed, replace, setText } from "./dom.js";

const byValue = (value, down) => (a, b) => {
  const [x, y] = [value(a), value(b)];
  if (x === y) return 0;
  if (x === null || x === undefined) return 1; // not known comes last, whichever the direction
  if (y === null || y === undefined) return -1;
  return (x < y ? -1 : 1) * (down ? -1 : 1);
};

const downAtFirst = (column) => Boolean(column?.numeric || column?.biggestFirst);

export class Table {
  // `key(row)`; `empty`: what is shown without rows; `sort`: name of a column or null; `onSort(name, down)`: the
  // server sorts, and rows stay in the order they come in.
  constructor({ columns, key, empty, caption, sort = null, down = null, onSort = null }) {
    this.columns = columns;
    this.key = key;
    this.onSort = onSort;
    this.sort = sort;
    this.down = down ?? downAtFirst(this.#column());
    this.rows = [];
    this.heads = columns.map((column) => this.#head(column));
    this.body = h("tbody");
    this.table = h("table", { class: "table" }, caption && h("caption", { class: "vh" }, caption),
      h("thead", null, h("tr", null, this.heads)), this.body);
    this.empty = h("p", { class: "empty", hidden: true }, empty ?? "Nothing here.");
    this.element = h("div", { class: "table-box", tabindex: 0, role: "region", "aria-label": caption ?? "Table" }, this.table, this.empty);
    this.#showSort();
  }

  update(rows) {
    this.rows = rows;
    const value = !this.onSort && this.#column()?.value;
    const sorted = value ? [...rows].sort(byValue(value, this.down)) : rows;
    keyed(this.body, sorted, this.key, () => this.#row(), (row, item) => this.#fill(row, item));
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
  }

  #column() {
    return this.columns.find((column) => column.name === this.sort);
  }

  #head(column) {
    const attributes = { scope: "col", class: [column.numeric && "num", column.wide && "wide"].filter(Boolean).join(" ") || null, title: column.title };
    if (!column.value) return h("th", attributes, column.label);
    return h("th", attributes, h("button", { type: "button", class: "sort", onclick: () => this.#sortBy(column) }, column.label));
  }

  #sortBy(column) {
    this.down = this.sort === column.name ? !this.down : downAtFirst(column);
    this.sort = column.name;
    this.#showSort();
    if (this.onSort) this.onSort(this.sort, this.down);
    else this.update(this.rows);
  }

  #showSort() {
    for (const [index, column] of this.columns.entries()) {
      const sorted = column.name === this.sort && (this.down ? "descending" : "ascending");
      if (sorted) this.heads[index].setAttribute("aria-sort", sorted);
      else this.heads[index].removeAttribute("aria-sort");
    }
  }

  #row() {
    return h("tr", null, this.columns.map((column) =>
      h("td", { class: [column.numeric && "num", column.wide && "wide"].filter(Boolean).join(" ") || null })));
  }

  #fill(row, item) {
    for (const [index, column] of this.columns.entries()) {
      const content = column.cell(item);
      const cell = row.children[index];
      if (content instanceof Node || Array.isArray(content)) putNodes(cell, [content].flat(Infinity).filter(Boolean));
      else setText(cell, content ?? "–");
    }
  }
}

// Equal content stays, and with it the focus of a link in it.
function putNodes(cell, content) {
  const made = replace(document.createElement("td"), content).childNodes;
  const same = made.length === cell.childNodes.length && [...made].every((node, i) => node.isEqualNode(cell.childNodes[i]));
  if (!same) cell.replaceChildren(...made);
}
