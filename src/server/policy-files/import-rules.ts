// Translates the rules, groups and tests of a policy of Tailscale or headscale into those of a policy file here, for
// import-policy.ts. What has no equal is left out and noted with the reason. Pure.

import * as v from "valibot";
import type { Network } from "../../base/ip.ts";
import { freeName } from "./import-names.ts";
import { findRouters } from "./import-routers.ts";
import {
  everything,
  grantPackets,
  lowerKeys,
  otherKey,
  packetsOf,
  portsOf,
  protocolOf,
  selfTargetOf,
  selfWord,
  sourceOf,
  splitPorts,
  targetOf,
  type Fields,
  type Names,
  type Packets,
  type Side,
} from "./import-words.ts";
import { strictRecord } from "../../base/strict-record.ts";
import { foreignText } from "../../base/text.ts";

/** The limits bound what an import costs. The keys of the schemas are in lower case, as import-policy.ts makes them. */
const Word = foreignText(1000);
export const Words = v.pipe(v.array(Word), v.maxLength(10_000));
const Entry = v.pipe(strictRecord(Word, v.unknown()), v.maxEntries(50));
const Entries = v.pipe(v.array(Entry), v.maxLength(10_000));
export const Original = v.looseObject({
  groups: v.optional(v.pipe(strictRecord(Word, Words), v.maxEntries(10_000))),
  hosts: v.optional(v.pipe(strictRecord(Word, Word), v.maxEntries(10_000))),
  tagowners: v.optional(v.pipe(strictRecord(Word, v.unknown()), v.maxEntries(10_000))),
  acls: v.optional(Entries),
  grants: v.optional(Entries),
  tests: v.optional(Entries),
});
export type Original = v.InferOutput<typeof Original>;

export type Rule = Packets & { peer: string; target: string };
type Flow = { from: string; to: string; protocol: string; port: string | number };
/** A test of a policy file. `place`, `text`: where its destination stands in the original, and what is written there. */
export type FoundTest = { test: { accept: Flow } | { deny: Flow }; place: string; text: string };

/** Notes what is left out. `path`: where it is in the original, such as `acls.0.dst.1`. */
export type Noter = (path: string, what: string, reason: string) => void;

export class Importing {
  readonly #original: Original;
  readonly #note: Noter;
  readonly #names: Names;
  /** The names here of groups and tags, by their words there (`group:web`, `tag:web`). */
  readonly #groups = new Map<string, string>();

  constructor(original: Original, overlay: readonly Network[] | undefined, note: Noter) {
    this.#original = original;
    this.#note = note;
    const groups = Object.keys(original.groups ?? {});
    const tags = Object.keys(original.tagowners ?? {});
    const taken = new Set<string>();
    for (const word of new Set([...groups, ...tags])) {
      const name = freeName(word, taken);
      taken.add(name);
      this.#groups.set(word, name);
    }
    const hosts = new Map(Object.entries(original.hosts ?? {}));
    const via = (original.grants ?? []).map((grant) => lowerKeys(grant).fields["via"]);
    // Of any form: findRouters skips what it cannot read.
    const routers = findRouters(original.autoapprovers, via, original.groups ?? {});
    this.#names = { hosts, groupOf: (word) => this.#groups.get(word), routers, overlay };
  }

