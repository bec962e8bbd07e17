// `agent admin rule …`: firewall rules.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { ItemOf } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import { request } from "../../api/request.ts";
import { CheckedRule, rulesApi } from "../../api/rules.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import {
  certifiedGroups,
  isUsersGroup,
  ownerGroup,
  userOfGroup,
  providerOfGroup,
  networkGroup,
  networkOfGroup,
  selfGroup,
} from "../../protocol/users-groups.ts";
import type { Context, Implementation } from "../command.ts";
import { quoteWord } from "../../base/quote.ts";
import { orgArg } from "../server/server-flags.ts";
import { given } from "../../base/given.ts";
import type { Flags, Values } from "../values.ts";
import { read, write, type Api } from "./api.ts";
import {
  checked,
  memberEmails,
  missingGroups,
  nodeByName,
  providerSide,
  type ProviderSide,
  sayNewGroups,
  signedUpMember,
  isNumber,
} from "./lookup.ts";
import { targetFlags } from "./target.ts";

type Rule = ItemOf<typeof rulesApi.list>;

export const list: Implementation = {
  args: { ...orgArg, ...targetFlags },
  examples: [`${brand.executable} admin rule list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const { rules, names } = await read(context, async (api) => {
      const rules = await api.all(rulesApi.list, { slug });
      const sides = rules.flatMap(({ peer, target }) => [peer, target]);
      return { rules, names: await namesOf(api, slug, sides) };
    });
    context.output.list(
      { rules },
      {
        columns: ["ID", "DIRECTION", "PROTOCOL", "PORTS", "PEER", "TARGET", "DESCRIPTION"],
        rows: rules.map(({ id, direction, protocol, ports, peer, target, description }) => [
          id,
          direction,
          protocol,
          ports,
          sideOf(peer, names),
          sideOf(target, names),
          description,
        ]),
        none: `${slug} has no firewall rules: all traffic is refused.`,
      },
    );
  },
};

/** Asks only for the names that these sides need. */
async function namesOf(api: Api, slug: string, sides: readonly Rule["peer"][]): Promise<Names> {
  const groups = sides.flatMap(({ group }) => (typeof group === "string" ? [group] : []));
  const hasOwners = groups.some((group) => userOfGroup(group) !== undefined);
  const hasProviders = groups.some((group) => providerOfGroup(group) !== undefined);
  const nodes = await nodeNames(api, slug, sides);
  const owners = hasOwners ? await memberEmails(api, slug) : new Map<number, string>();
  const named = hasProviders ? await api.call(rulesApi.providerGroups, { slug }) : [];
  return { nodes, owners, words: new Map(named.map(({ group, word }) => [group, word])) };
}

async function nodeNames(
  api: Api,
  slug: string,
  sides: readonly Rule["peer"][],
): Promise<Map<number, string>> {
  const ids = sides.flatMap(({ node }) => (typeof node === "number" ? [node] : []));
  if (ids.length === 0) return new Map();
  const names = new Map((await api.all(nodesApi.list, { slug })).map(({ id, name }) => [id, name]));
  if (ids.every((id) => names.has(id))) return names;
  // A rule may still name a node that was deleted.
  const revoked = await api.all(nodesApi.list, { slug }, { revoked: "true" });
  for (const { id, name } of revoked) names.set(id, `${name} (deleted)`);
  return names;
}

type Names = {
  nodes: ReadonlyMap<number, string>;
  owners: ReadonlyMap<number, string>;
  /** Words of providers' groups. */
  words: ReadonlyMap<string, string>;
};

/** A side in the words of `rule create`: any, group:web, node:db, user:ada@example.org, idp:Engineering, a network. */
function sideOf(side: Rule["peer"], { nodes, owners, words }: Names): string {
  const [[kind, of] = ["any", true]] = Object.entries(side);
  if (of === true) return kind;
  if (kind === "cidr") return String(of);
  if (of === selfGroup) return "self";
  const network = networkOfGroup(String(of));
  if (network !== undefined) return `network:${network}`;
  if (providerOfGroup(String(of)) !== undefined)
    return words.get(String(of)) ?? `idp:#${String(of).slice("idp:".length)}`;
  const owner = kind === "group" ? userOfGroup(String(of)) : undefined;
  if (owner !== undefined) return `user:${owners.get(owner) ?? `#${owner}`}`;
  return `${kind}:${kind === "node" ? (nodes.get(Number(of)) ?? `#${String(of)} (deleted)`) : of}`;
}

const ruleFlags = {
  direction: {
    type: "string",
    valueHint: "inbound|outbound",
    description: "Direction, seen from the target",
  },
  protocol: { type: "string", valueHint: "any|tcp|udp|icmp", description: "Protocol" },
  ports: { type: "string", valueHint: "P", description: "any, a port, or a range such as 8000-8010" },
  peer: {
    type: "string",
    valueHint: "SIDE",
    description:
      "The other side: any, group:G, node:NAME, user:EMAIL (the nodes of a member), idp:GROUP (the nodes of the users who have the group at a provider of identities), self (the nodes with the same owner) or a network",
  },
  target: {
    type: "string",
    valueHint: "SIDE",
    description:
      "The nodes with this rule: any, group:G, node:NAME, user:EMAIL or idp:GROUP; or network:CIDR, a network behind nodes and not these nodes themselves",
  },
  description: {
    type: "string",
    valueHint: "TEXT",
    clears: true,
    description: 'A description; "" clears it',
  },
} as const satisfies Flags;

export const create: Implementation = {
  args: {
    ...orgArg,
    direction: { ...ruleFlags.direction, default: "inbound" },
    protocol: { ...ruleFlags.protocol, default: "any" },
    ports: { ...ruleFlags.ports, default: "any" },
    peer: { ...ruleFlags.peer, default: "any" },
    target: { ...ruleFlags.target, default: "any" },
    description: ruleFlags.description,
    ...targetFlags,
  },
  examples: [`${brand.executable} admin rule create acme --protocol tcp --ports 443 --target group:web`],
  async run(context) {
    const { values, words, output } = context;
    const [slug = ""] = words;
    // All defaults together would allow all traffic. That must be said explicitly.
    if (["protocol", "ports", "peer", "target"].every((name) => values.text(name) === undefined)) {
      throw new AppError("usage", "Say what the rule allows: --protocol, --ports, --peer or --target", {
        hint: "To allow all traffic from all nodes, give --peer any.",
      });
    }
    const any = {
      direction: "inbound",
      protocol: "any",
      ports: "any",
      peer: { any: true },
      target: { any: true },
    } as const;
    // Check the flags before anything is asked. Only then can node names be resolved.
    await checked(CheckedRule, { ...any, ...(await asked(values, unknownIds)) });
    let new_groups: string[] = [];
    let present: Rule[] = [];
    let networks: readonly string[] = [];
    const rule = await write(context, async (api) => {
      const body = await checked(rulesApi.create.body, {
        ...any,
        ...(await asked(values, idsOf(api, slug))),
      });
      networks = await openedBy(api, slug, body);
      sayPlanned(context, networks, body);
      new_groups = await newGroups(api, slug, body);
      // Only for the warning below: the right to write rules may come without the right to read them.
      present = await api.all(rulesApi.list, { slug }).catch(() => []);
      return request(rulesApi.create, { slug }, body);
    });
    if (rule === undefined) return;
    sayNewGroups(output, new_groups);
    output.result(
      { ...rule, new_groups, networks_behind: networks },
      `Created rule ${rule.id}\n${opensText(networks, rule)}`,
    );
    sayTwin(output, slug, rule, present);
    sayEmptyGroup(output, slug, new_groups);
  },
};

export const update: Implementation = {
  args: {
    ...orgArg,
    ID: { type: "positional", description: "The rule's number" },
    ...ruleFlags,
    ...targetFlags,
  },
  examples: [`${brand.executable} admin rule update acme 3 --ports 8443 --peer group:staff`],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", word = ""] = words;
    const id = readId(word);
    if (Object.keys(ruleFlags).every((name) => values.text(name) === undefined))
      throw new AppError("usage", "Say what to change: such as --ports, --peer or --description");
    await checked(rulesApi.update.body, await asked(values, unknownIds));
    let new_groups: string[] = [];
    let networks: readonly string[] = [];
    const rule = await write(context, async (api) => {
      const body = given(await checked(rulesApi.update.body, await asked(values, idsOf(api, slug))));
      const before = await api
        .all(rulesApi.list, { slug })
        .then((rules) => rules.find((each) => each.id === id))
        .catch(() => undefined);
      if (before !== undefined) networks = await openedBy(api, slug, { ...before, ...body });
      sayPlanned(context, networks, { target: body.target ?? before?.target ?? {} });
      new_groups = await newGroups(api, slug, body);
      return request(rulesApi.update, { slug, id }, body);
    });
    if (rule === undefined) return;
    sayNewGroups(output, new_groups);
    output.result(
      { ...rule, new_groups, networks_behind: networks },
      `Updated rule ${rule.id}\n${opensText(networks, rule)}`,
    );
    sayEmptyGroup(output, slug, new_groups);
  },
};

