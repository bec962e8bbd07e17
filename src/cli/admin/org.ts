// `agent admin org …`: organizations, for the person at the machine.

import { brand } from "../../brand.ts";
import { onData, onlyPlanned, onOrganization } from "./data.ts";
import type { Command } from "../command.ts";
import { ownerChoice, ownerFlags } from "../owner-flags.ts";
import { dataFlags } from "../server-flags.ts";

export const create: Command = {
  name: "admin org create",
  summary: "Make an organization with its two CAs",
  flags: {
    network: {
      type: "string",
      valueHint: "CIDR",
      description: "The overlay's network, such as 10.77.0.0/16",
      required: true,
    },
    network6: { type: "string", valueHint: "CIDR", description: "A second, IPv6 overlay network" },
    name: { type: "string", valueHint: "N", description: "A name for people (default: the slug)" },
    ...ownerFlags,
    "certificate-version": {
      type: "string",
      valueHint: "1|both|2",
      default: "1",
      description: "Overlay certificates",
    },
    ...dataFlags,
  },
  words: [{ name: "SLUG", description: "the organization's short name", required: true }],
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
    if (await onlyPlanned(context)) return;
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
    output.result(org, `Made the organization ${org.slug} (${org.network})\n`);
  },
};

export const update: Command = {
  name: "admin org update",
  summary: "Change an organization: certificate versions, IPv6 network, name, CA rotation",
  flags: {
    "certificate-version": {
      type: "string",
      valueHint: "1|both|2",
      description: "One step at a time; refused while a node's engine is too old for it",
    },
    network6: { type: "string", valueHint: "CIDR", description: "A second, IPv6 overlay network; it stays" },
    name: { type: "string", valueHint: "N", description: "A name for people" },
    "ca-rotation": {
      type: "string",
      valueHint: "auto|manual",
      description: "Whether the CAs are replaced by themselves half a year before their end",
    },
    ...dataFlags,
  },
  words: [{ name: "SLUG", description: "the organization", required: true }],
  examples: [`${brand.executable} admin org update acme --certificate-version both`],
  async run(context) {
    const { values, words, output } = context;
    const { OrganizationPatch, patchOrganization } = await import("../../server/policy/organizations.ts");
    const { migrateVersions } = await import("../../server/rollout/version-migration.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const version = values.text("certificate-version");
    const rotation = values.choice("ca-rotation", ["auto", "manual"]);
    const patch = parse(OrganizationPatch, {
      ca_rotation_auto: rotation === undefined ? undefined : rotation === "auto",
      name: values.text("name"),
      network6: values.text("network6"),
      certificate_version: version === undefined || version === "both" ? version : Number(version),
    });
    if (await onlyPlanned(context)) return;
    const org = await onOrganization(context, words[0] ?? "", (admin, found) =>
      patchOrganization(admin, { ...found, role: null }, patch, operator, migrateVersions),
    );
    output.result(org, `${org.slug}: certificates of version ${org.certificate_version}\n`);
  },
};

export const list: Command = {
  name: "admin org list",
  summary: "List the organizations",
  flags: dataFlags,
  examples: [`${brand.executable} admin org list`],
  async run(context) {
    const { listOrganizations } = await import("../../server/policy/organizations.ts");
    const organizations = await onData(context, ({ db }) => listOrganizations(db));
    const lines = organizations.map((org) => `${org.slug}\t${org.network}\t${org.node_count} nodes\n`);
    context.output.result({ organizations }, lines.join(""));
  },
};
