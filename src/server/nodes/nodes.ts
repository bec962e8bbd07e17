// Administration of nodes: create in advance, change, renew certificates. register.ts registers, revoke.ts revokes.

import type { NodePatch, NodeRequest } from "../../api/nodes.ts";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { can } from "../../engine/features.ts";
import { AppError } from "../../base/errors.ts";
import type { RouteOptions } from "../../protocol/routing/advertised.ts";
import type { Node } from "../../protocol/node.ts";
import { issuedEvents, record, type Actor, type AuditEvent } from "../audit/record.ts";
import { editWithoutTests, editReach, type Editor, type Testing } from "../policy/edit-policy.ts";
import { ensureGroups } from "../policy/groups.ts";
import { readIssuingOrg, type IssuingOrg } from "../certificates/issue.ts";
import { findNode, nameTaken, neverSeen, revokedNode, type NodeRecord } from "../store/nodes.ts";
import { auditedFields } from "./node-differences.ts";
import type { NodeStore } from "./node-store.ts";
import { ConfigOverrides } from "../../engine/allowed-settings.ts";
import { isUnsafe, unsafeSentence } from "./contact/refused-engine.ts";
import { renewCertificates } from "./lifecycle/renewal.ts";
import {
  addressTaken,
  chooseAddress,
  freeAddresses,
  leaveAddresses,
  takeAddress,
} from "../allocation/address-pool.ts";
import { ifNotUnique, type Transaction } from "../store/database.ts";
import { releaseOwnName } from "../allocation/held-names.ts";
import { lastOverlayEnd } from "../store/tables/certificates.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import { requireRole, writeAsAdmin } from "../require-role.ts";
import { checkHub, checkPublicAddress, checkSubnets } from "./subnets.ts";
import { holdPendingName, publishChange, type Issuing } from "./publish-change.ts";
import { publishNames, publishNameServer } from "../names/publish.ts";
import { readBeside, show, showOne, type Beside } from "./show-nodes.ts";
import type { Org } from "../http/route.ts";

/** Creates a node in state pending: its machine claims it by registration. */
export async function createNode(
  services: NodeStore,
  org: Org,
  request: NodeRequest,
  actor: Actor,
): Promise<Node> {
  const { db, system } = services;
  const created = await writeAsAdmin(db, org.id, actor, (tx) =>
    insertPending(tx, org, request, actor, system.now()),
  ).catch(explainTaken(request));
  return showOne(services, org, { ...created, ...neverSeen });
}

/** Throws NotUnique if the name is taken, network_full, address_taken or validation_failed. */
export async function insertPending(
  tx: Transaction,
  org: Pick<Org, "id">,
  request: NodeRequest,
  actor: Actor,
  now: number,
): Promise<NodeRow> {
  const issuing = await readIssuingOrg(tx, org.id);
  await checkSubnets(tx, issuing, request.subnets ?? []);
  checkPublicAddress(issuing, request.public_ip);
  const address = await chooseAddress(tx, issuing, request.ip_address);
  await ensureGroups(tx, org.id, groupsIn(request), now);
  const node = await nodes.insertReturning(tx, {
    orgId: org.id,
    name: request.name,
    ip: address.ip,
    ip6: address.ip6,
    state: "pending",
    isLighthouse: request.is_lighthouse ?? false,
    isRelay: request.is_relay ?? (request.is_lighthouse === true && issuing.lighthousesRelay),
    publicIp: request.public_ip ?? null,
    externalPort: request.external_port ?? null,
    groups: request.groups ?? [],
    subnets: request.subnets ?? [],
    exitGroups: request.exit_groups ?? [],
    configOverrides: asMap(request.config_overrides ?? {}),
    createdAt: now,
    // False only in rows from before owners were recorded.
    ownerKnown: true,
  });
  await checkHub(tx, org.id, node);
  await takeAddress(tx, org.id, address, node.id, now);
  await record(tx, {
    orgId: org.id,
    at: now,
    type: "node.created",
    actor,
    subject: `node/${node.id}`,
    after: { name: node.name, ip_address: node.ip },
  });
  return node;
}

/**
 * Changes a node. A change of what its certificate holds issues new certificates, and blocks the former ones in time if
 * they granted more. Wakes only the nodes that the change affects.
 */
export async function patchNode(
  services: NodeStore & { testing: Testing },
  org: Org,
  id: number,
  patch: NodePatch,
  actor: Actor,
): Promise<Node> {
  const { db, system, testing } = services;
  const change = (tx: Transaction) => changeAndRecord(tx, services, org, id, patch, actor);
  const editor = { orgId: org.id, now: system.now(), actor };
  const { groups, ...ungrouped } = patch;
  const changing =
    groups === undefined
      ? db.writeFor({ org: org.id }, (tx) => asEdit(tx, editor, [ungrouped], () => change(tx)))
      : editReach({ ...editor, db, testing }, change);
  const { node, beside } = await changing.catch(explainTaken(patch));
  return show(services, node, beside);
}

