// Carries out `agent setup`: the service first, then the administrator, the organization, the lighthouse on this machine,
// and join keys. Each step looks first and changes only what is missing, so that the command can be run again.

import { given } from "../../base/given.ts";
import { statSync } from "node:fs";
import { join as joinPath } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, messageOf, systemErrorCode } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { parseJoinKey, type JoinKey } from "../../protocol/join-key.ts";
import type { Change } from "../../platform/apply.ts";
import { quoteWord, type Step } from "../../base/plan.ts";
import { secondLighthouse } from "../../protocol/second-lighthouse.ts";
import type { Admin } from "../../server/admin.ts";
import type { HubAtName } from "../../server/setup.ts";
import type { Context } from "../command.ts";
import type { Joined } from "../join/join.ts";
import type { SetupRequest } from "./setup-request.ts";
import { Values } from "../values.ts";

export async function planSetup(request: SetupRequest, context: Context): Promise<Step[]> {
  const { system } = context;
  const { planData } = await import("../../server/store/data-directory.ts");
  const { planChanges } = await import("../../platform/apply.ts");
  const { org, dataDirectory, administrator, machines } = request;
  const lighthouse = await lighthouseStep(request, context);
  const isWritten = administrator !== undefined || machines > 0 || lighthouse === "join";
  const data = isWritten ? planData({ dataDirectory }, system) : [];
  return [
    ...planChanges(await installation(request, context)),
    ...data,
    ...(org === undefined || lighthouse === undefined
      ? []
      : await planLighthouse(lighthouse, request, org.slug, context)),
  ];
}

export async function setUp(request: SetupRequest, context: Context): Promise<number> {
  const { output, system } = context;
  await requireUsable(request, context);
  const onData = <T>(work: (admin: Admin) => Promise<T>) => withData(request, context, work);
  const { hubsAt, makeAdministrator, makeJoinKey, makeOrganization, readSetup } =
    await import("../../server/setup.ts");
  const slug = request.org?.slug;
  const { administrator, email } = request;
  // First: a server without users prints a link that makes one into its journal.
  if (administrator !== undefined) {
    const password = administrator.password ?? Buffer.from(system.random(32)).toString("base64url");
    await onData((admin) => makeAdministrator(admin, { email: administrator.email, password }));
  }
  say("Installing the service", context);
  await install(request, context);
  const { organization, caFingerprint } = await onData(async (admin) => {
    const { org } = await readSetup(admin, slug);
    const made =
      org ??
      (request.org === undefined ? undefined : await makeOrganization(admin, { ...request.org, email }));
    return { organization: made, caFingerprint: admin.caFingerprint };
  });
  const joined = await makeLighthouse(request, context, organization, (org) =>
    onData((admin) => makeJoinKey(admin, org, "lighthouse")),
  );
  const keys =
    organization === undefined
      ? []
      : await onData(async (admin) => {
          const all: string[] = [];
          while (all.length < request.machines) all.push(await makeJoinKey(admin, organization, "node"));
          return all;
        });
  const host = publicHost(request);
  await warnOfHubs(await onData((admin) => hubsAt(admin, host)), host, context);
  const { controlUnit } = await import("../../platform/systemd/control-unit.ts");
  output.result(
    {
      url: request.publicUrl,
      ...given({ ca_fingerprint: caFingerprint }),
      unit: controlUnit,
      org_slug: slug ?? null,
      lighthouse: joined?.object ?? null,
      join_keys: keys,
    },
    summary(request, { unit: controlUnit, joined, keys, caFingerprint }),
  );
  return 0;
}

/** After a move of the control plane, nodes that start again look here for lighthouses that stayed where they were. */
async function warnOfHubs(
  hubs: readonly HubAtName[],
  host: string,
  { settings, log }: Pick<Context, "settings" | "log">,
): Promise<void> {
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  for (const { id, name, slug } of hubs) {
    if (salvageOrganization(settings.configRoot, slug).nodeId === id) continue;
    const line = `${brand.executable} admin node update ${quoteWord(slug)} ${quoteWord(name)} --public-ip ADDRESS`;
    log.warn(
      `Nodes of ${slug} look for ${name} at ${host}, the name of this control plane, and this machine is not ${name}`,
      {
        hint: `Unless ${host} forwards its UDP port to ${name}, give it the address of its own machine: \`${line}\`.`,
      },
    );
  }
}

