// Text that comes from outside: bodies, queries, claims of providers, policies, certificates, answers of other servers.
// Both databases give it back as it was stored only if it is well-formed Unicode without null characters.

import * as v from "valibot";
import { unprintable } from "./unprintable.ts";

export const notStorable = "Null characters and lone surrogates are not allowed.";

/** Whether each database stores this text, and gives it back unchanged. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes("\0");
}

/** For texts that cannot be sent again: each character that is not storable becomes U+FFFD. */
export function toStorable(text: string): string {
  return isStorable(text) ? text : text.toWellFormed().replaceAll("\0", "\ufffd");
}

/** A text that stays on this machine, in a file or between its programs. `max`: in UTF-16 code units. */
export const boundedText = (max: number) => v.pipe(v.string(), v.maxLength(max));

/** The schema of a text that is JSON: `schema` checks its content. */
export const jsonText = <Content>(schema: v.GenericSchema<unknown, Content>) =>
  v.pipe(v.string(), v.parseJson(), schema);

/** The base of every schema of a text from outside. `max`: in UTF-16 code units. */
export const foreignText = (max: number, tooLong?: string) =>
  v.pipe(
    v.string(),
    v.check(isStorable, notStorable),
    v.maxLength(max, tooLong ?? `At most ${max} characters.`),
  );

/** One spelling (NFC) for texts that look alike. Earlier versions stored texts as they came, so compare stored texts by this. */
export const oneSpelling = (text: string) => text.normalize("NFC");

/** Like foreignText, for a text that is compared with others: in one spelling. */
export const comparedText = (max: number) =>
  v.pipe(
    v.string(),
    v.check(isStorable, notStorable),
    v.normalize("NFC"),
    v.maxLength(max, `At most ${max} characters.`),
  );

/** A name that users give a thing. On one line and in one direction: it stands in lists, messages and mails. */
export const label = (max: number) =>
  v.pipe(
    foreignText(max),
    v.trim(),
    v.minLength(1, "Enter a name."),
    v.check(
      (text) => text.search(unprintable) === -1,
      "Control characters and marks of direction are not allowed.",
    ),
  );

/** A sentence of another program. A long one is cut, so that it does not hide the error that it explains. */
export const foreignSentence = (max: number) =>
  v.pipe(
    v.string(),
    v.transform((text) => cutText(toStorable(text), max)),
    v.check(isStorable, notStorable),
    v.maxLength(max),
  );

/**
 * An e-mail address as it is stored and compared. The domain is in ASCII (RFC 5891) and without a final dot: two spellings of
 * a domain are one, and one that looks like another is seen to be different.
 */
export function emailKey(given: string): string {
  const text = formerEmailKey(given);
  const at = text.lastIndexOf("@");
  if (at === -1) return text;
  const domain = text.slice(at + 1);
  // ASCII stays as it is. So does a domain with signs that would end the host of a URL.
  const isPlain = /^[\0-\x7f]*$/.test(domain) || /[/:?#%\\[\]]/.test(domain);
  const host = isPlain ? domain : (URL.parse(`http://${domain}`)?.hostname ?? domain);
  return `${text.slice(0, at + 1)}${host.replace(/\.$/, "")}`;
}

/** The key that earlier versions stored, with the domain as it was typed: to find their rows. */
export function formerEmailKey(given: string): string {
  return given.trim().normalize("NFC").toLowerCase();
}

/** At most `max` code units. Never halves a character: half of one is not storable. */
export function cutText(text: string, max: number): string {
  const end = text.codePointAt(max - 1) ?? 0;
  return text.slice(0, text.length > max && end > 0xffff ? max - 1 : max);
}