/**
 * Changes the node and records the events. Returns what is shown of it, read in the same transaction: later reads would wait for a
 * distant database once more.
 */
export async function changeAndRecord(
  tx: Transaction,
  services: Issuing,
  org: Pick<Org, "id">,
  id: number,
  patch: NodePatch,
  actor: Actor,
): Promise<{ node: NodeRecord; beside: Beside }> {
  const { updated, issued } = await changeNode(tx, services, org, id, patch, actor);
  const [node, beside] = await Promise.all([
    findNode(tx, org.id, id),
    readBeside(tx, org.id, [id]),
    record(tx, [updated, ...issued]),
  ]);
  return { node, beside };
}

/** Not for changes of groups: these change which nodes reach each other, and go through editReach. */
type UngroupedPatch = NodePatch & { groups?: never };

/**
 * Runs a change of nodes after it has asked for the caller's role again. Subnets and relays are parts of the policy: a change of
 * these is an edit of it, which may be refused for more reasons, others are not.
 */
export async function asEdit<T>(
  tx: Transaction,
  editor: Editor,
  patches: readonly UngroupedPatch[],
  change: () => Promise<T>,
): Promise<T> {
  const isPolicy = patches.some(({ subnets, is_relay }) => subnets !== undefined || is_relay !== undefined);
  if (isPolicy) return editWithoutTests(tx, editor, change);
  await requireRole(tx, editor.orgId, editor.actor);
  return change();
}

/** The groups that a request names. "any" in `exit_groups` stands for all nodes and is no group. */
export const groupsIn = ({
  groups = [],
  exit_groups: exitGroups = [],
}: Pick<NodePatch, "groups" | "exit_groups">): string[] => [
  ...groups,
  ...exitGroups.filter((group) => group !== "any"),
];

/** Engines before 1.10 open what is behind a node to every rule of the node: an exit would open the internet. */
export function refuseOldExit(
  { name, overlayVersion }: Pick<NodeRow, "name" | "overlayVersion">,
  exitGroups: readonly string[],
): void {
  if (exitGroups.length === 0 || overlayVersion === null) return;
  if (can(overlayVersion, "explicit_local_cidr")) return;
  throw new AppError(
    "validation_failed",
    `${name} has engine ${overlayVersion}; an exit needs 1.10 or later.`,
    {
      hint: `Run \`${brand.executable} overlay update\` on it first.`,
    },
  );
}

/** The settings of the API, and the options of its subnets as routes (networks-behind.ts). */
export type NodeChange = NodePatch & { routeOptions?: RouteOptions };
export type UngroupedChange = UngroupedPatch & Pick<NodeChange, "routeOptions">;

/** Changes the node in the transaction. Returns the events, for the caller to record. */
export async function changeNode(
  tx: Transaction,
  services: Issuing,
  org: Pick<Org, "id">,
  id: number,
  patch: NodeChange,
  actor: Actor,
): Promise<{ updated: AuditEvent; issued: AuditEvent[] }> {
  const now = services.system.now();
  const [issuing, before] = await Promise.all([readIssuingOrg(tx, org.id), findNode(tx, org.id, id)]);
  if (before.state === "revoked") throw revokedNode(before);
  refuseHub(before, patch);
  refuseOldExit(before, patch.exit_groups ?? []);
  if (patch.subnets !== undefined) await checkSubnets(tx, issuing, patch.subnets, before);
  checkPublicAddress(issuing, patch.public_ip);
  const change = {
    ...patched(before, patch),
    ...(await changeAddress(tx, issuing, before, patch.ip_address, now)),
  };
  const after = { ...before, ...change };
  await ensureGroups(tx, org.id, groupsIn(patch), now);
  // A node may take its own former name again, which was held for it.
  await Promise.all([
    nodes.update(tx, { id }, change),
    before.name === after.name ? undefined : releaseOwnName(tx, after),
  ]);
  const mayBeOtherHub = [patch.public_ip, patch.is_lighthouse, patch.is_relay].some(
    (value) => value !== undefined,
  );
  if (mayBeOtherHub) await checkHub(tx, org.id, after);
  let fingerprint: string | undefined;
  if (before.state === "active") fingerprint = await publishChange(tx, services, issuing, before, after);
  else if (before.name !== after.name) await holdPendingName(tx, before);
  await publishNames(tx, org.id, [id]);
  if (before.isNameServer !== after.isNameServer) await publishNameServer(tx, after);
  const event = { orgId: org.id, at: now, actor, subject: `node/${id}` };
  return {
    updated: { ...event, type: "node.updated", before: auditedFields(before), after: auditedFields(after) },
    issued: issuedEvents(event, fingerprint),
  };
}

