// Registers this machine with an organization. First creates keys, in a private pending directory beside the organization's own
// (files/replacement.ts). One rename puts the complete directory in its place. A run after a kill continues with the same keys,
// which the control plane treats as the same registration.

import { given } from "../../base/given.ts";
import { apiPath, filledPath } from "../../api/endpoint.ts";
import { registrationsApi } from "../../api/node-calls.ts";
import { nodesApi } from "../../api/nodes.ts";
import { existsSync, lstatSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { defaultOverlayPort } from "../../api/values.ts";
import { brand } from "../../brand.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import { buildInfo } from "../../build-info.ts";
import { AppError } from "../../base/errors.ts";
import { removeTree } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import { publicPemOfHostKey } from "../../pki/keys.ts";
import { planSocketDirectory } from "../../platform/systemd/control-socket.ts";
import type { RegisterAnswer, RegisterRequest } from "../../protocol/registration.ts";
import { maxLabel } from "../../protocol/host-labels.ts";
import type { Mode } from "../../protocol/values.ts";
import type { System } from "../../base/system.ts";
import { makeClient, type Client } from "../contact/requests/client.ts";
import { listenPort } from "../files/config/read-config.ts";
import { accountOf } from "../contact/requests/connection.ts";
import { engineVersion } from "../engine/engine.ts";
import { storeInKeyring } from "../files/keyring.ts";
import { withLock } from "../files/lock.ts";
import { generationFiles } from "../files/generations.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { openOrganization } from "../files/organizations.ts";
import {
  finishReplacement,
  putInPlace,
  removeTemporarySiblings,
  temporarySibling,
} from "../files/replacement.ts";
import { isStopped, markStopped } from "../files/stopped-by-user.ts";
import { keepOrders } from "../files/orders.ts";
import { salvageOrganization } from "../files/damaged-organization.ts";
import { findEngine, type EngineSettings } from "../engine/overlay.ts";
import { forgetNode } from "./unregister.ts";
import { makeUntilApproved, type WaitingOptions } from "./approval.ts";
import { explainRefusal, mustDropKeys } from "./registration-refusals.ts";
import { permissionsOrNone, planPermissions, type Permissions } from "../files/permissions.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import {
  fillPending,
  keepsKeys,
  makeKeys,
  openPending,
  planKeys,
  planLeftOut,
  type Keys,
} from "./pending.ts";

export type Registration = WaitingOptions & {
  apiBase: string;
  slug: string;
  /** Unset: derived from the host name. */
  name: string | undefined;
  mode: Mode;
  credential: { registrationToken: string } | { accessToken: string };
  /** PEM of the control plane's own TLS CA; empty in a plan, which has the fingerprint alone. */
  apiCa: string | undefined;
  caFingerprint?: string | undefined;
  allowPlainHttp: boolean;
  force: boolean;
  /** A user confirmed these keys and this name in the browser. */
  isEnrolled?: boolean;
  /** `--replace`: take the place of a former node of this name. Needs the rights of an administrator. */
  replaces?: boolean;
  /** `--new-keys`: make this machine another node. It is a copy of another machine, which goes on as the node of today. */
  newKeys?: boolean;
  /** Permissions of this machine's administrator for the control plane. Others stay as they are. */
  allow?: Partial<Permissions>;
  /** The hash of a seal, which a signer gave to the user, or which the join key has. */
  seal?: string | undefined;
  /** Called before a node without such a hash begins with an enforced seal. Throws to refuse it. */
  confirmSeal?: ((hash: string) => Promise<void>) | undefined;
  /** Optional properties of the node. */
  wishes: Pick<
    RegisterRequest,
    "ip_address" | "is_lighthouse" | "is_relay" | "public_ip" | "external_port" | "listen_port"
  >;
};

export type Registered = { directory: string; answer: RegisterAnswer };

type UsedSystem = Pick<
  System,
  | "fetch"
  | "lookup"
  | "sleep"
  | "now"
  | "random"
  | "run"
  | "isRoot"
  | "env"
  | "platform"
  | "arch"
  | "executable"
  | "machineState"
>;

