// SPDX-License-Identifier: Apache-2.0
// One partition as a horizontal log that grows to the right: segments, what retention deletes next, open transactions,
// the last stable offset, producers at its end, and the members of each group where they read and where they committed.
import { h, keyed, replace, setText } from "../dom.js";
import { ago, behind, bytes, count, number, rate, short, time } from "../format.js";

const SEGMENTS_DRAWN = 40;
const READERS_DRAWN = 8;
const BESIDE_UP_TO = 0.65; // a reader's label is to the right of its marks, further on to their left
const NARROW_PX = 900;
const INSIDE_FROM = 0.45; // between marks so far from each other there is room for it

const percent = (share) => `${(share * 100).toFixed(3)}%`;

const place = (element, from, to) => {
  element.style.left = percent(from);
  if (to !== undefined) element.style.width = percent(Math.max(0, to - from));
};

// Few enough to draw: neighbours are one piece.
function pieces(segments) {
  const every = Math.ceil(segments.length / SEGMENTS_DRAWN);
  return segments.filter((_, index) => index % every === 0).map((segment, index) => {
    const merged = segments.slice(index * every, (index + 1) * every);
    const known = merged.every((each) => each.bytes !== null);
    return { base: segment.base, many: merged.length, newest: merged.at(-1).newest,
      bytes: known ? merged.reduce((sum, each) => sum + each.bytes, 0) : null };
  });
}

const readerText = (reader) => {
  const where = reader.committed === null ? "nothing committed" : `${count(reader.lag ?? 0, "record")} behind`;
  const late = reader.behind === null || reader.behind === undefined ? "" : `, ${behind(reader.behind, reader.behind_at_least)}`;
  return where + late;
};

export const who = (reader) => reader.client_id || reader.member_id || "nobody reads it now";

