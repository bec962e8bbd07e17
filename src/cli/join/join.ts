// `agent up KEY`: registers this machine as the key says, installs what is missing, and ends when the first
// lighthouse answers.

import { given } from "../../base/given.ts";
import { networkInterfaces } from "node:os";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { JoinKey } from "../../protocol/join-key.ts";
import { isLoopback } from "../../base/loopback.ts";
import type { LighthouseAnswer } from "../../node/contact/requests/lighthouse-answer.ts";
import type { ProbeResult } from "../../node/contact/requests/probe.ts";
import type { Registration } from "../../node/enroll/register.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Salvaged } from "../../node/files/damaged-organization.ts";
import { quoteWord, type Step } from "../../base/plan.ts";
import type { Mode } from "../../protocol/values.ts";
import type { Context } from "../command.ts";

/** A handshake takes less than a second; an engine that has just been started needs some seconds on a slow machine. */
const answerWithinS = 30;
const startsWithinMs = 10_000;

/** `enrolled`: instead of a key, a user confirmed this machine in the browser, under this name. */
export type Joining = JoinKey & { enrolled?: { name: string } };

export async function joinWith(key: Joining, context: Context): Promise<number> {
  const { settings, values, output } = context;
  if (settings.dryRun) {
    output.plan(await planJoin(key, context));
    return 0;
  }
  await join(key, context);
  if (values.on("foreground")) {
    const { daemon } = await import("../node/daemon.ts");
    return (await daemon.run({ data: context })) ?? 0;
  }
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const organization = openOrganization(settings.configRoot, key.slug);
  const { object, text, status } = await examineJoined(organization, context);
  output.result(object, text);
  return status;
}

/** The plan of `join`. */
export async function planJoin(key: Joining, context: Context): Promise<Step[]> {
  const { enrollment, isHere } = await readJoin(key, context);
  const { planEnrollment } = await import("./registration.ts");
  return isHere ? [] : planEnrollment(enrollment, context);
}

async function readJoin(key: Joining, context: Context) {
  const isForeground = context.values.on("foreground");
  const former = await readFormer(key, context);
  const mode = await chooseMode(former, isForeground, context);
  const isHere = former.apiBase !== undefined && !context.values.on("new-keys");
  if (isHere && former.mode !== mode) throw otherMode(key.slug, former.mode);
  const registration = await registrationOf(key, mode, isHere, context);
  return { enrollment: { registration, former, isStarted: !isForeground }, isHere };
}

/** Registers this machine unless it is registered, and starts its overlay unless it stays in the foreground. */
export async function join(key: Joining, context: Context): Promise<void> {
  const { settings, system, log } = context;
  const { enrollment, isHere } = await readJoin(key, context);
  const { enroll, startEnrolled } = await import("./registration.ts");
  await requireRunnable(!enrollment.isStarted, context);
  // The engine comes first, so that a machine without one does not use the key up, and the control plane learns its
  // version.
  const { provideEngine } = await import("../../node/enroll/provide-engine.ts");
  await provideEngine(settings, { system, log }, enrollment.registration);
  if (isHere) say(`This machine is registered with ${key.slug} already`, context);
  else {
    say(`Registering with ${key.slug} at ${key.apiBase}`, context);
    const { node } = (await enroll(enrollment, context)).answer;
    if (key.role === "lighthouse") sayPublicAddress(node.public_ip, context);
  }
  if (!isHere || !enrollment.isStarted) return;
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
 * The present registration with the key's organization. Throws if it belongs to another control plane, or is revoked.
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
  const isOver = values.on("new-keys") || readRevokedNote(former.directory) === undefined;
  if (former.apiBase === undefined || isOver) return former;
  throw new AppError("access_revoked", `The control plane has revoked this machine's node in ${slug}`, {
    hint:
      `To join anew: \`${leave}\`, then \`${brand.executable} up\` with a new key ` +
      `(\`${brand.executable} admin token create ${quoteWord(slug)} --node ${quoteWord(former.name ?? "NAME")}\`). Or ask an administrator to restore the node.`,
  });
}

async function chooseMode(
  former: Salvaged,
  isForeground: boolean,
  { values, system }: Context,
): Promise<Mode> {
  const { refuseMode, usualMode } = await import("../../platform/service-manager.ts");
  const given = values.choice("mode", ["server", "desktop"]);
  if (isForeground && given === "server")
    throw new AppError("usage", "--foreground runs the daemon: leave --mode server out");
  const mode = isForeground ? "desktop" : (given ?? former.mode ?? usualMode(system));
  refuseMode(mode, system);
  return mode;
}

