// `agent admin token …`: tokens with which new machines register.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { missingGroups, onOrganization, onlyPlanned, sayNewGroups } from "./data.ts";
import type { Command } from "../command.ts";
import { revokedLines, revokeNodesFlag, sayAccessLeft } from "../left-access.ts";
import { dataFlags } from "../server-flags.ts";

const organization = { name: "ORG", description: "the organization's slug", required: true } as const;

export const create: Command = {
  name: "admin token create",
  summary: "Make a registration token; printed once",
  flags: {
    uses: {
      type: "string",
      valueHint: "N",
      default: "1",
      description: "How many machines may register with it",
    },
    expires: { type: "string", valueHint: "D", default: "24h", description: "How long it is good" },
    group: {
      type: "string",
      valueHint: "G",
      repeatable: true,
      description: "A group its nodes get; repeatable",
    },
    node: {
      type: "string",
      valueHint: "NAME",
      description: "Good for this node alone; creates it, pending, if there is none",
    },
    lighthouse: { type: "boolean", description: "Its nodes may be lighthouses and relays" },
    name: { type: "string", valueHint: "N", description: "A name to know it by" },
    ...dataFlags,
  },
  words: [organization],
  examples: [`${brand.executable} admin token create acme --uses 3 --expires 2h --group web`],
  async run(context) {
    const { values, words, output } = context;
    const { createRegistrationToken, RegistrationTokenRequest } =
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
    if (await onlyPlanned(context)) return;
    const made = await onOrganization(context, words[0] ?? "", async (admin, org) => {
      const by = { userId: null, actor: operator };
      const new_groups = await missingGroups(admin, org, request.groups);
      const token = await createRegistrationToken(admin, org, request, by);
      return { ...token, new_groups };
    });
    sayNewGroups(output, made.new_groups);
    output.say(`On the new machine:\n  ${made.command}`);
    output.result(made, `${made.token}\n`);
  },
};

export const list: Command = {
  name: "admin token list",
  summary: "List the registration tokens, without the secrets",
  flags: dataFlags,
  words: [organization],
  examples: [`${brand.executable} admin token list acme`],
  async run(context) {
    const { listRegistrationTokens } = await import("../../server/nodes/registration-tokens.ts");
    const tokens = await onOrganization(context, context.words[0] ?? "", ({ db }, org) =>
      listRegistrationTokens(db, org),
    );
    const lines = tokens.map(
      (token) =>
        `${token.id}\t${token.used}/${token.uses} used\tuntil ${token.expires_at}\t${token.name ?? ""}\n`,
    );
    context.output.result({ tokens }, lines.join(""));
  },
};

export const revoke: Command = {
  name: "admin token revoke",
  summary: "Revoke a registration token; nodes that used it stay",
  flags: {
    service: { type: "boolean", description: "ID is that of a service token" },
    ...revokeNodesFlag,
    ...dataFlags,
  },
  words: [organization, { name: "ID", description: "the token's number", required: true }],
  examples: [`${brand.executable} admin token revoke acme 3`],
  async run(context) {
    const [slug = "", id = ""] = context.words;
    if (!/^\d{1,15}$/.test(id)) throw new AppError("usage", `ID is a number, not "${id}"`);
    const { reportOf, revokeToken } = await import("../../server/offboarding/left-access.ts");
    const ends = { revokeNodes: context.values.on("revoke-nodes") };
    const kind = context.values.on("service") ? "service_token" : "registration_token";
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context)) return;
    const access = await onOrganization(context, slug, (admin, org) =>
      revokeToken(admin, org, kind, Number(id), operator, ends),
    );
    context.output.result(
      { id: Number(id), revoked: true, ...reportOf(access) },
      `Revoked token ${id}\n${revokedLines(access)}`,
    );
    sayAccessLeft(context.output, `token ${id}`, access);
  },
};
