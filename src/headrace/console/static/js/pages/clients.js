// SPDX-License-Identifier: Apache-2.0
// Who is connected and with which software; on other clusters the members of groups.
import { badge, fields, Figure, filterField, showBox } from "../admin_parts.js";
import { h, path, replace, setText } from "../dom.js";
import { ago, count, number, time } from "../format.js";
import { banner } from "../notices.js";
import { Table } from "../table.js";

const APIS_SHOWN = 3;
const groupLinks = (groups) => h("span", null, groups.map((group, index) => [index > 0 && ", ", h("a", { href: path("groups", group) }, group)]));
const software = (each) => `${each.software ?? ""} ${each.version ?? ""}`;

const twoLines = (first, second) => h("span", { class: "two-lines" }, first, h("span", { class: "muted" }, second));
const softwareCell = (each) => (each.software ? twoLines(each.software, each.version) : "–");
const clientCell = (each) => twoLines(each.client_id || h("em", { class: "muted" }, "none"), each.principal);

function addressCell(each) {
  const address = each.port ? `${each.host}:${each.port}` : each.host ?? "–";
  return twoLines(h("span", { class: "mono" }, address), `node ${each.node}${each.listener ? ` (${each.listener})` : ""}`);
}

function apisCell(each) {
  if (!each.apis.length) return "–";
  const first = each.apis.slice(0, APIS_SHOWN).map((api) => api.name).join(", ");
  const text = each.apis.length > APIS_SHOWN ? `${first} and ${each.apis.length - APIS_SHOWN} more` : first;
  const box = () => showBox(`Requests of ${each.client_id || "this client"}`, fields(each.apis.map((api) => [api.name, number(api.count)])));
  return h("button", { type: "button", class: "small quiet", onclick: box }, text);
}

const errorCell = (each, now) =>
  each.last_error === null ? "–" : [badge("warn", each.last_error.error ?? "error"), h("p", { class: "muted doc" }, `${each.last_error.api ?? ""} ${ago(each.last_error.at, now)}`)];

const MEMBERS = [
  { name: "client", label: "Client id", value: (each) => each.client_id, cell: (each) => each.client_id || "–" },
  { name: "host", label: "Address", value: (each) => each.host, cell: (each) => h("span", { class: "mono" }, each.host) },
  { name: "group", label: "Group", value: (each) => each.group, cell: (each) => groupLinks([each.group]) },
  { name: "partitions", label: "Partitions", numeric: true, value: (each) => each.partitions, cell: (each) => number(each.partitions) },
  { name: "member", label: "Member id", wide: true, value: (each) => each.member_id, cell: (each) => h("span", { class: "mono" }, each.member_id) },
];

const VERSIONS = [
  { name: "name", label: "Software", value: (each) => each.name, cell: (each) => each.name ?? "not told" },
  { name: "version", label: "Version", value: (each) => each.version, cell: (each) => each.version ?? "–" },
  { name: "clients", label: "Connections", numeric: true, value: (each) => each.clients, cell: (each) => number(each.clients) },
];

export const view = (params, query) => ({ name: "clients", params: { q: query.q ?? "" } });
export const title = () => "Clients";

export function mount(root, context) {
  let now = Date.now();
  const columns = [
    { name: "client", label: "Client id, user", value: (each) => each.client_id, cell: clientCell },
    { name: "software", label: "Software", value: software, cell: softwareCell },
    { name: "error", label: "Last error", value: (each) => each.last_error?.at, cell: (each) => errorCell(each, now) },
    { name: "host", label: "Address, node", value: (each) => each.host, cell: addressCell },
    { name: "groups", label: "Groups", wide: true, cell: (each) => (each.groups.length ? groupLinks(each.groups) : "–") },
    { name: "since", label: "Since", wide: true, numeric: true, value: (each) => each.since, cell: (each) => time(each.since) },
    { name: "requests", label: "Requests", wide: true, numeric: true, value: (each) => each.requests, cell: (each) => number(each.requests) },
    { name: "apis", label: "Uses", wide: true, cell: apisCell },
  ];
  const filter = filterField(context, "Name, user or address contains");
  const [connections, kinds, failing] = [new Figure("connections"), new Figure("kinds of software"), new Figure("had an error")];
  const total = h("p", { class: "muted", role: "status" });
  const clients = new Table({ columns, key: (each) => JSON.stringify([each.node, each.host, each.port, each.since, each.client_id, each.principal]), caption: "Connections", empty: "No connection matches: clear the filter." });
  const versions = new Table({ columns: VERSIONS, key: (each) => `${each.name} ${each.version}`, caption: "Software", sort: "clients", empty: "No client said what it is." });
  const members = new Table({ columns: MEMBERS, key: (each) => `${each.group} ${each.member_id}`, caption: "Members of groups", sort: "client", empty: "No group has members now." });
  const told = h("div", { class: "page" },
    h("div", { class: "figures" }, connections.element, kinds.element, failing.element), total, clients.element,
    h("h2", null, "Software"), versions.element);
  const notTold = h("div", null, banner("info", "This cluster does not tell its connections.", "Below are the members of consumer groups, which every cluster tells. Producers are not among them."));
  const problems = h("div");
  replace(root, h("div", { class: "page-head" }, h("h1", null, "Clients")), h("div", { class: "toolbar" }, filter.element),
    problems, notTold, told, h("h2", null, "Members of groups"), members.element);
  told.hidden = true;
  notTold.hidden = true;
  return {
    update(view) {
      now = view.at;
      told.hidden = !view.told;
      notTold.hidden = view.told;
      connections.set(number(view.total + view.more));
      kinds.set(number(view.software.length));
      const errors = view.clients.filter((each) => each.last_error !== null).length;
      failing.set(number(errors), errors > 0 ? "warn" : "");
      const left = view.total - view.clients.length;
      const hidden = left > 0 ? `${number(view.clients.length)} are shown, ${count(left, "more is", "more are")} not: filter to find one.` : "";
      const untold = view.more > 0 ? `Of ${count(view.more, "connection", "connections")} with fewer requests only the number is told.` : "";
      setText(total, `${hidden} ${untold}`.trim());
      clients.update(view.clients);
      versions.update(view.software);
      members.update(view.members);
      const broken = view.nodes.filter((node) => node.problem);
      const text = broken.map((node) => `node ${node.id}: ${node.problem}`).join("; ");
      if (problems.dataset.shown !== text) replace(problems, text && banner("warning", "Some nodes did not tell their clients", text));
      problems.dataset.shown = text;
    },
    unmount: filter.close,
  };
}
