// `agent admin token …`: tokens that register new machines.

import type { ItemOf } from "../../../api/endpoint.ts";
import { nodesApi } from "../../../api/nodes.ts";
import { request } from "../../../api/request.ts";
import { registrationTokensApi, usualTokenLife } from "../../../api/tokens/registration-tokens.ts";
import { serviceTokensApi } from "../../../api/tokens/service-tokens.ts";
import { brand } from "../../../brand.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { Context, Implementation } from "../../command.ts";
import { resultOfEnding, revokeNodesFlag } from "./left-access.ts";
import { orgArg } from "../../server/server-flags.ts";
import type { Cell } from "../../table.ts";
import { given } from "../../../base/given.ts";
import { read, write, type Api } from "../api.ts";
import { checked, idOf, memberEmails, missingGroups, sayNewGroups } from "../lookup.ts";
import { switchFlag, valueFlag, wordArg } from "../../values.ts";

export const create: Implementation = {
  args: {
    ...orgArg,
    uses: valueFlag("N", "How many machines can register with it", { default: "1" }),
    expires: valueFlag("D", "Lifetime of the token", { default: usualTokenLife }),
    group: valueFlag("G", "A group for its nodes (repeatable)", { repeatable: true }),
    node: valueFlag("NAME", "Only this node can register with it; creates the pending node if there is none"),
    lighthouse: switchFlag("Its nodes can be lighthouses and relays"),
    ephemeral: switchFlag("Its nodes are removed when they stop or are silent: for jobs and containers"),
    silence: valueFlag("D", "Remove an ephemeral node after this silence, from 60s (default: 10m)"),
    names: switchFlag("Tell other nodes the names of ephemeral nodes, too"),
    approved: switchFlag("Its machines need no approval, unless the organization approves all"),
    name: valueFlag("N", "A name that identifies it"),
  },
  examples: [
    `${brand.executable} admin token create acme --uses 3 --expires 2h --group web`,
    `${brand.executable} admin token create acme --ephemeral --uses 10000 --expires 30d --group ci`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const [slug = ""] = words;
    // Checked here; the control plane gets the text.
    values.duration("expires");
    const groups = [...values.list("group")];
    const body = await checked(registrationTokensApi.create.body, {
      groups,
      is_lighthouse: values.on("lighthouse"),
      ...newerFields(context),
      ...given({
        name: values.text("name"),
        uses: values.integer("uses", 1, 1_000_000),
        expires_in: values.text("expires"),
        node_name: values.text("node"),
      }),
    });
    let new_groups: string[] = [];
    const made = await write(context, async (api) => {
      new_groups = await missingGroups(api, slug, groups);
      return request(registrationTokensApi.create, { slug }, body);
    });
    if (made === undefined) return;
    sayNewGroups(output, new_groups);
    // Programs read --json, and other output beside it goes into their logs.
    if (!output.json) output.say(await howToJoin(made));
    output.result({ ...made, new_groups }, `${made.token}\n`);
  },
};

/** Sent only if given: an older control plane does not know the fields. */
function newerFields({ values }: Context) {
  return given({
    ephemeral: values.on("ephemeral") || undefined,
    silence: values.text("silence"),
    names: values.on("names") || undefined,
    approved: values.on("approved") || undefined,
  });
}

/** The lines that make a machine a node. Without flags only by a join key, which an older control plane does not make. */
async function howToJoin({
  join_key,
  command,
}: {
  join_key?: string | undefined;
  command: string;
}): Promise<string> {
  if (join_key === undefined) return `Run this on the new machine:\n  ${command}`;
  const { joinText } = await import("../../../server/nodes/joining/registration-tokens.ts");
  return `${joinText({ join_key })}\nOr register it with flags:\n  ${command}`;
}

const tokensOf = (api: Api, slug: string) => api.all(registrationTokensApi.list, { slug });
export const serviceTokensOf = (api: Api, slug: string) => api.all(serviceTokensApi.list, { slug });

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin token list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const { tokens, names, makers } = await read(context, async (api) => {
      const found = await tokensOf(api, slug);
      const emails = context.output.json ? new Map<number, string>() : await memberEmails(api, slug);
      const isBound = found.some((token) => token.node_id !== null);
      const nodes = isBound ? await api.all(nodesApi.list, { slug }) : [];
      return { tokens: found, names: new Map(nodes.map(({ id, name }) => [id, name])), makers: emails };
    });
    const now = context.system.now();
    context.output.list(
      { tokens },
      {
        columns: ["ID", "NAME", "USED", "STATE", "FOR", "GROUPS", "MADE BY"],
        rows: tokens.map((token) => [
          token.id,
          token.name,
          `${token.used}/${token.uses}`,
          token.used >= token.uses ? { text: "used up", mark: "faint" } : endOf(token.expires_at, now),
          nodesOf(token, names),
          token.groups.join(", "),
          makerOf(token, makers),
        ]),
        none: `${slug} has no registration tokens.`,
      },
    );
  },
};

/** Which nodes can register with a token. */
function nodesOf(
  token: ItemOf<typeof registrationTokensApi.list>,
  names: ReadonlyMap<number, string>,
): string {
  if (token.node_id !== null) return `node ${names.get(token.node_id) ?? token.node_id}`;
  if (token.is_lighthouse) return "lighthouses";
  return token.ephemeral_silence_s == null ? "any node" : "ephemeral nodes";
}

/** A member's e-mail address, "user 7" for a former member, or "-": the operator or a service token made it. */
export function makerOf(
  { created_by: id }: { created_by?: number | null | undefined },
  emails: ReadonlyMap<number, string>,
): string {
  return id == null ? "-" : (emails.get(id) ?? `user ${id}`);
}

/** When a token ends, as a cell of a table. `now`: ms since 1970. */
export function endOf(at: string | null, now: number): Cell {
  if (at === null) return "does not expire";
  return Date.parse(at) <= now ? { text: `expired ${at}`, mark: "bad" } : `until ${at}`;
}

export const tokenArg = { ID: wordArg("The token's number or name") };

/** Revokes a registration or service token by its number or name, and says what access remains. */
export async function revokeToken(context: Context, { isService }: { isService: boolean }): Promise<void> {
  const [slug = "", word = ""] = context.words;
  const tokensApi = isService ? serviceTokensApi : registrationTokensApi;
  const revoke_nodes = context.values.on("revoke-nodes") ? "true" : "false";
  let id = 0;
  const report = await write(context, async (api) => {
    id = isService
      ? await idOf(word, {
          what: "service token",
          listing: `service-token list ${quoteWord(slug)}`,
          list: () => serviceTokensOf(api, slug),
          nameOf: (each) => each.name,
        })
      : await idOf(word, {
          what: "token",
          listing: `token list ${quoteWord(slug)}`,
          list: () => tokensOf(api, slug),
          nameOf: (each) => each.name,
        });
    const more = context.values.on("revoke-nodes") ? " and the nodes that registered with it" : "";
    return {
      ...request(tokensApi.revoke, { slug, id }, { revoke_nodes, report: "true" }),
      effect: `revoke token ${id}${more}`,
    };
  });
  if (report == null) return;
  const fields = { id, revoked: true };
  resultOfEnding(context.output, { subject: `token ${id}`, fields, done: `Revoked token ${id}` }, report);
}

export const revoke: Implementation = {
  args: {
    ...orgArg,
    ...tokenArg,
    service: switchFlag("ID is the number or name of a service token"),
    ...revokeNodesFlag,
  },
  examples: [`${brand.executable} admin token revoke acme 3`],
  run: (context) => revokeToken(context, { isService: context.values.on("service") }),
};
