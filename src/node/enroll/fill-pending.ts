// Fills the pending directory of a registration (pending.ts) with the files of the organization, from the control plane's answer.
// Sends no requests.

import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { readTextIfThere, removeTree, writeFileAtomic } from "../../base/files.ts";
import { given } from "../../base/given.ts";
import type { Log } from "../../base/log.ts";
import { planRemoved } from "../../base/plan/plan-file.ts";
import type { Step } from "../../base/plan/plan.ts";
import { jsonText } from "../../base/text.ts";
import { formatTime } from "../../base/quantities.ts";
import type { System } from "../../base/system.ts";
import { can } from "../../engine/features.ts";
import { makeSocketDirectory } from "../../platform/systemd/control-socket.ts";
import type { ConfigFiles } from "../../protocol/download.ts";
import type { RegisterAnswer } from "../../protocol/registration.ts";
import { NodeConfig } from "../../protocol/organization-files.ts";
import type { Mode } from "../../protocol/values.ts";
import { checkAnswer } from "../contact/verify-download.ts";
import { endOfCertificates } from "../files/certificate-end.ts";
import { finishConfig, readOverrides } from "../files/config/config-file.ts";
import { decideDataPlane } from "../files/config/data-plane.ts";
import { checkedState, readSent, warnOfLeftOut } from "../files/config/sent-config.ts";
import { refuseNetworks } from "../files/config/refuse-networks.ts";
import { filesInForce, markApplied, stageGeneration, switchGeneration } from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import { resolveNames } from "../files/granted/host-names.ts";
import { ignoringDamage, readMachine } from "../files/granted/machine-facts.ts";
import { maskedNetworks } from "../files/granted/networks.ts";
import { enforcedMark, sealFile } from "../files/granted/seal-files.ts";
import { sealInForce, underSeal } from "../files/granted/seal-in-force.ts";
import { takeSeals } from "../files/held-seal.ts";
import { writeCredentials } from "../files/organizations.ts";
import { refuseForeignFile } from "../files/own-files.ts";
import { writePermissions, type Permissions } from "../files/permissions.ts";
import { stoppedPath } from "../files/stopped-by-user.ts";
import type { Keys } from "./pending-keys.ts";

type Filling = {
  slug: string;
  /** The pending directory. */
  pending: string;
  keys: Keys;
  /** The control plane's URL. */
  apiBase: string;
  mode: Mode;
  /** PEM of the control plane's own CA. */
  apiCa: string | undefined;
  /** The engine of this machine. */
  overlayVersion: string | undefined;
  /** Replaces these permissions of an earlier registration. */
  allow: Partial<Permissions>;
  /** The hash of a seal, which a signer gave to the user, or which the join key has. */
  seal?: string | undefined;
  /** Called before a node without such a hash begins with an enforced seal. Throws to refuse it. */
  confirmSeal?: ((hash: string) => Promise<void>) | undefined;
};

type FillDeps = { system: Pick<System, "now" | "lookup" | "sleep" | "machineState">; log: Log };

/** Verifies the answer, then writes all files of the organization into the pending directory. */
export async function fillPending(
  { node, api_token, config }: RegisterAnswer,
  filling: Filling,
  deps: FillDeps,
): Promise<void> {
  const { slug, pending, keys, apiBase, mode, overlayVersion: engine } = filling;
  const now = deps.system.now();
  await checkAnswer(config, {
    hostKeyPem: keys.host,
    nodeKeyPem: keys.node,
    slug,
    nodeId: node.id,
    now,
  });
  // The organization's directory, which `pending` becomes.
  const final = join(dirname(pending), slug);
  keepOnlyKeys(pending);
  copyOwnFiles(final, pending, filling.allow);
  await beginSeal({ pending, final }, config.seals, filling, now);
  const { files, state } = await renderFirst(config, { pending, final, slug, engine, apiBase }, deps);
  files["node-config.json"] = withMode(files["node-config.json"], mode);
  reportingWrites(pending, () => {
    warnOfLeftOut(slug, [], state.left_out ?? [], deps.log);
    switchGeneration(pending, stageGeneration(pending, files, state, config.files["config.yml"]));
    markApplied(pending);
    makeSocketDirectory(pending);
    writeCredentials(pending, { api_base: apiBase, org_slug: slug, node_id: node.id, api_token });
    if (filling.apiCa !== undefined) writeFileAtomic(join(pending, "api-ca.crt"), filling.apiCa, 0o644);
  });
}

/**
 * The first generation for this machine, under the seal that it begins with. The paths in it are those of `final`, where the engine
 * will run.
 */
