// The CAs of an organization and their rotation, as a person sees and steers it. What happens in between is in
// rotation-steps.ts.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { blocklistLimit } from "../../protocol.ts";
import type { Actor } from "../audit/record.ts";
import { insertAuthority, makeAuthorities } from "../certificates/make-authorities.ts";
import {
  nextStepAt,
  noteRotation,
  phaseOf,
  retire,
  toVersion,
  waitingFor,
  type Phase,
} from "./rotation-phases.ts";
import type { ServerOptions } from "../options.ts";
import { numberOf, textOf, truthOf, type Reader, type Transaction } from "../store/database.ts";
import { countBlocklist } from "../certificates/blocklist.ts";
import { raiseConfigVersion } from "../store/versions.ts";

const Kind = v.picklist(["overlay", "x509"]);
const State = v.picklist(["next", "active", "former"]);

const RotationAction = v.picklist(["start", "pause", "resume", "rollback"]);

export const RotationRequest = v.strictObject({
  action: RotationAction,
  now: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        "Do not wait for tunnels: the former CAs leave as soon as all online nodes have confirmed their new " +
          "certificates. Tunnels that still use a former CA are torn down and can lose packets for some seconds. With " +
          "`start` it also applies to a rotation that is under way.",
      ),
    ),
  ),
});
export type RotationRequest = v.InferOutput<typeof RotationRequest>;

export const Authorities = v.object({
  cas: v.array(
    v.object({
      fingerprint: v.string(),
      kind: Kind,
      state: State,
      /** In the bundle that nodes get now. */
      trusted: v.boolean(),
      not_before: v.string(),
      not_after: v.string(),
    }),
  ),
  rotation: v.object({
    phase: v.picklist(["none", "trust", "issue", "retire"]),
    paused: v.boolean(),
    waiting_for: v.array(v.number()),
    waiting_for_names: v.array(v.string()),
    /** No node is waited for, but tunnels get time until then. */
    next_step_at: v.nullable(v.string()),
    /** Begins by itself when less than two lifetimes of a node's certificate are left. */
    auto: v.boolean(),
  }),
  /** Blocked certificates of trusted CAs: 0 again when a rotation has ended. */
  blocklist: v.object({ entries: v.number(), limit: v.number() }),
});
export type Authorities = v.InferOutput<typeof Authorities>;

type Store = Pick<ServerOptions, "db" | "system" | "secretKey">;
type Org = { id: number; slug: string };

export async function showAuthorities(
  reader: Reader,
  { id }: Pick<Org, "id">,
  now: number,
): Promise<Authorities> {
  const rows = await reader.all(
    `SELECT fingerprint, kind, state, retired_at, not_before, not_after FROM authorities
     WHERE org_id = $1 ORDER BY id`,
    [id],
  );
  const org = await reader.get(
    `SELECT id, rotation_phase, rotation_paused, rotation_auto, rotation_settled_at, rotation_now, alive_interval
     FROM organizations WHERE id = $1`,
    [id],
  );
  if (org === undefined) throw new AppError("not_found", "There is no such organization.");
  const phase = phaseOf(org);
  const waiting = await waitingFor(reader, id, phase, now);
  const isPaused = truthOf(org, "rotation_paused");
  const nextAt = isPaused || waiting.length > 0 ? null : await nextStepAt(reader, org, now);
  return {
    cas: rows.map((row) => ({
      fingerprint: textOf(row, "fingerprint"),
      kind: v.parse(Kind, row["kind"]),
      state: v.parse(State, row["state"]),
      trusted: row["retired_at"] === null && numberOf(row, "not_after") > now,
      not_before: formatTime(numberOf(row, "not_before")),
      not_after: formatTime(numberOf(row, "not_after")),
    })),
    rotation: {
      phase,
      paused: isPaused,
      waiting_for: waiting.map((node) => node.id),
      waiting_for_names: waiting.map(({ name }) => name),
      next_step_at: nextAt === null ? null : formatTime(nextAt),
      auto: truthOf(org, "rotation_auto"),
    },
    blocklist: { entries: await countBlocklist(reader, id, now), limit: blocklistLimit },
  };
}

/** Throws conflict, with what stands in the way. */
export async function steerRotation(
  store: Store,
  org: Org,
  { action, now = false }: RotationRequest,
  actor: Actor,
): Promise<Authorities> {
  const { db, system } = store;
  if (now && action === "pause") {
    throw new AppError("validation_failed", "A paused CA rotation cannot hurry: leave out `now`.", {
      errors: { now: ["This does not go with the action pause."] },
    });
  }
  const isHurried = action === "start" && now && (await hurry(store, org, actor));
  if (action === "start" && !isHurried) await startRotation(store, org, actor, { now });
  if (action !== "start") {
    await db.write(async (tx) => {
      const phase = await presentPhase(tx, org.id);
      if (phase === "none") throw new AppError("conflict", "No CA rotation is under way.");
      if (action === "rollback") await rollBack(tx, org.id, phase, system.now());
      else await setPaused(tx, org.id, action === "pause");
      if (now) await tx.run("UPDATE organizations SET rotation_now = 1 WHERE id = $1", [org.id]);
      const done = { action, phase: await presentPhase(tx, org.id), ...(now ? { now: "true" } : {}) };
      await noteRotation(tx, org.id, system.now(), done, actor);
    });
  }
  return showAuthorities(db, org, system.now());
}

