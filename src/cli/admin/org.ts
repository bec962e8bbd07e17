// `agent admin org …`: organizations.

import { brand } from "../../brand.ts";
import { onData, onlyPlanned, onOrganization, overridesFlag, readOverrides } from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Implementation } from "../command.ts";
import { ownerChoice, ownerFlags } from "../owner-flags.ts";
import { dataFlags } from "../server-flags.ts";

export const create: Implementation = {
  args: {
    SLUG: { type: "positional", description: "The short name of the new organization" },
    network: {
      type: "string",
      valueHint: "CIDR",
      description: "The overlay network, such as 10.77.0.0/16",
      required: true,
    },
    network6: { type: "string", valueHint: "CIDR", description: "An additional IPv6 overlay network" },
    name: { type: "string", valueHint: "N", description: "A display name (default: the slug)" },
    ...ownerFlags,
    "certificate-version": {
      type: "string",
      valueHint: "1|both|2",
      default: "1",
      description: "Version of the overlay certificates",
    },
    ...dataFlags,
  },
  examples: [`${brand.executable} admin org create acme --network 10.77.0.0/16 --owner ada@example.org`],
  async run(context) {
    const { values, output } = context;
    const { createOrganization, OrganizationRequest } = await import("../../server/policy/organizations.ts");
    const { findOwner } = await import("../../server/people/people.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const request = parse(OrganizationRequest, {
      slug: context.words[0],
      network: values.required("network"),
      network6: values.text("network6"),
      name: values.text("name"),
    });
    const version = values.choice("certificate-version", ["1", "both", "2"]);
    const certificateVersion = version === "both" ? "both" : version === "2" ? 2 : 1;
    const words = ["admin", "org", "create", request.slug];
    const choice = ownerChoice(values, words, ["network", "network6", "name", "certificate-version"]);
    if (await onlyPlanned(context, { begins: true })) return;
    const org = await onData(
      context,
      async (admin) => {
        const owner = choice === undefined ? undefined : await findOwner(admin.db, choice);
        return createOrganization(
          admin,
          { ...request, certificateVersion },
          { ownerId: owner?.id ?? null, ownerEmail: owner?.email ?? null, actor: operator },
        );
      },
      { begins: true },
    );
    output.result(org, `Created organization ${org.slug} (${org.network})\n`);
  },
};

export const update: Implementation = {
  args: {
    SLUG: { type: "positional", description: "The organization's slug" },
    "certificate-version": {
      type: "string",
      valueHint: "1|both|2",
      description:
        "Version of the overlay certificates. Go from 1 to both, then to 2; refused while an engine is too old",
    },
    network6: {
      type: "string",
      valueHint: "CIDR",
      description: "Add an IPv6 overlay network; it cannot be removed",
    },
    name: { type: "string", valueHint: "N", description: "A display name" },
    "ca-rotation": {
      type: "string",
      valueHint: "auto|manual",
      description: "Replace the CAs automatically half a year before they expire, or only by hand",
    },
    names: {
      type: "string",
      valueHint: "rules|all",
      description: "Tell nodes the names of the nodes that firewall rules let them reach, or of all nodes",
    },
    ...overridesFlag,
    ...dataFlags,
  },
  examples: [
    `${brand.executable} admin org update acme --certificate-version both`,
    `${brand.executable} admin org update acme --names all`,
    `echo '{}' | ${brand.executable} admin org update acme --config-overrides -`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const { OrganizationPatch, patchOrganization } = await import("../../server/policy/organizations.ts");
    const { migrateVersions } = await import("../../server/rollout/version-migration.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const version = values.text("certificate-version");
    const rotation = values.choice("ca-rotation", ["auto", "manual"]);
    const names = values.choice("names", ["rules", "all"]);
    const patch = parse(OrganizationPatch, {
      ca_rotation_auto: rotation === undefined ? undefined : rotation === "auto",
      names_to_all: names === undefined ? undefined : names === "all",
      name: values.text("name"),
      network6: values.text("network6"),
      certificate_version: version === undefined || version === "both" ? version : Number(version),
      config_overrides: await readOverrides(context),
    });
    if (await onlyPlanned(context, { org: words[0] })) return;
    const org = await onOrganization(context, words[0] ?? "", (admin, found) =>
      patchOrganization(admin, { ...found, role: null }, patch, operator, migrateVersions),
    );
    output.result(org, `${org.slug}: certificates of version ${org.certificate_version}\n`);
  },
};

export const list: Implementation = {
  args: dataFlags,
  examples: [`${brand.executable} admin org list`],
  async run(context) {
    const { listOrganizations } = await import("../../server/policy/organizations.ts");
    const organizations = await onData(context, ({ db }) => listOrganizations(db));
    const lines = organizations.map((org) => tableLine([org.slug, org.network, `${org.node_count} nodes`]));
    context.output.result({ organizations }, lines.join(""));
  },
};
