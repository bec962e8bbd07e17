// `agent register`: registers this machine with an organization.

import { join } from "node:path";
import { brand } from "../brand.ts";
import { AppError, fromSystemError, messageOf } from "../errors.ts";
import { quoteWord } from "../plan.ts";
import type { Mode } from "../protocol.ts";
import type { Context, Implementation } from "./command.ts";
import { daemonAddress, planRequestIfThere } from "./daemon-address.ts";
import { accessTokenFlag, allowRoutesFlag } from "./node-flags.ts";

export const command: Implementation = {
  notes:
    "The private keys never leave this machine. Give a registration token or an administrator's access token; without\n" +
    "both, a terminal asks for e-mail and password. After a failure, run the command again: it continues with the same keys.",
  args: {
    "api-base": {
      type: "string",
      valueHint: "URL",
      description: "URL of the control plane",
      required: true,
    },
    "org-slug": { type: "string", valueHint: "SLUG", description: "The organization's slug", required: true },
    "node-name": {
      type: "string",
      valueHint: "NAME",
      description: "Name of this node (default: the host name)",
    },
    "registration-token": {
      type: "string",
      valueHint: "TOKEN",
      secret: true,
      description: "Registration token",
    },
    ...accessTokenFlag,
    mode: {
      type: "string",
      valueHint: "server|desktop",
      default: "desktop",
      description: "Run the engine under systemd (server) or under the daemon (desktop)",
    },
    "ip-address": {
      type: "string",
      valueHint: "ADDRESS",
      description: "Overlay address (default: the next free one)",
    },
    "is-lighthouse": {
      type: "boolean",
      description: "Make this node a lighthouse: other nodes find each other through it",
    },
    "public-ip": {
      type: "string",
      valueHint: "ADDRESS",
      description: "Public address or DNS name of this node",
    },
    "external-port": {
      type: "string",
      valueHint: "N",
      description: "Public UDP port of this node (default: 4242)",
    },
    "is-relay": {
      type: "boolean",
      description: "Make this node a relay: it forwards traffic between nodes without a direct path",
    },
    "listen-port": { type: "string", valueHint: "N", description: "Local UDP port of the engine" },
    "ca-fingerprint": {
      type: "string",
      valueHint: "sha256:HEX",
      description: "Trust the TLS CA of the control plane with this fingerprint",
    },
    "allow-plain-http": {
      type: "boolean",
      description: "Allow http:// to another machine; the token is sent unencrypted",
    },
    ...allowRoutesFlag,
    "no-start": { type: "boolean", description: "Do not install an engine or start a service" },
    force: { type: "boolean", description: "Replace the local files of the same node" },
  },
  examples: [
    `${brand.executable} register --api-base https://control.example.com --org-slug acme --registration-token-file token`,
    `printf '%s\\n' TOKEN | ${brand.executable} register --api-base https://control.example.com --org-slug acme --registration-token-file -`,
    `${brand.executable} register --api-base https://control.example.com --org-slug acme --mode server --is-lighthouse --public-ip 203.0.113.7`,
  ],
  run,
};

async function run(context: Context): Promise<void> {
  const { values, settings, system, output, log } = context;
  const { register, planRegistration } = await import("../node/enroll/register.ts");
  const { registration, former } = await readRegistration(context);
  const { serviceRemoval, stopOverlay } = await import("./stop-overlay.ts");
  // Another mode: what ran the overlay until now must not run it beside the new services.
  const isMoved = former.mode !== undefined && former.mode !== registration.mode;
  const removal = isMoved ? await serviceRemoval(former, context) : [];
  if (settings.dryRun) {
    const { planStart } = await import("../node/enroll/provision-services.ts");
    const { planChanges } = await import("../platform/apply.ts");
    const team = { slug: registration.slug, mode: registration.mode };
    const services = values.on("no-start")
      ? []
      : [
          ...planStart(team, settings, system),
          ...(team.mode === "desktop" ? await planRequestIfThere("provision", settings, system) : []),
        ];
    return output.plan([...planRegistration(registration, settings), ...planChanges(removal), ...services]);
  }
  if (!values.on("no-start")) {
    const { requireStartable } = await import("../node/enroll/provision-services.ts");
    requireStartable(settings, system);
  }
  const { directory, answer } = await register(registration, settings, { system, log });
  if (isMoved) await stopOverlay(former, removal, context);
  const { started, left } = values.on("no-start")
    ? {
        started: false,
        left: [`No service is installed (--no-start). Install it later: ${await installCommand(context)}`],
      }
    : await start(registration, context);
  const { node } = answer;
  const object = {
    org_slug: registration.slug,
    node_id: node.id,
    name: node.name,
    ip_address: node.ip_address,
    mode: registration.mode,
    directory,
    started,
  };
  for (const sentence of left) output.say(sentence);
  output.result(
    object,
    `Registered ${node.name} with ${registration.slug}: ${node.ip_address}, files in ${directory}\n`,
  );
}

async function installCommand({ system }: Context): Promise<string> {
  const { serviceCommand } = await import("../platform/service-manager.ts");
  return serviceCommand(system);
}

type Start = { started: boolean; left: readonly string[] };

