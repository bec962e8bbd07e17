// The lighthouse that `agent setup` makes of the control plane's machine.

import { join as joinPath } from "node:path";
import { AppError, messageOf } from "../../base/errors.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { System } from "../../base/system.ts";
import { parseJoinKey, type JoinKey } from "../../protocol/join-key.ts";
import { sayProgress, type Context } from "../command.ts";
import type { Joined } from "../join/examine-joined.ts";
import { Values } from "../values.ts";
import type { SetupRequest } from "./setup-request.ts";

/**
 * The remaining work for the lighthouse; undefined: none. "finish": this machine is registered, and engine or services may be missing,
 * since a run can be killed after each step. "join": it is not registered, or a registration was begun; the same keys
 * continue it.
 */
export async function lighthouseStep(
  { org, hasLighthouse, wantsLighthouse }: SetupRequest,
  { settings: { configRoot } }: Context,
): Promise<"join" | "finish" | undefined> {
  if (org === undefined || !wantsLighthouse) return undefined;
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  const { hasPendingKeys } = await import("../../node/enroll/pending.ts");
  // An API base is stored: this machine is registered, even if other files are damaged.
  if (salvageOrganization(configRoot, org.slug).apiBase !== undefined) return "finish";
  return hasLighthouse && !hasPendingKeys(configRoot, org.slug) ? undefined : "join";
}

/** Makes this machine a lighthouse. `makeKey` makes its join key. Undefined if there was nothing to do. */
export async function makeLighthouse(
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
  const wasRunning = findEngineProcess(joinPath(organization.directory, "config.yml")) !== undefined;
  await provideEngine(settings, { system, log }, { slug });
  const { started, left } = await startEnrolled({ slug, mode: organization.config.mode }, context);
  for (const sentence of left) output.say(sentence);
  if (wasRunning || !started) return undefined;
  const { examineJoined } = await import("../join/examine-joined.ts");
  return examineJoined(organization, lighthouseContext(request, context));
}

/** The same as `agent up KEY --public-ip NAME` on this machine. */
async function joinHere(joinKey: string, request: SetupRequest, context: Context): Promise<Joined> {
  sayProgress("Making this machine a lighthouse", context);
  const key = parseJoinKey(joinKey);
  const { join } = await import("../join/join.ts");
  const { examineJoined } = await import("../join/examine-joined.ts");
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const joinContext = lighthouseContext(request, context);
  await join({ ...key, apiBase: await reachableBase(key, request, context) }, joinContext);
  return examineJoined(openOrganization(context.settings.configRoot, key.slug), joinContext);
}

/** The plan of makeLighthouse. */
export async function planLighthouse(
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
  // A plan makes no key: token and fingerprint stand for those of the real one.
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

/** The name or address of the public URL; IPv6 without brackets. */
export const publicHost = ({ publicUrl }: SetupRequest) =>
  new URL(publicUrl).hostname.replace(/^\[|\]$/g, "");

/** The context of `agent up KEY --public-ip NAME`: no other flag of setup counts there. */
function lighthouseContext(request: SetupRequest, context: Context): Context {
  return { ...context, values: new Values(new Map([["public-ip", [publicHost(request)]]]), context.system) };
}

const certificateWithinMs = 120_000;

/**
 * The URL under which this machine reaches its own control plane: the public one, unless the name does not resolve here or
 * the router does not lead it back.
 */
export async function reachableBase(
  key: Pick<JoinKey, "apiBase" | "caFingerprint">,
  { tls, listen }: Pick<SetupRequest, "tls" | "listen">,
  { system }: { system: Pick<System, "fetch" | "sleep" | "monotonic"> },
): Promise<string> {
  const { makeClient } = await import("../../node/contact/requests/client.ts");
  const { readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  // The base itself if a control plane with the pinned CA answers there; else throws.
  const answers = async (base: string) => {
    const ca =
      key.caFingerprint === undefined ? {} : { ca: await readApiCaByFingerprint(base, key.caFingerprint) };
    await makeClient({ base, system, ...ca }).serverTime();
    return base;
  };
  // A new certificate takes a while; until then the server shows one of its own CA.
  const patienceMs = tls === "acme" ? certificateWithinMs : 0;
  // On the clock, because an attempt at a port that drops packets takes long, too.
  const until = system.monotonic() + patienceMs;
  while (system.monotonic() < until) {
    if (await answers(key.apiBase).catch(() => undefined)) break;
    await system.sleep(1000);
  }
  try {
    return await answers(key.apiBase);
  } catch (error) {
    const localBases = { auto: `https://localhost:${listen.port}`, off: `http://127.0.0.1:${listen.port}` };
    const localBase =
      tls === "auto" || tls === "off" ? await answers(localBases[tls]).catch(() => undefined) : undefined;
    if (localBase !== undefined) return localBase;
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
