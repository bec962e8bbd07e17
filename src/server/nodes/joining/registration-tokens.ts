// Creates and lists the tokens with which new machines register. A token is shown once and stored as a hash. The
// registration consumes it (registration-credential.ts).

import { given } from "../../../base/given.ts";
import {
  longestLifeOnCommandLineS,
  type NewRegistrationToken,
  type RegistrationToken,
  type RegistrationTokenRequest,
} from "../../../api/tokens/registration-tokens.ts";
import { brand } from "../../../brand.ts";
import { formatJoinKey, parseJoinKey } from "../../../protocol/join-key.ts";
import { quoteWord } from "../../../base/quote.ts";
import { formatTime } from "../../../base/quantities.ts";
import { AppError, invalidField } from "../../../base/errors.ts";
import { isLoopback } from "../../../base/loopback.ts";
import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import { sealHash } from "../../../pki/seal.ts";
import { demandedIn } from "../../certificates/demanded-ca.ts";
import { writeAsAdmin } from "../../require-role.ts";
import { record, type Actor } from "../../audit/record.ts";
import { ensureGroups } from "../../policy/groups.ts";
import { insertPending } from "../nodes.ts";
import { isHandRun } from "../../store/nodes.ts";
import type { Org } from "../../http/route.ts";
import type { ServerOptions } from "../../options.ts";
import type { Row, Transaction } from "../../store/database.ts";
import { queryOne } from "../../store/table.ts";
import { nodes } from "../../store/tables/nodes.ts";
import { readSeals } from "../../store/tables/policies.ts";
import { registrationTokens, type RegistrationTokenRow } from "../../store/tables/joining.ts";

/** For how long an ephemeral node may be silent, unless the request says it. */
const usualSilenceS = 600;

export const registrationTokenColumns = registrationTokens.select();
export const registrationTokenOf = (row: Row) => showToken(registrationTokens.parse(row));

function showToken(token: RegistrationTokenRow): RegistrationToken {
  return {
    id: token.id,
    name: token.name,
    uses: token.uses,
    used: token.used,
    groups: token.groups,
    is_lighthouse: token.isLighthouse,
    node_id: token.nodeId,
    expires_at: formatTime(token.expiresAt),
    created_at: formatTime(token.createdAt),
    created_by: token.createdBy,
    ephemeral_silence_s: token.ephemeralSilenceS,
    approved: token.isApproved,
  };
}

/**
 * Creates the token, and a pending node where it is bound to a new name. The answer alone has the token, with the line and
 * the join key to use it. Throws validation_failed for a node that is registered.
 */
export async function createRegistrationToken(
  services: Pick<ServerOptions, "db" | "system" | "publicUrl" | "caFingerprint">,
  org: Org,
  request: RegistrationTokenRequest,
  by: { userId: number | null; actor: Actor },
): Promise<NewRegistrationToken> {
  const { db, system } = services;
  const token = makeOpaqueToken(system.random);
  const now = system.now();
  const created = await writeAsAdmin(db, org.id, by.actor, async (tx) => {
    const nodeId = await boundNode(tx, org, request, by.actor, now);
    await ensureGroups(tx, org.id, request.groups, now);
    const columns = columnsOf(request, nodeId, now);
    const own = { orgId: org.id, tokenHash: hashToken(token), createdBy: by.userId };
    const shown = showToken(await registrationTokens.insertReturning(tx, { ...own, ...columns }));
    await record(tx, {
      orgId: org.id,
      at: now,
      type: "token.created",
      actor: by.actor,
      subject: `registration_token/${shown.id}`,
      after: permissionsOf(shown),
    });
    return shown;
  });
  const seals = await readSeals(db, org.id);
  // Where the newest seal is enforced, key and line name it, and the machine refuses a control plane without it.
  const lastSeal = demandedIn(seals) === undefined ? undefined : seals.at(-1);
  const seal = lastSeal === undefined ? undefined : sealHash(lastSeal.text);
  const join_key = formatJoinKey({
    apiBase: services.publicUrl,
    slug: org.slug,
    ...given({ caFingerprint: services.caFingerprint }),
    registrationToken: token,
    role: created.is_lighthouse ? "lighthouse" : "node",
    isShortLived: created.uses === 1 && request.expires_in <= longestLifeOnCommandLineS,
    ...given({ seal }),
  });
  return { ...created, token, command: registerLine(services, org.slug, created, token, seal), join_key };
}

