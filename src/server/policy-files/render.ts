// Renders the state of an organization as a policy file, and sides of rules as words of policy files.

import { stringify } from "yaml";
import { isSelf, type Peer, type Rule } from "../../api/rules.ts";
import type { PolicyNode } from "../policy/policy-nodes.ts";
import type { PolicyTest } from "../policy/policy-tests.ts";
import type { Reader } from "../store/database.ts";
import { networkOfGroup, isUsersGroup, userOfGroup, providerOfGroup } from "../../protocol/users-groups.ts";
import { nodes } from "../store/tables/nodes.ts";
import type { Snapshot } from "./read-snapshot.ts";

/**
 * Writes a side of a rule: `any`, `group:web`, `node:db`, `user:ada@example.org`, `idp:Engineering`, a network; `node:#7` for a node that is
 * gone, `user:#7` for a user who is not a member, `idp:#3.…` for a group of a provider that is gone.
 */
export type SideWriter = (side: Peer) => string;

/** `users`: ids by e-mail address. `words`: of groups of providers, by `people` (group-users.ts). */
export function makeSideWriter(
  nodesHere: readonly Pick<PolicyNode, "id" | "name">[],
  users: ReadonlyMap<string, number>,
  words: ReadonlyMap<string, string>,
): SideWriter {
  const names = new Map(nodesHere.map(({ id, name }) => [id, name]));
  const emails = new Map([...users].map(([email, id]) => [id, email]));
  return (side) => {
    if ("any" in side) return "any";
    if (isSelf(side)) return "self";
    if ("group" in side) {
      const network = networkOfGroup(side.group);
      if (network !== undefined) return `network:${network}`;
      if (providerOfGroup(side.group) !== undefined)
        return words.get(side.group) ?? `idp:#${side.group.slice("idp:".length)}`;
      const owner = userOfGroup(side.group);
      return owner === undefined ? `group:${side.group}` : `user:${emails.get(owner) ?? `#${owner}`}`;
    }
    if ("cidr" in side) return side.cidr;
    return `node:${names.get(side.node) ?? `#${side.node}`}`;
  };
}

/** As makeSideWriter, with the names of deleted nodes on `sides`, and their ids: a newer node may have the same name. */
export async function readSideWriter(
  reader: Reader,
  orgId: number,
  { nodes: present, users, words }: Pick<Snapshot, "nodes" | "users" | "words">,
  sides: readonly Peer[],
): Promise<SideWriter> {
  const known = new Set(present.map(({ id }) => id));
  const gone: { id: number; name: string }[] = [];
  for (const side of sides) {
    if (!("node" in side) || known.has(side.node)) continue;
    known.add(side.node);
    const node = await nodes.find(reader, { orgId, id: side.node });
    gone.push({ id: side.node, name: `${node?.name ?? ""} (deleted, id ${side.node})` });
  }
  return makeSideWriter([...present, ...gone], users, words);
}

export function showRule(
  {
    direction,
    protocol,
    ports,
    peer,
    target,
    description = "",
  }: Omit<Rule, "id" | "description"> & {
    description?: string | undefined;
  },
  side: SideWriter,
) {
  return { direction, protocol, ports, peer: side(peer), target: side(target), description };
}

const head = "# Written by the control plane from the present state.\n";

/**
 * Rules and tests that name deleted nodes or former members are in comments only, because a file that names them could not be
 * applied.
 */
