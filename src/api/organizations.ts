// Organizations and their settings.

import * as v from "valibot";
import { brand } from "../brand.ts";
import { ConfigOverrides } from "../engine/allowed-settings.ts";
import { lastHost, maskNetwork, parseNetwork, specialNetwork } from "../base/ip.ts";
import { NameSuffix } from "../protocol/names.ts";
import { Slug, wholeWithin } from "../protocol/values.ts";
import { foreignText, label } from "../base/text.ts";
import { endpoint, roles } from "./endpoint.ts";
import { declare, needFresh, sent, taken } from "../protocol/settings.ts";
import { AlarmRules } from "./webhooks/alarm-rules.ts";
import { Email, ListQuery, since, Text, Time, word } from "./values.ts";

const overlayNetwork = (family: 4 | 6) =>
  v.pipe(
    foreignText(64),
    v.rawCheck(({ dataset, addIssue }) => {
      const refusal = dataset.typed ? whyNoOverlay(dataset.value, family) : undefined;
      if (refusal !== undefined) addIssue({ message: refusal });
    }),
    v.transform((text) => parseNetwork(text)?.text ?? text),
  );

/** Why the text cannot be an overlay network of this family; undefined: it can. */
function whyNoOverlay(text: string, family: 4 | 6): string | undefined {
  const network = parseNetwork(text);
  const masked = maskNetwork(text);
  const example = family === 4 ? "10.77.0.0/16" : "fd77::/64";
  if (network === undefined && masked !== undefined)
    return `${text} has host bits set. Did you mean ${masked}?`;
  if (network?.family !== family) return `Enter an IPv${family} network such as ${example}.`;
  if (lastHost(network) < 2) return "The network is too small: it needs room for two nodes.";
  const special = specialNetwork(network);
  return special === undefined
    ? undefined
    : `${network.text} overlaps ${special}, which has a special meaning. Enter a private network such as ${example}.`;
}

const Name = label(100);
const CertificateVersion = v.union([v.literal(1), v.literal("both"), v.literal(2)]);
export type CertificateVersion = v.InferOutput<typeof CertificateVersion>;

/** Who may add machines without a join key (`self_enrollment`), and which machines wait for approval (`node_approval`). */
export const enrollers = ["off", "admins", "members"] as const;
export const approvals = ["none", "all", "unapproved"] as const;
/** Seconds between the tests of a tunnel. */
export const aliveSeconds = { min: 1, max: 30 } as const;
/** After how long a node may be reported as away. Times in which no server ran do not count, and servers remember them for 8 days. */
export const awayMinutes = { min: 5, max: 7 * 1440 } as const;
export const reauthenticateDays = { min: 8, max: 3650 } as const;

export const OrganizationRequest = v.strictObject({
  slug: Slug,
  network: overlayNetwork(4),
  network6: v.optional(overlayNetwork(6)),
  name: v.optional(Name),
});
export type OrganizationRequest = v.InferOutput<typeof OrganizationRequest>;

const NewOrganization = v.strictObject({
  ...OrganizationRequest.entries,
  owner: v.optional(Email),
  /** Confirms the user who becomes owner, if an invitation created this user. */
  owner_id: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
  certificate_version: v.optional(CertificateVersion),
});

// What settings of one kind have in common. `words`: those of the flag; of a switch for false, then for true.

const onOff = <const W extends readonly [string, string]>(...words: W) => ({
  takes: v.boolean(),
  sends: since("0.2.0", v.boolean()),
  words,
});
const oneOf = <const W extends readonly string[]>(words: W) => ({
  takes: v.picklist(words),
  sends: since("0.2.0", word(words)),
  words,
});
const numberOrNull = (range: { min: number; max: number }) => ({
  takes: v.nullable(wholeWithin(range.min, range.max)),
  sends: since("0.2.0", v.nullable(v.number())),
  range,
});

/** Engine settings that an administrator chose, of organizations and nodes. */
export const overridesSetting = {
  takes: ConfigOverrides,
  sends: v.record(v.string(), v.unknown()),
  flag: "config-overrides",
  hint: "FILE",
  file: "json",
  help: "Replace all overrides by the JSON object of this file (- is standard input); {} removes them",
} as const;

/**
 * What administrators change of an organization, in the order of answers, help and pages. Fields: `Setting` in protocol/settings.ts.
 * Settings without `section` are not on the page of the console.
 */