/** What the token permits, for its event: without the fields that restrict and permit nothing. */
function permissionsOf(token: RegistrationToken) {
  const { name, uses, groups, expires_at, is_lighthouse, node_id, ephemeral_silence_s, approved } = token;
  const fields = { name, uses, groups, expires_at, is_lighthouse, node_id, ephemeral_silence_s, approved };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== false));
}

/** A token that is bound to a node is for one use. */
function columnsOf(request: RegistrationTokenRequest, nodeId: number | undefined, now: number) {
  return {
    name: request.name ?? null,
    uses: nodeId === undefined ? request.uses : 1,
    groups: request.groups,
    isLighthouse: request.is_lighthouse,
    nodeId: nodeId ?? null,
    expiresAt: now + request.expires_in * 1000,
    createdAt: now,
    ephemeralSilenceS: request.ephemeral === true ? (request.silence ?? usualSilenceS) : null,
    // Peers get the names of ephemeral nodes only if the request says so.
    isNamed: request.ephemeral !== true || request.names === true,
    isApproved: request.approved === true,
  };
}

/** What to tell the user of a new machine: a line to run, and the key to paste unless it is short-lived enough for the line. */
export function joinText({ join_key }: Pick<NewRegistrationToken, "join_key">): string {
  const line = `${brand.executable} up`;
  return parseJoinKey(join_key).isShortLived
    ? `Run this on the new machine:\n  ${line} ${join_key}`
    : `Run this on the new machine:\n  ${line}\nand paste this join key when it asks:\n  ${join_key}`;
}

const nodePick = nodes.pick("id", "name", "state", "registeredAt");

/** The node that the token is bound to, if any. */
async function boundNode(
  tx: Transaction,
  org: Org,
  { node_id, node_name }: Pick<RegistrationTokenRequest, "node_id" | "node_name">,
  actor: Actor,
  now: number,
): Promise<number | undefined> {
  const idOrName = node_id ?? node_name;
  if (idOrName === undefined) return undefined;
  const column = node_id === undefined ? "name" : "id";
  const sql = `SELECT ${nodePick.select()} FROM nodes WHERE org_id = $1 AND ${column} = $2 AND state <> 'revoked'`;
  const node = await queryOne(tx, nodePick, sql, [org.id, idOrName]);
  if (node === undefined) {
    // Allowed for a held name, too: the administrator assigns it on purpose.
    if (node_name !== undefined) return (await insertPending(tx, org, { name: node_name }, actor, now)).id;
    throw new AppError("validation_failed", "The request does not hold what it should.", {
      errors: { node_id: ["There is no node with this id, or it was revoked."] },
    });
  }
  // A node of an imported network is active although no machine has registered it: it is claimed like a pending one.
  if (node.state === "pending" || isHandRun(node)) return node.id;
  throw registeredAlready(node_id === undefined ? "node_name" : "node_id", node.name);
}

/** Only an administrator lets a machine take the place of another one: by revoking that one, or with --replace. */
function registeredAlready(field: "node_name" | "node_id", name: string): AppError {
  const sentence = `The node ${name} is registered already, so no token can be made for it.`;
  return invalidField(field, sentence, {
    hint: `If its machine was reinstalled, revoke the node, then make the token; or run \`${brand.executable} register --replace\` on the machine, as an administrator. For another machine, choose another name.`,
  });
}

/** The command line that registers a new machine with the token. `seal`: the hash of the last seal, which it has to find. */
export function registerLine(
  { publicUrl, caFingerprint }: Pick<ServerOptions, "publicUrl" | "caFingerprint">,
  slug: string,
  { is_lighthouse: isLighthouse }: { is_lighthouse: boolean },
  token: string,
  seal?: string,
): string {
  const { protocol, hostname } = new URL(publicUrl);
  return [
    `printf '%s\\n' '${token}' | ${brand.executable} register`,
    `--api-base ${quoteWord(publicUrl)} --org-slug ${quoteWord(slug)}`,
    ...(caFingerprint === undefined ? [] : [`--ca-fingerprint ${quoteWord(caFingerprint)}`]),
    ...(protocol === "http:" && !isLoopback(hostname) ? ["--allow-plain-http"] : []),
    // Without them the token would make an ordinary node, and be used up.
    ...(isLighthouse ? ["--is-lighthouse", "--is-relay"] : []),
    ...(seal === undefined ? [] : [`--seal ${seal}`]),
    "--registration-token-file -",
  ].join(" ");
}