/** The next steps for the administrator. */
export function summary(
  request: Pick<SetupRequest, "publicUrl" | "administrator" | "newcomer" | "org" | "counted">,
  {
    unit,
    joined,
    keys,
    caFingerprint,
  }: {
    unit: string;
    joined: Joined | undefined;
    keys: readonly string[];
    caFingerprint: string | undefined;
  },
): string {
  const { publicUrl, administrator, newcomer, org, counted } = request;
  const run = brand.executable;
  const lines = [`The control plane runs at ${publicUrl}, as ${unit}`];
  const email = administrator?.email ?? newcomer;
  if (email !== undefined) {
    const isKnown = administrator?.password !== undefined;
    const line = `${run} admin user password ${quoteWord(email)}`;
    lines.push(`The administrator is ${email}${isKnown ? "" : `. Set a password: ${line}`}`);
  }
  if (joined !== undefined) lines.push(joined.text.trimEnd());
  if (keys.length > 0) {
    lines.push("", "Run one of these lines on each machine. Each works once, within an hour:");
    lines.push(...keys.map((key) => `  ${run} up ${key}`));
  }
  if (org !== undefined) lines.push(`More keys: ${run} admin token create ${quoteWord(org.slug)}`);
  const advice = org === undefined ? undefined : secondLighthouse(org.slug, counted);
  if (advice !== undefined) {
    const [here, there] = advice.lines;
    lines.push("", `${advice.why}. Type here, and then there with the key that it prints:`);
    lines.push(`  ${here}`, `  ${there}`, "");
  }
  const pin = caFingerprint === undefined ? "" : ` --ca-fingerprint ${caFingerprint}`;
  lines.push(
    `The console: ${publicUrl}/console/`,
    `To administer from another machine, type there: ${run} login --api-base ${publicUrl}${pin}`,
  );
  lines.push(`API documentation, for staff users: ${publicUrl}/api/docs/`);
  return `${lines.join("\n")}\n`;
}

function say(text: string, { output, system }: Context): void {
  if (!output.json && system.stderr.isTerminal) output.say(text);
}

async function installation(request: SetupRequest, { system }: Context): Promise<Change[]> {
  const control = await import("../../platform/systemd/control-unit.ts");
  const { isStale } = await import("../../platform/service-state.ts");
  const users = readTextIfThere("/etc/passwd") ?? "";
  const parent = statSync(control.controlParent, { throwIfNoEntry: false });
  const isPrivilegedPort = request.listen.port < 1024;
  return control.controlInstallation(
    { settings: request.settings, unit: control.controlService(system.executable, isPrivilegedPort) },
    {
      hasUser: users.split("\n").some((line) => line.startsWith(`${control.controlUser}:`)),
      isParentOpen: ((parent?.mode ?? 0) & 0o777) === 0o755,
      sysctl: readTextIfThere(control.controlSysctlPath),
      packagedSysctl: readTextIfThere(control.packagedSysctlPath),
      settings: readTextIfThere(control.controlSettingsPath),
      unit: readTextIfThere(control.controlUnitPath),
      packagedUnit: readTextIfThere(control.packagedControlUnitPath),
      isStale: await isStale(
        [control.controlSettingsPath, control.controlUnitPath],
        control.controlUnit,
        system,
      ),
    },
  );
}

/** States in which the service may have its data and its port. A run that was killed leaves it starting. */
const ownStates = new Set(["active", "activating", "reloading", "deactivating"]);

/** Throws before the first change. */
async function requireUsable(request: SetupRequest, { system }: Context): Promise<void> {
  const { requireRoot, refuseUnsafe } = await import("../../node/enroll/services.ts");
  const { hasSystemd } = await import("../../platform/service-manager.ts");
  requireRoot(system);
  if (!hasSystemd(system)) {
    throw new AppError("failed", "systemd does not run on this machine", {
      hint: `Run the control plane from your init: \`${brand.executable} serve\`.`,
    });
  }
  refuseUnsafe(system.executable, "executable", system);
  const { controlUnit } = await import("../../platform/systemd/control-unit.ts");
  const { systemctlCommand } = await import("../../platform/systemd/systemd.ts");
  const { stdout } = await system.run(systemctlCommand("is-active", controlUnit));
  if (ownStates.has(stdout.trim())) return;
  await refuseRunning(request.dataDirectory);
  refuseTakenPort(request.listen);
}

