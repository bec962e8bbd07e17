// The answers of the API that admin commands print, as far as they print them. Tolerant: a newer control plane may send
// more, which --json prints too.

import * as v from "valibot";

const text = v.pipe(v.string(), v.maxLength(65_536));
const time = v.nullable(text);

export const IdentityProvider = v.looseObject({
  id: v.number(),
  name: text,
  issuer: text,
  client_id: text,
  creates_users: v.boolean(),
  /** Missing: a control plane that does not know. */
  leaving: v.optional(v.nullable(text)),
  redirect_uri: text,
});
export const IdentityProviders = v.pipe(v.array(IdentityProvider), v.maxLength(4096));

export const ClaimedDomain = v.looseObject({
  id: v.number(),
  domain: text,
  record_name: text,
  record_text: text,
  verified_at: time,
  verified_by: v.nullable(text),
});
export const ClaimedDomains = v.pipe(v.array(ClaimedDomain), v.maxLength(4096));
