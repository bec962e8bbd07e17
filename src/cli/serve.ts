// `agent serve`: the control plane, in the foreground until a signal ends it.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { makeLog, writeOnceATurn } from "../log.ts";
import { onlyPlanned } from "./admin/data.ts";
import type { ServeOptions, Serving } from "../server/serve.ts";
import type { Command, CommandOutput, Context } from "./command.ts";
import type { Flags, Values } from "./values.ts";
import { dataFlags, dataFlagsOf, readDataOptions } from "./server-flags.ts";

const flags: Flags = {
  listen: {
    type: "string",
    valueHint: "HOST:PORT",
    default: "127.0.0.1:8420",
    description: "Where to answer; port 0 takes a free one",
  },
  ...dataFlags,
  "tls-cert": {
    type: "string",
    valueHint: "FILE",
    description: "Certificate chain (PEM); picked up when it changes",
  },
  "tls-key": { type: "string", valueHint: "FILE", description: "Its private key (PEM)" },
  tls: {
    type: "string",
    valueHint: "auto",
    description:
      "auto: a certificate of a CA of its own; the CA's fingerprint is printed for register --ca-fingerprint",
  },
  "allow-plain-http": { type: "boolean", description: "Plain HTTP on other addresses than loopback" },
  "trusted-proxy": {
    type: "string",
    valueHint: "CIDR",
    repeatable: true,
    description: "A proxy whose X-Forwarded-For is believed; may be given several times",
  },
  "metrics-listen": {
    type: "string",
    valueHint: "HOST:PORT",
    description: "Where /metrics answers, for Prometheus",
  },
  "access-lifetime": {
    type: "string",
    valueHint: "D",
    default: "15m",
    description: "How long a person's access token lives",
  },
  "refresh-lifetime": {
    type: "string",
    valueHint: "D",
    default: "1d",
    description: "How long a refresh token lives",
  },
  "webhook-allow": {
    type: "string",
    valueHint: "CIDR",
    repeatable: true,
    description:
      "Webhooks may lead here though it is not public, also by plain HTTP; may be given several times",
  },
  releases: { type: "string", valueHint: "DIR", description: "A release directory to mirror at /releases/" },
};

export const command: Command = {
  name: "serve",
  summary: "Run the control plane",
  notes:
    'With --json one line on standard output as soon as it answers: {"url":"http://127.0.0.1:8420"}. ' +
    "SIGTERM ends it in order, a second one at once.",
  flags,
  isService: true,
  examples: [
    `${brand.executable} serve`,
    `${brand.executable} serve --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem --public-url https://control.example.org`,
  ],
  async run(context) {
    const { system, settings, values, output } = context;
    const options = await readOptions(context);
    if (await onlyPlanned(context)) return;
    const { startServer } = await import("../server/serve.ts");
    const log = makeLog({
      verbose: settings.verbose,
      ...(settings.logFile === undefined ? {} : { file: settings.logFile }),
      write: writeOnceATurn(system.stderr.write),
      now: system.now,
      stamped: true,
    });
    // Before the start, so that a signal in its midst is not lost.
    const ended = untilSignalled();
    const serving = await startServer(options, { system, log });
    const { url, caFingerprint, metricsUrl } = serving;
    const printed = {
      url,
      ...(caFingerprint === undefined ? {} : { ca_fingerprint: caFingerprint }),
      ...(metricsUrl === undefined ? {} : { metrics_url: metricsUrl }),
    };
    if (output.json) output.result(printed, "");
    output.say(`The control plane answers at ${url}, its data is in ${options.dataDirectory}`);
    if (metricsUrl !== undefined) output.say(`Its metrics are at ${metricsUrl}`);
    if (caFingerprint !== undefined) output.say(`Machines trust it with --ca-fingerprint ${caFingerprint}`);
    const { releasesDirectory } = options;
    if (releasesDirectory !== undefined && !(await Bun.file(`${releasesDirectory}/manifest.json`).exists()))
      log.warn(`There is no release in ${releasesDirectory} yet: /releases/ answers 404`);
    await sayFirstSteps(serving, values, output);
    await ended;
    log.info("stopping");
    await serving.stop();
  },
};

async function readOptions({ system, settings, values }: Context): Promise<ServeOptions> {
  const data = await readDataOptions(values, system);
  const { parseListen, parseNetworks } = await import("../server/http/edge.ts");
  const releases = values.text("releases");
  const metrics = values.text("metrics-listen");
  const tls = tlsOf(values);
  return {
    ...data,
    listen: parseListen("--listen", values.text("listen") ?? "127.0.0.1:8420"),
    allowPlainHttp: values.on("allow-plain-http"),
    trustedProxies: parseNetworks("--trusted-proxy", values.list("trusted-proxy")),
    webhookNetworks: parseNetworks("--webhook-allow", values.list("webhook-allow")),
    accessLifetimeS: values.duration("access-lifetime") ?? 900,
    refreshLifetimeS: values.duration("refresh-lifetime") ?? 86_400,
    logReads: settings.verbose,
    ...(releases === undefined ? {} : { releasesDirectory: releases }),
    ...(tls === undefined ? {} : { tls }),
    ...(metrics === undefined ? {} : { metricsListen: parseListen("--metrics-listen", metrics) }),
  };
}

async function sayFirstSteps(
  { firstAccountLink }: Serving,
  values: Values,
  output: CommandOutput,
): Promise<void> {
  if (firstAccountLink === undefined) return;
  const { firstSteps } = await import("../server/serve.ts");
  output.say(firstSteps(firstAccountLink, dataFlagsOf(values)));
}

/** Resolves with the first SIGTERM or SIGINT; the second ends the process at once. */
function untilSignalled(): Promise<void> {
  return new Promise<void>((resolve) => {
    const end = () => {
      process.once("SIGTERM", () => process.exit(1));
      process.once("SIGINT", () => process.exit(1));
      resolve();
    };
    process.once("SIGTERM", end);
    process.once("SIGINT", end);
  });
}

function tlsOf(values: Values): { certFile: string; keyFile: string } | "auto" | undefined {
  const certFile = values.text("tls-cert");
  const keyFile = values.text("tls-key");
  const auto = values.choice("tls", ["auto"]);
  if (auto !== undefined && (certFile !== undefined || keyFile !== undefined)) {
    throw new AppError("usage", "Give --tls auto, or --tls-cert and --tls-key, not both");
  }
  if (auto !== undefined) return auto;
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile !== undefined && keyFile !== undefined) return { certFile, keyFile };
  throw new AppError("usage", "--tls-cert and --tls-key belong together");
}
