// `agent admin domain …`: the domains of e-mail addresses of an organization.

import { brand } from "../../../brand.ts";
import { quoteWord } from "../../../base/plan.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { ClaimedDomain, ClaimedDomains } from "../answers.ts";
import { inOrg, Nothing, read, writeAs, type Api } from "../api.ts";
import { checked, idOf } from "../lookup.ts";
import { targetFlags } from "../target.ts";

const domainArg = { DOMAIN: { type: "positional", description: "A domain such as example.org" } } as const;

const pathOf = async (api: Api, slug: string, word: string, rest = "") => {
  const list = () => api.get(inOrg(slug, "domains/"), ClaimedDomains);
  const listing = `domain list ${quoteWord(slug)}`;
  const id = await idOf(word, { what: "domain", listing, list, nameOf: ({ domain }) => domain });
  return inOrg(slug, `domains/${id}/${rest}`);
};

export const list: Implementation = {
  args: { ...orgArg, ...targetFlags },
  examples: [`${brand.executable} admin domain list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const domains = await read(context, (api) => api.get(inOrg(slug, "domains/"), ClaimedDomains));
    context.output.list(
      { domains },
      {
        columns: ["DOMAIN", "VERIFIED", "TXT RECORD OF", "TEXT"],
        rows: domains.map((each) => [
          each.domain,
          each.verified_by === null ? "no" : `by ${each.verified_by}`,
          each.record_name,
          each.record_text,
        ]),
        none: `${slug} has claimed no domains.`,
      },
    );
  },
};

export const create: Implementation = {
  notes: "The domain counts once `check` has found its TXT record, or staff have vouched for it.",
  args: { ...orgArg, ...domainArg, ...targetFlags },
  examples: [`${brand.executable} admin domain create acme example.org`],
  async run(context) {
    const [slug = "", domain = ""] = context.words;
    const body = await checked(
      import("../../../server/oidc/domains.ts").then(({ NewDomain }) => NewDomain),
      { domain },
    );
    const path = inOrg(slug, "domains/");
    const made = await writeAs(context, ClaimedDomain, () => ({ method: "POST", path, body }));
    if (made === undefined) return;
    const next = `Publish this TXT record, then run \`${brand.executable} admin domain check ${slug} ${quoteWord(made.domain)}\`:`;
    context.output.result(made, `${next}\n  ${made.record_name}  ${made.record_text}\n`);
  },
};

export const check: Implementation = {
  args: { ...orgArg, ...domainArg, ...targetFlags },
  examples: [`${brand.executable} admin domain check acme example.org`],
  async run(context) {
    const [slug = "", domain = ""] = context.words;
    const made = await writeAs(context, ClaimedDomain, async (api) => ({
      method: "POST",
      path: await pathOf(api, slug, domain, "check/"),
    }));
    if (made !== undefined) context.output.result(made, `${made.domain} is verified\n`);
  },
};

export const vouch: Implementation = {
  notes: "For staff, who know by other means that the domain is the organization's.",
  args: { ...orgArg, ...domainArg, ...targetFlags },
  examples: [`${brand.executable} admin domain vouch acme example.org`],
  async run(context) {
    const [organization = "", domain = ""] = context.words;
    const body = await checked(
      import("../../../server/oidc/domains.ts").then(({ VouchedDomain }) => VouchedDomain),
      { organization, domain },
    );
    const made = await writeAs(context, ClaimedDomain, () => ({
      method: "POST",
      path: "/api/domains/",
      body,
    }));
    if (made !== undefined) context.output.result(made, `${made.domain} is verified\n`);
  },
};

export const remove: Implementation = {
  args: { ...orgArg, ...domainArg, ...targetFlags },
  examples: [`${brand.executable} admin domain delete acme example.org`],
  async run(context) {
    const [slug = "", domain = ""] = context.words;
    const done = await writeAs(context, Nothing, async (api) => ({
      method: "DELETE",
      path: await pathOf(api, slug, domain),
    }));
    if (done !== undefined) context.output.result({ domain }, `Deleted ${domain}\n`);
  },
};
