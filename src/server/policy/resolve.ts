// Turns the names of a policy file into ids, and says which line names what does not exist. The generators yield often, so that other
// requests are answered. Pure.

import { formatAddress, parseAddress, parseNetwork } from "../../base/ip.ts";
import { mapInPieces } from "../http/heavy-work.ts";
import { maxFaults, type Fault } from "./yaml-document.ts";
import type { NamedProvider, ProviderGroup } from "./group-users.ts";
import { providerGroupOf } from "./provider-words.ts";
import { reservedSentence } from "./firewall.ts";
import { isReservedGroup } from "../../api/values.ts";
import type { Peer, CheckedRule, Target } from "../../api/rules.ts";
import { isNetworkWord, nodeNameOf } from "./policy-file.ts";
import { faulty, type ParsedPolicy } from "./read-policy.ts";
import type { PolicyTest } from "./policy-tests.ts";
import { identityOf } from "./node-classes.ts";
import { networkGroup, ownerGroup, selfGroup } from "../../protocol/users-groups.ts";
import { emailKey, formerEmailKey } from "../../base/text.ts";

/** What a file asks for. An undefined key leaves that part as it is. */
export type Desired = {
  groups: readonly DesiredGroup[] | undefined;
  rules: readonly (Omit<CheckedRule, "description"> & { description: string | undefined })[] | undefined;
  /** The networks behind each node. */
  routes: ReadonlyMap<number, readonly string[]> | undefined;
  relays: ReadonlySet<number> | undefined;
  aliases: readonly DesiredAlias[] | undefined;
  tests: readonly PolicyTest[] | undefined;
  /** The groups of providers that the file names. */
  providerGroups: readonly ProviderGroup[];
};
/** `address` in its canonical form; null: the node's own. */
export type DesiredAlias = { name: string; nodeId: number; address: string | null };
/** Undefined parts are not in the file, and stay as they are. */
type DesiredGroup = {
  name: string;
  description: string | undefined;
  /** Ids of nodes. */
  members: ReadonlySet<number> | undefined;
  /** The users and groups of providers whose nodes are in it, each as the group that stands for them (GroupSource). */
  people: ReadonlySet<string> | undefined;
};

/** The names that exist: nodes that are not revoked, groups, and members by e-mail address. */
export type Known = {
  nodes: ReadonlyMap<string, number>;
  groups: ReadonlySet<string>;
  users: ReadonlyMap<string, number>;
  providers: readonly NamedProvider[];
};

/** Notes a fault of the value at a path such as `rules.3.peer`. */
type Faulting = (path: string, message: string) => void;

/** Throws validation_failed with the line of each name that does not exist. */
export function* resolvePolicy({ file, placeOf }: ParsedPolicy, known: Known): Generator<unknown, Desired> {
  const faults: Fault[] = [];
  const fault: Faulting = (path, message) => {
    if (faults.length < maxFaults) faults.push({ ...placeOf(path), message: `${path}: ${message}` });
  };
  for (const name of Object.keys(file.groups ?? {}))
    if (isReservedGroup(name) && !known.groups.has(name)) fault(`groups.${name}`, reservedSentence(name));
  const words = makeWords(known, file.groups, fault);
  const { node, peer, target } = words;
  const groups = yield* groupsOf(file.groups ?? {}, words);
  const rules = yield* mapInPieces(
    file.rules ?? [],
    ({ direction, protocol, ports, description, ...sides }, at) => ({
      direction,
      protocol,
      ports: String(ports),
      peer: peer(sides.peer, `rules.${at}.peer`),
      target: target(sides.target, `rules.${at}.target`),
      description,
    }),
  );
  const desired: Desired = {
    groups: file.groups && groups,
    rules: file.rules && rules,
    routes: yield* routesOf(file, node, fault),
    relays: file.relays && new Set(yield* mapInPieces(file.relays, (word, at) => node(word, `relays.${at}`))),
    aliases: aliasesOf(file, node, fault),
    tests: testsOf(file, target),
    providerGroups: words.providerGroups(),
  };
  yield;
  yield* findRepeatedRules(desired.rules ?? [], fault);
  if (faults.length > 0) throw faulty(faults);
  return desired;
}

type FileGroups = ParsedPolicy["file"]["groups"];
type Words = ReturnType<typeof makeWords>;

/**
 * The meaning of the words of a file. Each takes the word and its path. A name that does not exist is a fault, and gets a
 * placeholder, so that all faults are found.
 */