export async function renderPolicy(reader: Reader, orgId: number, snapshot: Snapshot): Promise<string> {
  const { rules, tests, nodes: present, users, aliases, people, words } = snapshot;
  const side = makeSideWriter(present, users, words);
  const names = new Map(present.map(({ id, name }) => [id, name]));
  // The words of the side writer for what does not exist any more.
  const isGone = (each: Peer) => /^(node|user|idp):#/.test(side(each));
  const isGoneRule = ({ peer, target }: Rule) => isGone(peer) || isGone(target);
  const isGoneTest = ({ from, to }: PolicyTest) => isGone(from) || isGone(to);
  const gone = { rules: rules.filter(isGoneRule), tests: tests.filter(isGoneTest) };
  const sides = [
    ...gone.rules.flatMap(({ peer, target }) => [peer, target]),
    ...gone.tests.flatMap(({ from, to }) => [from, to]),
  ];
  const groupsWithNodes = new Set(present.flatMap((node) => node.groups));
  // Any other side may have nodes, now or later.
  const hasNodes = (peer: Peer) => {
    if ("node" in peer) return names.has(peer.node);
    return "group" in peer && isUsersGroup(peer.group) ? groupsWithNodes.has(peer.group) : true;
  };
  const comments = leftOutComments(gone, await readSideWriter(reader, orgId, snapshot, sides), hasNodes);
  const shown = {
    groups: shownGroups(
      snapshot,
      people.flatMap(({ name, people: group }) =>
        isGone({ group }) ? [] : [{ name, word: side({ group }) }],
      ),
    ),
    rules: rules.filter((rule) => !isGoneRule(rule)).map((rule) => shortRule(showRule(rule, side))),
    routes: present.flatMap(({ name, subnets }) =>
      subnets.map((network) => ({ network, via: `node:${name}` })),
    ),
    relays: present.filter(({ isRelay }) => isRelay).map(({ name }) => `node:${name}`),
    aliases: aliases.flatMap(({ name, nodeId, address }) => {
      const node = names.get(nodeId);
      if (node === undefined) return [];
      return [{ name, node: `node:${node}`, ...(address === null ? {} : { address }) }];
    }),
    tests: tests.filter((test) => !isGoneTest(test)).map((test) => showTest(test, side)),
  };
  return head + comments + stringify(shown, { lineWidth: 0 });
}

/** The groups with their members: first users and groups of providers, each as a word of the file, then nodes. */
function shownGroups(
  { groups, nodes: present }: Snapshot,
  users: readonly { name: string; word: string }[],
): Record<string, { description?: string; members?: string[] }> {
  const byGroup = new Map(groups.map(({ name }) => [name, [] as string[]]));
  for (const { name, word } of users) byGroup.get(name)?.push(word);
  // `given`: without the groups that a node has by its owner.
  for (const { name, given } of present) for (const group of given) byGroup.get(group)?.push(`node:${name}`);
  return Object.fromEntries(
    groups.map(({ name, description }) => {
      const members = byGroup.get(name) ?? [];
      return [
        name,
        { ...(description === "" ? {} : { description }), ...(members.length === 0 ? {} : { members }) },
      ];
    }),
  );
}

/** One comment for each rule and test that the file cannot hold. */
function leftOutComments(
  gone: { rules: readonly Rule[]; tests: readonly PolicyTest[] },
  side: SideWriter,
  hasNodes: (side: Peer) => boolean,
): string {
  const line = (what: string, from: string, to: string) =>
    `# Left out, because a node or member that it names is gone: ${what} from ${from} to ${to}\n`;
  const rules = gone.rules.map(({ id, direction, protocol, ports, peer, target }) => {
    const ends = direction === "inbound" ? [peer, target] : [target, peer];
    const [from = "", to = ""] = ends.map(side);
    // The nodes of a former member keep their access until they are revoked or transferred.
    const stillHolds = [peer, target].every(hasNodes)
      ? "# It still holds for the nodes that the user owns.\n"
      : "";
    return line(`rule ${id}, ${direction} ${protocol}/${ports}`, from, to) + stillHolds;
  });
  const tests = gone.tests.map(({ expect, from, to, protocol, ports }) =>
    line(`the test ${expect} ${protocol}/${ports}`, side(from), side(to)),
  );
  return [...rules, ...tests].join("");
}

function shortRule({ description, ports, ...rule }: ReturnType<typeof showRule>) {
  return {
    ...rule,
    ...(ports === "any" ? {} : { ports: /^\d+$/.test(ports) ? Number(ports) : ports }),
    ...(description === "" ? {} : { description }),
  };
}

function showTest({ expect, from, to, protocol, ports }: PolicyTest, side: SideWriter) {
  const port = ports === "any" ? {} : { port: /^\d+$/.test(ports) ? Number(ports) : ports };
  return { [expect]: { from: side(from), to: side(to), protocol, ...port } };
}