export const organizationSettings = declare({
  name: {
    takes: Name,
    sends: Text,
    flag: "name",
    hint: "N",
    help: "A display name",
    section: "Organization",
    label: "Name",
    more: "Members see it. The short name stays.",
    describes: true,
  },
  certificate_version: {
    takes: CertificateVersion,
    sends: CertificateVersion,
    flag: "certificate-version",
    words: ["1", "both", "2"],
    values: [1, "both", 2],
    help: "Version of the overlay certificates. Go from 1 to both, then to 2; refused while an engine is too old",
    section: "Certificates",
    label: "Version of the certificates",
    more: "2 carries IPv6, and needs engine 1.10 on all machines. Go step by step.",
    choices: ["1: IPv4", "1 and 2: the step between", "2: IPv4 and IPv6"],
  },
  network6: {
    takes: overlayNetwork(6),
    sends: v.nullable(Text),
    flag: "network6",
    hint: "CIDR",
    help: "Add an IPv6 overlay network; it cannot be removed",
    section: "Certificates",
    label: "IPv6 network",
    more: "Works with version 2, and stays. The first address restarts each engine once.",
    placeholder: "fd77::/64",
    stays: true,
  },
  alive_interval: {
    ...numberOrNull(aliveSeconds),
    sends: v.nullable(v.number()),
    flag: "alive-interval",
    hint: "S",
    none: "default",
    unit: "s",
    help: "Seconds between the engine's tests of a tunnel, 1 to 30; default: the engine's own",
  },
  config_overrides: overridesSetting,
  ca_rotation_auto: {
    ...onOff("manual", "auto"),
    sends: v.boolean(),
    flag: "ca-rotation",
    help: "Replace the CAs automatically half a year before they expire, or only by hand",
    section: "Certificates",
    label: "Replace the CAs by themselves",
    more: "The control plane does it before they end, without an outage.",
  },
  names_to_all: {
    ...onOff("rules", "all"),
    flag: "names",
    help: "Tell nodes the names of the nodes that firewall rules let them reach, or of all nodes",
    section: "Names",
    label: "Every node learns all names",
    more: "Otherwise a node learns the names of those that rules let it reach.",
  },
  name_suffix: {
    takes: v.nullable(NameSuffix),
    sends: since("0.2.0", v.nullable(Text)),
    flag: "name-suffix",
    hint: "DOMAIN",
    none: "none",
    help: `A domain that names end in beside .internal, on machines whose root allows it (${brand.executable} names allow)`,
    section: "Names",
    label: "Second domain",
    more: "Beside .internal. Root of each machine has to allow it.",
    placeholder: "corp.example",
  },
  port_mapping: {
    ...onOff("off", "on"),
    flag: "port-mapping",
    help: "Whether nodes behind a router ask it for a UDP port (PCP, NAT-PMP, UPnP), so that peers reach them directly",
    section: "Nodes",
    label: "Nodes ask their router for a port",
    more: "By PCP, NAT-PMP or UPnP, so that peers reach them directly. Root of a machine can refuse.",
  },
  path_reports: {
    ...onOff("off", "on"),
    flag: "path-reports",
    help: "Whether nodes report how they reach their peers; off deletes what they reported",
    section: "Reports",
    label: "Nodes report their paths",
    more: "The map and broken paths need it. Off deletes what they reported.",
  },
  flows: {
    ...onOff("off", "on"),
    flag: "flows",
    help: "Whether nodes report which peers they talk to, on which ports; off deletes what they reported",
    section: "Reports",
    label: "Nodes report their flows",
    more: "Who talks to whom, on which port; no content. Kept for 30 days. Every node says it, and its root can refuse.",
  },
  notify_away_minutes: {
    ...numberOrNull(awayMinutes),
    flag: "notify-away",
    hint: "MINUTES",
    none: "off",
    unit: "minutes",
    help: "Tell webhooks and the audit log when a node has not checked in for so many minutes, 5 to 10080, and when it is back",
    section: "Reports",
    label: "Tell webhooks that a node is away",
    more: "After so long without contact, and again when it is back. Where to: Alarms.",
    offered: [5, 15, 30, 60, 720],
  },
  alarm_rules: {
    takes: AlarmRules,
    sends: since("0.2.0", v.array(Text)),
    flag: "alarm",
    hint: "RULE=VALUE",
    whole: true,
    help: 'Other rules of alarms than the usual ones (repeatable; replaces all; "" for none), such as node=30, node:laptops=60 or backup=off',
    section: "Alarms",
    label: "Rules of alarms",
    initial: [],
  },
  second_factor_required: {
    ...onOff("optional", "required"),
    flag: "second-factor",
    help: "Whether members need a second factor to work in the organization",
    section: "Sign-in",
    label: "A second factor is required",
    more: "Members who have none set one up before they go on.",
  },
  revoke_leaver_nodes: {
    ...onOff("keep", "revoke"),
    flag: "leaver-nodes",
    help: "Keep or revoke the nodes of a user who is removed or disabled",
    section: "Nodes",
    label: "Revoke nodes of users who leave",
    more: "When a user is removed or disabled.",
  },
  // Nothing else says that the user is still there: the provider gives no token to ask by, and the user has no password and
  // no passkey.
  revoke_unproven_nodes: {
    ...onOff("keep", "revoke"),
    flag: "unproven-nodes",
    help: "Keep or revoke the nodes of a user 24 hours after the last sign-in, where only a provider that cannot be asked knows the user",
    section: "Nodes",
    label: "Revoke nodes 24 hours after the last sign-in",
    more: "Of users whose provider cannot be asked (see below). Users with a password or a passkey keep theirs.",
  },
  // The console has it beside the nodes that wait, too.
  node_approval: {
    ...oneOf(approvals),
    flag: "approval",
    section: "Nodes",
    label: "These wait for approval",
    more: "For others a valid key is enough. Machines that register again need none; phones do, for each import.",
    choices: ["No machine", "Every new machine", "Those without an approved key"],
    help: "Which new machines an administrator has to approve; unapproved: all but those of tokens marked --approved",
  },
  device_codes: {
    ...onOff("forbid", "allow"),
    flag: "device-codes",
    help: "Whether members may sign the command line in by a code, typed in a browser of another machine",
    section: "Sign-in",
    label: "Sign the command line in by a code",
    more: "Members type it in a browser, which may be on another machine.",
  },
  self_enrollment: {
    ...oneOf(enrollers),
    flag: "self-enrollment",
    help: `Who may add machines without a join key: run ${brand.executable} up URL there, then confirm it in a browser`,
    section: "Nodes",
    label: "Who may add nodes of their own",
    more: `By confirming them in a browser, without a join key: ${brand.executable} up with the address of the control plane.`,
    choices: ["Nobody", "Administrators", "All members"],
  },
  reauthenticate_days: {
    ...numberOrNull(reauthenticateDays),
    flag: "reauthenticate",
    hint: "DAYS",
    none: "off",
    unit: "days",
    help: "Every how many days users confirm in the console that their nodes are still theirs, 8 to 3650. Others are revoked",
    section: "Nodes",
    label: "Confirm that nodes are still theirs",
    more: "How often users do. Nodes of others are cut off; users are told 7 days before.",
    offered: [30, 90, 180, 365],
  },
});
const OrganizationPatch = v.partial(v.strictObject(taken(organizationSettings)));
export type OrganizationPatch = v.InferOutput<typeof OrganizationPatch>;

