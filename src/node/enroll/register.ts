// Registers this machine with an organization. Keys are made here and written first, into a private directory beside;
// one rename makes the organization's directory appear whole. Killed at any instant and run again, it goes on with the
// same keys, which the control plane takes for the same registration (decisions 3.6).

import { existsSync, lstatSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../plan.ts";
import { buildInfo } from "../../build-info.ts";
import { AppError, systemErrorCode } from "../../errors.ts";
import { readTextIfThere, removeTree } from "../../files.ts";
import type { Log } from "../../log.ts";
import { publicPemOfHostKey } from "../../pki/keys.ts";
import type { Step } from "../../plan.ts";
import { paths, type Mode, type RegisterAnswer, type RegisterRequest } from "../../protocol.ts";
import type { System } from "../../system.ts";
import { makeClient } from "../contact/client.ts";
import { listenPort } from "../files/config-file.ts";
import { accountOf } from "../contact/connection.ts";
import { engineVersion } from "../engine/engine.ts";
import { storeInKeyring } from "../files/keyring.ts";
import { withLock } from "../files/lock.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { generationFiles, openOrganization } from "../files/organizations.ts";
import { keepOrders } from "../files/orders.ts";
import { findEngine, type EngineSettings } from "../engine/overlay.ts";
import { planAllowedRoutes } from "../files/permissions.ts";
import { commitPending, fillPending, makeKeys, openPending, sweepLeft, type Keys } from "./pending.ts";

export type Registration = {
  apiBase: string;
  slug: string;
  /** Unset: the host's name, made fit. */
  name: string | undefined;
  mode: Mode;
  credential: { registrationToken: string } | { accessToken: string };
  /** PEM of the control plane's own TLS authority. */
  apiCa: string | undefined;
  allowPlainHttp: boolean;
  force: boolean;
  /** Networks that the control plane may route; unset: as before. */
  allowRoutes?: readonly string[] | undefined;
  /** What the request says beyond names and keys. */
  wishes: Pick<
    RegisterRequest,
    "ip_address" | "is_lighthouse" | "is_relay" | "public_ip" | "external_port" | "listen_port"
  >;
};

export type Registered = { directory: string; answer: RegisterAnswer };

type Edge = Pick<
  System,
  "fetch" | "lookup" | "sleep" | "now" | "random" | "run" | "env" | "platform" | "arch" | "executable"
>;

export async function register(
  registration: Registration,
  settings: { configRoot: string } & EngineSettings,
  { system, log }: { system: Edge; log: Log },
): Promise<Registered> {
  const directory = join(settings.configRoot, registration.slug);
  refuseExisting(directory, registration);
  refuseTakenPort(settings.configRoot, registration);
  // Checked before anything is written: a wrong address must leave nothing behind.
  const client = makeClient({
    base: registration.apiBase,
    system,
    log,
    allowPlainHttp: registration.allowPlainHttp,
    ...(registration.apiCa === undefined ? {} : { ca: registration.apiCa }),
    ...("accessToken" in registration.credential ? { token: registration.credential.accessToken } : {}),
  });
  const pending = join(settings.configRoot, `.${registration.slug}.pending`);
  const resumed = openPending(pending, directory);
  return withLock(pending, "register", system, async () => {
    sweepLeft(settings.configRoot, registration.slug);
    const keys = makeKeys(pending, directory);
    const request = await makeRequest(registration, keys, settings, system);
    let answer: RegisterAnswer;
    try {
      answer = await client.register(registration.slug, request);
    } catch (error) {
      // Keys that the control plane may have seen are kept for the next try; all else goes.
      if (!resumed && !mayHaveArrived(error)) removeTree(pending);
      throw explain(error, registration);
    }
    const { slug, apiCa, allowRoutes } = registration;
    const said = { slug, apiCa, allowRoutes, overlayVersion: request.overlay_version };
    await fillPending(pending, answer, said, keys, client.base, { system, log });
    const commit = async () => {
      keepOrders(directory, pending);
      commitPending(pending, directory);
    };
    await (existsSync(directory) ? withLock(directory, "register", system, commit) : commit());
    const { config } = openOrganization(settings.configRoot, registration.slug);
    await storeInKeyring(accountOf(slug, config.node_id), answer.api_token, system);
    return { directory, answer };
  });
}

/** What --dry-run prints. Keys and tokens are made by the run itself: the plan names their files only. */
export function planRegistration(registration: Registration, settings: { configRoot: string }): Step[] {
  const directory = join(settings.configRoot, registration.slug);
  refuseExisting(directory, registration);
  refuseTakenPort(settings.configRoot, registration);
  const { base } = makeClient({
    base: registration.apiBase,
    allowPlainHttp: registration.allowPlainHttp,
    system: {
      fetch: () => Promise.reject(new Error("A plan sends nothing")),
      sleep: () => Promise.resolve(),
    },
  });
  const file = (name: string, mode: string): Step => ({
    step: "file",
    path: join(directory, name),
    mode,
    change: "created",
  });
  return [
    file("host.key", "0600"),
    file("node.key", "0600"),
    { step: "request", method: "POST", url: base + paths.register(registration.slug) },
    file("credentials.json", "0600"),
    ...generationFiles.map((name) => file(name, "0644")),
    ...(registration.apiCa === undefined ? [] : [file("api-ca.crt", "0644")]),
    ...planAllowedRoutes(directory, registration.allowRoutes ?? []),
  ];
}

/** The host's name as a node name: lower case, one DNS label. */
export function defaultNodeName(name: string = hostname()): string {
  const label = (name.split(".")[0] ?? "").toLowerCase().replace(/[^a-z0-9-]+/g, "-");
  return label.slice(0, 63).replace(/^-+|-+$/g, "") || "node";
}

function refuseExisting(directory: string, { force, slug }: Pick<Registration, "force" | "slug">): void {
  // Whatever is in its place: what is damaged is replaced only where that was asked for.
  const path = join(directory, "node-config.json");
  if (force || lstatSync(path, { throwIfNoEntry: false }) === undefined) return;
  throw new AppError("conflict", `This machine is already registered with "${slug}" (${directory})`, {
    hint: "Use --force to replace the directory with the same node's, or `agent unregister` to leave first.",
  });
}

async function makeRequest(
  registration: Registration,
  keys: Keys,
  settings: EngineSettings,
  system: Edge,
): Promise<RegisterRequest> {
  const name = registration.name ?? defaultNodeName();
  const { makeCsr } = await import("../../pki/x509.ts");
  const engine = findEngine(settings, system);
  return {
    name,
    host_public_key: publicPemOfHostKey(keys.host),
    node_csr: await makeCsr({ privateKeyPem: keys.node, name }),
    mode: registration.mode,
    platform: `${system.platform}-${system.arch}`,
    version: buildInfo.version,
    ...(engine === undefined ? {} : { overlay_version: await engineVersion(engine.path, system) }),
    ...registration.wishes,
    ...("registrationToken" in registration.credential
      ? { registration_token: registration.credential.registrationToken }
      : {}),
  };
}

/** The server tells nobody more than "not found" or "not valid"; here it is known what was looked for. */
function explain(error: unknown, { slug, name, credential }: Registration): unknown {
  if (!(error instanceof AppError)) return error;
  if (error.code === "token_not_valid" && "registrationToken" in credential) {
    const hint = `A token is good in one organization: check --org-slug ("${slug}") and --api-base too.`;
    return new AppError(error.code, error.message, { cause: error, hint });
  }
  if (error.code === "name_held") {
    const line = `${brand.executable} admin token create ${quoteWord(slug)} --node ${quoteWord(name ?? defaultNodeName())}`;
    return new AppError(error.code, error.message, {
      ...error.details,
      cause: error,
      hint: `Choose another name, or ask an administrator for a token that is bound to this one: \`${line}\`.`,
    });
  }
  if (error.code !== "not_found") return error;
  return new AppError("not_found", `There is no organization "${slug}" that this credential belongs to`, {
    cause: error,
    hint: "Check --org-slug and --api-base.",
  });
}

const defaultPort = 4242;

/** A port that must be known outside is fixed; two engines cannot have the same one on one machine. */
function refuseTakenPort(configRoot: string, { slug, wishes }: Registration): void {
  const { is_lighthouse, is_relay, public_ip, external_port, listen_port } = wishes;
  const isFixed = is_lighthouse === true || is_relay === true || public_ip !== undefined;
  const port = listen_port ?? (isFixed ? (external_port ?? defaultPort) : 0);
  if (port === 0) return;
  for (const other of listOrganizations(configRoot)) {
    if (other === slug || portOf(join(configRoot, other)) !== port) continue;
    throw new AppError(
      "collision",
      `UDP port ${port} belongs to the organization "${other}" on this machine`,
      {
        hint: "Choose another one with --external-port, or with --listen-port if a router maps it.",
      },
    );
  }
}

/** Undefined also where the configuration is damaged: nothing can run with it. */
function portOf(directory: string): number | undefined {
  try {
    return listenPort(readTextIfThere(join(directory, "config.yml")) ?? "");
  } catch {
    return undefined;
  }
}

function mayHaveArrived(error: unknown): boolean {
  if (!(error instanceof AppError)) return true;
  if (error.code === "untrusted_answer") return true;
  const cause = systemErrorCode(error.cause);
  const neverSent = ["ConnectionRefused", "ECONNREFUSED", "FailedToOpenSocket", "ENOTFOUND", "EAI_AGAIN"];
  return error.code === "control_plane_unreachable" && !(cause !== undefined && neverSent.includes(cause));
}
