// `agent admin domain …`: the domains of e-mail addresses of an organization.

import { domainsApi } from "../../../api/providers/domains.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read, write, type Api } from "../api.ts";
import { checked, idOf } from "../lookup.ts";
import { wordArg } from "../../values.ts";

const domainArg = { DOMAIN: wordArg("A domain such as example.org") };

const numberOf = (api: Api, slug: string, word: string) => {
  const list = () => api.call(domainsApi.list, { slug });
  const listing = `domain list ${quoteWord(slug)}`;
  return idOf(word, { what: "domain", listing, list, nameOf: ({ domain }) => domain });
};

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin domain list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const domains = await read(context, (api) => api.call(domainsApi.list, { slug }));
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
  args: { ...orgArg, ...domainArg },
  examples: [`${brand.executable} admin domain create acme example.org`],
  async run(context) {
    const [slug = "", domain = ""] = context.words;
    const body = await checked(domainsApi.create.body, { domain });
    const made = await write(context, () => request(domainsApi.create, { slug }, body));
    if (made === undefined) return;
    const next = `Publish this TXT record, then run \`${brand.executable} admin domain check ${slug} ${quoteWord(made.domain)}\`:`;
    context.output.result(made, `${next}\n  ${made.record_name}  ${made.record_text}\n`);
  },
};

export const check: Implementation = {
  args: { ...orgArg, ...domainArg },
  examples: [`${brand.executable} admin domain check acme example.org`],
  async run(context) {
    const [slug = "", domain = ""] = context.words;
    const verified = await write(context, async (api) =>
      request(domainsApi.check, { slug, id: await numberOf(api, slug, domain) }),
    );
    if (verified !== undefined) context.output.result(verified, `${verified.domain} is verified\n`);
  },
};

export const vouch: Implementation = {
  notes: "For staff, who know by other means that the domain is the organization's.",
  args: { ...orgArg, ...domainArg },
  examples: [`${brand.executable} admin domain vouch acme example.org`],
  async run(context) {
    const [organization = "", domain = ""] = context.words;
    const body = await checked(domainsApi.vouch.body, { organization, domain });
    const verified = await write(context, () => request(domainsApi.vouch, {}, body));
    if (verified !== undefined) context.output.result(verified, `${verified.domain} is verified\n`);
  },
};

export const remove: Implementation = {
  args: { ...orgArg, ...domainArg },
  examples: [`${brand.executable} admin domain delete acme example.org`],
  async run(context) {
    const [slug = "", domain = ""] = context.words;
    const done = await write(context, async (api) =>
      request(domainsApi.delete, { slug, id: await numberOf(api, slug, domain) }),
    );
    if (done !== undefined) context.output.result({ domain }, `Deleted ${domain}\n`);
  },
};
