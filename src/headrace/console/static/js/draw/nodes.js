// SPDX-License-Identifier: Apache-2.0
// Nodes as boxes. A partition has one leader tile, which lives in the box of the node that leads it and glides to
// another one when leadership moves; every other replica is a tile in its node's box.
import { h, keyed, replace, setText } from "../dom.js";
import { bytes, count, number, percent, rate, time } from "../format.js";
import { glide } from "./flip.js";

const LABELLED_UP_TO = 150; // tiles over all nodes; more are drawn small, without text, those of internal topics first
const GLIDING_AT_MOST = 200;
const DISK_WARN = 0.85;
const DISK_BAD = 0.95;

const nameOf = (tile) => `${tile.topic}-${tile.partition}`;

const isInternal = ({ topic }) => topic.startsWith("__");

const stateOf = (tile, up) => (tile.offline || !up ? "offline" : tile.in_sync === false ? "out-of-sync" : "in-sync");

const STATE_TEXT = { "in-sync": "in sync", "out-of-sync": "not in sync", offline: "offline" };

class Tiles {
  #leaders = new Map();

  create(tile) {
    if (tile.role !== "leader") return this.#element(tile);
    const name = nameOf(tile);
    if (!this.#leaders.has(name)) this.#leaders.set(name, this.#element(tile));
    return this.#leaders.get(name);
  }

  fill(element, tile, { id: node, state: ofNode }) {
    const state = stateOf(tile, ofNode === "up");
    element.dataset.node = node;
    element.dataset.role = tile.role;
    element.dataset.state = state;
    const text = `${nameOf(tile)}: ${tile.role} on node ${node}, ${STATE_TEXT[state]}`;
    if (element.title !== text) {
      element.title = text;
      setText(element.firstChild, text);
    }
  }

  all() {
    return this.#leaders;
  }

  forget(names) {
    for (const name of this.#leaders.keys()) if (!names.has(name)) this.#leaders.delete(name);
  }

  #element(tile) {
    return h("li", { class: "tile", "data-tile": nameOf(tile), "data-topic": tile.topic, "data-internal": isInternal(tile) },
      h("span", { class: "vh" }), h("span", { class: "tile-text", "aria-hidden": "true" },
        h("span", { class: "tile-topic" }, tile.topic), h("span", { class: "tile-partition" }, `·${tile.partition}`)));
  }
}

class NodeBox {
  constructor(id, tiles) {
    this.id = id;
    this.tiles = tiles;
    this.badges = h("span", { class: "badges" });
    this.address = h("span", { class: "muted mono truncate" });
    this.problem = h("p", { class: "node-problem", hidden: true });
    this.leads = h("ul", { class: "tiles plain", "data-zone": "leader" });
    this.copies = h("ul", { class: "tiles plain", "data-zone": "replica" });
    this.leadsText = h("h3");
    this.copiesText = h("h3");
    this.more = h("p", { class: "muted", hidden: true });
    this.rate = h("b", { class: "num" });
    this.disk = h("div", { class: "meter" }, h("i"));
    this.diskText = h("span", { class: "muted num" });
    this.element = h("section", { class: "panel node", "data-node-box": id, "aria-label": `Node ${id}` },
      h("div", { class: "node-head" }, h("h2", null, `Node ${id}`), this.badges, this.address),
      this.problem,
      this.leadsText, this.leads, this.copiesText, this.copies, this.more,
      h("div", { class: "node-foot" },
        h("div", null, h("span", { class: "muted" }, "Records in "), this.rate),
        h("div", { class: "disk" }, this.disk, this.diskText)));
  }

