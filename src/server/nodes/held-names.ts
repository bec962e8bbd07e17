// A name that another node had a short time ago: peers may still have a rule that grants it something, or trust a
// node.crt of it. An ordinary registration token does not get it until that is over; administrators do, at any time.

import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import { releaseDue } from "./upkeep.ts";
import type { Transaction } from "../store/database.ts";
import { nodesBehind } from "../store/holds.ts";
import { holdsOf, type NameHold } from "../store/names.ts";

const mostNamed = 5;

/** Throws name_held, with the nodes or the date that the name waits for. */
export async function refuseHeldName(
  tx: Transaction,
  org: { id: number },
  name: string,
  now: number,
): Promise<void> {
  if ((await holdsOf(tx, org.id, name)).length === 0) return;
  await releaseDue(tx, org.id, now);
  const holds = await holdsOf(tx, org.id, name);
  if (holds.length === 0) return;
  const reasons = [...(await unconfirmed(tx, org.id, holds, now)), ...certificates(holds, now)];
  throw new AppError("name_held", `The name ${name} belonged to another node. ${reasons.join(" ")}`, {
    errors: { name: ["This name is held."] },
  });
}

async function unconfirmed(
  tx: Transaction,
  orgId: number,
  holds: readonly NameHold[],
  now: number,
): Promise<string[]> {
  const open = holds.filter(({ isConfirmed }) => !isConfirmed);
  if (open.length === 0) return [];
  if (open.some(({ version }) => version === null))
    return ["The certificate that the node had under this name is blocked within 10 minutes."];
  const version = Math.max(...open.map((each) => each.version ?? 0));
  const names = await nodesBehind(tx, orgId, version, now, mostNamed + 1);
  const listed = names.length > mostNamed ? [...names.slice(0, mostNamed), "others"] : names;
  return [`It is held until these nodes have confirmed the change: ${listed.join(", ")}.`];
}

function certificates(holds: readonly NameHold[], now: number): string[] {
  const until = Math.max(...holds.map((each) => each.until));
  return until > now ? [`It is held until the node's last certificate ends at ${formatTime(until)}.`] : [];
}
