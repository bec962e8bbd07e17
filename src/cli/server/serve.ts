// `agent serve`: runs the control plane in the foreground until a signal ends it.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { makeLog, writeOnceATurn, type Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { ServeOptions, Serving } from "../../server/serve.ts";
import type { CommandOutput, Context, Implementation } from "../command.ts";
import { switchFlag, valueFlag, type Values } from "../values.ts";
import { dataFlags, dataFlagsOf, readDataOptions } from "./server-flags.ts";
import { acmeFlags, readAcmeTls, refuseAcmeFlags } from "./acme-flags.ts";
import { mailFlags, readMail } from "./mail-flags.ts";
import { withSettingsFile } from "../settings-file.ts";
import { logOptions } from "../settings.ts";

const args = {
  config: valueFlag(
    "FILE",
    'Read flags from this TOML file: listen = "0.0.0.0:443". A flag or variable wins over it',
  ),
  listen: valueFlag("HOST:PORT", "Listen address; port 0 selects a free port", { default: "127.0.0.1:8420" }),
  ...dataFlags,
  "tls-cert": valueFlag("FILE", "TLS certificate chain (PEM); reloaded when the file changes"),
  "tls-key": valueFlag("FILE", "Private key of the certificate (PEM)"),
  "tls-ca": valueFlag(
    "FILE",
    "Root CA of the certificate (PEM), if machines do not know it: join keys hold its fingerprint, machines pin it. With " +
      "--tls-cert or --tls acme",
  ),
  tls: valueFlag(
    "auto|acme",
    "auto: use a certificate of an own CA, and print the CA's fingerprint for register --ca-fingerprint; " +
      "acme: get a certificate for the name of --public-url from an ACME server (Let's Encrypt), whose terms you accept",
  ),
  ...acmeFlags,
  ...mailFlags,
  "allow-plain-http": switchFlag("Allow plain HTTP on addresses other than loopback"),
  "trusted-proxy": valueFlag("CIDR", "Trust X-Forwarded-For from this proxy (repeatable)", {
    repeatable: true,
  }),
  "metrics-listen": valueFlag("HOST:PORT", "Listen address of /metrics, for Prometheus"),
  "access-lifetime": valueFlag("D", "Lifetime of a user's access token", { default: "15m" }),
  "refresh-lifetime": valueFlag("D", "Lifetime of a user's refresh token", { default: "1d" }),
  "webhook-allow": valueFlag(
    "CIDR",
    "Allow webhooks to this private network, also over plain HTTP (repeatable)",
    { repeatable: true },
  ),
  "event-retention": valueFlag(
    "D",
    "Keep events this long, then move them to signed files in archive/ of the data directory",
    { default: "400d" },
  ),
  "event-storage": valueFlag(
    "SIZE",
    "Move the oldest events of an organization there earlier if it has more",
    { default: "1GB" },
  ),
  "organization-storage": valueFlag(
    "SIZE",
    "Maximum that an organization may store: events, their archives, and what its members create",
    { default: "4GB" },
  ),
  health: switchFlag("Ask the server that runs with these flags whether it is ready (for containers)"),
  "tcp-fallback": valueFlag(
    "on|off",
    "Where UDP is blocked, nodes reach lighthouses and relays of this machine by TCP through this listener, at /tcp/",
    { default: "on" },
  ),
  releases: valueFlag(
    "DIR",
    "Hand out the release in this directory, by /install and at /releases/, not the one that this program came from",
  ),
};