/** The rule from the flags, in the form of the API. */
async function asked(values: Values, idOf: IdOf): Promise<{ peer?: Side; target?: Side }> {
  const side = async (flag: "peer" | "target") => {
    const text = values.text(flag);
    return text === undefined ? undefined : readSide(flag, text, idOf);
  };
  return given({
    direction: values.text("direction"),
    protocol: values.text("protocol"),
    ports: values.text("ports"),
    peer: await side("peer"),
    target: await side("target"),
    description: values.text("description"),
  });
}

/** Placeholders for a check of the flags before anything is asked. */
const unknownIds: IdOf = { node: async () => 1, user: async () => 1, idp: async () => ({ group: "group" }) };

const idsOf = (api: Api, slug: string): IdOf => ({
  node: async (name) => (await nodeByName(api, slug, name)).id,
  user: async (email) => (await signedUpMember(api, slug, email)).user_id,
  idp: async (name) => providerSide(api, slug, name),
});

function newGroups(
  api: Api,
  slug: string,
  { peer, target }: { peer?: Side; target?: Side },
): Promise<string[]> {
  const groups = [peer, target].flatMap((side) =>
    side !== undefined && "group" in side ? [side.group] : [],
  );
  return missingGroups(
    api,
    slug,
    groups.filter((group) => !isUsersGroup(group)),
  );
}

