// `agent up KEY`: registers this machine as the key says, installs what is missing, and ends when the first
// lighthouse answers.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { JoinKey } from "../../protocol/join-key.ts";
import { isLoopback } from "../../base/loopback.ts";
import type { Registration } from "../../node/enroll/registration-checks.ts";
import type { Salvaged } from "../../node/files/damaged-organization.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Mode } from "../../protocol/values.ts";
import { sealPin } from "./seal-pin.ts";
import { sayProgress, type Context } from "../command.ts";

/** `enrolled`: instead of a key, a user confirmed this machine in the browser, under this name. */
export type Joining = JoinKey & { enrolled?: { name: string } };

/** Registers and starts, or runs the daemon with --foreground. Returns the exit status: 1 if no lighthouse answers. */
export async function joinWith(key: Joining, context: Context): Promise<number> {
  const { settings, values, output } = context;
  if (settings.dryRun) {
    output.plan(await planJoin(key, context));
    return 0;
  }
  await join(key, context);
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const organization = openOrganization(settings.configRoot, key.slug);
  const { examineJoined, placeText } = await import("./examine-joined.ts");
  if (values.on("foreground")) {
    // What comes later is in the daemon's log.
    output.say(
      `${placeText(organization)}. Whether a lighthouse answers: \`${brand.executable} status --check\``,
    );
    const { command: daemon } = await import("../node/daemon.ts");
    return (await daemon.run(context)) ?? 0;
  }
  const { object, text, status } = await examineJoined(organization, context);
  output.result(object, text);
  return status;
}

/** The plan of `join`. */
export async function planJoin(key: Joining, context: Context): Promise<Step[]> {
  const { enrollment, isRegistered } = await readJoin(key, context);
  const { planEnrollment } = await import("./registration.ts");
  return isRegistered ? [] : planEnrollment(enrollment, context);
}

/** The registration by key and flags. `isRegistered`: this machine is registered already, and stays the same node. */
async function readJoin(key: Joining, context: Context) {
  const isForeground = context.values.on("foreground");
  const former = await readFormer(key, context);
  const mode = await chooseMode(former, { isForeground }, context);
  const isRegistered = former.apiBase !== undefined && !context.values.on("new-keys");
  if (isRegistered && former.mode !== mode) throw otherMode(key.slug, former.mode);
  const registration = await registrationOf(key, { mode, isRegistered }, context);
  return { enrollment: { registration, former, isStarted: !isForeground }, isRegistered };
}

/** Registers this machine unless it is registered, and starts its overlay unless it stays in the foreground. */
export async function join(key: Joining, context: Context): Promise<void> {
  const { settings, system, log } = context;
  const { enrollment, isRegistered } = await readJoin(key, context);
  const { enroll, startEnrolled } = await import("./registration.ts");
  await requireRunnable({ isForeground: !enrollment.isStarted }, context);
  // The engine comes first, so that a machine without one does not use the key up, and the control plane learns its
  // version.
  const { provideEngine } = await import("../../node/enroll/provide-engine.ts");
  await provideEngine(settings, { system, log }, enrollment.registration);
  if (isRegistered) sayProgress(`This machine is registered with ${key.slug} already`, context);
  else {
    sayProgress(`Registering with ${key.slug} at ${key.apiBase}`, context);
    const { node } = (await enroll(enrollment, context)).answer;
    if (key.role === "lighthouse") sayPublicAddress(node.public_ip, context);
  }
  // enroll has started the overlay of a new registration.
  if (!isRegistered || !enrollment.isStarted) return;
  await startEnrolled(enrollment.registration, context);
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const { changeOrganization } = await import("../node/organization-command.ts");
  await changeOrganization("start", openOrganization(settings.configRoot, key.slug), context);
}

function otherMode(slug: string, mode: Mode | undefined): AppError {
  return new AppError("conflict", `This machine is registered with ${slug} in mode ${mode ?? "unknown"}`, {
    hint: `Another mode: \`${brand.executable} register --force --mode MODE\` with the flags of the registration.`,
  });
}

function sayPublicAddress(publicIp: string | null, { values, output, log }: Context): void {
  if (values.text("public-ip") !== undefined) return;
  if (publicIp !== null)
    return output.say(`Other machines look for this lighthouse at ${publicIp}, as the control plane sees it`);
  log.warn("The control plane sees no public address of this lighthouse, so no other node can find it", {
    hint: `Leave with \`${brand.executable} unregister\`, and join with a new key and --public-ip.`,
  });
}

/**
 * What this machine has of the key's organization. Throws if it is registered at another control plane (conflict), or is
 * revoked (access_revoked).
 */