export const command: Implementation = {
  notes:
    'With --json, it prints one line when it is ready: {"url":"http://127.0.0.1:8420"}.\n' +
    "SIGTERM ends it cleanly; a second one ends it at once.",
  args,
  isService: true,
  examples: [
    `${brand.executable} serve`,
    `${brand.executable} serve --listen 0.0.0.0:443 --tls acme --public-url https://control.example.org`,
    `${brand.executable} serve --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem --public-url https://control.example.org`,
  ],
  async run(commandLine) {
    const context = { ...commandLine, values: await withSettingsFile(commandLine.values, args) };
    const { system, settings, values, output } = context;
    const options = await readOptions(context);
    if (values.on("health")) {
      const { askHealth } = await import("../../server/health.ts");
      return askHealth(options);
    }
    const { refuseOpenHttp, startServer } = await import("../../server/serve.ts");
    refuseOpenHttp(options);
    if (settings.dryRun) {
      const { planData } = await import("../../server/store/data-directory.ts");
      return output.plan(planData(options, system));
    }
    // The executable is built for short commands, and compiles code late (build.ts). This process compiles as early as usual.
    Bun.unsafe.setJITPolicy(1);
    const write = writeOnceATurn(system.stderr.write);
    const log = makeLog({ ...logOptions(settings, system), write, stamped: true });
    // Before the start, so that a signal during the start is not lost.
    const ended = untilSignalled();
    const isService = system.env["NOTIFY_SOCKET"] !== undefined;
    const { formerProcess, handOver } = await import("../handover.ts");
    const former = formerProcess(system.env);
    const isSuccessor = former !== undefined;
    const serving = await startServer({ ...options, isService, isSuccessor }, { system, log });
    await announce(serving, options, { ...context, log });
    // Before the server reports that it is ready: systemd may then send SIGHUP at once, which would end a process without a handler.
    // Without systemd nothing follows the process id of a successor, so there is no handover.
    const handedOver = isService ? handOver(system, log) : ended;
    const notices = await notifySystemd(system, log);
    // Tells the former process that this one answers (handover.ts).
    if (former !== undefined) process.kill(former, "SIGUSR2");
    // A signal (undefined), the pid of a successor, or an error: the database went back, and this process has to start again.
    const end = await Promise.race([ended, handedOver, serving.outdated]);
    const successor = end instanceof AppError ? undefined : end;
    log.info(successor === undefined ? "stopping" : `process ${successor} has taken over`);
    notices.end(successor);
    await serving.stop();
    if (end instanceof AppError) throw end;
  },
};

/** Prints where the control plane is, and what is missing or comes next. */
async function announce(
  serving: Serving,
  options: ServeOptions,
  { values, output, log }: Pick<Context, "values" | "output" | "log">,
): Promise<void> {
  const { url, caFingerprint, metricsUrl } = serving;
  const printed = given({ url, ca_fingerprint: caFingerprint, metrics_url: metricsUrl });
  if (output.json) output.result(printed, "");
  output.say(`The control plane listens at ${url}. Its data is in ${options.dataDirectory}`);
  if (metricsUrl !== undefined) output.say(`Metrics: ${metricsUrl}`);
  if (caFingerprint !== undefined) output.say(`Register machines with --ca-fingerprint ${caFingerprint}`);
  await warnWithoutRelease(options, log);
  await sayFirstSteps(serving, values, output);
}

