// SPDX-License-Identifier: Apache-2.0
// ACLs, users and quotas: three views, one of which is shown.
import { AnswerNotice, badge, commandCell, filterField } from "../admin_parts.js";
import { h, replace, setText } from "../dom.js";
import { bytes, count, number } from "../format.js";
import { Table } from "../table.js";

const link = (part) => (part === "acls" ? "/security" : `/security?part=${part}`);

const host = (acl) => (acl.host === "*" ? "every address" : acl.host);
const resource = (acl) => {
  const name = acl.pattern === "prefixed" ? `${acl.resource_name}…` : acl.resource_name === "*" ? "all" : acl.resource_name;
  return [h("span", { class: "muted" }, `${acl.resource_type} `), h("span", { class: "mono" }, name)];
};
const quotaValue = ({ name, value, unit }) => `${name} ${unit === "bytes/s" ? `${bytes(value)}/s` : `${value} ${unit ?? ""}`}`.trim();

const PARTS = {
  acls: {
    label: "ACLs",
    one: "ACL",
    rows: (view) => view.acls,
    key: (acl) => JSON.stringify([acl.resource_type, acl.resource_name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission]),
    sort: "principal",
    empty: "No ACL matches. With an authorizer and no ACLs only super users may do anything: add some with headrace acls add.",
    columns: [
      { name: "principal", label: "Who", value: (acl) => acl.principal, cell: (acl) => h("span", { class: "mono" }, acl.principal) },
      { name: "permission", label: "May", value: (acl) => acl.permission, cell: (acl) => badge(acl.permission === "deny" ? "bad" : "ok", acl.permission) },
      { name: "operation", label: "Operation", value: (acl) => acl.operation, cell: (acl) => acl.operation },
      { name: "resource", label: "On", value: (acl) => `${acl.resource_type} ${acl.resource_name}`, cell: resource },
      { name: "host", label: "From", wide: true, value: (acl) => acl.host, cell: host },
      { name: "remove", label: "Command", wide: true, cell: (acl) => commandCell(acl.remove, "Remove") },
    ],
  },
  users: {
    label: "Users",
    one: "user",
    rows: (view) => view.users,
    key: (user) => user.name,
    sort: "name",
    empty: "No user has a password that the cluster keeps (SCRAM). Add one: headrace users add NAME.",
    columns: [
      { name: "name", label: "User", value: (user) => user.name, cell: (user) => h("a", { href: `/security?q=${encodeURIComponent(`User:${user.name}`)}` }, user.name) },
      { name: "mechanisms", label: "Logs in with", cell: (user) => user.mechanisms.map((each) => each.mechanism).join(", ") },
      { name: "iterations", label: "Iterations", numeric: true, value: (user) => Math.min(...user.mechanisms.map((each) => each.iterations)), cell: (user) => [number(Math.min(...user.mechanisms.map((each) => each.iterations))), user.weak && badge("warn", "few")].filter(Boolean) },
      { name: "change", label: "Commands", wide: true, cell: (user) => [commandCell(user.change, "New password"), commandCell(user.remove, "Remove")] },
    ],
  },
  quotas: {
    label: "Quotas",
    one: "quota",
    rows: (view) => view.quotas,
    key: (quota) => JSON.stringify([quota.user, quota.client_id, quota.ip]),
    sort: "entity",
    empty: "Nobody is limited. Limit a user: headrace quotas set --user NAME producer_byte_rate=1048576.",
    columns: [
      { name: "entity", label: "Of", value: (quota) => quota.entity, cell: (quota) => quota.entity },
      { name: "values", label: "Limit", cell: (quota) => h("ul", { class: "plain" }, quota.values.map((each) => h("li", null, quotaValue(each)))) },
      { name: "remove", label: "Command", wide: true, cell: (quota) => commandCell(quota.remove, "Remove") },
    ],
  },
};

const chosen = (query) => (Object.hasOwn(PARTS, query.part ?? "") ? query.part : "acls");

export const view = (params, query) => ({ name: chosen(query), params: { q: query.q ?? "" } });
export const title = () => "Security";

export function mount(root, context) {
  const name = chosen(context.query);
  const part = PARTS[name];
  const notice = new AnswerNotice();
  const filter = filterField(context, "Contains");
  const total = h("p", { class: "muted", role: "status" });
  const table = new Table({ columns: part.columns, key: part.key, caption: part.label, sort: part.sort, empty: part.empty });
  const body = h("div", { class: "page" }, h("div", { class: "toolbar" }, filter.element), total, table.element);
  const tabs = h("nav", { class: "tabs", "aria-label": "Parts" },
    Object.entries(PARTS).map(([each, { label }]) => h("a", { href: link(each), "aria-current": each === name && "page" }, label)));
  replace(root, h("div", { class: "page-head" }, h("h1", null, "Security"), tabs), notice.element, body);
  return {
    update(view) {
      body.hidden = !notice.update(view.answer);
      const rows = part.rows(view);
      setText(total, count(view.total, part.one) + (rows.length < view.total ? `; the first ${number(rows.length)} are shown` : ""));
      table.update(rows);
    },
    unmount: filter.close,
  };
}
