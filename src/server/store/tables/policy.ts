// Groups of nodes and firewall rules.

import * as v from "valibot";
import { integer, json, serial, table, text, textWithDefault, word, type TableRow } from "../table.ts";

export const nodeGroups = table(
  "node_groups",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    description: textWithDefault("DEFAULT ''"),
    createdAt: integer(),
  },
  { constraints: ["UNIQUE (org_id, name)"] },
);
export type NodeGroupRow = TableRow<typeof nodeGroups>;

export const firewallRules = table(
  "firewall_rules",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    direction: word(["inbound", "outbound"]),
    protocol: word(["any", "tcp", "udp", "icmp"]),
    ports: text(),
    /** Peer and target of the rule; policy/firewall.ts declares their shapes. */
    peer: json(v.unknown()),
    target: json(v.unknown()),
    description: textWithDefault("DEFAULT ''"),
    createdAt: integer(),
  },
  { indexes: ["CREATE INDEX firewall_rules_org ON firewall_rules (org_id, id)"] },
);
export type FirewallRuleRow = TableRow<typeof firewallRules>;
