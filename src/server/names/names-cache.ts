// The names of organizations whose nodes ask for them, in memory. Check-ins are answered from here. After a notice that
// names or rules changed, the next check-in reads the changes. organization-names.ts has the names of one organization.

import { hash } from "node:crypto";
import type { NamesRequest } from "../../protocol/names.ts";
import { inSlices } from "../http/heavy-work.ts";
import type { ServerOptions } from "../options.ts";
import { testable } from "../policy/firewall.ts";
import type { Rule } from "../../api/rules.ts";
import { listRules } from "../policy/stored-rules.ts";
import type { Reader } from "../store/database.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import { queryAll, queryOne } from "../store/table.ts";
import { nameAliases, nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import {
  makeBook,
  newsFor,
  positionOf,
  prepareTable,
  tableOf,
  seenFrom,
  addChanges,
  type Book,
  type NamedEntry,
  type NamesNews,
} from "./organization-names.ts";
import { keptVersions } from "../allocation/held-names.ts";
import { makeVisibility, type Visibility } from "./visibility.ts";

export type Names = {
  /** Whether the node has all names, as far as memory is up to date. */
  isCurrent(orgId: number, nodeId: number, asked: NamesRequest): boolean;
  /** The changes for the node's list. Undefined: none. */
  news(orgId: number, nodeId: number, asked: NamesRequest): Promise<NamesNews | undefined>;
  /** The nodes that this one sees, by their overlay addresses; without itself, and those that are gone. */
  seen(orgId: number, nodeId: number): Promise<(address: string) => NamedEntry | undefined>;
};

/** The names of an organization, with the settings that their answers depend on. */
type CachedNames = {
  book: Book;
  /** Equal for equal rules. */
  rulesDigest: string;
  /** Every node sees all names. */
  toAll: boolean;
  /** "" for none. */
  suffix: string;
  /** A notice came: read the changes before the next answer. */
  isOutdated: boolean;
  /** The rules may have changed, too. */
  hasNewRules: boolean;
};

/** Changes of names in memory. Above this number all organizations are forgotten, and read when a node asks. */
const maxEntries = 400_000;
/**
 * A node with a newer version than memory has may have asked a replica that is ahead: the database is read, at most this often for
 * an organization.
 */
const askAgainMs = 500;

export function makeNames({ db }: Pick<ServerOptions, "db">): Names {
  const cached = new Map<number, CachedNames>();
  const loading = new Map<number, Promise<CachedNames>>();
  /** Rises with each notice: rows that were read before it may be outdated. */
  let notices = 0;
  /** By organization; times of the monotonic clock, ms. */
  const askedAgainAt = new Map<number, number>();

  // The payload of both notices is the id of the organization.
  db.listen("names", (payload) => {
    notices++;
    const known = cached.get(Number(payload));
    if (known !== undefined) known.isOutdated = true;
  });
  db.listen("organization", (payload) => {
    notices++;
    const known = cached.get(Number(payload));
    if (known !== undefined) outdate(known);
  });

  const load = async (orgId: number): Promise<CachedNames> => {
    const noticesBefore = notices;
    const fresh = await readNames(db, orgId, cached.get(orgId));
    if (noticesBefore !== notices) outdate(fresh);
    const total = [...cached.values()].reduce((sum, { book }) => sum + book.changes.length, 0);
    if (total > maxEntries) cached.clear();
    cached.set(orgId, fresh);
    return fresh;
  };
  /** One read at a time for each organization. */
  const loadShared = (orgId: number) =>
    loading.getOrInsertComputed(orgId, () => load(orgId).finally(() => loading.delete(orgId)));
  const currentNames = async (orgId: number): Promise<CachedNames> => {
    const known = cached.get(orgId);
    if (known?.isOutdated === false) return known;
    const fresh = await loadShared(orgId);
    // If a notice came meanwhile, read once more. That result is recent enough.
    return fresh.isOutdated ? loadShared(orgId) : fresh;
  };
  /** Whether the node may have a newer list than this memory: it has a list, and here it is unknown or would get all names anew. */
  const isAhead = ({ book }: CachedNames, nodeId: number, asked: NamesRequest) => {
    const position = positionOf(book, nodeId, asked);
    return asked.version > 0 && (position === undefined || position.isWhole);
  };

  return {
    isCurrent(orgId, nodeId, asked) {
      const known = cached.get(orgId);
      if (known === undefined || known.isOutdated) return false;
      const { book } = known;
      if (!knowsSuffix(asked, known) || !knowsTable(book, nodeId, asked)) return false;
      return positionOf(book, nodeId, asked)?.isWhole === false && asked.version === book.version;
    },
    async news(orgId, nodeId, asked) {
      let found = await currentNames(orgId);
      const now = performance.now();
      if (isAhead(found, nodeId, asked) && now - (askedAgainAt.get(orgId) ?? -Infinity) > askAgainMs) {
        askedAgainAt.set(orgId, now);
        outdate(found);
        found = await currentNames(orgId);
      }
      return withSettings(newsFor(found.book, nodeId, asked), found, nodeId, asked);
    },
    async seen(orgId, nodeId) {
      return seenFrom((await currentNames(orgId)).book, nodeId);
    },
  };
}

/** Its names and rules are read again before the next answer. */
function outdate(known: CachedNames): void {
  known.isOutdated = known.hasNewRules = true;
}

/** Whether the node has the suffix, or is too old to ask for it. */
function knowsSuffix({ suffix }: NamesRequest, known: CachedNames): boolean {
  return suffix === undefined || suffix === known.suffix;
}

/** Whether the node has the table for name servers, or does not ask for it. */
function knowsTable(book: Book, nodeId: number, asked: NamesRequest): boolean {
  return asked.peers === undefined || asked.peers === tableOf(book, nodeId, asked).digest;
}

/**
 * Adds suffix and table to the news, if the node lacks them: they have no version of their own. Undefined: nothing to send, also to a
 * node that has no name itself.
 */
function withSettings(
  news: NamesNews | undefined,
  known: CachedNames,
  nodeId: number,
  asked: NamesRequest,
): NamesNews | undefined {
  const { book } = known;
  const settings = {
    ...(knowsSuffix(asked, known) ? {} : { suffix: known.suffix }),
    ...(knowsTable(book, nodeId, asked) ? {} : { peers: tableOf(book, nodeId, asked) }),
  };
  if (Object.keys(settings).length === 0) return news;
  // Without news the node's list is complete: it has the present version.
  const position = positionOf(book, nodeId, asked);
  const answer = news ?? (position && { version: book.version, view: position.view });
  return answer && { ...answer, ...settings };
}

const orgPick = organizations.pick("namesVersion", "namesSince", "namesToAll", "nameSuffix");
const nodePick = nodes.pick(
  "id",
  "name",
  "ip",
  "ip6",
  "groups",
  "ownerId",
  "ownerGroups",
  "state",
  "namesVersion",
  "isNameServer",
);
const aliasPick = nameAliases.pick(
  "id",
  "name",
  "nodeId",
  "address",
  "isShadowed",
  "namesVersion",
  "deletedAt",
);

/** Reads the changes since `known`, or everything. */
async function readNames(
  reader: Reader,
  orgId: number,
  known: CachedNames | undefined,
): Promise<CachedNames> {
  // The version is read before the rows: rows of a later version are read again next time.
  const sql = `SELECT ${orgPick.select()} FROM organizations WHERE id = $1`;
  const org = (await queryOne(reader, orgPick, sql, [orgId])) ?? {
    namesVersion: 0,
    namesSince: 0,
    namesToAll: false,
    nameSuffix: null,
  };
  const rules = await rulesOf(reader, orgId, org.namesToAll, known);
  // Otherwise a new book is made: if the version in memory is higher than that in the database (a backup was restored), or older than
  // the changes that the database still has, or if outdated entries fill the book.
  const isUsable =
    known !== undefined &&
    known.book.version <= org.namesVersion &&
    known.book.version >= org.namesSince &&
    known.book.outdated <= 2 * keptVersions + known.book.nodes.size / 2;
  const since = Math.max(org.namesSince, org.namesVersion - keptVersions);
  const book = isUsable ? known.book : makeBook(rules.visibility, since);
  book.visibility = rules.visibility;
  const from = isUsable ? { all: book.version, gone: book.version } : { all: 0, gone: since };
  const changedNodes = await readNodes(reader, orgId, from);
  addChanges(book, org.namesVersion, changedNodes, await readAliases(reader, orgId, from));
  await inSlices(prepareTable(book));
  const suffix = org.nameSuffix ?? "";
  return { ...rules, toAll: org.namesToAll, suffix, book, isOutdated: false, hasNewRules: false };
}

/** `all`: only rows of a later version. `gone`: of nodes and aliases that are gone, only those of a later version. */
type From = { all: number; gone: number };

async function readNodes(reader: Reader, orgId: number, from: From) {
  const sql = `SELECT ${nodePick.select()} FROM nodes WHERE org_id = $1 AND names_version > $2
    AND (state = 'active' OR names_version > $3)`;
  const rows = await queryAll(reader, nodePick, sql, [orgId, from.all, from.gone]);
  return rows.map(({ state, namesVersion, ownerId, ownerGroups, ...row }) => ({
    ...row,
    groups: certifiedGroups({ ...row, ownerId, ownerGroups }),
    isGone: state !== "active",
    version: namesVersion,
  }));
}

async function readAliases(reader: Reader, orgId: number, from: From) {
  const sql = `SELECT ${aliasPick.select()} FROM name_aliases WHERE org_id = $1 AND names_version > $2
    AND (deleted_at IS NULL OR names_version > $3)`;
  const rows = await queryAll(reader, aliasPick, sql, [orgId, from.all, from.gone]);
  return rows.map((row) => ({
    id: row.id,
    name: row.name,
    node_id: row.nodeId,
    ...(row.address === null ? {} : { address: row.address }),
    isGone: row.deletedAt !== null || row.isShadowed,
    version: row.namesVersion,
  }));
}

async function rulesOf(
  reader: Reader,
  orgId: number,
  toAll: boolean,
  known: CachedNames | undefined,
): Promise<{ visibility: Visibility; rulesDigest: string }> {
  if (known !== undefined && !known.hasNewRules && known.toAll === toAll)
    return { visibility: known.book.visibility, rulesDigest: known.rulesDigest };
  const rules = await listRules(reader, { id: orgId });
  const rulesDigest = digestOf(rules);
  if (known?.rulesDigest === rulesDigest && known.toAll === toAll)
    return { visibility: known.book.visibility, rulesDigest };
  const visibility = makeVisibility(await inSlices(testable(rules)), toAll);
  return { visibility, rulesDigest };
}

/** Ignores descriptions and ids. */
function digestOf(rules: readonly Rule[]): string {
  const parts = rules.map(({ direction, protocol, ports, peer, target }) => [
    direction,
    protocol,
    ports,
    peer,
    target,
  ]);
  return hash("sha256", JSON.stringify(parts), "hex");
}