/**
 * Hubs appear in the configurations of all other nodes, which would change with each end of an ephemeral node. A
 * phone learns of no change, and has no agent to answer queries for names.
 */
export function refuseHub(
  { phone, ephemeralSilenceS }: Pick<NodeRow, "phone" | "ephemeralSilenceS">,
  patch: NodePatch,
): void {
  if (ephemeralSilenceS === null && phone === null) return;
  const { subnets = [], exit_groups = [], is_lighthouse, is_relay, is_name_server } = patch;
  if (phone !== null && is_name_server === true)
    throw new AppError("validation_failed", "A phone cannot be a name server.");
  const isRouter = subnets.length > 0 || exit_groups.length > 0;
  if (!isRouter && is_lighthouse !== true && is_relay !== true) return;
  const roles = "a lighthouse, a relay, a router or an exit";
  if (phone !== null) throw new AppError("validation_failed", `A phone cannot be ${roles}.`);
  throw new AppError("validation_failed", `An ephemeral node cannot be ${roles}.`, {
    hint: "Register the machine with a token that was made without --ephemeral.",
  });
}

/** The columns that a patch can change, as they are after it. */
function patched(before: NodeRow, patch: NodeChange) {
  const subnets = patch.subnets ?? before.subnets;
  const options = Object.entries(patch.routeOptions ?? before.routeOptions);
  return {
    name: patch.name ?? before.name,
    groups: patch.groups === undefined ? before.groups : [...new Set(patch.groups)],
    subnets,
    // Options end with their subnet.
    routeOptions: Object.fromEntries(options.filter(([network]) => subnets.includes(network))),
    exitGroups: patch.exit_groups === undefined ? before.exitGroups : [...new Set(patch.exit_groups)],
    isLighthouse: patch.is_lighthouse ?? before.isLighthouse,
    isRelay: patch.is_relay ?? before.isRelay,
    isNameServer: patch.is_name_server ?? before.isNameServer,
    publicIp: patch.public_ip === undefined ? before.publicIp : patch.public_ip,
    externalPort: patch.external_port === undefined ? before.externalPort : patch.external_port,
    configOverrides:
      patch.config_overrides === undefined ? before.configOverrides : asMap(patch.config_overrides),
  };
}

function asMap(overrides: ConfigOverrides): NodeRow["configOverrides"] {
  return v.parse(v.record(v.string(), v.any()), overrides);
}

/** Takes the requested address for the node. The former one is held while a certificate names it. Empty without a change. */
async function changeAddress(
  tx: Transaction,
  org: IssuingOrg,
  node: NodeRow,
  requested: string | undefined,
  now: number,
): Promise<Partial<Pick<NodeRow, "ip" | "ip6">>> {
  if (requested === undefined) return {};
  const address = await chooseAddress(tx, org, requested, node.id);
  if (address.ip === node.ip) return {};
  // When the last overlay certificate of the node expires, ms; 0: it never had one. Which version blocks it is not known yet (null).
  const until = await lastOverlayEnd(tx, node.id);
  if (until === 0) await freeAddresses(tx, org.id, node.id);
  else await leaveAddresses(tx, org.id, node.id, { version: null, until });
  await takeAddress(tx, org.id, address, node.id, now);
  return { ip: address.ip, ip6: address.ip6 };
}

/** Renews the certificates now. Throws conflict for an unregistered node and an unsafe engine, node_revoked for a revoked one. */
export async function renewNode(
  services: NodeStore,
  org: Org,
  id: number,
  actor: Actor,
): Promise<NodeRecord> {
  const node = await findNode(services.db, org.id, id);
  if (node.state === "pending")
    throw new AppError("conflict", `The node ${node.name} is not registered yet.`);
  if (node.phone !== null) {
    throw new AppError("conflict", `${node.name} is a phone: it gets a certificate only with a site file.`, {
      hint: "Its user imports it again: in the console, Machines, Phones.",
    });
  }
  if (isUnsafe(node.overlayVersion)) throw new AppError("conflict", unsafeSentence);
  // An administrator renews at any time. The caller may have lost that role since the request was admitted.
  const isStillDue = async (tx: Transaction) => {
    await requireRole(tx, org.id, actor);
    return true;
  };
  return renewCertificates(services, org.id, id, { actor, isStillDue });
}

/** For `catch`: a refusal by a unique index, because another request was faster, becomes name_taken or address_taken. */
export const explainTaken = ({ name, ip_address }: Pick<NodePatch, "name" | "ip_address">) =>
  ifNotUnique(({ constraint }) =>
    constraint.includes("name") ? nameTaken(name ?? "") : addressTaken(ip_address ?? "chosen"),
  );
