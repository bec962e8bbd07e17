// The proof that a machine has joined: its engine runs, and a lighthouse answers. Says what is missing.

import { given } from "../../base/given.ts";
import { networkInterfaces } from "node:os";
import { brand } from "../../brand.ts";
import { AppError, hasCode } from "../../base/errors.ts";
import { isLoopback } from "../../base/loopback.ts";
import { quoteWord } from "../../base/quote.ts";
import type { LighthouseAnswer } from "../../node/contact/requests/lighthouse-answer.ts";
import type { ProbeResult } from "../../node/contact/requests/probe-port.ts";
import type { Organization } from "../../node/files/organizations.ts";
import { sayProgress, type Context } from "../command.ts";

/** A handshake takes less than a second; an engine that has just been started needs some seconds on a slow machine. */
const answerWithinS = 30;
const startsWithinMs = 10_000;
const startPollMs = 250;

/** `object`: for --json. `status`: the exit status. */
export type Joined = { object: Record<string, unknown>; text: string; status: number };

/** Waits for the proof that the overlay of one organization works, and says what is missing. */
export async function examineJoined(organization: Organization, context: Context): Promise<Joined> {
  const { system, values } = context;
  const { awaitLighthouse } = await import("../../node/contact/requests/lighthouse-answer.ts");
  const { slug, config } = organization;
  const waitMs = 1000 * (values.duration("wait", 0) ?? answerWithinS);
  sayProgress(`Waiting for a lighthouse of ${slug} to answer`, context);
  const answer = await awaitLighthouse(organization, waitMs, { system });
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const deps = organizationDeps(organization, `${brand.executable} up`, context);
  // The daemon, or systemd, may still be starting the engine.
  for (let waited = 0; waited < startsWithinMs && !(await deps.control.running()); waited += startPollMs)
    await system.sleep(startPollMs);
  if (!(await deps.control.running())) {
    throw new AppError("engine_failed", `The overlay engine of ${slug} does not run`, {
      hint: `Find out why: \`${brand.executable} doctor\`.`,
    });
  }
  const port = config.is_lighthouse ? await probeLighthouse(organization, context) : undefined;
  const unknownText = answer.result === "silent" ? await unknownToControlPlane(organization, context) : "";
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
      `${placeText(organization)}\n` +
      unknownText +
      (unknownText === "" ? answerLine(answer, { slug, isLighthouse: config.is_lighthouse }) : "") +
      portLine(port),
    status: isReached && port?.reachable !== false ? 0 : 1,
  };
}

/** "web is in acme as 10.77.0.2" */
export const placeText = ({ slug, config }: Pick<Organization, "slug" | "config">): string =>
  `${config.name} is in ${slug} as ${config.ip_address}${rolesOf(config)}`;

function rolesOf({ is_lighthouse: isLighthouse, is_relay: isRelay }: Organization["config"]): string {
  if (!isLighthouse) return "";
  return isRelay ? ", a lighthouse and relay" : ", a lighthouse";
}

const askWithinMs = 5000;

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
  // It only asks whether the node is known, once, and reports nothing of the engine.
  const emptyReport = { overlayVersion: undefined, overlayState: undefined };
  const signal = AbortSignal.timeout(askWithinMs);
  try {
    await connectOrganization(
      organization,
      system,
      log,
    )((client) => checkIn(organization, client, emptyReport, { signal, repeatable: false }));
    return "";
  } catch (error) {
    if (!hasCode(error, "token_not_valid")) return "";
    const run = brand.executable;
    return (
      "No lighthouse answers, and the control plane does not know this node any more: perhaps it was restored from an " +
      `older backup, or another machine registered as ${config.name}\n` +
      `Register it again: \`${run} unregister --org-slug ${quoteWord(slug)}\`, then \`${run} up\` with a new key, which an ` +
      `administrator makes: \`${run} admin token create ${quoteWord(slug)} --node ${quoteWord(config.name)}\`\n`
    );
  }
}

function answerLine(
  answer: LighthouseAnswer,
  { slug, isLighthouse }: { slug: string; isLighthouse: boolean },
): string {
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
  // Without the brackets of an IPv6 address in a URL.
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