async function readOptions({ system, settings, values }: Context): Promise<ServeOptions> {
  const data = await readDataOptions(values, system);
  const { parseListen, networksOfFlag } = await import("../../server/http/edge.ts");
  const releases = values.text("releases");
  const { statSync } = await import("node:fs");
  if (releases !== undefined && statSync(releases, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new AppError("usage", `--releases: there is no directory ${releases}`);
  const metrics = values.text("metrics-listen");
  const listen = parseListen("--listen", values.text("listen") ?? "127.0.0.1:8420");
  const mail = await readMail(values);
  const tls = await tlsOf(values, { publicUrl: data.publicUrl, hostname: listen.hostname });
  return {
    ...data,
    listen,
    allowPlainHttp: values.on("allow-plain-http"),
    trustedProxies: networksOfFlag("--trusted-proxy", values.list("trusted-proxy")),
    webhookNetworks: networksOfFlag("--webhook-allow", values.list("webhook-allow")),
    accessLifetimeS: values.duration("access-lifetime") ?? 900,
    refreshLifetimeS: values.duration("refresh-lifetime") ?? 86_400,
    retention: {
      eventsS: values.duration("event-retention") ?? 400 * 86_400,
      eventBytes: values.size("event-storage") ?? 1e9,
      organizationBytes: values.size("organization-storage") ?? 4e9,
    },
    logReads: settings.verbose,
    // /tcp/ passes datagrams to the engines of this machine's organizations, which are found below this root.
    ...(values.choice("tcp-fallback", ["on", "off"]) === "off" ? {} : { machineRoot: settings.configRoot }),
    ...given({ releasesDirectory: releases, tls, mail }),
    ...(await foreignCaOf(values, tls)),
    ...(metrics === undefined ? {} : { metricsListen: parseListen("--metrics-listen", metrics) }),
  };
}

async function warnWithoutRelease({ releasesDirectory }: ServeOptions, log: Log): Promise<void> {
  if (releasesDirectory === undefined) return;
  if (await Bun.file(`${releasesDirectory}/manifest.json`).exists()) return;
  log.warn(
    `There is no release in ${releasesDirectory} yet: the one that this program came from is handed out`,
  );
}

async function sayFirstSteps(
  { firstUserLink }: Serving,
  values: Values,
  output: CommandOutput,
): Promise<void> {
  if (firstUserLink === undefined) return;
  const { firstSteps } = await import("../../server/serve.ts");
  output.say(firstSteps(firstUserLink, dataFlagsOf(values)));
}

/** Tells systemd that the server is ready, and from then on that it is alive, until it stops or another process takes over. */
async function notifySystemd(
  system: System,
  log: Log,
): Promise<{ end(successor: number | undefined): void }> {
  if (system.env["NOTIFY_SOCKET"] === undefined) return { end: () => undefined };
  const { openLibc } = await import("../../platform/libc.ts");
  const { makeNotifier } = await import("../../platform/systemd/notify.ts");
  const notifier = makeNotifier(openLibc(), system, log);
  const over = new AbortController();
  // A process whose event loop runs is alive. An unreachable database or a full disk is no reason for a restart.
  void notifier.feedWatchdog(() => Promise.resolve(), over.signal);
  notifier.ready();
  return {
    end(successor) {
      over.abort(new Error("The server ends"));
      if (successor === undefined) notifier.stopping();
      else notifier.mainPid(successor);
    },
  };
}

/** Resolves on the first SIGTERM or SIGINT. The second one ends the process at once. */
function untilSignalled(): Promise<undefined> {
  return new Promise<undefined>((resolve) => {
    const end = () => {
      process.once("SIGTERM", () => process.exit(1));
      process.once("SIGINT", () => process.exit(1));
      resolve(undefined);
    };
    process.once("SIGTERM", end);
    process.once("SIGINT", end);
  });
}

/** The root CA of --tls-ca, as a field of the options. */
async function foreignCaOf(
  values: Values,
  tls: ServeOptions["tls"],
): Promise<Pick<ServeOptions, "foreignCa">> {
  const file = values.text("tls-ca");
  if (file === undefined) return {};
  if (tls === undefined || tls === "auto")
    throw new AppError("usage", "--tls-ca needs --tls-cert and --tls-key, or --tls acme");
  const { readForeignCa } = await import("../../server/tls/foreign-ca.ts");
  return { foreignCa: readForeignCa(readTextIfThere(file), file) };
}

/** Undefined: plain HTTP. */
async function tlsOf(
  values: Values,
  place: { publicUrl: string | undefined; hostname: string },
): Promise<ServeOptions["tls"]> {
  const certFile = values.text("tls-cert");
  const keyFile = values.text("tls-key");
  const kind = values.choice("tls", ["auto", "acme"]);
  if (kind !== "acme") refuseAcmeFlags(values);
  if (kind !== undefined && (certFile !== undefined || keyFile !== undefined)) {
    throw new AppError("usage", `Give --tls ${kind}, or --tls-cert and --tls-key, not both`);
  }
  if (kind === "acme") return readAcmeTls(values, place);
  if (kind !== undefined) return kind;
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile !== undefined && keyFile !== undefined) return { certFile, keyFile };
  throw new AppError("usage", "Give both --tls-cert and --tls-key, or neither");
}