const { name, network6, ...otherSettings } = sent(organizationSettings);
export const Organization = v.object({
  id: v.number(),
  slug: Text,
  name,
  network: Text,
  network6,
  /** The caller's role; null for staff without a membership. */
  role: v.nullable(word(roles)),
  node_count: v.number(),
  config_version: v.number(),
  ...otherSettings,
  created_at: Time,
});
export type Organization = v.InferOutput<typeof Organization>;
/** For a caller without the second factor that the organization requires. */
const ClosedOrganization = v.object({ id: v.number(), slug: Text });

export const organizationsApi = {
  list: endpoint({
    name: "org_list",
    method: "GET",
    path: "/api/org/",
    access: "user",
    summary: "The caller's organizations; for staff, all organizations",
    query: ListQuery,
    answers: {
      200: {
        description:
          "Organizations. Of those that require a second factor which the caller has not proven, only `id` and `slug`",
        schema: v.array(v.union([Organization, ClosedOrganization])),
      },
    },
  }),
  create: endpoint({
    name: "org_create",
    method: "POST",
    path: "/api/org/",
    access: "staff",
    summary:
      "Create an organization with its two CAs. The caller becomes its owner, or the user with the e-mail address `owner`",
    fresh: false,
    body: NewOrganization,
    answers: { 201: { description: "The organization", schema: Organization } },
    errors: ["conflict", "not_found", "owner_unconfirmed"],
  }),
  retrieve: endpoint({
    name: "org_retrieve",
    method: "GET",
    path: "/api/org/{slug}/",
    access: "member",
    summary: "One organization",
    answers: { 200: { description: "The organization", schema: Organization } },
  }),
  update: endpoint({
    name: "org_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/",
    access: "admin",
    summary: "Change an organization",
    grows: true,
    fresh: needFresh(organizationSettings),
    body: OrganizationPatch,
    answers: { 200: { description: "The organization", schema: Organization } },
    errors: ["conflict", "too_many_certificates"],
  }),
  delete: endpoint({
    name: "org_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/",
    access: "owner",
    summary: "Delete an organization and revoke all its nodes",
    fresh: true,
    answers: { 204: { description: "Deleted" } },
  }),
};
