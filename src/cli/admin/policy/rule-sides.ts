// The sides of a firewall rule on the command line: `--peer group:web` as the API has it, and back for lists.

import type { ItemOf } from "../../../api/endpoint.ts";
import { nodesApi } from "../../../api/nodes.ts";
import { rulesApi } from "../../../api/rules.ts";
import { AppError } from "../../../base/errors.ts";
import {
  networkGroup,
  networkOfGroup,
  ownerGroup,
  providerOfGroup,
  selfGroup,
  userOfGroup,
} from "../../../protocol/users-groups.ts";
import type { Api } from "../api.ts";
import { memberEmails, nodeByName, providerSide, signedUpMember, type ProviderSide } from "../lookup.ts";

/** A side as answers have it. */
type SentSide = ItemOf<typeof rulesApi.list>["peer"];
/** The ids that the API has for the names of a command line. */
export type IdOf = Record<"node" | "user", (name: string) => Promise<number>> & {
  idp(name: string): Promise<ProviderSide>;
};
/** A side as requests have it. */
export type Side = { any: true } | { node: number } | { cidr: string } | ProviderSide;

/** Placeholders, so that the flags can be checked before the API is asked for ids. */
export const unknownIds: IdOf = {
  node: async () => 1,
  user: async () => 1,
  idp: async () => ({ group: "group" }),
};

export const idsOf = (api: Api, slug: string): IdOf => ({
  node: async (name) => (await nodeByName(api, slug, name)).id,
  user: async (email) => (await signedUpMember(api, slug, email)).user_id,
  idp: async (name) => providerSide(api, slug, name),
});

/** Reads what shownSide writes. `flag` is for the error: usage. */
export async function readSide(flag: string, text: string, idOf: IdOf): Promise<Side> {
  const [kind, name] = text.split(/:(.*)/s);
  if (text === "any") return { any: true };
  if (text === "self") return { group: selfGroup };
  if (kind === "network" && name !== undefined) return { group: networkGroup(name) };
  if (kind === "group" && name !== undefined) return { group: name };
  if (kind === "node" && name !== undefined) return { node: await idOf.node(name) };
  if (kind === "user" && name?.includes("@") === true) return { group: ownerGroup(await idOf.user(name)) };
  if (kind === "idp" && name !== undefined) return idOf.idp(name);
  // IPv6 has colons, as an unknown kind would have: the control plane refuses what is no network.
  if (/^[0-9.]+(\/\d+)?$/.test(text) || (text.includes(":") && kind !== "user")) return { cidr: text };
  throw new AppError("usage", `--${flag} ${text} is neither a group, a node, a user nor a network`, {
    hint: `Write node:${text} for the node, group:${text} for the group, or user:EMAIL for the nodes of a member.`,
  });
}

/** What shownSide needs to name these sides. Asks only for what occurs in them. */
export async function sideNames(api: Api, slug: string, sides: readonly SentSide[]): Promise<SideNames> {
  const groups = sides.flatMap(({ group }) => (typeof group === "string" ? [group] : []));
  const hasOwners = groups.some((group) => userOfGroup(group) !== undefined);
  const hasProviders = groups.some((group) => providerOfGroup(group) !== undefined);
  const nodes = await nodeNames(api, slug, sides);
  const owners = hasOwners ? await memberEmails(api, slug) : new Map<number, string>();
  const named = hasProviders ? await api.call(rulesApi.providerGroups, { slug }) : [];
  return { nodes, owners, words: new Map(named.map(({ group, word }) => [group, word])) };
}

async function nodeNames(api: Api, slug: string, sides: readonly SentSide[]): Promise<Map<number, string>> {
  const ids = sides.flatMap(({ node }) => (typeof node === "number" ? [node] : []));
  if (ids.length === 0) return new Map();
  const names = new Map((await api.all(nodesApi.list, { slug })).map(({ id, name }) => [id, name]));
  if (ids.every((id) => names.has(id))) return names;
  // A rule may still name a node that was revoked. One that was deleted has no name any more.
  const revoked = await api.all(nodesApi.list, { slug }, { revoked: "true" });
  for (const { id, name } of revoked) names.set(id, `${name} (revoked)`);
  return names;
}

type SideNames = {
  /** Names of nodes by id. */
  nodes: ReadonlyMap<number, string>;
  /** E-mail addresses of users by id. */
  owners: ReadonlyMap<number, string>;
  /** Words such as "idp:Engineering" by the group that the policy has for a group of a provider. */
  words: ReadonlyMap<string, string>;
};

/** A side in the words of `rule create`: any, group:web, node:db, user:ada@example.org, idp:Engineering, a network. */
export function shownSide(side: SentSide, { nodes, owners, words }: SideNames): string {
  // A side is an object with one field, whose name is its kind.
  const [[kind, value] = ["any", true]] = Object.entries(side);
  if (value === true) return kind;
  const text = String(value);
  if (kind === "cidr") return text;
  if (kind === "node") return `node:${nodes.get(Number(value)) ?? `#${text} (deleted)`}`;
  // Groups with a meaning of their own (users-groups.ts).
  if (text === selfGroup) return "self";
  const network = networkOfGroup(text);
  if (network !== undefined) return `network:${network}`;
  if (providerOfGroup(text) !== undefined) return words.get(text) ?? `idp:#${text.slice("idp:".length)}`;
  const owner = userOfGroup(text);
  if (owner !== undefined) return `user:${owners.get(owner) ?? `#${owner}`}`;
  return `${kind}:${text}`;
}