/** A rotation that is under way waits for tunnels no more; false if none is under way. */
async function hurry({ db, system }: Store, org: Org, actor: Actor): Promise<boolean> {
  return db.write(async (tx) => {
    const phase = await presentPhase(tx, org.id);
    if (phase === "none") return false;
    await tx.run("UPDATE organizations SET rotation_now = 1 WHERE id = $1", [org.id]);
    await noteRotation(tx, org.id, system.now(), { action: "hurry", phase }, actor);
    return true;
  });
}

/** Makes the two new CAs and lets every node trust them beside the old ones. Throws conflict where one is under way. */
export async function startRotation(
  store: Store,
  org: Org,
  actor: Actor,
  options: { now: boolean } = { now: false },
): Promise<void> {
  const { db, system } = store;
  const now = system.now();
  const made = await makeAuthorities(store, org.slug, now);
  await db.write(async (tx) => {
    const begun = await tx.run(
      `UPDATE organizations
       SET rotation_phase = 'trust', rotation_paused = 0, rotation_back = 0, rotation_heard_from = NULL,
         rotation_settled_at = NULL, rotation_now = $2
       WHERE id = $1 AND rotation_phase = 'none' AND move_open = 0 AND deleted_at IS NULL`,
      [org.id, options.now ? 1 : 0],
    );
    if (begun === 0) {
      const what = "A CA rotation, or nodes' way to their IPv6 addresses,";
      throw new AppError("conflict", `${what} is under way already.`, {
        hint: `\`${brand.executable} admin ca show ${org.slug}\` says how far it is.`,
      });
    }
    for (const each of made) await insertAuthority(tx, org.id, each, now, "next");
    await toVersion(tx, org.id, await raiseConfigVersion(tx, org.id));
    const prints = Object.fromEntries(made.map(({ kind, fingerprint }) => [kind, fingerprint]));
    const how = options.now ? { now: "true" } : {};
    await noteRotation(tx, org.id, now, { action: "start", phase: "trust", ...prints, ...how }, actor);
  });
}

async function presentPhase(tx: Transaction, orgId: number): Promise<Phase> {
  const row = await tx.get("SELECT rotation_phase FROM organizations WHERE id = $1 AND deleted_at IS NULL", [
    orgId,
  ]);
  if (row === undefined) throw new AppError("not_found", "There is no such organization.");
  return phaseOf(row);
}

/** Time that passes in a pause does not count: nodes that come meanwhile are not looked at. */
async function setPaused(tx: Transaction, orgId: number, paused: boolean): Promise<void> {
  const done = await tx.run(
    `UPDATE organizations SET rotation_paused = $2, rotation_settled_at = NULL
     WHERE id = $1 AND rotation_paused <> $2`,
    [orgId, paused ? 1 : 0],
  );
  if (done === 0) {
    throw new AppError(
      "conflict",
      paused ? "The CA rotation is paused already." : "The CA rotation is not paused.",
    );
  }
}

/**
 * Back to the former CAs, by the same careful steps: what nodes trust already is taken back at the end only, and what
 * they no longer trust they have to trust again first. Once in a rotation: the same steps again would lead to the new CAs.
 */
async function rollBack(tx: Transaction, orgId: number, phase: Phase, now: number): Promise<void> {
  if (phase === "trust") {
    await tx.run("UPDATE authorities SET state = 'former' WHERE org_id = $1 AND state = 'next'", [orgId]);
    await goBack(tx, orgId, "retire");
    // No certificate was signed by what leaves, so no tunnel rests on it.
    return retire(tx, orgId, now, { lighthousesLater: false });
  }
  const former = await formerOnes(tx, orgId, now);
  if (phase === "issue") {
    await tx.run("UPDATE authorities SET state = 'former' WHERE org_id = $1 AND state = 'active'", [orgId]);
    for (const id of former) await tx.run("UPDATE authorities SET state = 'active' WHERE id = $1", [id]);
    return goBack(tx, orgId, "issue");
  }
  for (const id of former)
    await tx.run("UPDATE authorities SET state = 'next', retired_at = NULL WHERE id = $1", [id]);
  await tx.run("UPDATE nodes SET keeps_former = 0 WHERE org_id = $1 AND keeps_former = 1", [orgId]);
  await goBack(tx, orgId, "trust");
  await toVersion(tx, orgId, await raiseConfigVersion(tx, orgId));
}

/** The CAs that this rotation replaces, one of each kind: those that were trusted last. */
async function formerOnes(tx: Transaction, orgId: number, now: number): Promise<number[]> {
  const rows = await tx.all(
    `SELECT id, kind, not_after FROM authorities WHERE org_id = $1 AND state = 'former' AND private_key_sealed <> ''
     ORDER BY CASE WHEN retired_at IS NULL THEN 1 ELSE 0 END DESC, retired_at DESC, id DESC`,
    [orgId],
  );
  const former = ["overlay", "x509"].flatMap((kind) =>
    rows.filter((row) => row["kind"] === kind).slice(0, 1),
  );
  if (former.length < 2 || former.some((row) => numberOf(row, "not_after") <= now)) {
    throw new AppError("conflict", "The former CAs are over: there is nothing to go back to.");
  }
  return former.map((row) => numberOf(row, "id"));
}

async function goBack(tx: Transaction, orgId: number, phase: Phase): Promise<void> {
  const done = await tx.run(
    `UPDATE organizations
     SET rotation_phase = $2, rotation_paused = 0, rotation_back = 1, rotation_settled_at = NULL, rotation_now = 0
     WHERE id = $1 AND rotation_back = 0`,
    [orgId, phase],
  );
  if (done > 0) return;
  throw new AppError("conflict", "The CA rotation is being rolled back already.", {
    hint: "It ends with the former CAs; after that a new rotation can begin.",
  });
}
