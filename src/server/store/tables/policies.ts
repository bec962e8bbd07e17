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
  emptyText,
  truth,
  type TableRow,
  json,
  serial,
  since,
  text,
  word,
  queryOne,
} from "../table.ts";
import type { Reader } from "../database.ts";
import * as v from "valibot";
import { SignedSeal } from "../../../protocol/seals/seal.ts";

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
  /** The `stateStamp` at which tests and drift were looked at last (policy-files/policy-upkeep.ts); "": look at them again. */
  checkedState: emptyText,
  /** Until when an application goes back unless it is confirmed, ms. */
  unconfirmedUntil: integerOrNull(),
  /** The inverse of the unconfirmed application, JSON: `Undo` in policy-files/rollback.ts. */
  undo: textOrNull(),
  createdAt: integer(),
  /**
   * What nodes may be told, as signers say it and not the control plane. As the signers published them: those that changed the
   * signers, and the newest (config/seals.ts).
   */
  seals: since(64, jsonWithDefault(v.array(SignedSeal), "[]")),
});
export type PolicyRow = TableRow<typeof policies>;

const sealsPick = policies.pick("seals");

/** The seals of an organization in their order; empty if it is not sealed. */
export async function readSeals(reader: Reader, orgId: number): Promise<SignedSeal[]> {
  const sql = `SELECT ${sealsPick.select()} FROM policies WHERE org_id = $1`;
  return (await queryOne(reader, sealsPick, sql, [orgId]))?.seals ?? [];
}

export const firewallRules = table(
  "firewall_rules",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    direction: word(["inbound", "outbound"]),
    protocol: word(["any", "tcp", "udp", "icmp"]),
    /** `any`, a port, or a range such as `8000-8010`. */
    ports: text(),
    /** Peer and target of the rule; policy/firewall.ts declares their shapes. */
    peer: json(v.unknown()),
    target: json(v.unknown()),
    description: emptyText,
    createdAt: integer(),
  },
  { indexes: ["CREATE INDEX firewall_rules_org ON firewall_rules (org_id, id)"] },
);
