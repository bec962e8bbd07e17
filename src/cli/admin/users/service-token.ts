// `agent admin service-token …`: tokens for programs.

import { request } from "../../../api/request.ts";
import { serviceTokensApi } from "../../../api/tokens/service-tokens.ts";
import { given } from "../../../base/given.ts";
import { quoteWord } from "../../../base/quote.ts";
import { brand } from "../../../brand.ts";
import type { Implementation } from "../../command.ts";
import { revokeNodesFlag } from "./left-access.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read, write } from "../api.ts";
import { checked, memberEmails } from "../lookup.ts";
import { endOf, makerOf, revokeToken, serviceTokensOf, tokenArg } from "./token.ts";
import { valueFlag, wordArg } from "../../values.ts";

export const create: Implementation = {
  notes: `A program sends it as \`Authorization: Bearer TOKEN\`, or ${brand.executable} takes it with --access-token-file. It has no
rights over users, tokens, CAs and settings. It is printed once.`,
  args: {
    ...orgArg,
    NAME: wordArg("A name that identifies it"),
    role: valueFlag("member|admin", "member reads, admin changes nodes, groups, rules and webhooks", {
      default: "member",
    }),
    expires: valueFlag("D", "Lifetime of the token, at most 366d (default: 90d)"),
    scope: valueFlag(
      "S",
      "read, nodes, policy or webhooks (repeatable; default: all that the role can use)",
      { repeatable: true },
    ),
    network: valueFlag(
      "NET",
      "The token is valid only from this network (repeatable; default: from everywhere)",
      { repeatable: true },
    ),
  },
  examples: [`${brand.executable} admin service-token create acme ci --role admin --expires 90d`],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", name = ""] = words;
    // Checked here; the control plane gets the text.
    values.duration("expires");
    const expires = values.text("expires");
    const [scopes, networks] = [values.list("scope"), values.list("network")];
    const body = await checked(serviceTokensApi.create.body, {
      name,
      role: values.choice("role", ["member", "admin"]) ?? "member",
      ...given({ expires_in: expires }),
      ...(scopes.length === 0 ? {} : { scopes: [...scopes] }),
      ...(networks.length === 0 ? {} : { networks: [...networks] }),
    });
    const made = await write(context, () => request(serviceTokensApi.create, { slug }, body));
    if (made === undefined) return;
    output.result(made, `${made.token}\n`);
    const rights = made.scopes?.join(", ") ?? "all of its role";
    output.say(
      `It has the role ${made.role} and the scopes ${rights}. Save it in a file that only the program can read, then:`,
    );
    const list = `  ${brand.executable} admin ${listFor(made.scopes)} list ${quoteWord(slug)}`;
    output.say(`${list} --api-base URL --access-token-file FILE`);
  },
};

/** A list that the token may read. */
function listFor(scopes: readonly string[] | null | undefined): "node" | "rule" | "webhook" {
  if (scopes == null || scopes.includes("nodes") || scopes.includes("read")) return "node";
  return scopes.includes("policy") ? "rule" : "webhook";
}

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin service-token list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const { tokens, makers } = await read(context, async (api) => ({
      tokens: await serviceTokensOf(api, slug),
      makers: context.output.json ? new Map<number, string>() : await memberEmails(api, slug),
    }));
    const now = context.system.now();
    context.output.list(
      { tokens },
      {
        columns: ["ID", "NAME", "ROLE", "SCOPES", "LAST USED", "STATE", "MADE BY"],
        rows: tokens.map((token) => [
          token.id,
          token.name,
          token.role,
          token.scopes?.join(", ") ?? "all",
          token.last_used_at ?? "-",
          endOf(token.expires_at, now),
          makerOf(token, makers),
        ]),
        none: `${slug} has no service tokens.`,
      },
    );
  },
};

export const revoke: Implementation = {
  args: { ...orgArg, ...tokenArg, ...revokeNodesFlag },
  examples: [`${brand.executable} admin service-token revoke acme ci`],
  run: (context) => revokeToken(context, { isService: true }),
};
