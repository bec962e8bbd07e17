// seal.json: the newest seal of the organization that this node has taken. It stays when the control plane sends none, and
// when the node registers again: only root ends it.

import { join } from "node:path";
import * as v from "valibot";
import { messageOf } from "../../base/errors.ts";
import { writeFileAtomic } from "../../base/files.ts";
import { maxSeals, sealTag, SignedSeal } from "../../protocol/seals/seal.ts";
import { followSeals, sealHash, type OpenedSeal } from "../../pki/seal.ts";
import { readValidJson } from "./organizations.ts";

export const sealFile = "seal.json";

/** Signatures were verified when it was written. Undefined also if the file is damaged: the next one is taken anew. */
const readHeldSeal = (directory: string): SignedSeal | undefined =>
  readValidJson(join(directory, sealFile), SignedSeal);

/** So that the control plane does not send it with each change of something else. */
export function heldSealTag(directory: string): string | undefined {
  const held = readHeldSeal(directory);
  return held === undefined ? undefined : sealTag(sealHash(held.text));
}

const Received = v.pipe(v.array(SignedSeal), v.maxLength(maxSeals));

type TakenSeal = { held: OpenedSeal | undefined; refusal: string | undefined };

/** Takes what follows the held seal. Never throws: a seal that is only observed keeps nothing else from the node. */
export function takeSeals(received: unknown, directory: string): TakenSeal {
  const present = readHeldSeal(directory);
  const held = present === undefined ? undefined : followSeals([present], undefined).held;
  if (received === undefined) return { held, refusal: undefined };
  const parsed = v.safeParse(Received, received);
  if (!parsed.success) return { held, refusal: "The seals that the control plane sent cannot be read" };
  const followed = followSeals(parsed.output, held);
  const newest = parsed.output.findLast(({ text }) => sealHash(text) === followed.held?.hash);
  if (newest === undefined || followed.held?.hash === held?.hash) return followed;
  try {
    writeFileAtomic(join(directory, sealFile), `${JSON.stringify(newest)}\n`, 0o644);
    return followed;
  } catch (error) {
    return { held, refusal: `Cannot write ${sealFile}: ${messageOf(error)}` };
  }
}