/** The port belongs to a control plane that was started by hand. */
async function refuseRunning(dataDirectory: string): Promise<void> {
  const { lockFile } = await import("../../platform/file-lock.ts");
  try {
    const lock = lockFile(joinPath(dataDirectory, "serve.lock"));
    if (lock !== undefined) return lock.release();
  } catch (error) {
    // There is no data yet.
    if (systemErrorCode(error) === "ENOENT") return;
    throw error;
  }
  throw new AppError("busy", `Another \`${brand.executable} serve\` uses ${dataDirectory}`, {
    hint: "Stop it, also its own unit if you wrote one, then run this command again. Its data is taken over.",
  });
}

function refuseTakenPort({ hostname, port }: SetupRequest["listen"]): void {
  try {
    Bun.listen({ hostname, port, socket: { data: () => undefined } }).stop(true);
  } catch (error) {
    throw new AppError("failed", `TCP port ${port} is taken by another program`, {
      cause: error,
      hint: `Stop it, choose another --port, or let it be the proxy: --tls off. See which: ss -ltnp sport = :${port}`,
    });
  }
}

async function install(request: SetupRequest, context: Context): Promise<void> {
  const { system } = context;
  const { applyChanges } = await import("../../platform/apply.ts");
  const { controlSettingsPath, controlUnit } = await import("../../platform/systemd/control-unit.ts");
  try {
    await applyChanges(await installation(request, context), system);
  } catch (error) {
    if (!(error instanceof AppError) || !error.message.includes(controlUnit)) throw error;
    const journal = ["/usr/bin/journalctl", "--unit", controlUnit, "--lines", "5", "--output", "cat"];
    const { stdout } = await system.run(journal);
    const line = stdout.split("\n").findLast((each) => each.startsWith(`${brand.executable}: `));
    throw new AppError("failed", `The control plane does not start: ${line ?? error.message}`, {
      cause: error,
      hint: `See: journalctl -u ${controlUnit}. Settings: ${controlSettingsPath}. Then run this command again.`,
    });
  }
}

async function withData<T>(
  { dataDirectory }: SetupRequest,
  { system }: Context,
  work: (admin: Admin) => Promise<T>,
): Promise<T> {
  const { withAdmin } = await import("../../server/admin.ts");
  return withAdmin({ dataDirectory }, system, work);
}

/**
 * The remaining work for the lighthouse. "finish": this machine is registered, and engine or services may be missing,
 * since a run can be killed after each step. "join": it is not registered, or a registration was begun; the same keys
 * continue it.
 */
async function lighthouseStep(
  { org, hasLighthouse, wantsLighthouse }: SetupRequest,
  { settings: { configRoot } }: Context,
): Promise<"join" | "finish" | undefined> {
  if (org === undefined || !wantsLighthouse) return undefined;
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  const { isPending } = await import("../../node/enroll/pending.ts");
  if (salvageOrganization(configRoot, org.slug).apiBase !== undefined) return "finish";
  return hasLighthouse && !isPending(configRoot, org.slug) ? undefined : "join";
}

/** The sentence about it; undefined if there was nothing to do. */
async function makeLighthouse(
  request: SetupRequest,
  context: Context,
  organization: { id: number; slug: string } | undefined,
  makeKey: (org: { id: number; slug: string }) => Promise<string>,
): Promise<Joined | undefined> {
  if (organization === undefined) return undefined;
  switch (await lighthouseStep(request, context)) {
    case "join":
      return joinHere(await makeKey(organization), request, context);
    case "finish":
      return finishHere(organization.slug, request, context);
    case undefined:
      return undefined;
  }
}

