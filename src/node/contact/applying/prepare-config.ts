// Prepares the next configuration from what the control plane sent: verifies keys and chain, takes its seals (what this node may be
// told, signed by signers of the organization), and finishes config.yml for this machine.

import { AppError, hasCode } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { overridesRefusal } from "../../files/config/config-file.ts";
import { readSyncState } from "../../files/generations.ts";
import { takeSeals, type TakenSeal } from "../../files/held-seal.ts";
import type { Organization } from "../../files/organizations.ts";
import { applyCertificates } from "../certificates-alone.ts";
import { completeNext, verifyFiles, type Next, type Received, type SyncDeps } from "../next-config.ts";
import type { Download } from "../requests/client.ts";
import { applySentRevocations } from "../revocations-alone.ts";
import { noteRefusal } from "./recent-refusal.ts";

/**
 * Undefined if the files in force came from an older program, which kept no source of them. Throws if this machine cannot take
 * the configuration as a whole. Before that, its revocations are applied, and its certificates if they could be verified.
 */
export async function prepareOrRevoke(
  organization: Organization,
  download: Download,
  deps: SyncDeps,
): Promise<Next | undefined> {
  const { compareWithSeal, noteUnrendered } = await import("../observe-seal.ts");
  let received: Received | undefined;
  let taken: TakenSeal | undefined;
  try {
    received = await verifyFiles(organization, download, deps);
    if (received === undefined) return undefined;
    const sent = download.changed ? download.answer.seals : undefined;
    // Stores the seals before anything is rendered under them. After a kill in between, the hash of the held seal differs from the
    // one in sync.json, so that the next run downloads everything again.
    taken = takeSeals(sent, organization.directory, deps.system.now());
    const next = await completeNext(organization, received, deps);
    const { comparedWithSeal } = next;
    const seal = compareWithSeal(organization, taken, { ...received, comparedWithSeal }, deps);
    return { ...next, ...given({ seal }) };
  } catch (error) {
    // The failure may have come before the seals were taken. Without sent seals, takeSeals only reads the held one.
    const known = taken ?? takeSeals(undefined, organization.directory, deps.system.now());
    noteUnrendered(organization, known, error);
    const sentYml = download.changed ? download.answer.files["config.yml"] : received?.serverYml;
    const revocations = sentYml === undefined ? "" : await applySentRevocations(organization, sentYml, deps);
    if (received !== undefined) await applyCertificates(organization, received.files, deps);
    if (hasCode(error, "bad_configuration")) noteRefusedOverrides(organization.directory);
    if (!(error instanceof AppError)) throw error;
    throw new AppError(error.code, `${error.message}${revocations}`, { ...error.details, cause: error });
  }
}

/**
 * Notes the refusal for `status` and `doctor`. The former version of the agent may have accepted overrides.yml: then no user has typed a
 * command whose answer tells of it.
 */
function noteRefusedOverrides(directory: string): void {
  const reason = overridesRefusal(directory);
  if (reason === undefined) return;
  noteRefusal(directory, {
    reason,
    byRunningEngine: readSyncState(directory)?.refused,
    isOfOverrides: true,
  });
}
