// `agent admin group …`: the groups of an organization's nodes.

import { groupsApi } from "../../api/groups.ts";
import { request } from "../../api/request.ts";
import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { orgArg } from "../server/server-flags.ts";
import { valueFlag, wordArg } from "../values.ts";
import { read, write } from "./api.ts";
import { checked } from "./lookup.ts";

const groupArg = { NAME: wordArg("The group's name") };

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin group list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const groups = await read(context, (api) => api.all(groupsApi.list, { slug }));
    context.output.list(
      { groups },
      {
        columns: ["NAME", "DESCRIPTION"],
        rows: groups.map((each) => [each.name, each.description]),
        none: `${slug} has no groups.`,
      },
    );
  },
};

const descriptionFlag = valueFlag("TEXT", 'A description; "" clears it', { clears: true });

export const create: Implementation = {
  args: { ...orgArg, ...groupArg, description: descriptionFlag },
  examples: [`${brand.executable} admin group create acme web`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const description = context.values.text("description");
    const body = await checked(groupsApi.create.body, { name, ...given({ description }) });
    const group = await write(context, () => request(groupsApi.create, { slug }, body));
    if (group !== undefined) context.output.result(group, `Created group ${group.name}\n`);
  },
};

export const update: Implementation = {
  args: { ...orgArg, ...groupArg, description: { ...descriptionFlag, required: true } },
  examples: [`${brand.executable} admin group update acme web --description "Web servers"`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const body = { description: context.values.required("description") };
    const group = await write(context, () => request(groupsApi.update, { slug, name }, body));
    if (group !== undefined) context.output.result(group, `Updated group ${group.name}\n`);
  },
};

export const remove: Implementation = {
  args: { ...orgArg, ...groupArg },
  examples: [`${brand.executable} admin group delete acme web`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const effect = `delete group ${name}`;
    const gone = await write(context, () => ({ ...request(groupsApi.delete, { slug, name }), effect }));
    if (gone !== undefined) context.output.result({ name, deleted: true }, `Deleted group ${name}\n`);
  },
};