async function readFormer({ slug, apiBase }: JoinKey, { settings, values }: Context): Promise<Salvaged> {
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  const { readRevokedNote } = await import("../../node/files/revoked-notes.ts");
  const { checkBase } = await import("../../node/contact/requests/client.ts");
  const former = salvageOrganization(settings.configRoot, slug);
  const leave = `${brand.executable} unregister --org-slug ${quoteWord(slug)}`;
  if (former.apiBase !== undefined && checkBase(former.apiBase, true) !== checkBase(apiBase, true)) {
    throw new AppError(
      "conflict",
      `This machine is registered with another organization "${slug}", at ${former.apiBase}`,
      { hint: `Leave that one first: \`${leave}\`.` },
    );
  }
  const isRevoked = former.apiBase !== undefined && readRevokedNote(former.directory) !== undefined;
  if (!isRevoked || values.on("new-keys")) return former;
  throw new AppError("access_revoked", `The control plane has revoked this machine's node in ${slug}`, {
    hint:
      `To join again: \`${leave}\`, then \`${brand.executable} up\` with a new key ` +
      `(\`${brand.executable} admin token create ${quoteWord(slug)} --node ${quoteWord(former.name ?? "NAME")}\`). Or ask an administrator to restore the node.`,
  });
}

async function chooseMode(
  former: Salvaged,
  { isForeground }: { isForeground: boolean },
  { values, system }: Context,
): Promise<Mode> {
  const { refuseMode, usualMode } = await import("../../platform/service-manager.ts");
  const chosen = values.choice("mode", ["server", "desktop"]);
  if (isForeground && chosen === "server")
    throw new AppError("usage", "--foreground runs the daemon: leave --mode server out");
  const mode = isForeground ? "desktop" : (chosen ?? former.mode ?? usualMode(system));
  refuseMode(mode, system);
  return mode;
}

async function registrationOf(
  key: Joining,
  { mode, isRegistered }: { mode: Mode; isRegistered: boolean },
  context: Context,
): Promise<Registration> {
  const { settings, values, output } = context;
  const { parseNodeName, readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  const { parsePermissions } = await import("../../node/files/granted/permission-flags.ts");
  const { apiBase, slug, caFingerprint, registrationToken } = key;
  const name = values.text("node-name");
  const wishes = lighthouseWishes(key, { isRegistered }, values);
  const wait = values.duration("wait", 0);
  // A plan shows no content of the file: "" stands for it, and the plan of the engine fetches the CA itself if it needs it. A registered
  // machine has the file.
  const fetchCa = (print: string) =>
    settings.dryRun || isRegistered ? "" : readApiCaByFingerprint(apiBase, print);
  const apiCa = caFingerprint === undefined ? undefined : await fetchCa(caFingerprint);
  return {
    apiBase,
    slug,
    name: key.enrolled?.name ?? (name === undefined ? undefined : parseNodeName(name)),
    isEnrolled: key.enrolled !== undefined,
    mode,
    // The administrator has chosen plain HTTP for this control plane, and made the key there.
    allowPlainHttp: apiBase.startsWith("http:"),
    force: false,
    newKeys: values.on("new-keys"),
    allow: parsePermissions((flag) => values.text(flag), { configRoot: settings.configRoot, slug }),
    apiCa,
    caFingerprint,
    credential: { registrationToken },
    approvalMs: wait === undefined ? undefined : wait * 1000,
    tell: output.say,
    wishes,
    ...sealPin(context, { seal: key.seal, isKeyed: key.enrolled === undefined }),
  };
}

/** What a lighthouse asks for. Throws usage for flags of lighthouses with the key of an ordinary node. */
function lighthouseWishes(
  { role, apiBase }: JoinKey,
  { isRegistered }: { isRegistered: boolean },
  values: Context["values"],
): Registration["wishes"] {
  const publicIp = values.text("public-ip");
  const port = values.integer("external-port", 1, 65_535);
  if (role === "node") {
    const flag = values.firstOf(["public-ip", "external-port", "no-relay"]);
    if (flag === undefined) return {};
    throw new AppError("usage", `--${flag} is for lighthouses, and this key makes an ordinary node`, {
      hint: `A lighthouse's key: \`${brand.executable} admin token create ORG --lighthouse\`.`,
    });
  }
  if (publicIp === undefined && !isRegistered && isLoopback(new URL(apiBase).hostname)) {
    throw new AppError("usage", "A lighthouse beside its control plane needs --public-ip", {
      hint: "The control plane sees only this machine's loopback address, which other nodes cannot reach.",
    });
  }
  return {
    is_lighthouse: true,
    is_relay: !values.on("no-relay"),
    ...given({ public_ip: publicIp, external_port: port }),
  };
}

/** Throws before the key is used if nothing could run the overlay here. */
export async function requireRunnable(
  { isForeground }: { isForeground: boolean },
  { system }: Context,
): Promise<void> {
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  requireRoot(system, "join an organization");
  const { serviceManager } = await import("../../platform/service-manager.ts");
  if (isForeground || serviceManager(system) !== undefined) return;
  throw new AppError("failed", "systemd does not run on this machine, so no service can be installed", {
    hint: `In a container, add --foreground. Else use \`${brand.executable} register\`, which prints how to start by hand.`,
  });
}
