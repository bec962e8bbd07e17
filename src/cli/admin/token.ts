// `agent admin token …`: tokens that register new machines.

import { brand } from "../../brand.ts";
import { missingGroups, onOrganization, onlyPlanned, readId, sayNewGroups } from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Implementation } from "../command.ts";
import { revokedLines, revokeNodesFlag, sayAccessLeft } from "../left-access.ts";
import { dataFlags, orgArg } from "../server-flags.ts";

export const create: Implementation = {
  args: {
    ...orgArg,
    uses: {
      type: "string",
      valueHint: "N",
      default: "1",
      description: "How many machines can register with it",
    },
    expires: { type: "string", valueHint: "D", default: "24h", description: "Lifetime of the token" },
    group: {
      type: "string",
      valueHint: "G",
      repeatable: true,
      description: "A group for its nodes (repeatable)",
    },
    node: {
      type: "string",
      valueHint: "NAME",
      description: "Only this node can register with it; creates the pending node if there is none",
    },
    lighthouse: { type: "boolean", description: "Its nodes can be lighthouses and relays" },
    name: { type: "string", valueHint: "N", description: "A name that identifies it" },
    ...dataFlags,
  },
  examples: [`${brand.executable} admin token create acme --uses 3 --expires 2h --group web`],
  async run(context) {
    const { values, words, output } = context;
    const { createRegistrationToken, joinText, RegistrationTokenRequest } =
      await import("../../server/nodes/registration-tokens.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    values.duration("expires");
    const request = parse(RegistrationTokenRequest, {
      name: values.text("name"),
      uses: values.integer("uses", 1, 1_000_000),
      expires_in: values.text("expires"),
      groups: [...values.list("group")],
      is_lighthouse: values.on("lighthouse"),
      node_name: values.text("node"),
    });
    if (await onlyPlanned(context, { org: words[0] })) return;
    const made = await onOrganization(context, words[0] ?? "", async (admin, org) => {
      const by = { userId: null, actor: operator };
      const new_groups = await missingGroups(admin, org, request.groups);
      const token = await createRegistrationToken(admin, org, request, by);
      return { ...token, new_groups };
    });
    sayNewGroups(output, made.new_groups);
    output.say(`${joinText(made)}\nOr register it with flags:\n  ${made.command}`);
    output.result(made, `${made.token}\n`);
  },
};

export const list: Implementation = {
  args: { ...orgArg, ...dataFlags },
  examples: [`${brand.executable} admin token list acme`],
  async run(context) {
    const { listRegistrationTokens } = await import("../../server/nodes/registration-tokens.ts");
    const tokens = await onOrganization(context, context.words[0] ?? "", ({ db }, org) =>
      listRegistrationTokens(db, org),
    );
    const lines = tokens.map((token) =>
      tableLine([
        token.id,
        `${token.used}/${token.uses} used`,
        `until ${token.expires_at}`,
        token.name ?? "",
      ]),
    );
    context.output.result({ tokens }, lines.join(""));
  },
};

export const revoke: Implementation = {
  args: {
    ...orgArg,
    ID: { type: "positional", description: "The token's number" },
    service: { type: "boolean", description: "ID is the number of a service token" },
    ...revokeNodesFlag,
    ...dataFlags,
  },
  examples: [`${brand.executable} admin token revoke acme 3`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    const id = readId(word);
    const { reportOf, revokeToken } = await import("../../server/offboarding/left-access.ts");
    const ends = { revokeNodes: context.values.on("revoke-nodes") };
    const kind = context.values.on("service") ? "service_token" : "registration_token";
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context, { org: slug })) return;
    const access = await onOrganization(context, slug, (admin, org) =>
      revokeToken(admin, org, kind, id, operator, ends),
    );
    context.output.result(
      { id, revoked: true, ...reportOf(access) },
      `Revoked token ${id}\n${revokedLines(access)}`,
    );
    sayAccessLeft(context.output, `token ${id}`, access);
  },
};
