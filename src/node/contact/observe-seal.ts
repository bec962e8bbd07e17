// Compares what the control plane sent with the newest seal: what an observed seal would refuse, and what an enforced one
// keeps out (granted/sealed-config.ts and granted/sealed-files.ts do that). The result is for `status`, `doctor` and check-ins.
// A seal says what the nodes of an organization may be told, and is signed by its signers, not by the control plane.

import * as v from "valibot";
import { jsonText } from "../../base/text.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import { describeSeal, noSeal, type SealSeen } from "../../engine/seal-seen.ts";
import { hasCode, messageOf } from "../../base/errors.ts";
import { NodeConfig } from "../../protocol/organization-files.ts";
import { plainRefused } from "../../protocol/seals/refused.ts";
import type { ConfigFiles } from "../../protocol/download.ts";
import { readSyncState, writeSyncState } from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import { objectionsOf } from "../files/granted/seal-objections.ts";
import { isSealMarked } from "../files/granted/seal-files.ts";
import { damagedSeal, type TakenSeal } from "../files/held-seal.ts";
import type { Organization } from "../files/organizations.ts";
import type { Next, SyncDeps } from "./next-config.ts";

type Sealed = Pick<Organization, "directory" | "slug">;
type SealRecord = NonNullable<SyncState["seal"]>;

/**
 * The seal and what it objects to, for sync.json; its number is `noSeal` if no seal can be used. Undefined: the organization is
 * not sealed. `files`, `comparedWithSeal`: as they were sent. `isNew`: false if they are those in force, which lack what was kept out.
 */
export function compareWithSeal(
  { directory, slug }: Sealed,
  taken: TakenSeal,
  { files, comparedWithSeal, isNew }: { files: ConfigFiles; isNew: boolean } & Pick<Next, "comparedWithSeal">,
  { log }: Pick<SyncDeps, "log">,
): SyncState["seal"] {
  const { held, refusal } = taken;
  if (held === undefined && refusal === undefined) return undefined;
  const before = readSyncState(directory)?.seal;
  // Nothing new was sent, and the files in force no longer show what was kept out of them.
  if (!isNew && refusal === undefined && before?.enforced === true && before.hash === held?.hash)
    return before;
  const sent = {
    config: comparedWithSeal,
    caCrt: files["ca.crt"],
    hostCrt: files["host.crt"],
    node: v.parse(jsonText(NodeConfig), files["node-config.json"]),
  };
  const objections = [
    ...(refusal === undefined ? [] : [refusal]),
    ...(held === undefined ? [] : objectionsOf(held.seal.state, sent)),
  ];
  const record = recordOf(taken, directory, objections);
  if (objections.length > 0 && !Bun.deepEquals(before, record))
    log.warn(objectionText(held !== undefined, record), { team: slug, what: describeSeal(record) });
  return record;
}

function objectionText(isHeld: boolean, { enforced }: Pick<SealSeen, "enforced">): string {
  if (!isHeld) return "No seal of the organization can be used";
  if (enforced === true) return "The seal of the organization keeps out what the control plane says";
  return "The seal of the organization would refuse what the control plane says";
}

/**
 * A configuration that cannot be rendered under the seal leaves the one in force as it is: notes why in sync.json, for `status`
 * and `doctor`.
 */
export function noteUnrendered(
  { directory }: Pick<Sealed, "directory">,
  taken: TakenSeal,
  error: unknown,
): void {
  const state = readSyncState(directory);
  if (state === undefined || !isSealMarked(directory)) return;
  // Another reason, such as a damaged overrides.yml, has nothing to do with the seal.
  const isOfSeal = hasCode(error, "untrusted_answer");
  if (!isOfSeal && taken.held !== undefined) return;
  const reason = { key: "the new configuration", reason: messageOf(error).slice(0, 400) };
  const others = taken.refusal === undefined ? [] : [taken.refusal];
  const seal = recordOf(taken, directory, [reason, ...others]);
  // Without an ETag the next answer has the files again, so that this note is renewed or removed.
  if (!Bun.deepEquals(seal, state.seal)) writeSyncState(directory, { ...state, etag: "", seal });
}

/**
 * `held`: the seal that this node keeps and compares with; undefined if there is none, or if seal.json is damaged. The mark says that
 * a seal was enforced here once, and stays then too, so that a damaged file does not open the node.
 */
function recordOf({ held, damaged }: TakenSeal, directory: string, objections: LeftOut[]): SealRecord {
  // `made_at`: seconds since 1970.
  const { number, made_at } = held?.seal ?? { number: noSeal, made_at: 0 };
  const hash = held?.hash ?? (damaged ? damagedSeal : "");
  const isEnforced = held === undefined ? isSealMarked(directory) : held.seal.mode === "enforce";
  const plain = objections.map(plainRefused);
  return { number, hash, made_at, objections: plain, ...(isEnforced ? { enforced: true } : {}) };
}
