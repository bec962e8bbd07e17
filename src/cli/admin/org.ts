// `agent admin org …`: organizations.

import type { AnswerOf } from "../../api/endpoint.ts";
import { organizationSettings, organizationsApi } from "../../api/organizations.ts";
import { request } from "../../api/request.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Context, Implementation } from "../command.ts";
import { confirmable, ownerChoice, ownerFlags } from "../join/owner-flags.ts";
import type { Facts } from "../table.ts";
import { given } from "../../base/given.ts";
import { valueFlag, wordArg } from "../values.ts";
import { read, write } from "./api.ts";
import { checked } from "./lookup.ts";
import { changedLines, readChanges, settingFacts, settingFlags } from "./setting-flags.ts";

type Organization = AnswerOf<typeof organizationsApi.retrieve>;

const slugArg = { SLUG: wordArg("The organization's slug") };

export const create: Implementation = {
  args: {
    SLUG: wordArg("The short name of the new organization"),
    network: valueFlag("CIDR", "The overlay network, such as 10.77.0.0/16", { required: true }),
    network6: valueFlag("CIDR", "An additional IPv6 overlay network"),
    name: valueFlag("N", "A display name (default: the slug)"),
    ...ownerFlags,
    "certificate-version": valueFlag("1|both|2", "Version of the overlay certificates", { default: "1" }),
  },
  examples: [`${brand.executable} admin org create acme --network 10.77.0.0/16 --owner ada@example.org`],
  async run(context) {
    const { values, output } = context;
    const body = await readNew(context);
    const { isPrivate, parseNetwork } = await import("../../base/ip.ts");
    const network = parseNetwork(body.network);
    if (network !== undefined && !isPrivate(network)) {
      output.say(
        `Warning: ${body.network} is a public range. Nodes can no longer reach its real addresses. Private ranges: 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10.`,
      );
    }
    // For the line to repeat, if the control plane wants the owner confirmed (`confirmable`).
    const words = ["admin", "org", "create", body.slug];
    const flags = ["network", "network6", "name", "certificate-version", "owner"];
    const org = await confirmable(values, words, flags, () =>
      write(context, () => request(organizationsApi.create, {}, body), { mayCreateData: true }),
    );
    if (org === undefined) return;
    output.result(org, `Created organization ${org.slug} (${org.network})\n`);
    const command = `${brand.executable} admin`;
    // Over the network, the user who creates it is its owner; the operator of local data has no role.
    if (org.role === null && body.owner === undefined)
      output.say(`It has no owner yet: \`${command} member create ${org.slug} EMAIL --role owner\``);
    output.say(`To add a machine: \`${command} token create ${org.slug}\``);
  },
};

/** Words of --certificate-version → value of the API. An older control plane does not know the field, and 1 is its default. */
const certificateVersions = { "1": undefined, both: "both", "2": 2 } as const;

async function readNew({ values, words }: Context) {
  const version = values.choice("certificate-version", ["1", "both", "2"]) ?? "1";
  const owner = ownerChoice(values);
  return checked(organizationsApi.create.body, {
    slug: words[0] ?? "",
    network: values.required("network"),
    ...given({
      network6: values.text("network6"),
      name: values.text("name"),
      owner: owner?.email,
      owner_id: owner?.id,
      certificate_version: certificateVersions[version],
    }),
  });
}

const rolloutLine = (slug: string) =>
  `\`${brand.executable} admin rollout create ${quoteWord(slug)} --settings FILE\``;