  /** The names of the groups here. Notes the lists of members, which are not imported. */
  groups(): string[] {
    for (const [word, members] of Object.entries(this.#original.groups ?? {})) {
      if (members.length > 0) {
        this.#note(
          `groups.${word}`,
          `${members.length} ${members.length === 1 ? "member" : "members"} of ${word}`,
          "write user:EMAIL below its `members` once they are members here, or give the group to their nodes",
        );
      }
    }
    for (const tag of Object.keys(this.#original.tagowners ?? {})) {
      this.#note(`tagOwners.${tag}`, `the owners of ${tag}`, "registration tokens give groups");
    }
    return [...this.#groups.values()];
  }

  /** The rules for incoming traffic, each once. */
  rules(): Rule[] {
    const { acls, grants } = this.#original;
    const found = new Map<string, Rule>();
    const add = (peer: string, target: string, packets: readonly Packets[]) => {
      for (const each of packets) {
        const rule = { ...each, peer, target };
        found.set(JSON.stringify(rule), rule);
      }
    };
    if (acls === undefined && grants === undefined) {
      add("any", "any", everything);
      this.#note("", "all traffic is permitted", "without acls and grants the original permits it, too");
    }
    for (const [index, acl] of (acls ?? []).entries()) this.#addAcl(`acls.${index}`, lowerKeys(acl), add);
    for (const [index, grant] of (grants ?? []).entries())
      this.#addGrant(`grants.${index}`, lowerKeys(grant), add);
    return [...found.values()];
  }

  #addAcl(path: string, { fields, repeatedKey }: Fields, add: Add): void {
    const { action, proto = "", src, dst, users, ports, ...rest } = fields;
    // `users` and `ports` are former names of `src` and `dst`. Only one of the two can be there.
    const usersBesideSrc = src !== undefined && users !== undefined ? "users" : undefined;
    const portsBesideDst = dst !== undefined && ports !== undefined ? "ports" : undefined;
    const unknownKey = usersBesideSrc ?? portsBesideDst ?? otherKey(rest);
    const protocol = protocolOf(proto);
    if (repeatedKey !== undefined) return this.#note(path, "the rule", `${repeatedKey} is there twice`);
    if (action !== "accept") return this.#note(path, "the rule", `its action is not "accept"`);
    if (unknownKey !== undefined) return this.#note(path, "the rule", `${unknownKey} has no equal`);
    if ("reason" in protocol) return this.#note(path, "the rule", protocol.reason);
    const sources = this.#readWords(path, "src", src ?? users);
    const targets = this.#readWords(path, "dst", dst ?? ports);
    if (sources === undefined || targets === undefined) return;
    const destinations = targets.map((text) => ({ text, ...splitPorts(text) }));
    const words = destinations.map(({ word }) => word);
    const peers = this.#peersOf(path, sources, words);
    for (const [index, { text, word, ports: portText }] of destinations.entries()) {
      const found = packetsOf(protocol.protocol, portText);
      const place = `${path}.dst.${index}`;
      if ("reason" in found) this.#note(place, text, found.reason);
      else this.#addRulesTo({ path, place, text, word, sources, peers }, found.packets, add);
    }
  }

  #addGrant(path: string, { fields, repeatedKey }: Fields, add: Add): void {
    const { src, dst, ip, app, ...rest } = fields;
    const unknownKey = otherKey(rest);
    if (repeatedKey !== undefined) return this.#note(path, "the grant", `${repeatedKey} is there twice`);
    if (unknownKey !== undefined) return this.#note(path, "the grant", `${unknownKey} has no equal`);
    // The `ip` of a grant with `app` is imported all the same.
    if (app !== undefined) this.#note(`${path}.app`, "app", "capabilities of applications have no equal");
    else if (ip === undefined || (Array.isArray(ip) && ip.length === 0))
      return this.#note(path, "the grant", "it has neither ip nor app");
    const sources = this.#readWords(path, "src", src);
    const targets = this.#readWords(path, "dst", dst);
    const packetWords = ip === undefined ? [] : this.#readWords(path, "ip", ip);
    if (sources === undefined || targets === undefined || packetWords === undefined) return;
    const packets = packetWords.flatMap((text, index) => {
      const found = grantPackets(text);
      if ("packets" in found) return found.packets;
      this.#note(`${path}.ip.${index}`, text, found.reason);
      return [];
    });
    if (packets.length === 0) return;
    const peers = this.#peersOf(path, sources, targets);
    for (const [index, word] of targets.entries()) {
      const place = `${path}.dst.${index}`;
      this.#addRulesTo({ path, place, text: word, word, sources, peers }, packets, add);
    }
  }

