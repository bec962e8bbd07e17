// What a person wants to see of a registered organization, read from its files alone: name, address, end of the
// certificate. Asks no server and no engine.

import type { LeftOut } from "../../left-out.ts";
import { readRevokedNote, readSyncState, type Organization } from "./organizations.ts";

export type TeamFacts = {
  name: string;
  ip_address: string;
  /** RFC 3339. */
  certificate_not_after: string;
  /** Why the organization is stopped by its control plane. */
  revoked?: string;
  /** What of the control plane's configuration is not taken. */
  left_out?: LeftOut[];
};

export function readTeamFacts({ config, directory }: Organization, certificateEnd: string): TeamFacts {
  const note = readRevokedNote(directory);
  const leftOut = readSyncState(directory)?.left_out ?? [];
  return {
    name: config.name,
    ip_address: config.ip_address,
    certificate_not_after: certificateEnd,
    ...(note === undefined ? {} : { revoked: note.reason }),
    ...(leftOut.length === 0 ? {} : { left_out: leftOut }),
  };
}

const warnDays = 14;

/** What there is to say of a certificate that ends soon, or has ended; the sentence changes once a day. */
export function certificateWarning(notAfter: string, now: number): string | undefined {
  const days = Math.floor((Date.parse(notAfter) - now) / 86_400_000);
  if (Number.isNaN(days) || days >= warnDays) return undefined;
  return days < 0 ? "The certificate has expired" : `The certificate ends in ${days} days`;
}