/** Installs and starts what is missing. Restarts nothing, and starts nothing that a user has stopped. */
async function finishHere(
  slug: string,
  request: SetupRequest,
  context: Context,
): Promise<Joined | undefined> {
  const { settings, system, log, output } = context;
  const { provideEngine } = await import("../../node/enroll/provide-engine.ts");
  const { findEngineProcess } = await import("../../node/engine/engine-process.ts");
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const { startEnrolled } = await import("../join/registration.ts");
  const organization = openOrganization(settings.configRoot, slug);
  const ran = findEngineProcess(joinPath(organization.directory, "config.yml")) !== undefined;
  await provideEngine(settings, { system, log }, { slug });
  const { started, left } = await startEnrolled({ slug, mode: organization.config.mode }, context);
  for (const line of left) output.say(line);
  if (ran || !started) return undefined;
  const { examineJoined } = await import("../join/join.ts");
  return examineJoined(organization, lighthouseContext(request, context));
}

/** The same as `agent up KEY --public-ip NAME` on this machine. */
async function joinHere(text: string, request: SetupRequest, context: Context): Promise<Joined> {
  say("Making this machine a lighthouse", context);
  const key = parseJoinKey(text);
  const { examineJoined, join } = await import("../join/join.ts");
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const inner = lighthouseContext(request, context);
  await join({ ...key, apiBase: await reachableBase(key, request, context) }, inner);
  return examineJoined(openOrganization(context.settings.configRoot, key.slug), inner);
}

async function planLighthouse(
  step: "join" | "finish",
  request: SetupRequest,
  slug: string,
  context: Context,
): Promise<Step[]> {
  if (step === "finish") {
    const { openOrganization } = await import("../../node/files/organizations.ts");
    const { planStart } = await import("../../node/enroll/provision-services.ts");
    const { mode } = openOrganization(context.settings.configRoot, slug).config;
    return planStart({ slug, mode }, context.settings, context.system);
  }
  const { planJoin } = await import("../join/join.ts");
  const key: JoinKey = {
    apiBase: request.publicUrl,
    slug,
    registrationToken: "planned",
    role: "lighthouse",
    isShortLived: true,
    ...(request.tls === "auto" ? { caFingerprint: `sha256:${"0".repeat(64)}` } : {}),
  };
  return planJoin(key, lighthouseContext(request, context));
}

const publicHost = ({ publicUrl }: SetupRequest) => new URL(publicUrl).hostname.replace(/^\[|\]$/g, "");

function lighthouseContext(request: SetupRequest, context: Context): Context {
  return { ...context, values: new Values(new Map([["public-ip", [publicHost(request)]]]), context.system) };
}

const certificateWithinMs = 120_000;

/**
 * The URL under which this machine reaches its own control plane: the public one, unless the name does not resolve here or
 * the router does not lead it back.
 */
async function reachableBase(
  key: JoinKey,
  { tls, listen }: SetupRequest,
  { system }: Context,
): Promise<string> {
  const { makeClient } = await import("../../node/contact/requests/client.ts");
  const { readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  const answers = async (base: string) => {
    const ca =
      key.caFingerprint === undefined ? {} : { ca: await readApiCaByFingerprint(base, key.caFingerprint) };
    await makeClient({ base, system, ...ca }).serverTime();
    return base;
  };
  // A new certificate takes a while; until then the server shows one of its own CA.
  const patienceMs = tls === "acme" ? certificateWithinMs : 0;
  for (let waited = 0; waited < patienceMs; waited += 1000) {
    if (await answers(key.apiBase).catch(() => undefined)) break;
    await system.sleep(1000);
  }
  try {
    return await answers(key.apiBase);
  } catch (error) {
    const own = { auto: `https://localhost:${listen.port}`, off: `http://127.0.0.1:${listen.port}` };
    const there =
      tls === "auto" || tls === "off" ? await answers(own[tls]).catch(() => undefined) : undefined;
    if (there !== undefined) return there;
    const { controlUnit } = await import("../../platform/systemd/control-unit.ts");
    throw new AppError(
      "failed",
      `The control plane runs, but does not answer at ${key.apiBase}: ${messageOf(error)}`,
      {
        cause: error,
        hint: `See: journalctl -u ${controlUnit}. Check name, certificate and firewall, then run this command again.`,
      },
    );
  }
}
