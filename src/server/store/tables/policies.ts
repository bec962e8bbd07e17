// The policy of an organization beyond its rules, groups and nodes: the file that was applied last, the tests, and an
// application that waits for confirmation. An organization without a row has none of that.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  jsonWithDefault,
  key,
  table,
  textOrNull,
  textWithDefault,
  truth,
  type TableRow,
  json,
  serial,
  text,
  word,
} from "../table.ts";
import * as v from "valibot";

export const policies = table("policies", {
  orgId: key,
  /** Rises with each change of rules, groups, routes, relays and tests by users. */
  version: integerWithDefault("DEFAULT 0"),
  /** Rules, groups and memberships are changed by the file alone. */
  byFile: truth(0),
  /** The file as it was written. */
  text: textOrNull(),
  appliedAt: integerOrNull(),
  /** An e-mail address, the name of a token, or `the operator`. */
  appliedBy: textOrNull(),
  /** policy-tests.ts declares their shape. */
  tests: jsonWithDefault(v.array(v.unknown()), "[]"),
  /** Sentences of the tests that failed when they ran last. */
  failing: jsonWithDefault(v.array(v.string()), "[]"),
  /** Since when the state is another one than the file says, ms. */
  driftedAt: integerOrNull(),
  /** The state of the organization when tests and drift were looked at last, see upkeep in policy-files. */
  checkedState: textWithDefault("DEFAULT ''"),
  /** Until when an application goes back unless it is confirmed, ms. */
  unconfirmedUntil: integerOrNull(),
  /** The inverse of the unconfirmed application, JSON. */
  undo: textOrNull(),
  createdAt: integer(),
});
export type PolicyRow = TableRow<typeof policies>;

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
