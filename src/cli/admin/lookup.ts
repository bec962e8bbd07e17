// Finds what the words of a command line name: nodes, members, users, tokens and webhooks by name, e-mail address, URL or
// number.

import * as v from "valibot";
import type { ItemOf } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import { membersApi } from "../../api/members.ts";
import { nodesApi } from "../../api/nodes.ts";
import { usersApi, type User } from "../../api/users.ts";
import { rulesApi } from "../../api/rules.ts";
import { brand } from "../../brand.ts";
import { AppError, hasCode } from "../../base/errors.ts";
import { networkContains, parseAddress, parseNetworks } from "../../base/ip.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Node } from "../../protocol/node.ts";
import type { Context } from "../command.ts";
import { wordArg } from "../values.ts";
import type { Api } from "./api.ts";

const admin = `${brand.executable} admin`;

/** Whether a word is a number as the paths of the API have them. */
export const isNumber = (word: string): boolean => /^[1-9]\d{0,14}$/.test(word);

/** A search of the API takes at most 100 characters; the comparison below is exact in any case. */
const searchFor = (text: string) => ({ search: text.slice(0, 100) });

export const nodeArg = { NAME: wordArg("The node's name") };

/** Throws not_found with what to do next, such as restoring a revoked node. */
export async function nodeByName(api: Api, slug: string, name: string): Promise<Node> {
  const found = await api.all(nodesApi.list, { slug }, searchFor(name));
  const node = found.find((each) => each.name === name);
  if (node !== undefined) return node;
  await refuseHost(api, slug, name);
  const revoked = await lastRevoked(api, slug, name);
  if (revoked === undefined) throw noNode(slug, name, "");
  const line = `${admin} node restore ${quoteWord(slug)} ${quoteWord(name)}`;
  throw new AppError("not_found", `${name} was revoked at ${revoked.revoked_at ?? "an unknown time"}`, {
    hint: `To restore it: \`${line}\`.`,
  });
}

/** A host behind a node is not a node: the rules of its router decide about it. */
async function refuseHost(api: Api, slug: string, text: string): Promise<void> {
  const address = parseAddress(text);
  if (address === undefined) return;
  const all = await api.all(nodesApi.list, { slug });
  const router = all.find(({ subnets }) =>
    parseNetworks(subnets).some((each) => networkContains(each, address)),
  );
  if (router !== undefined)
    throw new AppError("not_found", `${text} is no node, but a host behind ${router.name}`, {
      hint: `Name ${router.name} instead: rules that reach it reach the networks behind it.`,
    });
}

/** The revoked node of this name; of several, the one that was revoked last. Throws not_found. */
export async function revokedNodeByName(api: Api, slug: string, name: string): Promise<Node> {
  const revoked = await lastRevoked(api, slug, name);
  if (revoked !== undefined) return revoked;
  throw noNode(slug, name, "revoked ");
}

async function lastRevoked(api: Api, slug: string, name: string): Promise<Node | undefined> {
  const query = { ...searchFor(name), revoked: "true" } as const;
  const found = (await api.all(nodesApi.list, { slug }, query)).filter((each) => each.name === name);
  found.sort((a, b) => (b.revoked_at ?? "").localeCompare(a.revoked_at ?? "") || b.id - a.id);
  return found[0];
}

function noNode(slug: string, name: string, kind: "" | "revoked "): AppError {
  const flag = kind === "" ? "" : " --revoked";
  return new AppError("not_found", `There is no ${kind}node named ${name}`, {
    hint: `\`${admin} node list ${quoteWord(slug)}${flag}\` lists the nodes.`,
  });
}

/** The text of a file. Throws usage if there is none. */
export async function fileByName(path: string): Promise<string> {
  const { readTextIfThere } = await import("../../base/files.ts");
  const text = readTextIfThere(path);
  if (text === undefined) throw new AppError("usage", `There is no file ${path}`);
  return text;
}

/** Throws not_found. */
export async function userByEmail(api: Api, email: string): Promise<User> {
  const wanted = email.trim().toLowerCase();
  const user = (await api.all(usersApi.list, {}, searchFor(wanted))).find((each) => each.email === wanted);
  if (user !== undefined) return user;
  throw new AppError("not_found", `There is no user ${email}`, {
    hint: `To create the user: \`${admin} user create ${quoteWord(email)}\`.`,
  });
}