  describe(node) {
    const badges = [
      node.state === "up" ? h("span", { class: "badge ok" }, "up") : h("span", { class: "badge bad" }, `down${node.since ? ` since ${time(node.since)}` : ""}`),
      node.controller && h("span", { class: "badge info" }, "controller"),
      node.out_of_sync > 0 && h("span", { class: "badge warn" }, `${number(node.out_of_sync)} out of sync`),
      node.rack && h("span", { class: "badge" }, `rack ${node.rack}`),
    ];
    const shown = JSON.stringify([node.state, node.since, node.controller, node.out_of_sync, node.rack]);
    if (this.shown !== shown) replace(this.badges, badges);
    this.shown = shown;
    this.element.classList.toggle("down", node.state !== "up");
    setText(this.address, `${node.host}:${node.port}`);
    this.problem.hidden = !node.problem;
    setText(this.problem, node.problem ?? "");
    setText(this.leadsText, `Leader of ${count(node.leaders, "partition")}`);
    setText(this.copiesText, `Follower of ${count(node.replicas - node.leaders, "partition")}`);
    this.more.hidden = !node.tiles_more;
    setText(this.more, `and ${number(node.tiles_more)} more that are not drawn`);
    setText(this.rate, rate(node.records_in));
    this.#showDisk(node);
  }

  put(node) {
    const fill = (element, tile) => this.tiles.fill(element, tile, node);
    for (const [zone, role] of [[this.leads, "leader"], [this.copies, "replica"]]) {
      const shown = node.tiles.filter((tile) => tile.role === role);
      keyed(zone, shown, nameOf, (tile) => this.tiles.create(tile), fill);
      zone.classList.toggle("none", shown.length === 0);
    }
  }

  #showDisk({ disk_used: used, disk_free: free, disk_total: total }) {
    const all = total ?? (free === null || used === null ? null : used + free);
    const share = all && free !== null ? 1 - free / all : null;
    this.disk.hidden = share === null;
    this.disk.className = `meter ${share >= DISK_BAD ? "bad" : share >= DISK_WARN ? "warn" : ""}`;
    if (share !== null) this.disk.firstChild.style.width = `${share * 100}%`;
    const known = used === null ? "Disk –" : `Disk: ${bytes(used)} used`;
    setText(this.diskText, share === null ? known : `Disk ${percent(share)} full: ${bytes(free)} of ${bytes(all)} free`);
  }
}

const legendEntry = (role, state, text) =>
  h("li", null, h("span", { class: "tile small-tile", "data-role": role, "data-state": state, "aria-hidden": "true" }), text);

export class ClusterMap {
  // `opened(topic)`: a tile of it was clicked.
  constructor(opened) {
    this.tiles = new Tiles();
    this.boxes = h("div", { class: "nodes" });
    this.element = h("div", { class: "cluster-map" }, this.boxes,
      h("ul", { class: "legend plain" },
        legendEntry("leader", "in-sync", "leader"), legendEntry("replica", "in-sync", "replica in sync"),
        legendEntry("replica", "out-of-sync", "replica not in sync"), legendEntry("replica", "offline", "offline")));
    this.boxes.addEventListener("click", (event) => {
      const tile = event.target.closest("[data-topic]");
      if (tile) opened(tile.dataset.topic);
    });
    this.boxOf = new Map();
  }

  update(nodes) {
    const tiles = nodes.flatMap((node) => node.tiles);
    this.boxes.classList.toggle("compact", tiles.filter((tile) => !isInternal(tile)).length > LABELLED_UP_TO);
    this.boxes.classList.toggle("compact-internal", tiles.length > LABELLED_UP_TO);
    glide(this.#moving(nodes), () => this.#put(nodes));
  }

  // Leader tiles whose node is another one now.
  #moving(nodes) {
    const moving = [];
    for (const node of nodes) {
      for (const tile of node.tiles) {
        const element = tile.role === "leader" && this.tiles.all().get(nameOf(tile));
        if (element && element.dataset.node !== String(node.id)) moving.push(element);
      }
    }
    return moving.slice(0, GLIDING_AT_MOST);
  }

  #put(nodes) {
    keyed(this.boxes, nodes, (node) => node.id, (node) => {
      const box = new NodeBox(node.id, this.tiles);
      this.boxOf.set(node.id, box);
      return box.element;
    }, (_, node) => this.boxOf.get(node.id).describe(node));
    for (const node of nodes) this.boxOf.get(node.id).put(node);
    this.tiles.forget(new Set(nodes.flatMap((node) => node.tiles.filter((tile) => tile.role === "leader").map(nameOf))));
  }
}
