// Organizations and their settings.

import * as v from "valibot";
import { ConfigOverrides } from "../engine/allowed-settings.ts";
import { lastHost, maskNetwork, parseNetwork, specialNetwork } from "../base/ip.ts";
import { NameSuffix } from "../protocol/names.ts";
import { Slug } from "../protocol/values.ts";
import { foreignText, label } from "../base/text.ts";
import { endpoint, roles } from "./endpoint.ts";
import { Email, ListQuery, since, Text, Time, word } from "./values.ts";

const overlayNetwork = (family: 4 | 6) =>
  v.pipe(
    foreignText(64),
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const network = parseNetwork(dataset.value);
      const masked = maskNetwork(dataset.value);
      if (network === undefined && masked !== undefined) {
        addIssue({ message: `${dataset.value} has host bits set. Did you mean ${masked}?` });
      } else if (network?.family !== family) {
        addIssue({
          message: `Enter an IPv${family} network such as ${family === 4 ? "10.77.0.0/16" : "fd77::/64"}.`,
        });
      } else if (lastHost(network) < 2)
        addIssue({ message: "The network is too small: it needs room for two nodes." });
      else {
        const taken = specialNetwork(network);
        if (taken !== undefined)
          addIssue({
            message: `${network.text} overlaps ${taken}, which has a special meaning. Enter a private network such as ${family === 4 ? "10.77.0.0/16" : "fd77::/64"}.`,
          });
      }
    }),
    v.transform((text) => parseNetwork(text)?.text ?? text),
  );

const Name = label(100);
const CertificateVersion = v.union([v.literal(1), v.literal("both"), v.literal(2)]);
export type CertificateVersion = v.InferOutput<typeof CertificateVersion>;

export const enrollers = ["off", "admins", "members"] as const;
export const approvals = ["none", "all", "unapproved"] as const;
/** Seconds between the tests of a tunnel. */
export const aliveSeconds = { min: 1, max: 30 } as const;
export const reauthenticateDays = { min: 8, max: 3650 } as const;
const wholeWithin = ({ min, max }: { min: number; max: number }) =>
  v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(max));

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

const OrganizationPatch = v.strictObject({
  name: v.optional(Name),
  /** One step at a time between 1, both and 2. */
  certificate_version: v.optional(CertificateVersion),
  /** Can be set once. */
  network6: v.optional(overlayNetwork(6)),
  /** Seconds; null: the default of the node's engine. */
  alive_interval: v.optional(v.nullable(wholeWithin(aliveSeconds))),
  config_overrides: v.optional(ConfigOverrides),
  /** Whether the server starts a CA rotation by itself in time. */
  ca_rotation_auto: v.optional(v.boolean()),
  /** Whether nodes get the names of all nodes, also of those that no firewall rule lets them reach. */
  names_to_all: v.optional(v.boolean()),
  /** A domain, beside `.internal`, that names end in on machines whose root allows it; null: none. */
  name_suffix: v.optional(v.nullable(NameSuffix)),
  /** Whether nodes may report their paths. False: the stored ones are deleted. */
  path_reports: v.optional(v.boolean()),
  /** Whether members need a second factor. */
  second_factor_required: v.optional(v.boolean()),
  /** Whether the nodes of a user are revoked when the user is removed or disabled. */
  revoke_leaver_nodes: v.optional(v.boolean()),
  /**
   * Whether the nodes of a user are revoked 24 hours after the last sign-in, if nothing else says that the user is still there:
   * the provider gives no token to ask by, and the user has no password and no passkey.
   */
  revoke_unproven_nodes: v.optional(v.boolean()),
  /** Whether members may sign the command line in by a code that they type in a browser. */
  device_codes: v.optional(v.boolean()),
  /** Which users may add machines of their own by confirming them in a browser. */
  self_enrollment: v.optional(v.picklist(enrollers)),
  /** Every how many days users confirm that their nodes are still theirs, or the nodes are revoked; null: never. */
  reauthenticate_days: v.optional(v.nullable(wholeWithin(reauthenticateDays))),
  /** Which new nodes an administrator has to approve; `unapproved`: all but those of tokens that are marked as approved. */
  node_approval: v.optional(v.picklist(approvals)),
});
export type OrganizationPatch = v.InferOutput<typeof OrganizationPatch>;

export const Organization = v.object({
  id: v.number(),
  slug: Text,
  name: Text,
  network: Text,
  network6: v.nullable(Text),
  /** The caller's role; null for staff without a membership. */
  role: v.nullable(word(roles)),
  node_count: v.number(),
  config_version: v.number(),
  certificate_version: CertificateVersion,
  alive_interval: v.nullable(v.number()),
  config_overrides: v.record(v.string(), v.unknown()),
  ca_rotation_auto: v.boolean(),
  names_to_all: since("0.2.0", v.boolean()),
  name_suffix: since("0.2.0", v.nullable(Text)),
  path_reports: since("0.2.0", v.boolean()),
  second_factor_required: since("0.2.0", v.boolean()),
  revoke_leaver_nodes: since("0.2.0", v.boolean()),
  revoke_unproven_nodes: since("0.2.0", v.boolean()),
  node_approval: since("0.2.0", word(approvals)),
  device_codes: since("0.2.0", v.boolean()),
  self_enrollment: since("0.2.0", word(enrollers)),
  reauthenticate_days: since("0.2.0", v.nullable(v.number())),
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
    // A fresh second factor for settings, which affect machines or users; not for a name.
    fresh: {
      name: false,
      certificate_version: true,
      network6: true,
      alive_interval: true,
      config_overrides: true,
      ca_rotation_auto: true,
      names_to_all: true,
      name_suffix: true,
      path_reports: true,
      second_factor_required: true,
      revoke_leaver_nodes: true,
      revoke_unproven_nodes: true,
      device_codes: true,
      self_enrollment: true,
      reauthenticate_days: true,
      node_approval: true,
    },
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
