// Keeps hosts.json up to date: sends which names this node has, and applies the differences that the control plane
// answers. Names never disturb a check-in: a failure is logged, and tried again later.

import * as v from "valibot";
import { because } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { maxNames, NamesAnswer, type HostsFile, type NamesRequest } from "../../protocol/names.ts";
import type { System } from "../../base/system.ts";
import { readHosts, writeHosts } from "../files/hosts.ts";

export type NamesKeeper = {
  /** The names that this node has, for the next check-in. Undefined: ask for none now. */
  request(): NamesRequest | undefined;
  /** Applies the names of an answer. `ask` checks in again at once, for the rest of a long list. */
  addAnswer(answered: unknown, ask: (names: NamesRequest) => Promise<unknown>): Promise<void>;
};

/** After a failure, ms: the control plane would send the same names at once again. */
const pauseMs = 60_000;
/** Answers in a row: more than the parts of the longest list. */
const maxAnswers = 100;

const noNames: HostsFile = { schema: 1, version: 0, view: "", nodes: [], aliases: [] };

export function makeNamesKeeper(
  { slug, directory }: { slug: string; directory: string },
  { system, log }: { system: Pick<System, "now">; log: Log },
): NamesKeeper {
  /**
   * The version and the view (which names this node may see) of hosts.json, kept so that a check-in need not read a long file.
   * Undefined: read it.
   */
  let position: NamesRequest | undefined;
  /** ms since 1970. */
  let pausedUntil = 0;
  let isFailing = false;
  const apply = async (answered: unknown, ask: (names: NamesRequest) => Promise<unknown>) => {
    let answer = v.parse(NamesAnswer, answered);
    const stored = readHosts(directory) ?? noNames;
    const askedVersion = position?.version ?? 0;
    position = undefined;
    // Another process has replaced or deleted the file: differences of another list would damage this one.
    if (!answer.whole && (stored.view !== answer.view || stored.version < askedVersion)) return;
    let hosts = applyNames(stored, answer);
    for (let count = 1; answer.more && count < maxAnswers; count++) {
      const { version, view, peers } = positionIn(hosts);
      // Without `suffix`: the first answer had it.
      const next = await ask({ version, view, part: true, peers });
      // No names: the list is complete. The next check-in brings what changed meanwhile.
      if (next === undefined) break;
      answer = v.parse(NamesAnswer, next);
      hosts = applyNames(hosts, answer);
    }
    writeHosts(directory, sortedAndCapped(hosts));
    position = positionIn(hosts);
  };
  return {
    request() {
      const leftMs = pausedUntil - system.now();
      // A clock that was set back must not prolong the pause.
      if (leftMs > 0 && leftMs <= pauseMs) return undefined;
      return (position ??= positionIn(readHosts(directory) ?? noNames));
    },
    async addAnswer(answered, ask) {
      if (answered === undefined) return;
      try {
        await apply(answered, ask);
        isFailing = false;
      } catch (error) {
        position = undefined;
        pausedUntil = system.now() + pauseMs;
        const say = isFailing ? log.debug : log.warn;
        isFailing = true;
        say("The names of other nodes cannot be updated; trying again in a minute", because(slug, error));
      }
    },
  };
}

/** What a request says of a list that this node has. */
function positionIn({ version, view, suffix = "", peers }: HostsFile) {
  return { version, view, suffix, peers: peers?.digest ?? "" } satisfies NamesRequest;
}

/** The list after an answer: all names (`whole`), or the differences to `before`. Pure. */
export function applyNames(before: HostsFile, answer: NamesAnswer): HostsFile {
  const base = answer.whole ? noNames : before;
  const nodes = new Map(base.nodes.map((node) => [node.id, node]));
  const aliases = new Map(base.aliases.map((alias) => [alias.id, alias]));
  const removed = new Set(answer.removed_nodes);
  for (const id of removed) nodes.delete(id);
  for (const { id, node_id } of base.aliases) if (removed.has(node_id)) aliases.delete(id);
  for (const id of answer.removed_aliases) aliases.delete(id);
  for (const node of answer.nodes) nodes.set(node.id, node);
  for (const alias of answer.aliases) aliases.set(alias.id, alias);
  // An answer has these two only if they differ from the request's; empty ones mean that there are none any more.
  const { version, view, suffix = before.suffix ?? "", peers = before.peers } = answer;
  const lists = { nodes: [...nodes.values()], aliases: [...aliases.values()] };
  const settings = {
    ...(suffix === "" ? {} : { suffix }),
    ...(peers === undefined || peers.digest === "" ? {} : { peers }),
  };
  return { schema: 1, version, view, ...lists, ...settings };
}

/** Sorted by id. Above the maximum, the nodes that registered last are left out. */
function sortedAndCapped(hosts: HostsFile): HostsFile {
  const byId = (a: { id: number }, b: { id: number }) => a.id - b.id;
  const nodes = hosts.nodes.toSorted(byId).slice(0, maxNames);
  const ids = new Set(nodes.map(({ id }) => id));
  const aliases = hosts.aliases.filter(({ node_id }) => ids.has(node_id)).toSorted(byId);
  return { ...hosts, nodes, aliases: aliases.slice(0, maxNames) };
}
