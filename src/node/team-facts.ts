// What a person wants to see of a registered organization, read from its files alone: name, address, end of the
// certificate. Asks no server and no engine.

import { join } from "node:path";
import { formatTime } from "../duration.ts";
import { readTextIfThere } from "../files.ts";
import { decodeBundle } from "../pki/nebula.ts";
import { readRevokedNote, type Organization } from "./organizations.ts";

export type TeamFacts = {
  name: string;
  ip_address: string;
  /** RFC 3339; of the certificate that ends first where there are two versions. */
  certificate_not_after: string;
  /** Why the organization is stopped by its control plane. */
  revoked?: string;
};

export function readTeamFacts(organization: Organization): TeamFacts {
  const { config, directory } = organization;
  const pem = readTextIfThere(join(directory, "host.crt")) ?? "";
  const ends = decodeBundle(pem).map((certificate) => certificate.notAfter);
  const note = readRevokedNote(directory);
  return {
    name: config.name,
    ip_address: config.ip_address,
    certificate_not_after: formatTime(Math.min(...ends) * 1000),
    ...(note === undefined ? {} : { revoked: note.reason }),
  };
}

const warnDays = 14;

/** What there is to say of a certificate that ends soon, or has ended; the sentence changes once a day. */
export function certificateWarning(notAfter: string, now: number): string | undefined {
  const days = Math.floor((Date.parse(notAfter) - now) / 86_400_000);
  if (Number.isNaN(days) || days >= warnDays) return undefined;
  return days < 0 ? "The certificate has expired" : `The certificate ends in ${days} days`;
}
