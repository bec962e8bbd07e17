// Firewall rules.

import { integer, json, serial, table, text, textWithDefault, word } from "../table.ts";
import * as v from "valibot";

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
