// The seal of an organization that this node holds, as log, status and doctor show it. Keep this file light: `status` loads it.

import { describeFirst, type LeftOut } from "./left-out.ts";

/** Stands in `number` if no seal can be used. The numbers of seals begin with 1. */
export const noSeal = 0;

export type SealSeen = {
  number: number;
  hash: string;
  /** In seconds since 1970. */
  made_at: number;
  /** What the seal refuses, or would refuse, of the configuration in force. With `noSeal`: why none can be used. */
  objections: LeftOut[];
  /** The node leaves out what the seal objects to. */
  enforced?: true | undefined;
};

/** One sentence for the user. Users compare the hash with the one of a signer. */
export function describeSeal({ number, hash, made_at: madeAt, objections, enforced }: SealSeen): string {
  if (number === noSeal) return `no seal of the organization can be used: ${describeFirst(objections)}`;
  const made = new Date(madeAt * 1000).toISOString().slice(0, 10);
  const [mode, verb] = enforced === true ? ["enforced", "refuses"] : ["observed", "would refuse"];
  const which = `seal ${number} of ${made}, hash ${hash.slice(0, 16)}, is ${mode}`;
  return objections.length === 0 ? which : `${which}: it ${verb} ${describeFirst(objections)}`;
}
