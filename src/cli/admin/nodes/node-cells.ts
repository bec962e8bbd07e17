// How `node list` and `node show` name the state, role and owner of a node.

import { isExit } from "../../../protocol/routing/roles.ts";
import type { Node } from "../../../protocol/node.ts";
import type { Cell } from "../../table.ts";
import type { Api } from "../api.ts";
import { memberEmails } from "../lookup.ts";

/** E-mail addresses of the owners of nodes, by number of the user. */
export async function ownersOf(api: Api, slug: string, nodes: readonly Node[]): Promise<Map<number, string>> {
  if (nodes.every(({ owner_id: id }) => id === undefined || id === null)) return new Map();
  return memberEmails(api, slug);
}

/** The owner's e-mail address; "" for the organization. A user who has left the organization is named by number. */
export function ownerOf({ owner_id: id }: Node, owners: ReadonlyMap<number, string>): string {
  return id === undefined || id === null ? "" : (owners.get(id) ?? `user ${id}`);
}

/** The state of a node as a cell of a table. `now`: ms since 1970. */
export function stateOf(
  { state, online, certificate, config_version, applied_config_version, phone }: Node,
  now: number,
): Cell {
  if (state === "pending") return { text: "pending", mark: "wait" };
  if (state === "revoked") return { text: "revoked", mark: "bad" };
  const isOver = certificate !== null && Date.parse(certificate.not_after) <= now;
  if (isOver) return { text: "certificate expired", mark: "bad" };
  if (phone !== undefined && phone !== null) {
    const isDue = phone.import_by === null || Date.parse(phone.import_by) <= now;
    return isDue ? { text: "phone, import due", mark: "wait" } : "phone";
  }
  if (!online) return { text: "offline", mark: "faint" };
  const isCurrent = applied_config_version === null || applied_config_version >= config_version;
  return isCurrent ? { text: "online", mark: "good" } : { text: "online, updating", mark: "wait" };
}

/** "lighthouse, relay"; "" for a node without a role. */
export function roleOf(node: Node): string {
  const { is_lighthouse: lighthouse, is_relay: relay, is_name_server } = node;
  const roles = { lighthouse, relay, "name server": is_name_server, exit: isExit(node) };
  return Object.entries(roles)
    .flatMap(([role, isSet]) => (isSet === true ? [role] : []))
    .join(", ");
}