const readerTitle = (reader) =>
  `${reader.group}: ${who(reader)}${reader.host ? ` on ${reader.host.replace(/^\//, "")}` : ""}\n`
  + `reads at ${number(reader.position)}, committed ${number(reader.committed)}\n${readerText(reader)}`;

export class Lane {
  // `series(group)`: {letter, color} of a group, or null where it is not drawn; `opened(partition)`.
  constructor(partition, series, opened) {
    this.series = series;
    this.segments = h("div", { class: "segments" });
    this.log = h("div", { class: "log", "data-log": partition }, this.segments);
    this.deleted = h("div", { class: "deleted-next", hidden: true });
    this.transaction = h("div", { class: "transaction", hidden: true });
    this.stable = h("div", { class: "last-stable", hidden: true });
    this.start = h("span", { class: "start-offset num" });
    this.endOffset = h("b", { class: "num" });
    this.producers = h("span", { class: "producers" });
    this.end = h("span", { class: "log-end" }, this.endOffset, this.producers);
    this.bar = h("div", { class: "bar-area" }, this.log, this.deleted, this.transaction, this.stable, this.start, this.end);
    this.readers = h("ul", { class: "readers plain" });
    this.moreReaders = h("p", { class: "muted", hidden: true });
    this.leader = h("span", { class: "badge" });
    this.sync = h("span", { class: "badge warn", hidden: true });
    this.toggle = h("button", { type: "button", class: "quiet lane-name", "aria-expanded": "false", onclick: () => opened(partition) },
      h("b", { class: "num" }, partition));
    this.lag = h("span", { class: "lane-lag num" });
    this.facts = h("span", { class: "lane-facts num" });
    this.range = h("span", { class: "key-range mono truncate", hidden: true });
    this.details = h("div", { class: "lane-details", hidden: true });
    this.element = h("section", { class: "lane", "data-partition": partition, "aria-label": `Partition ${partition}` },
      h("div", { class: "lane-head" }, this.toggle, this.leader, this.sync, this.range),
      h("div", { class: "lane-log" }, this.bar, this.readers, this.moreReaders),
      h("div", { class: "lane-side" }, this.lag, this.facts),
      this.details);
  }

  update(partition, scale, open, now) {
    const known = partition.start !== null && partition.end !== null;
    this.x = scale(partition);
    this.bar.classList.toggle("not-known", !known);
    this.#showHead(partition);
    this.#showLog(partition, known);
    this.#showEdges(partition);
    this.#showReaders(partition);
    this.#showSide(partition);
    this.toggle.setAttribute("aria-expanded", String(open));
    this.details.hidden = !open;
    if (open) replace(this.details, laneDetails(partition, now));
  }

  #showHead(partition) {
    setText(this.leader, partition.leader === null ? "no leader" : `node ${partition.leader}`);
    this.leader.className = `badge ${partition.leader === null ? "bad" : ""}`;
    this.sync.hidden = partition.isr.length >= partition.replicas.length;
    setText(this.sync, `${partition.isr.length} of ${partition.replicas.length} in sync`);
    this.leader.title = `Replicas ${partition.replicas.join(", ")}; in sync ${partition.isr.join(", ") || "none"}`;
    this.toggle.setAttribute("aria-label", `Partition ${partition.partition}, offsets ${number(partition.start)} to ${number(partition.end)}: details`);
    const range = partition.key_range;
    this.range.hidden = !range;
    if (range) setText(this.range, `keys ${range.min ?? "…"} – ${range.max ?? "…"}`);
  }

  #showLog(partition, known) {
    const { start, end } = partition;
    const [from, to] = known ? [this.x(start), this.x(end)] : [0, 0];
    place(this.log, from, to);
    this.log.dataset.start = start ?? "";
    this.log.dataset.end = end ?? "";
    const drawn = known ? pieces((partition.segments ?? [{ base: start, bytes: partition.size_bytes, newest: null }])) : [];
    const edges = [...drawn.slice(1).map((piece) => piece.base), end];
    keyed(this.segments, drawn, (piece) => piece.base, () => h("i", { class: "segment" }), (element, piece) => {
      const index = drawn.indexOf(piece);
      const width = to - from || 1;
      place(element, (this.x(Math.max(piece.base, start)) - from) / width, (this.x(edges[index]) - from) / width);
      element.title = `${piece.many > 1 ? `${piece.many} segments` : "Segment"} from offset ${number(piece.base)}: ${bytes(piece.bytes)}`
        + (piece.newest ? `, newest record ${time(piece.newest)}` : "");
    });
    const cut = this.x(start + 1) === 0; // the log starts to the left of what is drawn
    setText(this.start, start > 0 && !cut && from < 0.9 ? number(start) : "");
    this.start.title = `Log start offset ${number(start)}`;
    place(this.start, from);
    place(this.end, to);
    setText(this.endOffset, number(end));
    this.endOffset.title = "Log end offset";
    this.#showProducers(partition);
  }

  #showProducers({ producers }) {
    const names = [...new Set((producers ?? []).map((each) => each.client_id || `producer ${each.producer_id}`))];
    setText(this.producers, names.length ? `◀ ${names[0]}${names.length > 1 ? ` +${names.length - 1}` : ""}` : "");
    this.producers.title = names.length ? `Producers: ${names.slice(0, 20).join(", ")}` : "";
  }

  #showEdges({ start, end, last_stable: stable, retention_edge: edge, open_transactions: transactions, producers }) {
    this.deleted.hidden = !edge || edge.offset <= start || this.x(edge.offset) === 0;
    if (edge) {
      place(this.deleted, this.x(start), this.x(Math.min(edge.offset, end)));
      this.deleted.title = `${edge.text} (up to offset ${number(edge.offset)})`;
    }
    const oldest = transactions?.length ? transactions.reduce((a, b) => (a.start <= b.start ? a : b)) : null;
    this.transaction.hidden = !oldest;
    if (oldest) {
      place(this.transaction, this.x(oldest.start), this.x(end));
      this.transaction.title = transactions.slice(0, 10)
        .map((each) => `Open transaction ${each.transactional_id ?? each.producer_id} from offset ${number(each.start)}`).join("\n");
    }
    const held = oldest || !producers; // else it is only older than the end: that is asked for more often
    this.stable.hidden = !held || stable === null || stable === undefined || stable >= end;
    if (!this.stable.hidden) {
      place(this.stable, this.x(stable));
      this.stable.title = `Last stable offset ${number(stable)}: readers of committed records wait here`;
    }
  }

  #showReaders(partition) {
    const all = partition.readers.filter((reader) => this.series(reader.group));
    const shown = all.slice(0, READERS_DRAWN);
    keyed(this.readers, shown, (reader) => `${reader.group}\n${reader.member_id}`, (reader) => this.#reader(reader),
      (element, reader) => this.#placeReader(element, reader, partition));
    this.moreReaders.hidden = shown.length === all.length;
    setText(this.moreReaders, `${all.length - shown.length} more groups`);
  }

  #reader(reader) {
    const { letter, color } = this.series(reader.group);
    return h("li", { class: "reader", "data-reader": reader.group, "data-series": color },
      h("i", { class: "span" }), h("i", { class: "committed" }), h("i", { class: "position" }),
      h("span", { class: "reader-label" }, h("b", { class: "letter" }, letter), h("span", { class: "reader-name truncate" }), h("span", { class: "reader-lag num" })));
  }

  #placeReader(element, reader, { start, end }) {
    const [span, committed, position, label] = element.children;
    const inLog = (offset) => this.x(Math.min(Math.max(offset, start), end));
    const at = reader.committed === null ? null : inLog(reader.committed);
    const reads = reader.position === null ? null : inLog(reader.position);
    element.dataset.committed = reader.committed ?? "";
    element.dataset.position = reader.position ?? "";
    element.title = readerTitle(reader);
    committed.hidden = at === null;
    position.hidden = reads === null;
    if (at !== null) place(committed, at);
    if (reads !== null) place(position, reads);
    span.hidden = at === null;
    if (at !== null) place(span, at, Math.max(reads ?? at, at));
    const right = Math.max(at ?? 0, reads ?? 0);
    const left = Math.min(at ?? right, reads ?? right);
    const inside = right - left > INSIDE_FROM && innerWidth > NARROW_PX;
    const before = !inside && left > BESIDE_UP_TO;
    label.classList.toggle("before", before);
    label.classList.toggle("inside", inside);
    label.style.left = before ? "auto" : `calc(${percent(inside ? left : right)} + 10px)`;
    label.style.right = before ? `calc(${percent(1 - left)} + 10px)` : "auto";
    label.style.maxWidth = inside ? `calc(${percent(right - left)} - 24px)` : before ? `calc(${percent(left)} - 12px)` : `calc(${percent(1 - right)} + var(--beside))`;
    setText(label.children[1], who(reader));
    setText(label.children[2], readerText(reader));
  }

  #showSide(partition) {
    const worst = Math.max(-1, ...partition.readers.map((reader) => reader.lag ?? -1));
    setText(this.lag, worst < 0 ? "" : `lag ${short(worst)}`);
    const kept = partition.start === null || partition.end === null ? null : partition.end - partition.start;
    setText(this.facts, `${short(kept)} records · ${bytes(partition.size_bytes)} · ${rate(partition.rate_in)}`);
  }
}