/** The steps of a registration, in their order. Before `takePlace` nothing is changed that is in use. */
export async function register(
  registration: Registration,
  settings: { configRoot: string } & EngineSettings,
  { system, log }: { system: UsedSystem; log: Log },
): Promise<Registered> {
  const { configRoot } = settings;
  const { slug, mode, apiCa, newKeys = false } = registration;
  finishReplacement(configRoot, slug);
  const { directory, formerName } = requireRegistrable(registration, settings);
  const leftNode = newKeys ? salvageOrganization(configRoot, slug) : undefined;
  // Before any file is written: an invalid URL must leave nothing behind.
  const client = clientFor(registration, system, log);
  const pending = temporarySibling(configRoot, slug, "pending");
  const isResumed = openPending(pending, directory);
  return withLock(pending, "register", system, async () => {
    removeTemporarySiblings(configRoot, slug);
    const keys = makeKeys(pending, directory, newKeys ? "new" : undefined);
    const name = registration.name ?? formerName ?? defaultNodeName();
    const request = await makeRequest(registration, name, keys, settings, system);
    const answer = await sendRequest(client, registration, request, { system, log }).catch(
      (error: unknown) => {
        if (mustDropKeys(error, registration, isResumed)) removeTree(pending);
        throw explainRefusal(error, registration, name);
      },
    );
    if (registration.name !== undefined && answer.node.name !== name)
      log.warn(`The control plane calls this node "${answer.node.name}", not "${name}": rename it there`);
    const allow = allowedBy(registration, directory);
    const { seal, confirmSeal } = registration;
    const options = { slug, mode, apiCa, allow, seal, confirmSeal, overlayVersion: request.overlay_version };
    await fillPending(pending, answer, options, keys, client.base, { system, log });
    await takePlace(pending, directory, registration, system);
    if (leftNode !== undefined) await forgetNode(leftNode, system);
    const { config } = openOrganization(configRoot, slug);
    await storeInKeyring(accountOf(slug, config.node_id), answer.api_token, system);
    return { directory, answer };
  });
}

/** The prepared directory becomes the organization's. Orders and the user's stop stay from the directory that it replaces. */
async function takePlace(
  pending: string,
  directory: string,
  { mode, newKeys = false }: Registration,
  system: UsedSystem,
): Promise<void> {
  const commit = async () => {
    // New keys make another node: orders for the former one do not apply.
    if (!newKeys) keepOrders(directory, pending);
    if (mode === "server" && isStopped(directory)) markStopped(pending);
    // With new keys the directories are not exchanged: after a kill in between, the former keys would be taken for pending ones.
    const cannotExchange = () => false;
    putInPlace(pending, directory, newKeys ? cannotExchange : undefined);
  };
  await (existsSync(directory) ? withLock(directory, "register", system, commit) : commit());
}

function clientFor(
  { apiBase, apiCa, allowPlainHttp, credential }: Registration,
  system: UsedSystem,
  log: Log,
) {
  const token = "accessToken" in credential ? credential.accessToken : undefined;
  return makeClient({ base: apiBase, system, log, allowPlainHttp, ...given({ ca: apiCa, token }) });
}

/** Revokes a former node of this name first if `replaces` is set. */
async function sendRequest(
  client: Client,
  registration: Registration,
  request: RegisterRequest,
  { system, log }: { system: UsedSystem; log: Log },
): Promise<RegisterAnswer> {
  const { slug, replaces } = registration;
  const untilApproved = makeUntilApproved(registration, request, system);
  const send = () => untilApproved(() => client.register(slug, request));
  if (replaces === true) {
    const { continueReplacement } = await import("./replace-node.ts");
    await continueReplacement(client, slug, request.name, { log, now: system.now() });
  }
  try {
    return await send();
  } catch (error) {
    if (replaces !== true || !(error instanceof AppError) || error.code !== "name_taken") throw error;
  }
  const { replaceNode } = await import("./replace-node.ts");
  await replaceNode(client, slug, request.name, log);
  return send();
}

/** The plan of register, for --dry-run. Keys and tokens appear as files only. */
export function planRegistration(registration: Registration, settings: { configRoot: string }): Step[] {
  const { directory } = requireRegistrable(registration, settings);
  const { base } = makeClient({
    base: registration.apiBase,
    allowPlainHttp: registration.allowPlainHttp,
    system: {
      fetch: () => Promise.reject(new Error("A plan sends nothing")),
      sleep: () => Promise.resolve(),
    },
  });
  const file = (name: string, mode: number) => planReplaced(join(directory, name), mode);
  const steps: Step[] = [
    ...planKeys(directory, registration.newKeys === true),
    {
      step: "request",
      method: "POST",
      url: base + apiPath(registrationsApi.register, { slug: registration.slug }),
    },
    ...(registration.replaces === true ? planReplacement(base, registration.slug) : []),
    file("credentials.json", 0o600),
    ...generationFiles.map((name) => file(name, 0o644)),
    ...planSocketDirectory(directory),
    ...(registration.apiCa === undefined ? [] : [file("api-ca.crt", 0o644)]),
    ...planAllowed(allowedBy(registration, directory), directory),
  ];
  return [...steps, ...planLeftOut(directory, registration.mode, steps)];
}

