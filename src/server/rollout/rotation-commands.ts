// Shows the CAs of an organization, and starts, pauses, resumes and rolls back rotations: for administrators and for
// rotation-schedule.ts. In between, rotation-phases.ts advances them: in `trust`, nodes come to trust the new CAs; in `issue`,
// they get certificates of them; in `retire`, they stop trusting the former ones.

import type { Authorities, RotationRequest } from "../../api/certificates/authorities.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { blocklistLimit } from "../../protocol/download.ts";
import type { Actor } from "../audit/record.ts";
import { outdatePhones } from "../certificates/issue.ts";
import { limitOf } from "../certificates/offline-ca.ts";
import { insertAuthority, makeAuthorities } from "../certificates/make-authorities.ts";
import { nextStepAt, raiseRotationVersion, recordRotation, retire } from "./rotation-phases.ts";
import { awaitsSigners, waitingFor, type Phase } from "./rotation-waiting.ts";
import type { ServerOptions } from "../options.ts";
import { writeAsAdmin } from "../require-role.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations, requireOrganization } from "../store/tables/organizations.ts";
import { countBlocklist } from "../certificates/blocklist.ts";
import type { Org } from "../http/route.ts";

type Store = Pick<ServerOptions, "db" | "system" | "secretKey" | "clock">;

export async function showAuthorities(
  reader: Reader,
  { id }: Pick<Org, "id">,
  now: number,
): Promise<Authorities> {
  const cas = await authorities.all(reader, { orgId: id });
  const org = await requireOrganization(reader, { id });
  const { rotationPhase: phase, rotationPaused: isPaused } = org;
  const waiting = await waitingFor(reader, id, phase, now);
  const isAwaitingSigners = phase === "trust" && (await awaitsSigners(reader, id));
  const nextAt =
    isPaused || isAwaitingSigners || waiting.length > 0 ? null : await nextStepAt(reader, org, now);
  return {
    cas: cas.map((ca) => ({
      fingerprint: ca.fingerprint,
      kind: ca.kind,
      state: ca.state,
      offline: ca.offline,
      trusted: ca.retiredAt === null && ca.notAfter > now,
      not_before: formatTime(ca.notBefore),
      not_after: formatTime(ca.notAfter),
    })),
    rotation: {
      phase,
      paused: isPaused,
      rolling_back: phase !== "none" && org.rotationBack,
      waiting_for: waiting.map((node) => node.id),
      waiting_for_names: waiting.map(({ name }) => name),
      awaits_signers: isAwaitingSigners,
      next_step_at: timeOrNull(nextAt),
      auto: org.rotationAuto,
    },
    blocklist: { entries: await countBlocklist(reader, id, now), limit: blocklistLimit },
  };
}

/** Starts, pauses, resumes or rolls back a rotation. Throws conflict with the reason. */
export async function steerRotation(
  store: Store,
  org: Org,
  { action, now = false, limited = false }: RotationRequest,
  actor: Actor,
): Promise<Authorities> {
  const { db, system } = store;
  if (now && action === "pause") {
    throw new AppError("validation_failed", "`now` cannot be combined with pause: leave it out.", {
      errors: { now: ["This cannot be combined with the action pause."] },
    });
  }
  if (limited && action !== "start") {
    throw new AppError("validation_failed", "`limited` goes with start alone.", {
      errors: { limited: ["This goes with the action start alone."] },
    });
  }
  // `start` with `now` also speeds up a rotation that is running.
  const isHurried = action === "start" && now && !limited && (await hurry(store, org, actor));
  if (action === "start" && !isHurried) await startRotation(store, org, actor, { now, limited });
  if (action !== "start") {
    await writeAsAdmin(db, org.id, actor, async (tx) => {
      const phase = await readPhase(tx, org.id);
      if (phase === "none") throw new AppError("conflict", "No CA rotation is under way.");
      if (action === "rollback") {
        await rollBack(tx, org.id, phase, system.now());
        await outdatePhones(tx, org.id);
      } else await setPaused(tx, org.id, action === "pause");
      if (now) await organizations.update(tx, { id: org.id }, { rotationNow: true });
      const after = { action, phase: await readPhase(tx, org.id), ...(now ? { now: "true" } : {}) };
      await recordRotation(tx, org.id, system.now(), after, actor);
    });
  }
  return showAuthorities(db, org, system.now());
}