async function renderFirst(
  config: RegisterAnswer["config"],
  {
    pending,
    final,
    slug,
    engine,
    apiBase,
  }: { pending: string; final: string; slug: string; engine: string | undefined; apiBase: string },
  { system, log }: FillDeps,
): Promise<{ files: ConfigFiles; state: SyncState }> {
  const seal = await sealInForce(pending, slug);
  // For what the seal refuses, the file of an earlier registration stays, if there is a good one.
  const accepted = await underSeal(seal, config.files, () => ignoringDamage(() => filesInForce(final)));
  const hostCrt = accepted["host.crt"];
  const machine = await readMachine(final, system, apiBase);
  // copyOwnFiles has just written the permissions to `pending`.
  const place = { directory: final, slug, hostCrt, machine, allowedIn: pending, seal, engine };
  refuseNetworks(place, log);
  const sent = readSent(config.files["config.yml"], place);
  // `{}`: no address is known from before.
  const names = await resolveNames(sent.config, engine, {}, system, maskedNetworks(hostCrt));
  const own = readOverrides(final);
  // A new node has measured nothing (`trial`), and decided nothing before.
  const basis = { engine, kernel: machine.kernel, sent: sent.config, own, trial: undefined };
  const dataPlane = decideDataPlane(basis, undefined, system.now());
  const localApi = can(engine, "local_api");
  return {
    files: { ...accepted, "config.yml": finishConfig(sent.config, final, { names, localApi, dataPlane }) },
    state: {
      etag: config.etag ?? "",
      config_version: config.config_version,
      applied_at: formatTime(system.now()),
      certificate_not_after: endOfCertificates(hostCrt),
      ...given({ host_names: names }),
      ...checkedState({ ...sent, dataPlane }),
    },
  };
}

/**
 * This machine chooses its mode. A former control plane answers with that of the first registration, and so does the file of an earlier
 * registration that stays under a seal.
 */
function withMode(nodeConfig: string, mode: Mode): string {
  const config = v.parse(jsonText(NodeConfig), nodeConfig);
  return config.mode === mode ? nodeConfig : `${JSON.stringify({ ...config, mode }, null, 2)}\n`;
}

function reportingWrites(directory: string, write: () => void): void {
  try {
    write();
  } catch (error) {
    throw fromSystemError(`write ${directory}`, error);
  }
}

/**
 * Accepts the seals that the control plane sent. Throws untrusted_answer if the pinned one is not among them, and the error of
 * `confirmSeal` if the user refuses a first seal that is enforced.
 */
async function beginSeal(
  { pending, final }: { pending: string; final: string },
  sent: RegisterAnswer["config"]["seals"],
  { seal: pin, confirmSeal }: Filling,
  now: number,
): Promise<void> {
  const { held, refusal, unpinned } = takeSeals(sent, pending, now, pin);
  // `unpinned`: a seal is held, but nothing shows that it follows the pinned one.
  if (pin !== undefined && (held === undefined || unpinned === true)) throw notSealed(pin, refusal?.reason);
  const isFirst = pin === undefined && !existsSync(join(final, sealFile));
  if (isFirst && held?.seal.mode === "enforce") await confirmSeal?.(held.hash);
}

function notSealed(pin: string, reason = "the control plane sent no seals"): AppError {
  return new AppError("untrusted_answer", `The registration is refused: ${reason}`, {
    hint: `Ask a signer whether ${pin.slice(0, 16)} is a seal of the organization, and for a new join key.`,
  });
}

/**
 * Removes all but the keys, and the lock that this run holds: after a killed run the pending directory may have its files, or even
 * be the directory that it replaced, with the note of a revocation.
 */
function keepOnlyKeys(pending: string): void {
  for (const name of readdirSync(pending)) {
    if (name !== "host.key" && name !== "node.key" && name !== "lock") removeTree(join(pending, name));
  }
}

/** Files of this machine's administrator, and the seal, which a registration keeps. */
const ownFiles = ["overrides.yml", "permissions.json", enforcedMark, sealFile];

/** The files that --force removes with the directory, because nothing takes their place. */
export function planLeftOut(directory: string, mode: Mode, steps: readonly Step[]): Step[] {
  const planned = steps.flatMap((step) => (step.step === "file" ? [step.path] : []));
  // An order stays valid if the same node registers again. The other three are made anew, without steps in the plan.
  const kept = [...ownFiles, "orders.json", "current", "generations", "lock"];
  // Exists while a user has stopped the organization. A registration does not start it again (register.ts).
  if (mode === "server") kept.push(basename(stoppedPath(directory)));
  const names = existsSync(directory) ? readdirSync(directory) : [];
  return names
    .filter((name) => !kept.includes(name))
    .map((name) => join(directory, name))
    .filter((path) => !planned.includes(path))
    .flatMap(planRemoved);
}

/** Copies the files of this machine's administrator. `allow` replaces what was allowed before. */
function copyOwnFiles(from: string, to: string, allow: Partial<Permissions>): void {
  for (const name of ownFiles) {
    // Checked here: the copy will belong to root, and no longer show who could change the original.
    refuseForeignFile(join(from, name));
    const content = readTextIfThere(join(from, name));
    if (content !== undefined)
      writeFileAtomic(join(to, name), content, statSync(join(from, name)).mode & 0o777);
  }
  if (Object.keys(allow).length > 0) writePermissions(to, allow);
}