/** The requests of --replace if the name is taken, which a plan cannot know. */
function planReplacement(base: string, slug: string): Step[] {
  // The node's number is not known before.
  const revoked = filledPath(nodesApi.revoke.path, { slug, id: "ID" });
  return [
    { step: "request", method: "DELETE", url: base + revoked },
    { step: "request", method: "POST", url: base + apiPath(nodesApi.create, { slug }) },
    { step: "request", method: "POST", url: base + apiPath(registrationsApi.register, { slug }) },
  ];
}

/** A node name from the host name: lower case, one DNS label. */
export function defaultNodeName(name: string = hostname()): string {
  const label = (name.split(".")[0] ?? "").toLowerCase().replace(/[^a-z0-9-]+/g, "-");
  return label.slice(0, maxLabel).replace(/^-+|-+$/g, "") || "node";
}

/** Throws if this machine cannot be registered this way. `formerName`: the name of the node that --force registers again. */
function requireRegistrable(registration: Registration, { configRoot }: { configRoot: string }) {
  const { slug, name } = registration;
  const directory = join(configRoot, slug);
  if (registration.newKeys === true) {
    refuseSameName(registration, configRoot);
    refuseTakenPort(configRoot, registration);
    return { directory, formerName: undefined };
  }
  refuseExisting(directory, registration);
  const formerName = keepsKeys(directory) ? salvageOrganization(configRoot, slug).name : undefined;
  if (name !== undefined && formerName !== undefined && name !== formerName) {
    throw new AppError(
      "conflict",
      `This machine is registered with "${slug}" as "${formerName}": --force registers the same node again, and cannot rename it to "${name}"`,
      {
        hint:
          `Leave out --node-name, and rename the node on the control plane. Or register a new node: first run ` +
          `\`${brand.executable} unregister --org-slug ${quoteWord(slug)}\`. ` +
          `If the control plane has renamed it already, first run \`${brand.executable} sync-config\`.`,
      },
    );
  }
  refuseTakenPort(configRoot, registration);
  return { directory, formerName };
}

/** For --new-keys: two nodes cannot have one name, and the other machine keeps that of the node of today. */
function refuseSameName({ slug, name = defaultNodeName() }: Registration, configRoot: string): void {
  const { name: currentName } = salvageOrganization(configRoot, slug);
  if (currentName === undefined)
    throw new AppError("not_registered", `This machine is no node of "${slug}", so it needs no other keys`, {
      hint: `Leave out --new-keys.`,
    });
  if (name !== currentName) return;
  throw new AppError(
    "conflict",
    `This machine is "${currentName}" in "${slug}", and another machine keeps that name`,
    {
      hint: "Choose another name with --node-name.",
    },
  );
}

/** Throws conflict if the organization is registered here, unless --force is given. */
function refuseExisting(directory: string, { force, slug }: Pick<Registration, "force" | "slug">): void {
  // Anything at this path counts: a damaged registration is replaced only with --force.
  const path = join(directory, "node-config.json");
  if (force || lstatSync(path, { throwIfNoEntry: false }) === undefined) return;
  throw new AppError("conflict", `This machine is already registered with "${slug}" (${directory})`, {
    hint: "Use --force to register the same node again, or run `agent unregister` first.",
  });
}

async function makeRequest(
  registration: Registration,
  name: string,
  keys: Keys,
  settings: EngineSettings,
  system: UsedSystem,
): Promise<RegisterRequest> {
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

/** Refuses a fixed port that another organization of this machine uses: two engines cannot share one. */
function refuseTakenPort(configRoot: string, { slug, wishes }: Registration): void {
  const port = wishedPort(wishes);
  if (port === 0) return;
  for (const other of listOrganizations(configRoot)) {
    if (other === slug || listenPort(join(configRoot, other)) !== port) continue;
    throw new AppError("collision", `The organization "${other}" on this machine uses UDP port ${port}`, {
      hint: "Choose another port with --external-port, or with --listen-port if a router maps it.",
    });
  }
}

/** The fixed UDP port that the node asks for; 0: any free one. */
function wishedPort(wishes: Registration["wishes"]): number {
  const { is_lighthouse, is_relay, public_ip, external_port, listen_port } = wishes;
  const isFixed = is_lighthouse === true || is_relay === true || public_ip !== undefined;
  return listen_port ?? (isFixed ? (external_port ?? defaultOverlayPort) : 0);
}

/** The permissions of the flags. A port below 1024 that the user asks for is permitted with it. */
function allowedBy({ allow = {}, wishes }: Registration, directory: string): Partial<Permissions> {
  const port = wishedPort(wishes);
  if (port === 0 || port >= 1024) return allow;
  const { listeners } = { ...permissionsOrNone(directory), ...allow };
  return { ...allow, listeners: [...new Set([...listeners, `:${port}`])] };
}

function planAllowed(allow: Partial<Permissions>, directory: string): Step[] {
  return Object.keys(allow).length === 0 ? [] : planPermissions(directory, allow);
}
