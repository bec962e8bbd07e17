// Whether all staff need a second factor.

import { record, type Actor } from "../../audit/record.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { readMeta, setMeta } from "../../store/meta.ts";
import { requireStaff } from "../../require-role.ts";
import type { FactorServices } from "./second-factor.ts";
import { requireOwnFactor } from "./step-up.ts";

/** In `meta`. */
const staffFactorKey = "staff_second_factor";

export const doStaffNeedFactor = async (reader: Reader) => (await readMeta(reader, staffFactorKey)) === "1";

export async function setStaffNeedFactor(
  { db, system }: FactorServices,
  isNeeded: boolean,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    await requireStaff(tx, actor);
    // Staff without a factor would lock themselves out.
    if (isNeeded) await requireOwnFactor(tx, actor);
    const before = { staff_second_factor: await doStaffNeedFactor(tx) };
    const after = { staff_second_factor: isNeeded };
    await setMeta(tx, staffFactorKey, isNeeded ? "1" : "0");
    await record(tx, {
      orgId: null,
      at: system.now(),
      type: "server.updated",
      actor,
      subject: "server",
      before,
      after,
    });
  });
}

/** Into a restored backup: what was required after it stays required. */
export async function carryStaffFactor(old: Reader, tx: Transaction): Promise<void> {
  if (await doStaffNeedFactor(old)) await setMeta(tx, staffFactorKey, "1");
}
