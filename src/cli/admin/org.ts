// `agent admin org …`: organizations.

import type { AnswerOf, GivenOf } from "../../api/endpoint.ts";
import {
  aliveSeconds,
  approvals,
  enrollers,
  organizationsApi,
  reauthenticateDays,
} from "../../api/organizations.ts";
import { request } from "../../api/request.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/plan.ts";
import type { Context, Implementation } from "../command.ts";
import { confirmable, ownerChoice, ownerFlags } from "../join/owner-flags.ts";
import type { Cell, Facts } from "../table.ts";
import { given } from "../../base/given.ts";
import { type Args } from "../values.ts";
import { read, write } from "./api.ts";
import { overridesFlag, readOverrides } from "./data.ts";
import { checked } from "./lookup.ts";
import { targetFlags } from "./target.ts";

type Organization = AnswerOf<typeof organizationsApi.retrieve>;

const slugArg: Args = { SLUG: { type: "positional", description: "The organization's slug" } };

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
    ...targetFlags,
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
    const words = ["admin", "org", "create", body.slug];
    const flags = ["network", "network6", "name", "certificate-version", "owner"];
    const org = await confirmable(values, words, flags, () =>
      write(context, () => request(organizationsApi.create, {}, body), { begins: true }),
    );
    if (org === undefined) return;
    output.result(org, `Created organization ${org.slug} (${org.network})\n`);
    const command = `${brand.executable} admin`;
    // Over the network its creator is the owner.
    if (org.role === null && body.owner === undefined)
      output.say(`It has no owner yet: \`${command} member create ${org.slug} EMAIL --role owner\``);
    output.say(`To add a machine: \`${command} token create ${org.slug}\``);
  },
};

async function readNew({ values, words }: Context) {
  const version = values.choice("certificate-version", ["1", "both", "2"]);
  const owner = ownerChoice(values);
  return checked(organizationsApi.create.body, {
    slug: words[0] ?? "",
    network: values.required("network"),
    ...given({
      network6: values.text("network6"),
      name: values.text("name"),
      owner: owner?.email,
      owner_id: owner?.id,
      // An older control plane does not know the field.
      certificate_version: version === "both" || version === "2" ? versionOf(version) : undefined,
    }),
  });
}

const versionOf = (text: string) => (text === "both" ? text : Number(text));

export const update: Implementation = {
  args: {
    ...slugArg,
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
    "name-suffix": {
      type: "string",
      valueHint: "DOMAIN|none",
      description:
        "A domain that names end in beside .internal, on machines whose root allows it (agent names allow)",
    },
    "path-reports": {
      type: "string",
      valueHint: "on|off",
      description: "Whether nodes report how they reach their peers; off deletes what they reported",
    },
    "leaver-nodes": {
      type: "string",
      valueHint: "keep|revoke",
      description: "Keep or revoke the nodes of a user who is removed or disabled",
    },
    "unproven-nodes": {
      type: "string",
      valueHint: "keep|revoke",
      description:
        "Keep or revoke the nodes of a user 24 hours after the last sign-in, where only a provider that cannot be asked knows the user",
    },
    approval: {
      type: "string",
      valueHint: "none|all|unapproved",
      description:
        "Which new machines an administrator has to approve; unapproved: all but those of tokens marked --approved",
    },
    "second-factor": {
      type: "string",
      valueHint: "required|optional",
      description: "Whether members need a second factor to work in the organization",
    },
    "device-codes": {
      type: "string",
      valueHint: "allow|forbid",
      description:
        "Whether members may sign the command line in by a code, typed in a browser of another machine",
    },
    "self-enrollment": {
      type: "string",
      valueHint: "off|admins|members",
      description: `Who may add machines of their own with ${brand.executable} up URL, by confirming them in a browser`,
    },
    reauthenticate: {
      type: "string",
      valueHint: "DAYS|off",
      description:
        "Every how many days users confirm in the console that their nodes are still theirs, 8 to 3650. Others are revoked",
    },
    "alive-interval": {
      type: "string",
      valueHint: "S",
      description: "Seconds between the engine's tests of a tunnel, 1 to 30 (default: the engine's own)",
    },
    ...overridesFlag,
    ...targetFlags,
  },
  examples: [
    `${brand.executable} admin org update acme --certificate-version both`,
    `${brand.executable} admin org update acme --names all`,
    `echo '{}' | ${brand.executable} admin org update acme --config-overrides -`,
  ],
  async run(context) {
    const { words, output } = context;
    const [slug = ""] = words;
    const body = await readPatch(context);
    const org = await write(context, () => request(organizationsApi.update, { slug }, body));
    if (org !== undefined) output.result(org, changedText(org, body));
  },
};

