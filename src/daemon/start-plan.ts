// The plan of a daemon's start for --dry-run: what it would create, and which engines it would start. It changes nothing
// and must not create anything, not even a lock.

import { lstatSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { brand } from "../brand.ts";
import { AppError, messageOf } from "../base/errors.ts";
import { clean, type Log } from "../base/log.ts";
import { planFollow } from "../node/contact/follow-plan.ts";
import { findEngineProcess } from "../node/engine/engine-process.ts";
import { listOrganizations } from "../node/files/list-organizations.ts";
import { openOrganization } from "../node/files/organizations.ts";
import { readTextIfThere } from "../base/files.ts";
import { planFile } from "../base/plan/plan-file.ts";
import type { Step } from "../base/plan/plan.ts";
import { openLibc } from "../platform/libc.ts";
import type { System } from "../base/system.ts";
import type { DaemonSettings } from "./daemon.ts";
import { logPath } from "./engine-logs.ts";
import { makeGate, type Gate } from "./start-checks.ts";
import { isAnswered, type LocalAddress } from "./ipc/transport.ts";
import type { OrganizationRecord } from "./organization-record.ts";
import { peekRecords } from "./state.ts";
import { stateRootPath } from "./state-root.ts";
import { isOfFormerRegistration } from "./stored-record.ts";
import { stoppedCopyPath, stoppedText } from "./stopped-copy.ts";

type Deps = { system: System; log: Log; say: (text: string) => void };

/** Throws AppError("busy") like the start if a daemon is running. `say` gets the reason why an engine would not start. */
export async function planDaemon(settings: DaemonSettings, deps: Deps): Promise<Step[]> {
  const { address, stateDb } = settings;
  if (address.kind === "socket" && (await isAnswered(address.path)))
    throw new AppError("busy", `A daemon is already listening on ${address.path}`);
  const files = [
    directory(dirname(stateDb), 0o755),
    file(`${stateDb}.lock`, 0o600, "same"),
    file(stateDb, 0o600, "changed"),
    planFile(stateRootPath(stateDb), `${settings.configRoot}\n`, 0o644),
    ...planAddress(address),
  ];
  const records = peekRecords(stateDb, deps.log, deps.system.now, settings.configRoot);
  const copy = stoppedCopyPath(stateDb);
  const stopped = stoppedText(records);
  // The daemon writes the copy only if it differs.
  if ((readTextIfThere(copy) ?? stoppedText(new Map())) !== stopped)
    files.push(planFile(copy, stopped, 0o600));
  const gate = makeGate(settings, deps.system, deps.log);
  const engines: Step[] = [];
  // One after the other: the first organization keeps a port or network that the next one also needs.
  for (const slug of listOrganizations(settings.configRoot)) {
    const reportRefusal = (error: unknown) =>
      deps.say(`${slug}: its engine would not start: ${clean(messageOf(error))}`);
    try {
      engines.push(...(await planOrganization(slug, records.get(slug), { gate, settings, reportRefusal })));
    } catch (error) {
      reportRefusal(error);
    }
  }
  const logs = directory(dirname(logPath(dirname(stateDb), "")), 0o700);
  return [...files, ...(engines.some(({ step }) => step === "run") ? [logs] : []), ...engines];
}

function planAddress(address: LocalAddress): Step[] {
  const groupId = openLibc().groupId(brand.id);
  const mode = groupId === undefined ? 0o600 : 0o660;
  if (address.kind === "pipe") return [file(address.name, mode, "same")];
  const { path } = address;
  return [
    directory(dirname(path), 0o750, basename(dirname(path)) === brand.id),
    file(`${path}.lock`, 0o600, "same"),
    // The socket of a killed daemon is replaced.
    file(path, mode, "changed"),
  ];
}

/** The steps of `resume` (organization-engine.ts): check in if the organization is wanted, and start an engine if none runs. */
async function planOrganization(
  slug: string,
  record: OrganizationRecord | undefined,
  {
    gate,
    settings,
    reportRefusal,
  }: { gate: Gate; settings: DaemonSettings; reportRefusal(error: unknown): void },
): Promise<Step[]> {
  const { configRoot, stateDb, autostart } = settings;
  const organization = openOrganization(configRoot, slug);
  const { config } = organization;
  if (config.mode !== "desktop") return [];
  // A forgotten organization is not loaded before a command names it. One that is registered again counts as new.
  const isNewAgain = record?.forgotten === true && isOfFormerRegistration(record, organization);
  if (!isNewAgain && (record?.forgotten === true || record?.wanted === "down")) return [];
  const checkin = planFollow(organization);
  const isRunning = findEngineProcess(join(configRoot, slug, "config.yml")) !== undefined;
  if (isRunning) gate.claim(organization);
  if (isRunning || !autostart || gate.isRevoked(organization)) return checkin;
  try {
    const { argv } = await gate.admit(organization);
    return [...checkin, file(logPath(dirname(stateDb), slug), 0o600, "changed"), { step: "run", argv }];
  } catch (error) {
    // The daemon connects nevertheless: the control plane may repair what the engine refuses.
    gate.release(slug);
    reportRefusal(error);
    return checkin;
  }
}

/** `ifThere`: what happens to a file that exists. */
function file(path: string, mode: number, ifThere: "same" | "changed"): Step {
  const isThere = lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  return { step: "file", path, mode: octal(mode), change: isThere ? ifThere : "created" };
}

/** The path of a directory ends with a slash in the plan. An existing one keeps its mode, unless it is the product's own. */
function directory(path: string, mode: number, isOwn = false): Step {
  const currentMode = statSync(path, { throwIfNoEntry: false })?.mode;
  const step = { step: "file", path: `${path}/` } as const;
  if (currentMode === undefined) return { ...step, mode: octal(mode), change: "created" };
  const permissions = currentMode & 0o777;
  const next = isOwn ? mode : permissions;
  return { ...step, mode: octal(next), change: permissions === next ? "same" : "changed" };
}

function octal(mode: number): string {
  return `0${mode.toString(8)}`;
}
