// Reads the nodes that a policy applies to, in pages: an organization may have ten thousand.

import * as v from "valibot";
import type { Member } from "./firewall.ts";
import type { Reader } from "../store/database.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import {
  computed,
  integer,
  integerOrNull,
  queryAll,
  text,
  textOrNull,
  truth,
  wordOrNull,
} from "../store/table.ts";

/** `groups`: those of its certificate. `given`: without those that it has by its owner. */
export type PolicyNode = Member & {
  isActive: boolean;
  given: readonly string[];
  ownerGroups: readonly string[];
  ownerId: number | null;
  /** The id of its registration token. */
  registeredWith: number | null;
  subnets: readonly string[];
  isRelay: boolean;
  /** The system of a phone; null: it is none. */
  phone: "android" | "ios" | null;
};

const nodeRow = computed({
  id: integer(),
  name: text(),
  ip: text(),
  ip6: textOrNull(),
  state: text(),
  groups: text(),
  ownerId: integerOrNull(),
  ownerGroups: text(),
  subnets: text(),
  isRelay: truth(0),
  registeredWith: integerOrNull(),
  phone: wordOrNull(["android", "ios"]),
});
/** A page takes two milliseconds. */
const pageSize = 500;

/**
 * The nodes that are not revoked, by id, without ephemeral ones: a policy names these by their groups alone. `pause`:
 * between pages; a transaction may not.
 */
export async function readPolicyNodes(
  reader: Reader,
  orgId: number,
  pause: () => Promise<unknown> = () => Promise.resolve(),
): Promise<PolicyNode[]> {
  // Nodes with the same groups share one list, which makes comparing them fast.
  const lists = new Map<string, string[]>();
  const listOf = (json: string) =>
    lists.getOrInsertComputed(json, () => v.parse(v.array(v.string()), JSON.parse(json)));
  const groupsOf = (given: string, ownerGroups: string, ownerId: number | null) =>
    lists.getOrInsertComputed(`${ownerId} ${given} ${ownerGroups}`, () =>
      certifiedGroups({ groups: listOf(given), ownerGroups: listOf(ownerGroups), ownerId }),
    );
  const found: PolicyNode[] = [];
  for (let last = 0; ;) {
    const page = await queryAll(
      reader,
      nodeRow,
      `SELECT id, name, ip, ip6, state, groups, owner_id, owner_groups, subnets, is_relay, registered_with, phone FROM nodes
       WHERE org_id = $1 AND state <> 'revoked' AND ephemeral_silence_s IS NULL AND id > $2 ORDER BY id LIMIT ${pageSize}`,
      [orgId, last],
    );
    for (const { state, groups, ownerGroups, subnets, ...node } of page) {
      found.push({
        ...node,
        isActive: state === "active",
        groups: groupsOf(groups, ownerGroups, node.ownerId),
        given: listOf(groups),
        ownerGroups: listOf(ownerGroups),
        subnets: listOf(subnets),
      });
    }
    if (page.length < pageSize) return found;
    last = page.at(-1)?.id ?? last;
    await pause();
  }
}