async function readPatch(context: Context): Promise<GivenOf<typeof organizationsApi.update>> {
  const { values } = context;
  const version = values.text("certificate-version");
  const rotation = values.choice("ca-rotation", ["auto", "manual"]);
  const interval = values.text("alive-interval");
  const names = values.choice("names", ["rules", "all"]);
  const suffix = values.text("name-suffix");
  const reports = values.choice("path-reports", ["on", "off"]);
  const leavers = values.choice("leaver-nodes", ["keep", "revoke"]);
  const unproven = values.choice("unproven-nodes", ["keep", "revoke"]);
  const codes = values.choice("device-codes", ["allow", "forbid"]);
  const factor = values.choice("second-factor", ["required", "optional"]);
  const fields = {
    node_approval: values.choice("approval", approvals),
    reauthenticate_days:
      values.text("reauthenticate") === "off"
        ? null
        : values.integer("reauthenticate", reauthenticateDays.min, reauthenticateDays.max),
    self_enrollment: values.choice("self-enrollment", enrollers),
    device_codes: codes === undefined ? undefined : codes === "allow",
    second_factor_required: factor === undefined ? undefined : factor === "required",
    ca_rotation_auto: rotation === undefined ? undefined : rotation === "auto",
    names_to_all: names === undefined ? undefined : names === "all",
    name_suffix: suffix === "none" ? null : suffix,
    path_reports: reports === undefined ? undefined : reports === "on",
    revoke_leaver_nodes: leavers === undefined ? undefined : leavers === "revoke",
    revoke_unproven_nodes: unproven === undefined ? undefined : unproven === "revoke",
    name: values.text("name"),
    network6: values.text("network6"),
    certificate_version: version === undefined ? undefined : versionOf(version),
    alive_interval:
      interval === "default" ? null : values.integer("alive-interval", aliveSeconds.min, aliveSeconds.max),
    config_overrides: await readOverrides(context),
  };
  const body = given(fields);
  if (Object.keys(body).length === 0) {
    throw new AppError("usage", "Say what to change: such as --name, --ca-rotation or --config-overrides");
  }
  return checked(organizationsApi.update.body, body);
}

const approvalTexts: Record<string, string> = {
  none: "new machines need no approval",
  all: "new machines wait for approval",
  unapproved: "new machines wait for approval, except those of tokens that are marked --approved",
};

const enrollmentTexts: Record<string, string> = {
  off: "no user adds machines in the browser",
  admins: "administrators may add machines of their own in the browser",
  members: "all members may add machines of their own in the browser",
};

function suffixText({ name_suffix: suffix }: Organization): string {
  return typeof suffix === "string"
    ? `names also end in .${suffix}, where root allows it: sudo ${brand.executable} names allow ${suffix}`
    : `names end in .${brand.internalDomain} alone`;
}

