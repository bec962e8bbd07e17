// `agent admin name …`: aliases of nodes.

import { namesApi } from "../../../api/names.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { given } from "../../../base/given.ts";
import { read, write } from "../api.ts";
import { checked, nodeByName, idOf } from "../lookup.ts";
import { valueFlag, wordArg } from "../../values.ts";

const domainOf = (slug: string) => `${slug}.${brand.internalDomain}`;

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin name list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const names = await read(context, (api) => api.all(namesApi.list, { slug }));
    context.output.list(
      { names },
      {
        columns: ["ID", "NAME", "NODE", "ADDRESS", "IN USE"],
        rows: names.map(({ id, name, node_name, address, is_shadowed }) => [
          id,
          `${name}.${domainOf(slug)}`,
          node_name,
          address,
          is_shadowed ? "no: a node has this name" : "yes",
        ]),
        none: `${slug} has no aliases.`,
      },
    );
  },
};

export const create: Implementation = {
  args: {
    ...orgArg,
    NAME: wordArg("The alias, without the domain"),
    to: valueFlag("NODE", "The node that the alias names", { required: true }),
    address: valueFlag("IP", "An address in a subnet that the node routes, instead of the node's own"),
  },
  examples: [
    `${brand.executable} admin name create acme db --to beta`,
    `${brand.executable} admin name create acme printer --to gateway --address 192.168.1.9`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", name = ""] = words;
    const [to, address] = [values.required("to"), values.text("address")];
    // Check the words before anything is asked. Only then can the node's name be resolved.
    const body = await checked(namesApi.create.body, { name, node: 1, ...given({ address }) });
    const alias = await write(context, async (api) => {
      const { id } = await nodeByName(api, slug, to);
      return request(namesApi.create, { slug }, { ...body, node: id });
    });
    if (alias === undefined) return;
    output.result(alias, `${alias.name}.${domainOf(slug)} is ${alias.address ?? alias.node_name}\n`);
  },
};

export const remove: Implementation = {
  args: {
    ...orgArg,
    NAME: wordArg("The alias, without the domain, or its number"),
  },
  examples: [`${brand.executable} admin name delete acme db`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    let id = 0;
    const gone = await write(context, async (api) => {
      const list = () => api.all(namesApi.list, { slug }, { search: name.slice(0, 100) });
      const listing = `name list ${quoteWord(slug)}`;
      id = await idOf(name, { what: "alias", listing, list, nameOf: (alias) => alias.name });
      return { ...request(namesApi.delete, { slug, id }), effect: `delete the alias ${name}` };
    });
    if (gone !== undefined) context.output.result({ id, deleted: true }, `Deleted the alias ${name}\n`);
  },
};
