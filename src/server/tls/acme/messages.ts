// Answers of an ACME server (RFC 8555, RFC 9773). Every byte is from outside: texts have maxima, URLs are HTTPS, and
// unknown members are ignored.

import * as v from "valibot";
import { foreignSentence, foreignText } from "../../../base/text.ts";
import { listOf } from "../../../protocol/values.ts";

const maxUrl = 2048;

const Url = v.pipe(
  foreignText(maxUrl),
  v.check((text) => URL.canParse(text) && new URL(text).protocol === "https:", "Expected an HTTPS URL"),
);
/** Shown, never compared. */
const Sentence = foreignSentence(500);
const Word = foreignText(255);
const Time = v.pipe(
  foreignText(64),
  v.check((text) => !Number.isNaN(Date.parse(text)), "Expected a time"),
  v.transform((text) => Date.parse(text)),
);

/** RFC 9457, with the members of RFC 8555, section 6.7. */
export const Problem = v.object({
  type: v.optional(Word, "about:blank"),
  detail: v.optional(Sentence, ""),
  subproblems: v.optional(
    listOf(v.object({ type: v.optional(Word, "about:blank"), detail: v.optional(Sentence, "") }), 100),
    [],
  ),
});
export type Problem = v.InferOutput<typeof Problem>;

export const Directory = v.object({
  newNonce: Url,
  newAccount: Url,
  newOrder: Url,
  renewalInfo: v.optional(Url),
  meta: v.optional(
    v.object({
      profiles: v.optional(v.pipe(v.record(foreignText(64), v.unknown()), v.maxEntries(100)), {}),
      externalAccountRequired: v.optional(v.boolean(), false),
    }),
    { profiles: {}, externalAccountRequired: false },
  ),
});
export type Directory = v.InferOutput<typeof Directory>;

export const Account = v.object({ status: Word });

export const Order = v.object({
  status: v.picklist(["pending", "ready", "processing", "valid", "invalid"]),
  authorizations: listOf(Url, 100),
  finalize: Url,
  certificate: v.optional(Url),
  error: v.optional(Problem),
});
export type Order = v.InferOutput<typeof Order>;

/** The token is read as a word of at most 256 characters. The value of the DNS record, made of it, has 43. */
export const Challenge = v.object({
  type: Word,
  url: Url,
  status: Word,
  token: v.optional(v.pipe(foreignText(256), v.regex(/^[A-Za-z0-9_-]+$/))),
  error: v.optional(Problem),
});
export type Challenge = v.InferOutput<typeof Challenge>;

export const Authorization = v.object({
  identifier: v.object({ type: Word, value: Word }),
  status: v.picklist(["pending", "valid", "invalid", "deactivated", "expired", "revoked"]),
  challenges: listOf(Challenge, 20),
});
export type Authorization = v.InferOutput<typeof Authorization>;

export const RenewalInfo = v.object({
  suggestedWindow: v.pipe(
    v.object({ start: Time, end: Time }),
    v.check(({ start, end }) => start < end, "Expected a window that ends after its start"),
  ),
  explanationURL: v.optional(Url),
});
export type RenewalInfo = v.InferOutput<typeof RenewalInfo>;

export { Url as AcmeUrl };
