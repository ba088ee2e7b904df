// SPDX-License-Identifier: Apache-2.0
// All pages: their path, their module in pages/, and for those in the navigation a label and the key after "g".
// A module is loaded when its page is opened.
export const PAGES = [
  { path: "/", module: "cluster", label: "Cluster", key: "c" },
  { path: "/topics", module: "topics", label: "Topics", key: "t" },
  { path: "/topics/:topic", module: "topic", parent: "/topics" },
  { path: "/topics/:topic/messages", module: "messages", parent: "/topics" },
  { path: "/groups", module: "groups", label: "Groups", key: "g" },
  { path: "/groups/:group", module: "group", parent: "/groups" },
  { path: "/pipelines", module: "pipelines", label: "Pipelines", key: "p" },
  { path: "/pipelines/:pipeline", module: "pipeline", parent: "/pipelines" },
  { path: "/dead-letters", module: "dead_letters", label: "Dead letters", key: "d" },
  { path: "/dead-letters/:topic", module: "dead_letters", parent: "/dead-letters" },
  { path: "/transactions", module: "transactions", label: "Transactions", key: "x" },
  { path: "/clients", module: "clients", label: "Clients", key: "l" },
  { path: "/configs", module: "configs", label: "Configs", key: "o" },
  { path: "/security", module: "security", label: "Security", key: "s" },
  { path: "/plan", module: "plan", label: "Plan", key: "n" },
];
