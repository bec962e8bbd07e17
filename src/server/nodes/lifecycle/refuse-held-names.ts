// Refuses held names to machines that no administrator registers: peers may still grant the name the rights of its former
// node, or trust the node.crt of that node. Names of aliases too. Administrators may assign both at any time.

import { formatTime } from "../../../base/quantities.ts";
import { AppError } from "../../../base/errors.ts";
import { refuseAliasName } from "../../names/aliases.ts";
import { releaseDue } from "./upkeep.ts";
import type { Transaction } from "../../store/database.ts";
import { nodesBehind } from "../../allocation/holds.ts";
import { holdsOf, type NameHold } from "../../allocation/held-names.ts";

const maxNamed = 5;

/** Throws name_held with the nodes or the date that the name waits for, and name_taken for an alias. */
export async function refuseHeldName(
  tx: Transaction,
  org: { id: number },
  name: string,
  now: number,
): Promise<void> {
  await refuseAliasName(tx, org, name);
  if ((await holdsOf(tx, org.id, name)).length === 0) return;
  await releaseDue(tx, org.id, now);
  const holds = await holdsOf(tx, org.id, name);
  if (holds.length === 0) return;
  const reasons = [...(await untilConfirmed(tx, org.id, holds, now)), ...untilExpired(holds, now)];
  throw new AppError("name_held", `The name ${name} belonged to another node. ${reasons.join(" ")}`, {
    errors: { name: ["This name is held."] },
  });
}

/** Which nodes have to confirm the change before the name is free; empty if all have. */
async function untilConfirmed(
  tx: Transaction,
  orgId: number,
  holds: readonly NameHold[],
  now: number,
): Promise<string[]> {
  const unconfirmed = holds.filter(({ freeAt }) => freeAt === null);
  if (unconfirmed.length === 0) return [];
  // The version that blocks the certificate is not known yet.
  if (unconfirmed.some(({ heldVersion }) => heldVersion === null))
    return ["The certificate that the node had under this name is blocked within 10 minutes."];
  const version = Math.max(...unconfirmed.map(({ heldVersion }) => heldVersion ?? 0));
  const names = await nodesBehind(tx, orgId, version, now, maxNamed + 1);
  const listed = names.length > maxNamed ? [...names.slice(0, maxNamed), "others"] : names;
  return [`It is held until these nodes have confirmed the change: ${listed.join(", ")}.`];
}

/** Until when the last node.crt with the name is valid; empty if all have expired. */
function untilExpired(holds: readonly NameHold[], now: number): string[] {
  const until = Math.max(...holds.map(({ heldUntil }) => heldUntil));
  return until > now ? [`It is held until the node's last certificate ends at ${formatTime(until)}.`] : [];
}