function makeWords(known: Known, fileGroups: FileGroups, fault: Faulting) {
  const groups = fileGroups === undefined ? known.groups : new Set(Object.keys(fileGroups));
  const providerGroups = new Map<string, ProviderGroup>();

  function node(word: string, path: string): number {
    const name = nodeNameOf(word);
    const id = known.nodes.get(name);
    if (id === undefined) fault(path, `There is no node ${name}. Correct the name, or remove what names it.`);
    return id ?? 0;
  }

  function member(email: string, path: string): number {
    // An earlier version stored the second form.
    const id = known.users.get(emailKey(email)) ?? known.users.get(formerEmailKey(email));
    if (id === undefined)
      fault(
        path,
        `There is no member ${email}. Correct the address, or invite the user, who has to accept first.`,
      );
    return id ?? 0;
  }

  function groupOfProvider(text: string, path: string): string {
    const found = providerGroupOf(known.providers, text);
    if (found === undefined) fault(path, providerFault(known.providers));
    else providerGroups.set(found.people, found);
    return found?.people ?? "";
  }

  /** The group of the nodes of a user or of a provider's group. Undefined for other words. */
  function usersGroup(word: string, path: string): string | undefined {
    if (word.startsWith("user:")) return ownerGroup(member(word.slice("user:".length), path));
    return word.startsWith("idp:") ? groupOfProvider(word.slice("idp:".length), path) : undefined;
  }

  function target(word: string, path: string): Target {
    if (word === "any") return { any: true };
    if (word.startsWith("node:")) return { node: node(word, path) };
    if (word.startsWith("network:")) return { group: networkGroup(word.slice("network:".length)) };
    const owned = usersGroup(word, path);
    if (owned !== undefined) return { group: owned };
    // Only `group:…` is left: the schema of the file lets no other word through.
    const group = word.slice("group:".length);
    if (!groups.has(group)) {
      const where =
        fileGroups === undefined ? "" : " in this file: add it below `groups`, or correct the name";
      fault(path, `There is no group ${group}${where}.`);
    }
    return { group };
  }

  function peer(word: string, path: string): Peer {
    if (word === "self") return { group: selfGroup };
    return isNetworkWord(word) ? { cidr: parseNetwork(word)?.text ?? word } : target(word, path);
  }

  return { node, usersGroup, target, peer, providerGroups: () => [...providerGroups.values()] };
}

function* groupsOf(
  groups: NonNullable<FileGroups>,
  { node, usersGroup }: Words,
): Generator<unknown, DesiredGroup[]> {
  const desired: DesiredGroup[] = [];
  for (const [name, entry] of Object.entries(groups)) {
    const members = new Set<number>();
    const people = new Set<string>();
    yield* mapInPieces(entry?.members ?? [], (word, at) => {
      const path = `groups.${name}.members.${at}`;
      const owned = usersGroup(word, path);
      if (owned === undefined) members.add(node(word, path));
      else people.add(owned);
    });
    const isInFile = entry?.members !== undefined;
    desired.push({
      name,
      description: entry?.description,
      members: isInFile ? members : undefined,
      people: isInFile ? people : undefined,
    });
  }
  return desired;
}

function testsOf({ tests }: ParsedPolicy["file"], target: Words["target"]): Desired["tests"] {
  return tests?.flatMap(({ accept, deny }, at): PolicyTest[] => {
    const expect = accept === undefined ? "deny" : "accept";
    const flow = accept ?? deny;
    if (flow === undefined) return [];
    const { from, to, protocol, port } = flow;
    const path = `tests.${at}.${expect}`;
    const sides = { from: target(from, `${path}.from`), to: target(to, `${path}.to`) };
    return [{ expect, ...sides, protocol, ports: String(port) }];
  });
}

export function providerFault(providers: readonly NamedProvider[]): string {
  if (providers.length === 0) return "There is no provider of identities by which members sign in.";
  const names = providers.map(({ name }) => name).join(", ");
  return `There are several providers of identities (${names}): write idp:PROVIDER/GROUP.`;
}

function* findRepeatedRules(rules: NonNullable<Desired["rules"]>, fault: Faulting): Generator<unknown, void> {
  const firstAt = new Map<string, number>();
  for (const [at, rule] of rules.entries()) {
    const identity = identityOf(rule);
    const first = firstAt.get(identity);
    if (first !== undefined) fault(`rules.${at}`, `This is rule ${first + 1} of the file again.`);
    firstAt.set(identity, at);
    if (at % 200 === 0) yield;
  }
}

function aliasesOf(
  { aliases }: ParsedPolicy["file"],
  node: Words["node"],
  fault: Faulting,
): Desired["aliases"] {
  const names = new Set<string>();
  return aliases?.map(({ name, node: word, address }, at) => {
    const parsed = address === undefined ? undefined : parseAddress(address);
    if (address !== undefined && parsed === undefined) fault(`aliases.${at}.address`, "Enter an IP address.");
    if (names.has(name)) fault(`aliases.${at}.name`, `${name} is here twice.`);
    names.add(name);
    const nodeId = node(word, `aliases.${at}.node`);
    return { name, nodeId, address: parsed === undefined ? null : formatAddress(parsed) };
  });
}

function* routesOf(
  { routes }: ParsedPolicy["file"],
  node: Words["node"],
  fault: Faulting,
): Generator<unknown, Desired["routes"]> {
  if (routes === undefined) return undefined;
  const found = new Map<number, string[]>();
  const taken = new Set<string>();
  for (const [at, { network, via }] of routes.entries()) {
    const text = parseNetwork(network)?.text;
    if (text === undefined) fault(`routes.${at}.network`, "Enter a network such as 192.168.5.0/24.");
    else {
      const id = node(via, `routes.${at}.via`);
      if (taken.has(`${id} ${text}`)) fault(`routes.${at}.network`, `${text} via ${via} is here twice.`);
      taken.add(`${id} ${text}`);
      found.getOrInsertComputed(id, () => []).push(text);
    }
    if (at % 100 === 0) yield;
  }
  return found;
}