const row = (label, ...value) => [h("dt", null, label), h("dd", null, value)];

function laneDetails(partition, now) {
  const transactions = (partition.open_transactions ?? []).slice(0, 20).map((each) =>
    h("li", null, `${each.transactional_id ?? `producer ${each.producer_id}`}: from offset ${number(each.start)}${each.since ? `, ${ago(each.since, now)}` : ""}`));
  const producers = (partition.producers ?? []).slice(0, 20).map((each) =>
    h("li", null, `${each.client_id || `producer ${each.producer_id}`}${each.last_seen ? `, wrote ${ago(each.last_seen, now)}` : ""}`));
  const readers = partition.readers.slice(0, 50).map((reader) =>
    h("li", null, h("b", null, reader.group), ` ${who(reader)}: reads at ${number(reader.position)}, committed ${number(reader.committed)}; ${readerText(reader)}`));
  const list = (items, none) => (items.length ? h("ul", { class: "plain" }, items) : none);
  return h("dl", null,
    row("Leader", partition.leader === null ? "none" : `node ${partition.leader}, epoch ${number(partition.leader_epoch)}`),
    row("Replicas", `${partition.replicas.join(", ")}; in sync ${partition.isr.join(", ") || "none"}${partition.offline?.length ? `; offline ${partition.offline.join(", ")}` : ""}`),
    row("Offsets", `start ${number(partition.start)}, end ${number(partition.end)}, last stable ${number(partition.last_stable)}`),
    row("Segments", partition.segments ? number(partition.segments.length) : "not known"),
    partition.retention_edge && row("Retention", `${partition.retention_edge.text} (up to offset ${number(partition.retention_edge.offset)})`),
    partition.key_range && row("Keys", `from ${partition.key_range.min ?? "the first"} to ${partition.key_range.max ?? "the last"}`),
    row("Open transactions", list(transactions, "none")),
    row("Producers", partition.producers ? list(producers, "none") : "not known"),
    row("Readers", list(readers, "none")));
}