/** Makes a running rotation no longer wait for tunnels. False if none is running. */
async function hurry({ db, system }: Store, org: Org, actor: Actor): Promise<boolean> {
  return writeAsAdmin(db, org.id, actor, async (tx) => {
    const phase = await readPhase(tx, org.id);
    if (phase === "none") return false;
    await organizations.update(tx, { id: org.id }, { rotationNow: true });
    await recordRotation(tx, org.id, system.now(), { action: "hurry", phase }, actor);
    return true;
  });
}

/** Creates two new CAs, which every node trusts in addition to the old ones. Throws conflict if a rotation is running. */
export async function startRotation(
  store: Store,
  org: Org,
  actor: Actor,
  options: { now: boolean; limited?: boolean } = { now: false },
): Promise<void> {
  const { db, system } = store;
  const now = system.now();
  // The only network that the next overlay CA may certify; undefined: no limit.
  const limit = await limitOf(db, org.id, { isWanted: options.limited === true });
  const newCas = await makeAuthorities(store, org.slug, now, limit);
  await writeAsAdmin(db, org.id, actor, async (tx) => {
    // No row: a rotation or a rolling update is under way, or the organization was deleted.
    const startedRows = await organizations.update(
      tx,
      { id: org.id, rotationPhase: "none", moveOpen: false, deletedAt: null },
      {
        rotationPhase: "trust",
        rotationPaused: false,
        rotationBack: false,
        rotationHeardFrom: null,
        rotationSettledAt: null,
        rotationNow: options.now,
      },
    );
    if (startedRows === 0) {
      const what = "A CA rotation, or a rolling update to IPv6 addresses,";
      throw new AppError("conflict", `${what} is under way already.`, {
        hint: `\`${brand.executable} admin ca show ${org.slug}\` shows its progress.`,
      });
    }
    for (const ca of newCas) await insertAuthority(tx, org.id, ca, now, "next");
    await raiseRotationVersion(tx, org.id);
    await outdatePhones(tx, org.id);
    const prints = Object.fromEntries(newCas.map(({ kind, fingerprint }) => [kind, fingerprint]));
    const how = {
      ...(options.now ? { now: "true" } : {}),
      ...(limit === undefined ? {} : { limited: limit }),
    };
    await recordRotation(tx, org.id, now, { action: "start", phase: "trust", ...prints, ...how }, actor);
  });
}

/**
 * SQL condition: a CA of the organization `o` that signs, or that the running rotation introduces, is not valid yet at $1, ms. It
 * was made while the clock was ahead.
 */
export const hasEarlyCa = `EXISTS (SELECT 1 FROM authorities a WHERE a.org_id = o.id AND a.not_before > $1
  AND a.state = CASE o.rotation_phase WHEN 'trust' THEN 'next' ELSE 'active' END)`;

/**
 * Rolls back a rotation whose new CAs are not valid yet: nodes would refuse their certificates, and no registration would work. False
 * if none is running, or if it is being rolled back already.
 */
export async function rollBackEarly(
  { db, system }: Pick<Store, "db" | "system">,
  orgId: number,
): Promise<boolean> {
  return db.writeFor({ org: orgId }, async (tx) => {
    const org = await organizations.find(tx, { id: orgId, rotationBack: false, deletedAt: null });
    if (org === undefined || org.rotationPhase === "none") return false;
    await rollBack(tx, orgId, org.rotationPhase, system.now());
    await outdatePhones(tx, orgId);
    const after = {
      action: "rollback",
      phase: await readPhase(tx, orgId),
      reason: "The new CAs are not valid yet.",
    };
    await recordRotation(tx, orgId, system.now(), after);
    return true;
  });
}