  #addRulesTo(
    { path, place, text, word, sources, peers }: Destination,
    packets: readonly Packets[],
    add: Add,
  ): void {
    if (word === selfWord) {
      // `self` as a peer means the nodes with the same owner as the target. The sources say which owners: they become targets.
      for (const target of this.#readSources(path, sources, selfTargetOf)) add("self", target, packets);
      return;
    }
    const target = targetOf(word, this.#names);
    if ("reason" in target) this.#note(place, text, target.reason);
    else for (const peer of peers) add(peer, target.side, packets);
  }

  /** The value as a list of words. Undefined if it is none, which is noted. */
  #readWords(path: string, key: string, value: unknown): string[] | undefined {
    const parsed = v.safeParse(Words, value, { abortEarly: true });
    if (parsed.success) return parsed.output;
    const fault = typeof value === "string" ? "is a text: write a list" : "holds something else than texts";
    this.#note(`${path}.${key}`, "the rule", value === undefined ? `it has no ${key}` : `${key} ${fault}`);
    return undefined;
  }

  /** The peers of rules. None if all destinations are `self`, for which `#addRulesTo` reads the sources in another way. */
  #peersOf(path: string, src: readonly string[], targets: readonly string[]): string[] {
    return targets.every((word) => word === selfWord) ? [] : this.#readSources(path, src, sourceOf);
  }

  /** The sides of rules that the sources become. Notes the words that have no equal. */
  #readSources(path: string, src: readonly string[], read: (word: string, names: Names) => Side): string[] {
    return src.flatMap((word, index) => {
      const side = read(word, this.#names);
      if ("side" in side) return [side.side];
      this.#note(`${path}.src.${index}`, word, side.reason);
      return [];
    });
  }

  /** One test for each destination of the original tests. */
  tests(): FoundTest[] {
    const found: FoundTest[] = [];
    for (const [index, test] of (this.#original.tests ?? []).entries()) {
      const path = `tests.${index}`;
      const { fields, repeatedKey } = lowerKeys(test);
      // `user` and `allow` are former names of `src` and `accept`.
      const { src, user, proto = "tcp", accept, allow, deny, ...rest } = fields;
      const word = src ?? user;
      const source =
        typeof word === "string" ? sourceOf(word, this.#names) : { reason: "its src is no text" };
      const protocol = protocolOf(proto);
      const unknownKey = repeatedKey ?? Object.keys(rest)[0];
      // Of several reasons to leave the test out, the first is noted. A side with a slash is a network.
      if ("reason" in source)
        this.#note(path, typeof word === "string" ? `the test of ${word}` : "the test", source.reason);
      else if (source.side.includes("/")) this.#note(path, "the test", "a test is from a group or a node");
      else if (unknownKey !== undefined) this.#note(path, "the test", `${unknownKey} has no equal`);
      else if ("reason" in protocol) this.#note(path, "the test", protocol.reason);
      else {
        const sender = { from: source.side, protocol: protocol.protocol ?? "any" };
        found.push(...this.#testsTo(`${path}.accept`, "accept", sender, accept ?? allow));
        found.push(...this.#testsTo(`${path}.deny`, "deny", sender, deny));
      }
    }
    return found;
  }

  /** `value`: the destinations with their ports. */
  #testsTo(
    path: string,
    kind: "accept" | "deny",
    { from, protocol }: Pick<Flow, "from" | "protocol">,
    value: unknown,
  ): FoundTest[] {
    const destinations = value === undefined ? [] : (this.#readWords(path, kind, value) ?? []);
    return destinations.flatMap((text, index): FoundTest[] => {
      const place = `${path}.${index}`;
      const { word, ports } = splitPorts(text);
      const target = targetOf(word, this.#names);
      const foundPorts = portsOf(ports);
      const [port, ...more] = "ports" in foundPorts ? foundPorts.ports : [];
      if ("reason" in target) this.#note(place, text, target.reason);
      else if ("reason" in foundPorts) this.#note(place, text, foundPorts.reason);
      else if (port === undefined || more.length > 0) this.#note(place, text, "a test has one port");
      else {
        const flow = { from, to: target.side, protocol, port: /^\d+$/.test(port) ? Number(port) : port };
        return [{ place, text, test: kind === "accept" ? { accept: flow } : { deny: flow } }];
      }
      return [];
    });
  }
}

type Add = (peer: string, target: string, packets: readonly Packets[]) => void;

/** One destination of an acl or grant. */
type Destination = {
  /** Where the acl or grant is in the original, and where the destination is. */
  path: string;
  place: string;
  text: string;
  /** `text` without ports. */
  word: string;
  /** The words of the original, and the peers that they become. */
  sources: readonly string[];
  peers: readonly string[];
};
