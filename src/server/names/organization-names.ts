// The names of one organization in memory (`Book`), and their changes in order. Answers to nodes are made from it: the work is
// proportional to the changes since the node's last request, not to the size of the organization. Pure.
//
// A node says in each request up to which version it has the names, in which view, and with `part` that its list is not
// complete yet. It gets the whole list if its view is another one, or if its version is older than `since`, the first that the
// book has changes from, or newer than the book, which the restore of a backup makes. A list longer than a page comes in
// parts: each answer names the version that it ends with and says `more`, and the node asks again from there with `part`, which
// goes on although the version is older than `since`. The view of these answers also has the version at which the list began, since
// only what changed after it can be in an earlier part. After that the node gets the changes alone.

import { given } from "../../base/given.ts";
import type { NameAlias, NamedNode, NamesAnswer, NamesPosition, NamesRequest } from "../../protocol/names.ts";
import type { Member } from "../policy/firewall.ts";
import type { NamesForPeers } from "../../protocol/names-for-peers.ts";
import { atOnce } from "../http/heavy-work.ts";
import { everything, type NamesClass, type Visibility } from "./visibility.ts";
import { classNameOf, noTable, tableFor } from "./names-table.ts";

export type NamedEntry = Member & {
  isGone: boolean;
  /** A name server: it gets all names, and the table of which classes see which. */
  isNameServer?: boolean;
  /** The version of its last change. */
  version: number;
  /** The version of its last change of what decides which nodes see it: addresses, groups, or whether it is gone. */
  regroupedAt: number;
};
export type AliasEntry = NameAlias & { isGone: boolean; version: number };

/** `cachedClass`: valid while the book has the visibility that it was made with. */
type NodeState = NamedEntry & { cachedClass: { madeWith: Visibility; value: NamesClass } | undefined };
type Change = { version: number; node: NodeState } | { version: number; alias: AliasEntry };

export type Book = {
  /** Changes up to this version are included. */
  version: number;
  /** Earlier changes are not included: a node with an older list gets the whole list. */
  since: number;
  visibility: Visibility;
  nodes: Map<number, NodeState>;
  aliases: Map<number, AliasEntry>;
  /** By node. */
  aliasesOf: Map<number, Set<number>>;
  /** In the order of versions. An entry that changed twice is listed twice: only the last one counts. */
  changes: Change[];
  /** Entries of `changes` that do not count, and nodes that are gone. */
  outdated: number;
  /** By overlay address, as they were at that version. */
  places: { version: number; nodes: ReadonlyMap<string, NodeState> } | undefined;
  /** The table for name servers at that version, made of these classes. */
  table:
    | { madeWith: Visibility; version: number; classes: ReadonlySet<NamesClass>; value: NamesForPeers }
    | undefined;
};

export function makeBook(visibility: Visibility, since: number): Book {
  return {
    version: 0,
    since,
    visibility,
    nodes: new Map(),
    aliases: new Map(),
    aliasesOf: new Map(),
    changes: [],
    outdated: 0,
    places: undefined,
    table: undefined,
  };
}

/** Takes what was read from the database: all entries that changed after `book.version`, in any order. */
export function addChanges(
  book: Book,
  version: number,
  nodes: readonly Omit<NamedEntry, "regroupedAt">[],
  aliases: readonly AliasEntry[],
): void {
  const fresh: Change[] = [];
  for (const row of nodes) {
    const before = book.nodes.get(row.id);
    if (before !== undefined && before.version >= row.version) continue;
    if (before !== undefined || row.isGone) book.outdated++;
    const regroupedAt = before !== undefined && isSameGroup(before, row) ? before.regroupedAt : row.version;
    const node = { ...row, regroupedAt, cachedClass: undefined };
    book.nodes.set(row.id, node);
    fresh.push({ version: row.version, node });
  }
  for (const alias of aliases) {
    const before = book.aliases.get(alias.id);
    if (before !== undefined && before.version >= alias.version) continue;
    if (before !== undefined || alias.isGone) book.outdated++;
    book.aliases.set(alias.id, alias);
    book.aliasesOf.getOrInsertComputed(alias.node_id, () => new Set()).add(alias.id);
    fresh.push({ version: alias.version, alias });
  }
  fresh.sort((a, b) => a.version - b.version);
  for (const each of fresh) book.changes.push(each);
  book.version = Math.max(book.version, version);
}

