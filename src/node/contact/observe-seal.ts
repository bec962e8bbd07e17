// Takes the seals that the control plane sent, and compares what it told this node with the newest one. Observe mode: it
// tells what the seal would refuse, and refuses nothing.

import { describeSeal } from "../../engine/left-out.ts";
import { NodeConfig } from "../../protocol/stored.ts";
import * as v from "valibot";
import { readSyncState, type SyncState } from "../files/generations.ts";
import { objectionsOf } from "../files/granted/sealed.ts";
import { damagedSeal, takeSeals } from "../files/held-seal.ts";
import type { Organization } from "../files/organizations.ts";
import type { Next, SyncEdge } from "./next-config.ts";

/** Undefined: the organization is not sealed. `received`: of an answer that had seals. Number 0: no seal can be used. */
export function observeSeal(
  { directory, slug }: Pick<Organization, "directory" | "slug">,
  received: unknown,
  { files, sent }: Pick<Next, "files" | "sent">,
  { log, system }: Pick<SyncEdge, "log" | "system">,
): SyncState["seal"] {
  const { held, damaged, refusal } = takeSeals(received, directory, system.now());
  if (held === undefined && refusal === undefined) return undefined;
  const told = {
    config: sent,
    caCrt: files["ca.crt"],
    hostCrt: files["host.crt"],
    node: v.parse(v.pipe(v.string(), v.parseJson(), NodeConfig), files["node-config.json"]),
  };
  const refused = refusal === undefined ? [] : [refusal];
  const objections = [...refused, ...(held === undefined ? [] : objectionsOf(held.seal.state, told))];
  const { number, made_at } = held?.seal ?? { number: 0, made_at: 0 };
  const seen = { number, hash: held?.hash ?? (damaged ? damagedSeal : ""), made_at, objections };
  const before = readSyncState(directory)?.seal;
  if (objections.length > 0 && !Bun.deepEquals(before, seen))
    log.warn(
      held === undefined
        ? "No seal of the organization can be used"
        : "The seal of the organization would refuse what the control plane says",
      {
        team: slug,
        what: describeSeal(seen),
      },
    );
  return seen;
}