async function readPhase(tx: Transaction, orgId: number): Promise<Phase> {
  const org = await requireOrganization(tx, { id: orgId, deletedAt: null });
  return org.rotationPhase;
}

/** Also clears the settled time: during a pause, no check notices nodes that come online. */
async function setPaused(tx: Transaction, orgId: number, paused: boolean): Promise<void> {
  const changedRows = await organizations.update(
    tx,
    { id: orgId, rotationPaused: !paused },
    { rotationPaused: paused, rotationSettledAt: null },
  );
  if (changedRows === 0) {
    throw new AppError(
      "conflict",
      paused ? "The CA rotation is paused already." : "The CA rotation is not paused.",
    );
  }
}

/**
 * Goes back to the former CAs by the same confirmed steps. From `trust`, nodes only stop trusting the new CAs. From `issue`, they get
 * certificates of the former ones again. From `retire`, they first have to trust the former CAs again. Allowed once per rotation: a
 * second rollback would lead to the new CAs.
 */
async function rollBack(tx: Transaction, orgId: number, phase: Phase, now: number): Promise<void> {
  if (phase === "trust") {
    await authorities.update(tx, { orgId, state: "next" }, { state: "former" });
    await setBack(tx, orgId, "retire");
    // The new CAs have signed no certificate, so no tunnel depends on them.
    return retire(tx, orgId, now, { lighthousesLater: false });
  }
  const replaced = await replacedCas(tx, orgId, now);
  if (phase === "issue") {
    await authorities.update(tx, { orgId, state: "active" }, { state: "former" });
    for (const id of replaced) await authorities.update(tx, { id }, { state: "active" });
    return setBack(tx, orgId, "issue");
  }
  for (const id of replaced) await authorities.update(tx, { id }, { state: "next", retiredAt: null });
  // Every node trusts the former CAs again, so no lighthouse has to be spared.
  await nodes.update(tx, { orgId, keepsFormer: true }, { keepsFormer: false });
  await setBack(tx, orgId, "trust");
  await raiseRotationVersion(tx, orgId);
}

/**
 * The ids of the CAs that this rotation replaces, one of each kind: the former CAs that were trusted last. CAs without a key are
 * offline ones, or of earlier rotations. Throws conflict.
 */
async function replacedCas(tx: Transaction, orgId: number, now: number): Promise<number[]> {
  const caPick = authorities.pick("id", "kind", "notAfter");
  const cas = await queryAll(
    tx,
    caPick,
    `SELECT ${caPick.select()} FROM authorities WHERE org_id = $1 AND state = 'former' AND private_key_sealed <> ''
     ORDER BY CASE WHEN retired_at IS NULL THEN 1 ELSE 0 END DESC, retired_at DESC, id DESC`,
    [orgId],
  );
  const lastTrusted = ["overlay", "x509"].flatMap((kind) => cas.find((ca) => ca.kind === kind) ?? []);
  if (lastTrusted.length < 2 || lastTrusted.some(({ notAfter }) => notAfter <= now)) {
    throw new AppError("conflict", "Cannot roll back: the previous CAs have expired.");
  }
  return lastTrusted.map(({ id }) => id);
}

/** Continues the rotation from this phase, towards the former CAs. Throws conflict if it goes back already. */
async function setBack(tx: Transaction, orgId: number, phase: Phase): Promise<void> {
  const changedRows = await organizations.update(
    tx,
    { id: orgId, rotationBack: false },
    {
      rotationPhase: phase,
      rotationPaused: false,
      rotationBack: true,
      rotationSettledAt: null,
      rotationNow: false,
    },
  );
  if (changedRows > 0) return;
  throw new AppError("conflict", "The CA rotation is being rolled back already.", {
    hint: "It ends with the former CAs. After that you can start a new rotation.",
  });
}