/** Whether the same nodes see both, as far as their own columns decide that. */
function isSameGroup(a: Omit<NamedEntry, "regroupedAt">, b: Omit<NamedEntry, "regroupedAt">): boolean {
  const seenBy = ({ ip, ip6, isGone, groups }: typeof a) => JSON.stringify([ip, ip6, isGone, groups]);
  return seenBy(a) === seenBy(b);
}

/** About as many names are in one answer; those of one version stay together. */
const pageSize = 1500;
/** After more changes that a node does not see, it is told the version alone, so that its next request does not scan them again. */
const mostScanned = 64;

export type NamesNews = NamesPosition & Partial<NamesAnswer>;

/** The table that the node needs: `noTable` except for name servers that ask for it. */
export function tableOf(book: Book, nodeId: number, asked: NamesRequest): NamesForPeers {
  const viewer = book.nodes.get(nodeId);
  if (viewer?.isNameServer !== true || viewer.isGone || asked.peers === undefined) return noTable;
  return atOnce(makeTable(book));
}

/** Does in slices the work that answers to name servers need: otherwise the first answer would delay all requests. */
export function* prepareTable(book: Book): Generator<unknown, undefined> {
  if (book.nodes.values().some(({ isNameServer, isGone }) => isNameServer === true && !isGone))
    yield* makeTable(book);
}

function* makeTable(book: Book): Generator<unknown, NamesForPeers> {
  const { visibility, version } = book;
  const cached = book.table?.madeWith === visibility ? book.table : undefined;
  if (cached?.version === version) return cached.value;
  const classes = new Set<NamesClass>();
  for (const node of book.nodes.values()) {
    if (node.isGone) continue;
    const isCached = node.cachedClass?.madeWith === visibility;
    classes.add(classOf(book, node));
    if (!isCached) yield;
  }
  // Only for new classes: comparing all classes takes long, and most changes make none.
  const isSame = cached !== undefined && classes.symmetricDifference(cached.classes).size === 0;
  const value = isSame ? cached.value : yield* tableFor(visibility, classes);
  book.table = { madeWith: visibility, version, classes, value };
  return value;
}

/** Whether the node gets all names, to answer its peers. */
function servesPeers(book: Book, nodeId: number, asked: NamesRequest): boolean {
  const { digest, too_many } = tableOf(book, nodeId, asked);
  return digest !== "" && too_many !== true;
}

/**
 * Whether the node needs the whole list, or the changes after a version. `begunAt`: in parts of the whole list, the book's version at
 * the first one; 0 for changes. Undefined: the node itself has no name.
 */
export function positionOf(
  book: Book,
  nodeId: number,
  asked: NamesRequest,
): { view: string; isWhole: boolean; since: number; begunAt: number } | undefined {
  const viewer = book.nodes.get(nodeId);
  if (viewer === undefined || viewer.isGone) return undefined;
  const { visibility } = book;
  const view = servesPeers(book, nodeId, asked)
    ? `peers-${visibility.toAll ? everything : visibility.digest()}`
    : classOf(book, viewer).view;
  const isTooOld = asked.version < book.since && asked.part !== true;
  const [askedView, begun = "0"] = asked.part === true ? asked.view.split("@") : [asked.view];
  if (isTooOld || asked.version > book.version || askedView !== view)
    return { view, isWhole: true, since: 0, begunAt: book.version };
  return { view, isWhole: false, since: asked.version, begunAt: Number(begun) };
}

/** The changes for the node's list. Undefined: none. */
export function newsFor(book: Book, nodeId: number, asked: NamesRequest): NamesNews | undefined {
  const position = positionOf(book, nodeId, asked);
  if (position === undefined) return undefined;
  const { view, isWhole, since, begunAt } = position;
  const start = firstAfter(book.changes, since);
  if (!isWhole && asked.part !== true && start === book.changes.length) return undefined;
  const page = makePage(book, nodeId, { ...position, isForPeers: servesPeers(book, nodeId, asked) });
  let version = since;
  let scanned = 0;
  for (let at = start; at < book.changes.length; at++) {
    const change = book.changes[at];
    // A change after the book's version was read too early: it is sent with the others of its version.
    if (change === undefined || change.version > book.version) break;
    if (change.version > version && page.size() >= pageSize)
      return page.answer(version, begunAt === 0 ? view : `${view}@${begunAt}`, true);
    version = change.version;
    scanned++;
    if ("node" in change) page.addNode(change.node);
    else page.addAlias(change.alias);
  }
  const isEmpty = page.size() === 0 && !isWhole && asked.part !== true;
  return isEmpty && scanned <= mostScanned ? undefined : page.answer(book.version, view, false);
}

