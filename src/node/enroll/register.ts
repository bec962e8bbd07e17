// Registers this machine with an organization. First creates keys, in a private pending directory beside the organization's own
// (files/replacement.ts). One rename puts the complete directory in its place. A run after a kill continues with the same keys,
// which the control plane treats as the same registration.

import { given } from "../../base/given.ts";
import { apiPath, filledPath } from "../../api/endpoint.ts";
import { registrationsApi } from "../../api/registrations.ts";
import { nodesApi } from "../../api/nodes.ts";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Step } from "../../base/plan/plan.ts";
import { buildInfo } from "../../build-info.ts";
import { hasCode } from "../../base/errors.ts";
import { removeTree } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import { publicPemOfHostKey } from "../../pki/keys.ts";
import { planSocketDirectory } from "../../platform/systemd/control-socket.ts";
import type { RegisterAnswer, RegisterRequest } from "../../protocol/registration.ts";
import type { System } from "../../base/system.ts";
import { makeClient, type Client } from "../contact/requests/client.ts";
import { accountOf } from "../contact/requests/connection.ts";
import { engineVersion } from "../engine/engine.ts";
import { storeInKeyring } from "../files/keyring.ts";
import { withLock } from "../files/lock.ts";
import { generationFiles } from "../files/generations.ts";
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
import { findEngine, type EngineSettings } from "../engine/find-engine.ts";
import { forgetNode } from "./unregister.ts";
import { makeUntilApproved } from "./approval.ts";
import { explainRefusal, mustDropKeys } from "./registration-refusals.ts";
import { planPermissions, type Permissions } from "../files/permissions.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { fillPending, planLeftOut } from "./fill-pending.ts";
import { openPending } from "./pending.ts";
import { makeKeys, planKeys, type Keys } from "./pending-keys.ts";
import { allowedBy, defaultNodeName, requireRegistrable, type Registration } from "./registration-checks.ts";

export type Registered = { directory: string; answer: RegisterAnswer };

type UsedSystem = Pick<
  System,
  | "fetch"
  | "lookup"
  | "sleep"
  | "now"
  | "monotonic"
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
  // The node that this machine leaves: what is stored of it outside of the directory is removed at the end.
  const leftNode = newKeys ? salvageOrganization(configRoot, slug) : undefined;
  // Before any file is written: an invalid URL must leave nothing behind.
  const client = clientFor(registration, system, log);
  const pending = temporarySibling(configRoot, slug, "pending");
  const isResumed = openPending(pending, directory);
  return withLock(pending, "register", system, async () => {
    // What killed runs left, but not the pending directory.
    removeTemporarySiblings(configRoot, slug);
    const keys = makeKeys(pending, directory, newKeys ? "new" : undefined);
    const name = registration.name ?? formerName ?? defaultNodeName();
    const request = await makeRequest(registration, name, keys, settings, system);
    const answer = await sendRequest(client, registration, request, { system, log }).catch(
      (error: unknown) => {
        // Keys that the control plane may have are kept: the next run registers the same node with them.
        if (mustDropKeys(error, registration, isResumed)) removeTree(pending);
        throw explainRefusal(error, registration, name);
      },
    );
    if (registration.name !== undefined && answer.node.name !== name)
      log.warn(`The control plane calls this node "${answer.node.name}", not "${name}": rename it there`);
    const allow = allowedBy(registration, directory);
    const { seal, confirmSeal } = registration;
    const { base: apiBase } = client;
    const filling = { slug, pending, keys, apiBase, mode, apiCa, allow, seal, confirmSeal };
    await fillPending(answer, { ...filling, overlayVersion: request.overlay_version }, { system, log });
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
    if (replaces !== true || !hasCode(error, "name_taken")) throw error;
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

function planAllowed(allow: Partial<Permissions>, directory: string): Step[] {
  return Object.keys(allow).length === 0 ? [] : planPermissions(directory, allow);
}