/**
 * The networks behind the nodes that a rule lets others reach: they are reached with them. None if the caller may not list
 * nodes.
 */
async function openedBy(
  api: Api,
  slug: string,
  { direction, peer, target }: Pick<Rule, "direction" | "peer" | "target">,
): Promise<readonly string[]> {
  const reached = direction === "inbound" ? target : peer;
  if ("cidr" in reached) return [];
  const nodes = await api.all(nodesApi.list, { slug }).catch(() => []);
  const network = networkOfGroup(String(reached["group"]));
  if (network !== undefined)
    return nodes.filter(({ subnets }) => subnets.includes(network)).map(({ name }) => `${name}: ${network}`);
  const routers = nodes.map(
    ({ name, subnets, groups, owner_id: ownerId = null, owner_groups: ownerGroups = [] }) => ({
      name,
      subnets,
      groups: [
        ...certifiedGroups({ groups, ownerGroups, ownerId }),
        ...(ownerId === null ? [] : [selfGroup]),
      ],
    }),
  );
  return networksBehind([targetWord(reached, nodes)], routers, Infinity);
}

/** A side of a rule as networksBehind reads it. */
function targetWord(side: Rule["peer"], nodes: readonly { id: number; name: string }[]): string {
  if ("any" in side) return "any";
  if ("node" in side) return `node:${nodes.find(({ id }) => id === side["node"])?.name}`;
  return `group:${String(side["group"])}`;
}

