// Takes the seals that the control plane sent, and compares what it told this node with the newest one. Observe mode: it
// tells what the seal would refuse, and refuses nothing.

import { describeSeal } from "../../engine/left-out.ts";
import type { Log } from "../../base/log.ts";
import { NodeConfig } from "../../protocol/stored.ts";
import * as v from "valibot";
import { readSyncState, type SyncState } from "../files/generations.ts";
import { objectionsOf } from "../files/granted/sealed.ts";
import { takeSeals } from "../files/held-seal.ts";
import type { Organization } from "../files/organizations.ts";
import type { Next } from "./next-config.ts";

/** Undefined: the organization is not sealed. `received`: of an answer that had seals. */
export function observeSeal(
  { directory, slug }: Pick<Organization, "directory" | "slug">,
  received: unknown,
  { files, sent }: Pick<Next, "files" | "sent">,
  log: Log,
): SyncState["seal"] {
  const { held, refusal } = takeSeals(received, directory);
  if (held === undefined) return undefined;
  const { seal, hash } = held;
  const told = {
    config: sent,
    caCrt: files["ca.crt"],
    hostCrt: files["host.crt"],
    node: v.parse(v.pipe(v.string(), v.parseJson(), NodeConfig), files["node-config.json"]),
  };
  const refused = refusal === undefined ? [] : [{ key: "the newest seal", reason: refusal.slice(0, 400) }];
  const objections = [...refused, ...objectionsOf(seal.state, told)];
  const seen = { number: seal.number, hash, made_at: seal.made_at, objections };
  const before = readSyncState(directory)?.seal;
  if (objections.length > 0 && !Bun.deepEquals(before, seen))
    log.warn("The seal of the organization would refuse what the control plane says", {
      team: slug,
      what: describeSeal(seen),
    });
  return seen;
}