/** Installs engine and services. The registration stays valid if this fails. */
async function start({ slug, mode }: { slug: string; mode: Mode }, context: Context): Promise<Start> {
  const { settings, system, log } = context;
  const { startOverlay } = await import("../node/enroll/provision-services.ts");
  try {
    const { started, left } = await startOverlay(mode, slug, settings, { system, log });
    const wanted = await wantedState({ slug, mode }, context);
    if (wanted === "down") {
      const line = `${brand.executable} start ${quoteWord(slug)}`;
      return { started: false, left: [`${slug} was stopped, and stays so. Start it: ${line}`] };
    }
    return wanted === "up" ? { started: true, left: [] } : { started, left };
  } catch (error) {
    const known = fromSystemError("start the overlay", error);
    throw new AppError(
      known.code,
      `Registered with ${slug}, but the overlay does not run yet: ${known.message}`,
      {
        cause: error,
        hint: known.details.hint ?? `After the repair, run: ${await installCommand(context)}`,
      },
    );
  }
}

/**
 * Registering again does not start what a user has stopped. A running daemon is told, and starts a new organization at
 * once. Undefined if no daemon runs, and for server mode, unless it is stopped.
 */
async function wantedState(
  { slug, mode }: { slug: string; mode: Mode },
  { settings, system, log }: Context,
): Promise<"up" | "down" | undefined> {
  if (mode === "server") {
    const { isStopped } = await import("../node/files/stopped.ts");
    return isStopped(join(settings.configRoot, slug)) ? "down" : undefined;
  }
  const { askDaemon } = await import("../daemon/ipc/client.ts");
  const ask = (request: { action: string; team?: string }) =>
    askDaemon(daemonAddress(settings), system, request, { patient: false });
  try {
    await ask({ action: "provision" });
    const [status] = (await ask({ action: "status", team: slug })).teams ?? [];
    return typeof status === "object" ? status.wanted : undefined;
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "daemon_unreachable") log.warn(messageOf(error));
    return undefined;
  }
}

async function readRegistration(context: Context) {
  const { values } = context;
  const { parseSlug } = await import("../node/files/organizations.ts");
  const { parseNodeName, readApiCaByFingerprint } = await import("../node/enroll/register-input.ts");
  const apiBase = values.required("api-base");
  const slug = parseSlug(values.required("org-slug"));
  const name = values.text("node-name");
  const { parseAllowedRoutes } = await import("../node/files/permissions.ts");
  const allowed = values.text("allow-routes");
  const fingerprint = values.text("ca-fingerprint");
  const publicIp = values.text("public-ip");
  const address = values.text("ip-address");
  if (values.on("is-lighthouse") && publicIp === undefined) {
    throw new AppError("usage", "--is-lighthouse needs --public-ip: other nodes must know its address");
  }
  const external = values.integer("external-port", 1, 65_535);
  const listen = values.integer("listen-port", 0, 65_535);
  // A plan sends no request, and needs no content of the file.
  const fetchCa = (print: string) => (context.settings.dryRun ? "" : readApiCaByFingerprint(apiBase, print));
  const apiCa = fingerprint === undefined ? undefined : await fetchCa(fingerprint);
  const wishes = {
    ...(address === undefined ? {} : { ip_address: address }),
    ...(publicIp === undefined ? {} : { public_ip: publicIp }),
    ...(external === undefined ? {} : { external_port: external }),
    ...(listen === undefined ? {} : { listen_port: listen }),
    ...(values.on("is-lighthouse") ? { is_lighthouse: true } : {}),
    ...(values.on("is-relay") ? { is_relay: true } : {}),
  };
  const { readRemains } = await import("../node/files/remains.ts");
  // Registering again without --mode keeps the mode.
  const former = readRemains(context.settings.configRoot, slug);
  const mode = values.choice("mode", ["server", "desktop"]) ?? former.mode ?? "desktop";
  const { refuseMode } = await import("../platform/service-manager.ts");
  refuseMode(mode, context.system);
  const registration = {
    apiBase,
    slug,
    name: name === undefined ? undefined : parseNodeName(name),
    mode,
    allowPlainHttp: values.on("allow-plain-http"),
    force: values.on("force"),
    allowRoutes: allowed === undefined ? undefined : parseAllowedRoutes(allowed),
    apiCa,
    credential: await readCredential(context, apiBase, apiCa),
    wishes,
  };
  return { registration, former };
}

async function readCredential(context: Context, apiBase: string, ca: string | undefined) {
  const { values, system, settings } = context;
  const registrationToken = await values.secret("registration-token");
  const accessToken = await values.secret("access-token");
  if (registrationToken !== undefined && accessToken !== undefined) {
    throw new AppError("usage", "Give --registration-token or --access-token, not both");
  }
  if (registrationToken !== undefined) return { registrationToken };
  if (accessToken !== undefined) return { accessToken };
  if (settings.dryRun) return { accessToken: "" };
  if (!system.stdinIsTerminal) {
    throw new AppError("usage", "Missing --registration-token (or --access-token)", {
      hint: "Ask an administrator for one (`agent admin token create ORG`), and give it with --registration-token-file.",
    });
  }
  const { ask } = await import("./ask.ts");
  const { makeClient } = await import("../node/contact/client.ts");
  const allowPlainHttp = values.on("allow-plain-http");
  const client = makeClient({ base: apiBase, system, allowPlainHttp, ...(ca === undefined ? {} : { ca }) });
  const questions = [
    { text: "E-mail: ", isSecret: false },
    { text: "Password: ", isSecret: true },
  ];
  const [email = "", password = ""] = await ask(questions, system);
  return { accessToken: (await client.token(email, password)).access };
}