/** The nodes that this one sees, by their overlay addresses; without itself, and those that are gone. */
export function seenFrom(book: Book, nodeId: number): (address: string) => NamedEntry | undefined {
  const { version, visibility } = book;
  if (book.places?.version !== version) {
    const named = [...book.nodes.values()].filter(({ isGone }) => !isGone);
    const nodes = named.flatMap((node) =>
      [node.ip, node.ip6].flatMap((each): [string, NodeState][] => (each === null ? [] : [[each, node]])),
    );
    book.places = { version, nodes: new Map(nodes) };
  }
  const { nodes } = book.places;
  const viewer = book.nodes.get(nodeId);
  return (address) => {
    const node = nodes.get(address);
    if (node === undefined || viewer === undefined || viewer.isGone || node === viewer) return undefined;
    return visibility.sees(classOf(book, viewer), classOf(book, node)) ? node : undefined;
  };
}

/** Collects one answer: what the node sees of the changes that are added. */
function makePage(
  book: Book,
  nodeId: number,
  position: { isWhole: boolean; since: number; begunAt: number; isForPeers: boolean },
) {
  const { isWhole, since, begunAt, isForPeers } = position;
  const viewer = book.nodes.get(nodeId);
  const nodes = new Map<number, NamedNode>();
  const aliases = new Map<number, NameAlias>();
  const removedNodes = new Set<number>();
  const removedAliases: number[] = [];
  const sees = (node: NodeState | undefined): boolean => {
    if (node === undefined || viewer === undefined || node.isGone) return false;
    return isForPeers || node === viewer || book.visibility.sees(classOf(book, viewer), classOf(book, node));
  };
  /** Whether no earlier part of the list can have it. */
  const isNew = ({ version }: { version: number }) => version <= begunAt;
  const include = (alias: AliasEntry) => {
    const { id, name, node_id, address } = alias;
    aliases.set(id, { id, name, node_id, ...given({ address }) });
  };
  return {
    size: () => nodes.size + aliases.size + removedNodes.size + removedAliases.length,
    addNode(change: NodeState) {
      const node = book.nodes.get(change.id) ?? change;
      // A later change of the node counts instead. This one counts too if it regrouped the node: `since` of a later part may be after it.
      if (node !== change && (isNew(change) || node.regroupedAt !== change.version)) return;
      const isRegrouped = node.regroupedAt > since;
      if (!sees(node)) {
        if (!isNew(change) && isRegrouped) removedNodes.add(node.id);
        return;
      }
      const { id, name, ip, ip6 } = node;
      const className = isForPeers ? classNameOf(book.visibility, classOf(book, node)) : undefined;
      nodes.set(id, {
        id,
        name,
        ip,
        ...(ip6 === null ? {} : { ip6 }),
        ...given({ class: className }),
      });
      // The viewer may see the node only since now: its aliases have not changed, and must be sent with it.
      if (!isRegrouped || isNew(change)) return;
      for (const aliasId of book.aliasesOf.get(id) ?? []) {
        const alias = book.aliases.get(aliasId);
        if (alias?.isGone === false) include(alias);
      }
    },
    addAlias(alias: AliasEntry) {
      if (book.aliases.get(alias.id) !== alias || !sees(book.nodes.get(alias.node_id))) return;
      if (!alias.isGone) include(alias);
      else if (!isNew(alias)) removedAliases.push(alias.id);
    },
    answer: (version: number, view: string, more: boolean): NamesNews => ({
      version,
      view,
      ...(isWhole ? { whole: true } : {}),
      ...(more ? { more: true } : {}),
      ...(nodes.size === 0 ? {} : { nodes: [...nodes.values()] }),
      ...(aliases.size === 0 ? {} : { aliases: [...aliases.values()] }),
      ...(removedNodes.size === 0 ? {} : { removed_nodes: [...removedNodes] }),
      ...(removedAliases.length === 0 ? {} : { removed_aliases: removedAliases }),
    }),
  };
}

function classOf({ visibility }: Book, node: NodeState): NamesClass {
  if (node.cachedClass?.madeWith !== visibility)
    node.cachedClass = { madeWith: visibility, value: visibility.classOf(node) };
  return node.cachedClass.value;
}

/** The place of the first change after a version. */
function firstAfter(changes: readonly Change[], version: number): number {
  let [low, high] = [0, changes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((changes[middle]?.version ?? 0) <= version) low = middle + 1;
    else high = middle;
  }
  return low;
}