async function registrationOf(
  key: Joining,
  mode: Mode,
  isHere: boolean,
  { settings, values, output }: Context,
): Promise<Registration> {
  const { parseNodeName, readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  const { parsePermissions } = await import("../../node/files/permissions.ts");
  const { apiBase, slug, caFingerprint, registrationToken } = key;
  const name = values.text("node-name");
  const wishes = lighthouseWishes(key, isHere, values);
  const wait = values.duration("wait", 0);
  // A plan needs no content, and asks for it only where it reads a list; a registered machine has the file.
  const fetchCa = (print: string) =>
    settings.dryRun || isHere ? "" : readApiCaByFingerprint(apiBase, print);
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
    allow: parsePermissions((flag) => values.text(flag)),
    apiCa,
    caFingerprint,
    credential: { registrationToken },
    approvalMs: wait === undefined ? undefined : wait * 1000,
    tell: output.say,
    wishes,
  };
}

function lighthouseWishes(
  { role, apiBase }: JoinKey,
  isHere: boolean,
  values: Context["values"],
): Registration["wishes"] {
  const publicIp = values.text("public-ip");
  const port = values.integer("external-port", 1, 65_535);
  if (role === "node") {
    const flag = ["public-ip", "external-port", "no-relay"].find((each) => values.text(each) !== undefined);
    if (flag === undefined) return {};
    throw new AppError("usage", `--${flag} is for lighthouses, and this key makes an ordinary node`, {
      hint: `A lighthouse's key: \`${brand.executable} admin token create ORG --lighthouse\`.`,
    });
  }
  if (publicIp === undefined && !isHere && isLoopback(new URL(apiBase).hostname)) {
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
export async function requireRunnable(isForeground: boolean, { system }: Context): Promise<void> {
  const { privilegeHint } = await import("../../platform/privilege.ts");
  if (!system.isRoot) {
    throw new AppError("os_permission", "Only root can join an organization", {
      hint: privilegeHint(system),
    });
  }
  const { serviceManager } = await import("../../platform/service-manager.ts");
  if (isForeground || serviceManager(system) !== undefined) return;
  throw new AppError("failed", "systemd does not run on this machine, so no service can be installed", {
    hint: `In a container, add --foreground. Else use \`${brand.executable} register\`, which prints how to start by hand.`,
  });
}

/** Progress on a terminal. */
function say(text: string, { output, system }: Context): void {
  if (!output.json && system.stderr.isTerminal) output.say(text);
}

export type Joined = { object: Record<string, unknown>; text: string; status: number };

/** Waits for the proof that the overlay of one organization works, and says what is missing. */
export async function examineJoined(organization: Organization, context: Context): Promise<Joined> {
  const { system, log, settings, values } = context;
  const { awaitLighthouse } = await import("../../node/contact/requests/lighthouse-answer.ts");
  const { slug, config } = organization;
  const waitMs = 1000 * (values.duration("wait", 0) ?? answerWithinS);
  say(`Waiting for a lighthouse of ${slug} to answer`, context);
  const answer = await awaitLighthouse(organization, waitMs, { system });
  const { makeOrganizationEdge } = await import("../../node/contact/organization-edge.ts");
  const edge = makeOrganizationEdge(organization, settings, {
    system,
    log,
    command: `${brand.executable} up`,
  });
  // The daemon, or systemd, may still be starting it.
  for (let waited = 0; waited < startsWithinMs && !(await edge.control.running()); waited += 250)
    await system.sleep(250);
  if (!(await edge.control.running())) {
    throw new AppError("engine_failed", `The overlay engine of ${slug} does not run`, {
      hint: `Find out why: \`${brand.executable} doctor\`.`,
    });
  }
  const port = config.is_lighthouse ? await probeLighthouse(organization, context) : undefined;
  const unknown = answer.result === "silent" ? await unknownToControlPlane(organization, context) : "";
  const isReached = answer.result !== "silent" || config.is_lighthouse;
  return {
    object: {
      org_slug: slug,
      node_id: config.node_id,
      name: config.name,
      ip_address: config.ip_address,
      mode: config.mode,
      is_lighthouse: config.is_lighthouse,
      lighthouse: answer.result === "answered" ? answer.lighthouse : null,
      ...(answer.result === "answered" ? { answered_after_ms: answer.afterMs } : {}),
      ...given({ port }),
    },
    text:
      `${config.name} is in ${slug} as ${config.ip_address}${config.is_lighthouse ? `, a lighthouse${config.is_relay ? " and relay" : ""}` : ""}\n` +
      unknown +
      (unknown === "" ? answerLine(answer, config.is_lighthouse, slug) : "") +
      portLine(port),
    status: isReached && port?.reachable !== false ? 0 : 1,
  };
}

const askMs = 5000;

/**
 * The reason why no lighthouse answers, if the control plane does not know this node any more; else "". Lighthouses
 * cannot repair that.
 */
export async function unknownToControlPlane(
  organization: Organization,
  { system, log }: Pick<Context, "system" | "log">,
): Promise<string> {
  const { connectOrganization } = await import("../../node/contact/requests/connection.ts");
  const { checkIn } = await import("../../node/contact/checkin.ts");
  const { slug, config } = organization;
  const nothingNew = { overlayVersion: undefined, overlayState: undefined };
  const signal = AbortSignal.timeout(askMs);
  try {
    await connectOrganization(
      organization,
      system,
      log,
    )((client) => checkIn(organization, client, nothingNew, { signal, repeatable: false }));
    return "";
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "token_not_valid") return "";
    const run = brand.executable;
    return (
      "No lighthouse answers, and the control plane does not know this node any more: perhaps it was restored from an " +
      `older backup, or another machine registered as ${config.name}\n` +
      `Register it again: \`${run} unregister --org-slug ${quoteWord(slug)}\`, then \`${run} up\` with a new key, which an ` +
      `administrator makes: \`${run} admin token create ${quoteWord(slug)} --node ${quoteWord(config.name)}\`\n`
    );
  }
}

function answerLine(answer: LighthouseAnswer, isLighthouse: boolean, slug: string): string {
  switch (answer.result) {
    case "answered":
      return `The lighthouse ${answer.name} answers\n`;
    case "unknown":
      return "The engine runs. This system cannot ask the lighthouse for an answer\n";
    case "none":
      return isLighthouse
        ? ""
        : `${slug} has no lighthouse yet, so nodes cannot find each other. Make one: ` +
            `${brand.executable} admin token create ${quoteWord(slug)} --lighthouse\n`;
    case "silent":
      return (
        `No lighthouse answers: ${answer.lighthouses.join("; ")}\n` +
        `Open that UDP port in the lighthouse's firewall, and look there with: ${brand.executable} doctor\n` +
        `This machine keeps trying; its own state: ${brand.executable} doctor\n`
      );
  }
}

async function probeLighthouse(organization: Organization, context: Context): Promise<ProbeResult> {
  const { readCredentials } = await import("../../node/files/organizations.ts");
  const { listenPort } = await import("../../node/files/config/read-config.ts");
  const port = listenPort(organization.directory);
  const { api_base: base } = readCredentials(organization.directory);
  if (await isThisMachine(new URL(base).hostname, context)) {
    return {
      port,
      reachable: null,
      reason: "the control plane runs here too, so its test would prove nothing",
    };
  }
  const { probeForOrganization } = await import("./check-port.ts");
  return probeForOrganization(organization, port, context);
}

async function isThisMachine(host: string, { system }: Context): Promise<boolean> {
  const plain = host.replace(/^\[|\]$/g, "");
  if (isLoopback(plain)) return true;
  const own = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const found = [plain, ...(await system.lookup(plain, "system"))];
  return own.some(({ address }) => found.includes(address));
}

function portLine(port: ProbeResult | undefined): string {
  if (port === undefined) return "";
  if (port.reachable === true) return `UDP ${port.port} is reachable from the control plane\n`;
  if (port.reachable === null) {
    return (
      `UDP ${port.port} is not verified: ${port.reason ?? "no test was possible"}. ` +
      "Other machines must reach it: open it in the firewall\n"
    );
  }
  return (
    `UDP ${port.port} is closed: ${port.reason ?? ""}. Open it in this machine's firewall and in its provider's, or forward ` +
    `it in the router. Then test it: ${brand.executable} check-port ${port.port} --api-base URL\n`
  );
}