export const update: Implementation = {
  notes: `--config-overrides reaches all nodes at once. ${rolloutLine("SLUG")} tries the same file on one node first.`,
  args: { ...slugArg, ...settingFlags(organizationSettings) },
  examples: [
    `${brand.executable} admin org update acme --certificate-version both`,
    `${brand.executable} admin org update acme --names all`,
    `echo '{}' | ${brand.executable} admin org update acme --config-overrides -`,
  ],
  async run(context) {
    const { words, output } = context;
    const [slug = ""] = words;
    const body = await checked(
      organizationsApi.update.body,
      await readChanges(context, organizationSettings),
    );
    const org = await write(context, () => request(organizationsApi.update, { slug }, body));
    if (org === undefined) return;
    output.result(org, changedLines(organizationSettings, { name: org.slug, answer: org, changes: body }));
    if (body.config_overrides !== undefined)
      output.say(`All nodes get them at once. To try some on one node first: ${rolloutLine(slug)}`);
    if (typeof body.name_suffix === "string")
      output.say(
        `Machines serve it where root allows it: \`sudo ${brand.executable} names allow ${body.name_suffix}\``,
      );
  },
};

export const list: Implementation = {
  examples: [`${brand.executable} admin org list`],
  async run(context) {
    const organizations = await read(context, (api) => api.all(organizationsApi.list, {}));
    context.output.list(
      { organizations },
      {
        columns: ["SLUG", "NAME", "NETWORK", "IPV6", "NODES", "YOUR ROLE"],
        rows: organizations.map((org) =>
          // Without the second factor that the organization requires, the answer has only its slug.
          "name" in org
            ? [org.slug, org.name, org.network, org.network6, org.node_count, org.role]
            : [org.slug, "(needs your second factor)", null, null, null, null],
        ),
        none: "There are no organizations.",
      },
    );
  },
};

export const show: Implementation = {
  notes: `The settings have the names of their flags: see \`${brand.executable} admin org update --help\`.`,
  args: slugArg,
  examples: [`${brand.executable} admin org show acme`],
  async run(context) {
    const org = await read(context, (api) =>
      api.call(organizationsApi.retrieve, { slug: context.words[0] ?? "" }),
    );
    context.output.facts(org, factsOf(org));
  },
};

function factsOf(org: Organization): Facts {
  // These have lines of their own.
  const {
    name: _name,
    network6: _network6,
    config_overrides: _overrides,
    ...settings
  } = organizationSettings;
  return [
    ["slug", org.slug],
    ["name", org.name],
    ["network", org.network],
    ["network6", org.network6],
    ["nodes", org.node_count],
    ["your role", org.role],
    ...settingFacts(settings, org),
    ...Object.entries(org.config_overrides).map(
      ([key, value]) => [`override ${key}`, JSON.stringify(value)] as const,
    ),
    ["configuration", `version ${org.config_version}`],
    ["created", org.created_at],
    ["number", org.id],
  ];
}

export const remove: Implementation = {
  notes:
    "Revokes all its nodes, and ends its tokens and memberships. It cannot be restored, except from a backup.",
  args: {
    ...slugArg,
    confirm: valueFlag("SLUG", "The slug again: nothing is asked"),
  },
  examples: [`${brand.executable} admin org delete acme --confirm acme`],
  async run(context) {
    const { words, output, settings } = context;
    const [slug = ""] = words;
    if (!settings.dryRun && (await confirmation(context)) !== slug) {
      const line = `${brand.executable} admin org delete ${quoteWord(slug)} --confirm ${quoteWord(slug)}`;
      throw new AppError("usage", `Deleting ${slug} revokes all its nodes. Nothing was deleted`, {
        hint: `If you are sure: \`${line}\`.`,
      });
    }
    const gone = await write(context, () => ({
      ...request(organizationsApi.delete, { slug }),
      effect: `delete organization ${slug} and revoke all its nodes`,
    }));
    if (gone !== undefined) output.result({ slug, deleted: true }, `Deleted organization ${slug}\n`);
  },
};

/** The text of --confirm, or typed by the user. */
async function confirmation({ values, words, system }: Context): Promise<string | undefined> {
  if (values.text("confirm") !== undefined || !system.stdinIsTerminal) return values.text("confirm");
  const { ask } = await import("../ask.ts");
  const text = `All nodes of ${words[0]} will be revoked. Type ${words[0]} to go on: `;
  const [answer] = await ask([{ text, isSecret: false }], system);
  return answer;
}
