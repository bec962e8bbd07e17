// `agent register`: this machine joins an organization.

import { brand } from "../brand.ts";
import { AppError, fromSystemError, messageOf } from "../errors.ts";
import type { Mode } from "../protocol.ts";
import type { Command, Context } from "./command.ts";
import { daemonAddress } from "./daemon-address.ts";

export const command: Command = {
  name: "register",
  summary: "Register this machine with an organization",
  notes:
    "Keys are made here; only their public halves are sent. Give a registration token, or an administrator's token; on\n" +
    "a terminal, with neither, it asks for e-mail and password. Run again after a failure, it goes on with the same keys.",
  flags: {
    "api-base": {
      type: "string",
      valueHint: "URL",
      description: "The control plane's address",
      required: true,
    },
    "org-slug": { type: "string", valueHint: "SLUG", description: "The organization", required: true },
    "node-name": {
      type: "string",
      valueHint: "NAME",
      description: "This node's name (default: the host name)",
    },
    "registration-token": {
      type: "string",
      valueHint: "TOKEN",
      secret: true,
      description: "A registration token",
    },
    "access-token": {
      type: "string",
      valueHint: "JWT",
      secret: true,
      description: "An administrator's access token",
    },
    mode: {
      type: "string",
      valueHint: "server|desktop",
      default: "desktop",
      description: "Who runs the overlay: systemd, or the daemon",
    },
    "ip-address": {
      type: "string",
      valueHint: "ADDRESS",
      description: "The overlay address (default: the next free one)",
    },
    "is-lighthouse": { type: "boolean", description: "The others find one another through this node" },
    "public-ip": {
      type: "string",
      valueHint: "ADDRESS",
      description: "Address or DNS name under which the others reach it",
    },
    "external-port": {
      type: "string",
      valueHint: "N",
      description: "UDP port under which the others reach it (default: 4242)",
    },
    "is-relay": { type: "boolean", description: "Carries traffic for nodes that cannot reach one another" },
    "listen-port": { type: "string", valueHint: "N", description: "UDP port to listen on here" },
    "ca-fingerprint": {
      type: "string",
      valueHint: "sha256:HEX",
      description: "Trust the control plane's TLS authority by its fingerprint",
    },
    "allow-plain-http": {
      type: "boolean",
      description: "Accept http:// to another machine: the token travels in clear",
    },
    "allow-routes": {
      type: "string",
      valueHint: "NETWORKS",
      description:
        "Networks that the control plane may route, even a default route: 0.0.0.0/0,::/0 (none: take it back)",
    },
    "no-start": { type: "boolean", description: "Install no engine and start no service" },
    force: { type: "boolean", description: "Replace the local directory of the same node" },
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
  const registration = await readRegistration(context);
  if (settings.dryRun) {
    const { planStart } = await import("../node/enroll/provision-services.ts");
    const team = { slug: registration.slug, mode: registration.mode };
    const services = values.on("no-start") ? [] : planStart(team, settings, system);
    return output.plan([...planRegistration(registration, settings), ...services]);
  }
  if (!values.on("no-start")) {
    const { requireStartable } = await import("../node/enroll/provision-services.ts");
    requireStartable(settings, system);
  }
  const { directory, answer } = await register(registration, settings, { system, log });
  const { started, left } = values.on("no-start")
    ? {
        started: false,
        left: [`No service was installed (--no-start). Later: ${await installCommand(context)}`],
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

/** Engine, services, and a running daemon. What fails here leaves the registration as it is. */
async function start({ slug, mode }: { slug: string; mode: Mode }, context: Context): Promise<Start> {
  const { settings, system, log } = context;
  const { startOverlay } = await import("../node/enroll/provision-services.ts");
  try {
    const { started, left } = await startOverlay(mode, slug, settings, { system, log });
    return mode === "desktop" && (await tellDaemon(context))
      ? { started: true, left: [] }
      : { started, left };
  } catch (error) {
    const known = fromSystemError("start the overlay", error);
    throw new AppError(
      known.code,
      `Registered with ${slug}, but the overlay does not run yet: ${known.message}`,
      {
        cause: error,
        hint: known.details.hint ?? `Then: ${await installCommand(context)}`,
      },
    );
  }
}

/** A daemon that runs already takes the team up at once. */
async function tellDaemon({ settings, system, log }: Context): Promise<boolean> {
  const { connectDaemon } = await import("../daemon/ipc/client.ts");
  try {
    const daemon = await connectDaemon(daemonAddress(settings), system, { patient: false });
    try {
      await daemon.request({ action: "provision" });
      return true;
    } finally {
      daemon.close();
    }
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "daemon_unreachable") log.warn(messageOf(error));
    return false;
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
    throw new AppError("usage", "--is-lighthouse needs --public-ip: the others must find it");
  }
  const external = values.integer("external-port", 1, 65_535);
  const listen = values.integer("listen-port", 0, 65_535);
  // A plan asks nobody; that the file will be there is enough for it.
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
  const present = readRemains(context.settings.configRoot, slug).mode;
  const mode = values.choice("mode", ["server", "desktop"]) ?? present ?? "desktop";
  const { refuseMode } = await import("../platform/service-manager.ts");
  refuseMode(mode, context.system);
  return {
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
      hint: "An administrator makes one with `agent admin token create ORG`; give it by --registration-token-file.",
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
