// `agent admin name …`: aliases of nodes.

import { brand } from "../../brand.ts";
import { tableLine } from "../../log.ts";
import type { Implementation } from "../command.ts";
import { dataFlags, orgArg } from "../server-flags.ts";
import { onOrganization, onlyPlanned } from "./data.ts";

const nameArg = { NAME: { type: "positional", description: "The alias, without the domain" } } as const;

export const list: Implementation = {
  args: { ...orgArg, ...dataFlags },
  examples: [`${brand.executable} admin name list acme`],
  async run(context) {
    const { listAliases } = await import("../../server/names/aliases.ts");
    const [slug = ""] = context.words;
    const names = await onOrganization(context, slug, ({ db }, org) => listAliases(db, org));
    const lines = names.map(({ name, node_name, address, is_shadowed }) =>
      tableLine([
        `${name}.${slug}.${brand.internalDomain}`,
        address ?? "",
        `node ${node_name}`,
        is_shadowed ? "not in use: a node has this name" : "",
      ]),
    );
    context.output.result({ names }, lines.join(""));
  },
};

export const create: Implementation = {
  args: {
    ...orgArg,
    ...nameArg,
    to: { type: "string", valueHint: "NODE", description: "The node that the alias names", required: true },
    address: {
      type: "string",
      valueHint: "IP",
      description: "An address in a subnet that the node routes, instead of the node's own",
    },
    ...dataFlags,
  },
  examples: [
    `${brand.executable} admin name create acme db --to beta`,
    `${brand.executable} admin name create acme printer --to gateway --address 192.168.1.9`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", name = ""] = words;
    const { AliasRequest, createAlias } = await import("../../server/names/aliases.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const { parse } = await import("../../server/http/route.ts");
    const request = (node: number) => parse(AliasRequest, { name, node, address: values.text("address") });
    const to = values.required("to");
    // Check the words before the database is opened.
    request(1);
    if (await onlyPlanned(context, { org: slug })) return;
    const alias = await onOrganization(context, slug, async (admin, org) => {
      const { findNodeByName } = await import("../../server/nodes/nodes.ts");
      const { id } = await findNodeByName(admin.db, org.id, to);
      return createAlias(admin, org, request(id), operator);
    });
    output.result(
      alias,
      `${alias.name}.${slug}.${brand.internalDomain} is ${alias.address ?? alias.node_name}\n`,
    );
  },
};

export const remove: Implementation = {
  args: { ...orgArg, ...nameArg, ...dataFlags },
  examples: [`${brand.executable} admin name delete acme db`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const { aliasByName, deleteAlias } = await import("../../server/names/aliases.ts");
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context, { org: slug })) return;
    const { id } = await onOrganization(context, slug, async (admin, org) => {
      const found = await aliasByName(admin.db, org, name);
      await deleteAlias(admin, org, found.id, operator);
      return found;
    });
    context.output.result({ id, name, deleted: true }, `Deleted the alias ${name}\n`);
  },
};
