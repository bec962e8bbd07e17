// The answers of the API that admin commands print, as far as they print them. Tolerant: a newer control plane may send
// more, which --json prints too.

import * as v from "valibot";

const text = v.pipe(v.string(), v.maxLength(65_536));
const time = v.nullable(text);
const names = v.pipe(v.array(text), v.maxLength(4096));

export const User = v.looseObject({
  id: v.number(),
  email: text,
  is_staff: v.boolean(),
  is_active: v.boolean(),
  created_at: text,
  last_login_at: time,
});

export const ProviderGroup = v.looseObject({ group: text, word: text });

export const Session = v.looseObject({
  id: v.number(),
  kind: v.optional(text),
  nodes: v.optional(v.pipe(v.array(v.looseObject({ org_slug: text, name: text })), v.maxLength(4096))),
  device: text,
  address: text,
  created_at: text,
  last_used_at: text,
  expires_at: text,
  is_current: v.boolean(),
});

export const Factors = v.looseObject({
  totp: v.boolean(),
  passkeys: v.number(),
  recovery_codes_left: v.number(),
  is_required: v.boolean(),
});
export const NewTotp = v.looseObject({ secret: text, otpauth_url: text });
export const RecoveryCodes = v.looseObject({ recovery_codes: names });
export const SignInRules = v.object({ staff_second_factor: v.boolean() });

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

const Side = v.record(text, v.union([v.boolean(), v.number(), text]));
export const Rule = v.looseObject({
  id: v.number(),
  direction: text,
  protocol: text,
  ports: text,
  peer: Side,
  target: Side,
  description: text,
});
export type Rule = v.InferOutput<typeof Rule>;

export const Me = v.looseObject({ id: v.number(), email: text, is_staff: v.boolean() });