/** Says plainly whether a rule means the network behind a node. */
function opensText(networks: readonly string[], { target }: Pick<Rule, "target">): string {
  const isNetwork = networkOfGroup(String(target["group"])) !== undefined;
  if (networks.length === 0) return isNetwork ? "No node routes this network yet\n" : "";
  const list = networks.map((each) => `  ${each}\n`).join("");
  if (isNetwork) return `It opens the network behind these nodes, and not the nodes themselves:\n${list}`;
  const [first = ""] = networks[0]?.split(": ")[1]?.split(", ") ?? [];
  return `It also opens the networks behind these nodes:\n${list}For one of these networks alone: --target network:${first}\n`;
}

/** Part of the plan of --dry-run. */
function sayPlanned(
  { settings, output }: Context,
  networks: readonly string[],
  rule: Pick<Rule, "target">,
): void {
  if (settings.dryRun && !output.json && networks.length > 0) output.say(opensText(networks, rule).trimEnd());
}

function sayTwin(output: Context["output"], slug: string, rule: Rule, present: readonly Rule[]): void {
  const twin = present.find((each) => meaningOf(each) === meaningOf(rule));
  if (twin !== undefined)
    output.say(
      `Rule ${twin.id} permits the same already, so both have to be deleted to end it. To delete the new one: \`${brand.executable} admin rule delete ${quoteWord(slug)} ${rule.id}\``,
    );
}

function sayEmptyGroup(output: Context["output"], slug: string, [group]: readonly string[]): void {
  if (group !== undefined && !output.json)
    output.say(
      `No node is in ${group} yet: \`${brand.executable} admin node update ${quoteWord(slug)} NODE --add-group ${quoteWord(group)}\``,
    );
}

/** Equal for rules that permit the same: all but number and description. */
const meaningOf = ({ direction, protocol, ports, peer, target }: Rule) =>
  JSON.stringify([direction, protocol, ports, peer, target]);

type IdOf = Record<"node" | "user", (name: string) => Promise<number>> & {
  idp(name: string): Promise<ProviderSide>;
};
type Side = { any: true } | { node: number } | { cidr: string } | ProviderSide;

/** `any`, `self`, `group:web`, `node:db`, `user:ada@example.org` or a network in the form of the API. */
async function readSide(flag: string, text: string, idOf: IdOf): Promise<Side> {
  const [kind, name] = text.split(/:(.*)/s);
  if (text === "any") return { any: true };
  if (text === "self") return { group: selfGroup };
  if (kind === "network" && name !== undefined) return { group: networkGroup(name) };
  if (kind === "group" && name !== undefined) return { group: name };
  if (kind === "node" && name !== undefined) return { node: await idOf.node(name) };
  if (kind === "user" && name?.includes("@") === true) return { group: ownerGroup(await idOf.user(name)) };
  if (kind === "idp" && name !== undefined) return idOf.idp(name);
  if (/^[0-9.]+(\/\d+)?$/.test(text) || (text.includes(":") && kind !== "user")) return { cidr: text };
  throw new AppError("usage", `--${flag} ${text} is neither a group, a node, a user nor a network`, {
    hint: `Write node:${text} for the node, group:${text} for the group, or user:EMAIL for the nodes of a member.`,
  });
}

/** The word ID of a command line. */
function readId(id: string): number {
  if (!isNumber(id)) throw new AppError("usage", `ID must be a number, not "${id}"`);
  return Number(id);
}

export const remove: Implementation = {
  args: { ...orgArg, ID: { type: "positional", description: "The rule's number" }, ...targetFlags },
  examples: [`${brand.executable} admin rule delete acme 3`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    const id = readId(word);
    const gone = await write(context, () => ({
      ...request(rulesApi.delete, { slug, id }),
      effect: `delete rule ${id}`,
    }));
    if (gone !== undefined) context.output.result({ id, deleted: true }, `Deleted rule ${id}\n`);
  },
};
