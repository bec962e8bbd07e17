// What `status` shows of a registered organization, read from its files alone: name, address, end of the certificate.
// Contacts no server and no engine.

import { given } from "../../base/given.ts";
import { countOf } from "../../base/quantities.ts";
import type { LeftOut } from "../../engine/left-out.ts";
import { noSeal, type SealSeen } from "../../engine/seal-seen.ts";
import type { DataPlane } from "./config/data-plane.ts";
import { flowsShown, type FlowsShown } from "./flows-state.ts";
import type { SyncState } from "./config/sync-state.ts";
import { sealFilesIn } from "./granted/seal-files.ts";
import type { Organization } from "./organizations.ts";
import { readRevokedNote } from "./revoked-notes.ts";

export type OrganizationFacts = {
  name: string;
  ip_address: string;
  /** RFC 3339. */
  certificate_not_after: string;
  /** The node is ephemeral: its certificate lives for an hour. */
  ephemeral?: true;
  /** Why the control plane has revoked this node. */
  revoked?: string;
  /** Settings of the control plane that this machine left out. */
  left_out?: LeftOut[];
  /** Set if the organization asks for reports of flows. */
  flows?: FlowsShown;
  /** The data plane that was decided last; the engine may still run with the former one. */
  dataPlane?: DataPlane;
  /** The organization's seal, and what it objects to. */
  seal?: SealSeen;
};

/**
 * The seal as the last synchronization compared it. Undefined after `unseal`, although sync.json still has it: that is written
 * again only with a new configuration. With the number `noSeal` no seal could be used, so it has no files.
 */
export function readSealSeen(directory: string, state: SyncState | undefined): SealSeen | undefined {
  const seal = state?.seal;
  const isEnded = seal !== undefined && seal.number !== noSeal && sealFilesIn(directory).length === 0;
  return isEnded ? undefined : seal;
}

export function readOrganizationFacts(
  { config, directory }: Organization,
  state: SyncState | undefined,
  certificateEnd: string,
): OrganizationFacts {
  const note = readRevokedNote(directory);
  const flows = flowsShown({ config, directory });
  const leftOut = state?.left_out ?? [];
  const seal = readSealSeen(directory, state);
  return {
    name: config.name,
    ip_address: config.ip_address,
    certificate_not_after: certificateEnd,
    ...(config.ephemeral === true ? { ephemeral: true as const } : {}),
    ...given({ revoked: note?.reason }),
    ...(leftOut.length === 0 ? {} : { left_out: leftOut }),
    ...given({ flows, dataPlane: state?.data_plane, seal }),
  };
}

const warnDays = 14;

/**
 * A sentence if the certificate ends soon or has ended. It changes once a day. For an ephemeral node, whose certificate lives for
 * an hour, only if it has ended.
 */
export function certificateWarning(
  {
    certificate_not_after: notAfter,
    ephemeral,
  }: Pick<OrganizationFacts, "certificate_not_after" | "ephemeral">,
  nowMs: number,
): string | undefined {
  const days = Math.floor((Date.parse(notAfter) - nowMs) / 86_400_000);
  if (Number.isNaN(days) || days >= (ephemeral === true ? 0 : warnDays)) return undefined;
  if (days < 0) return "The certificate has expired";
  return `The certificate ends ${days === 0 ? "within a day" : `in ${countOf(days, "day")}`}`;
}