/** One line for each changed field, with its new value. */
function changedText(org: Organization, body: object): string {
  const lines: Record<string, string> = {
    name: `its name is now ${org.name}`,
    certificate_version: `certificates of version ${org.certificate_version}`,
    network6: `its IPv6 network is ${org.network6 ?? "none"}`,
    ca_rotation_auto: `CAs are replaced ${org.ca_rotation_auto ? "automatically" : "only by hand"}`,
    alive_interval: `tunnels are tested every ${org.alive_interval === null ? "while, as the engine does by itself" : `${org.alive_interval} s`}`,
    names_to_all: `nodes get the names of ${org.names_to_all === true ? "all nodes" : "the nodes that rules let them reach"}`,
    name_suffix: suffixText(org),
    node_approval: approvalTexts[String(org.node_approval)] ?? "",
    revoke_leaver_nodes: `nodes of users who leave are ${org.revoke_leaver_nodes === true ? "revoked" : "kept"}`,
    revoke_unproven_nodes:
      org.revoke_unproven_nodes === true
        ? "nodes of users whose provider cannot be asked are revoked 24 hours after the last sign-in"
        : "nodes of users whose provider cannot be asked are kept",
    path_reports: `nodes ${org.path_reports === true ? "report" : "do not report"} their paths`,
    second_factor_required: `members ${org.second_factor_required === true ? "need" : "do not need"} a second factor`,
    device_codes: `members ${org.device_codes === true ? "may" : "may not"} sign the command line in by a code`,
    reauthenticate_days:
      org.reauthenticate_days === null
        ? "users need not confirm their nodes again"
        : `users confirm their nodes every ${JSON.stringify(org.reauthenticate_days)} days`,
    self_enrollment: enrollmentTexts[String(org.self_enrollment)] ?? "",
    config_overrides: `overrides: ${Object.keys(org.config_overrides).join(", ") || "none"}`,
  };
  return Object.keys(body)
    .map((field) => `${org.slug}: ${lines[field] ?? field}\n`)
    .join("");
}

export const list: Implementation = {
  args: targetFlags,
  examples: [`${brand.executable} admin org list`],
  async run(context) {
    const organizations = await read(context, (api) => api.all(organizationsApi.list, {}));
    context.output.list(
      { organizations },
      {
        columns: ["SLUG", "NAME", "NETWORK", "IPV6", "NODES", "YOUR ROLE"],
        rows: organizations.map((org) =>
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
  args: { ...slugArg, ...targetFlags },
  examples: [`${brand.executable} admin org show acme`],
  async run(context) {
    const org = await read(context, (api) =>
      api.call(organizationsApi.retrieve, { slug: context.words[0] ?? "" }),
    );
    context.output.facts(org, factsOf(org));
  },
};

/** The settings have the names of the flags of `org update`. */
function factsOf(org: Organization): Facts {
  // A former control plane does not know all of them.
  const choice = (value: boolean | undefined, yes: string, no: string): Cell =>
    value === undefined ? null : value ? yes : no;
  const days = org.reauthenticate_days;
  return [
    ["slug", org.slug],
    ["name", org.name],
    ["network", org.network],
    ["network6", org.network6],
    ["nodes", org.node_count],
    ["your role", org.role],
    ["certificate-version", org.certificate_version],
    ["ca-rotation", org.ca_rotation_auto ? "auto" : "manual"],
    ["names", choice(org.names_to_all, "all", "rules")],
    ["path-reports", choice(org.path_reports, "on", "off")],
    ["name-suffix", org.name_suffix ?? null],
    ["approval", org.node_approval ?? null],
    ["self-enrollment", org.self_enrollment ?? null],
    ["second-factor", choice(org.second_factor_required, "required", "optional")],
    ["device-codes", choice(org.device_codes, "allow", "forbid")],
    ["leaver-nodes", choice(org.revoke_leaver_nodes, "revoke", "keep")],
    ["unproven-nodes", choice(org.revoke_unproven_nodes, "revoke", "keep")],
    ["reauthenticate", typeof days === "number" ? `${days} days` : days === null ? "off" : null],
    ["alive-interval", org.alive_interval === null ? "default" : `${org.alive_interval} s`],
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
    confirm: { type: "string", valueHint: "SLUG", description: "The slug again: nothing is asked" },
    ...targetFlags,
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