/** Throws not_found. */
export async function memberByEmail(
  api: Api,
  slug: string,
  email: string,
): Promise<ItemOf<typeof membersApi.list>> {
  const wanted = email.trim().toLowerCase();
  const found = await api.all(membersApi.list, { slug }, searchFor(wanted));
  const member = found.find((each) => each.email === wanted);
  if (member !== undefined) return member;
  throw new AppError("not_found", `${email} is not a member of ${slug}`, {
    hint: `To add a member: \`${admin} member create ${quoteWord(slug)} EMAIL --role ROLE\`.`,
  });
}

/** A member who accepted the invitation. */
export async function signedUpMember(
  api: Api,
  slug: string,
  email: string,
): Promise<{ user_id: number; email: string }> {
  const { user_id, ...member } = await memberByEmail(api, slug, email);
  if (user_id !== null && user_id !== undefined) return { ...member, user_id };
  throw new AppError("not_found", `${email} has not accepted the invitation to ${slug} yet`);
}

/** E-mail addresses by user number. Empty for a service token, which may not read them. */
export async function memberEmails(api: Api, slug: string): Promise<Map<number, string>> {
  const members = await api.all(membersApi.list, { slug }).catch((error: unknown) => {
    if (hasCode(error, "permission_denied")) return [];
    throw error;
  });
  // An invited member has no number yet.
  return new Map(members.flatMap(({ user_id: id, email }) => (id == null ? [] : [[id, email]])));
}

/** A side of a rule: a group of a provider by the name that the policy has for it (`group`), or by the provider's (`idp`). */
export type ProviderSide = { group: string } | { idp: string };

/**
 * `name`: `Engineering` or `PROVIDER/Engineering`. A group that the policy names already is sent as `group`, which earlier control
 * planes take too.
 */
export async function providerSide(api: Api, slug: string, name: string): Promise<ProviderSide> {
  const named = await api.call(rulesApi.providerGroups, { slug });
  const found = named.find(({ word }) => word === `idp:${name}`);
  return found === undefined ? { idp: name } : { group: found.group };
}

/**
 * The number of a token or webhook that a word names: by its number, or by `nameOf`. Only a name needs the list. Throws
 * conflict if several have the name.
 */
export async function idOf<T extends { id: number }>(
  word: string,
  {
    what,
    listing,
    list,
    nameOf,
  }: {
    what: string;
    /** The command below `agent admin` that lists them. */
    listing: string;
    list: () => Promise<T[]>;
    nameOf: (item: T) => string | null;
  },
): Promise<number> {
  if (isNumber(word)) return Number(word);
  const [first, ...more] = (await list()).filter((item) => nameOf(item) === word);
  if (first === undefined)
    throw new AppError("not_found", `There is no ${what} ${word}`, {
      hint: `\`${admin} ${listing}\` lists what there is.`,
    });
  if (more.length === 0) return first.id;
  const ids = [first, ...more].map(({ id }) => id).join(", ");
  throw new AppError("conflict", `Several have the name ${word}`, { hint: `Give a number: ${ids}.` });
}

/** The names that are no groups yet. Commands create a missing group, so a typing error creates one, too. */
export async function missingGroups(api: Api, slug: string, wanted: readonly string[]): Promise<string[]> {
  if (wanted.length === 0) return [];
  const known = new Set((await api.all(groupsApi.list, { slug })).map(({ name }) => name));
  return [...new Set(wanted)].filter((name) => !known.has(name));
}

/** Says nothing with --json: the result has the groups. */
export function sayNewGroups({ json, say }: Context["output"], names: readonly string[]): void {
  if (json || names.length === 0) return;
  say(`New ${names.length === 1 ? "group" : "groups"}: ${names.join(", ")}`);
}

/** Checks a request before the data is opened or a control plane is asked. Returns it as given. */
export async function checked<S extends v.GenericSchema>(
  schema: S | Promise<S>,
  request: unknown,
): Promise<v.InferInput<S>> {
  const { parse } = await import("../../server/http/parse-input.ts");
  const known = await schema;
  parse(known, request);
  // It throws nothing after `parse`, and tells the compiler the type.
  v.assert(known, request);
  return request;
}
