// Domains of e-mail addresses that organizations claim. Addresses from an organization's provider count only in domains that the
// organization has proven: elsewhere, the provider's word does not make them the address of a user.

import * as v from "valibot";
import { comparedText } from "../../base/text.ts";
import { Slug } from "../../protocol/values.ts";
import { endpoint } from "../endpoint.ts";
import { Text, Time, word } from "../values.ts";

export const Domain = v.pipe(
  comparedText(253),
  v.trim(),
  v.minLength(1),
  v.toLowerCase(),
  v.regex(
    // Labels of RFC 1123; the last one is no number, as in an address.
    /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+(?!\d+$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
    "Enter a domain such as example.org.",
  ),
);
const VouchedDomain = v.strictObject({ organization: Slug, domain: Domain });
export type VouchedDomain = v.InferOutput<typeof VouchedDomain>;

const ClaimedDomain = v.object({
  id: v.number(),
  domain: Text,
  /** The TXT record that proves the domain. */
  record_name: Text,
  record_text: Text,
  verified_at: v.nullable(Time),
  /** `staff`: a user of the staff vouched for it, without the record. */
  verified_by: v.nullable(word(["dns", "staff"])),
});
export type ClaimedDomain = v.InferOutput<typeof ClaimedDomain>;

const verified = { 200: { description: "The domain, which counts now", schema: ClaimedDomain } };

export const domainsApi = {
  list: endpoint({
    name: "domains_list",
    method: "GET",
    path: "/api/org/{slug}/domains/",
    access: "admin",
    usersOnly: true,
    summary: "The domains of e-mail addresses that the organization has claimed",
    answers: { 200: { description: "Domains", schema: v.array(ClaimedDomain) } },
  }),
  create: endpoint({
    name: "domains_create",
    method: "POST",
    path: "/api/org/{slug}/domains/",
    access: "admin",
    usersOnly: true,
    fresh: true,
    grows: true,
    summary: "Claim a domain. The answer names the TXT record that proves it",
    body: v.strictObject({ domain: Domain }),
    answers: { 201: { description: "The domain, which does not count yet", schema: ClaimedDomain } },
    errors: ["conflict"],
  }),
  delete: endpoint({
    name: "domains_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/domains/{id}/",
    access: "admin",
    usersOnly: true,
    fresh: true,
    summary: "Give a domain up: its addresses no longer count from the next sign-in on",
    answers: { 204: { description: "Given up" } },
  }),
  check: endpoint({
    name: "domains_check_create",
    method: "POST",
    path: "/api/org/{slug}/domains/{id}/check/",
    access: "admin",
    usersOnly: true,
    fresh: true,
    summary: "Look for the TXT record that proves a domain",
    answers: verified,
    errors: ["domain_unverified"],
  }),
  vouch: endpoint({
    name: "domains_vouch_create",
    method: "POST",
    path: "/api/domains/",
    access: "staff",
    fresh: true,
    summary: "Verify a domain of an organization by the word of staff, without a record",
    body: VouchedDomain,
    answers: verified,
    errors: ["not_found", "conflict"],
  }),
};
