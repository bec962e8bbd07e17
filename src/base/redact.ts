// Replaces secrets in foreign text, in linear time.

import { brand } from "../brand.ts";

/**
 * Replaces bearer values, JWTs, PEM private keys, join keys and tokens by their kind. Our tokens have 43 characters: 32 bytes
 * in base64url. Linear time: each expression can begin a match at a character only a bounded number of times.
 */
export function redact(text: string): string {
  // Nearly all texts have nothing to redact, and every request is logged.
  if (!mayHoldSecret.test(text)) return text;
  return redactKeys(text)
    .replace(joinKey, "[join key]")
    .replace(/(Bearer(?:\s|\\[nrt]|%20|\+)+)[\w.~+/=-]+/gi, "$1[token]")
    .replace(/[\\%]?[\w.-]+/g, redactWord);
}

/** A quick test: every secret below contains one of these. */
const mayHoldSecret = new RegExp(`[\\w-]{43}|eyJ|Bearer|PRIVATE.{1,3}KEY|${brand.joinKeyPrefix}\\d`, "i");

/** Matches the beginning of a join key, too: it holds address and organization, and may have a part of the token. */
const joinKey = new RegExp(`${brand.joinKeyPrefix}\\d[\\w-]{4,}`, "g");

// Spaces may be percent-encoded.
const keyLabel = "[A-Z0-9 +%]{0,64}PRIVATE(?:[ +]|%20)KEY-----";
/** A key without its end runs to the end of the text: a cut key is a secret too. */
const privateKey = new RegExp(`-----BEGIN${keyLabel}.*?(?:-----END${keyLabel}|$)`, "gs");
const keyEnd = new RegExp(`-----END${keyLabel}`);

/** The text without PEM private keys. */
function redactKeys(text: string): string {
  const parts = text.replace(privateKey, "[private key]").split(keyEnd);
  const last = parts.pop() ?? "";
  // The tail of a log may begin inside a key: then only its end is there, and what is before it is the key.
  return parts.map((part) => `${withoutBase64Tail(part)}[private key]`).join("") + last;
}

/** Without the base64 at the end of a text. */
function withoutBase64Tail(text: string): string {
  let end = text.length;
  while (end > 0 && /[\w+/=\s\\%]/.test(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

/** An escape of JSON, of Go or of a URL at the beginning of a word; `%2523`: of a URL in a URL. */
const leadingEscape = /^(?:\\(?:[abfnrtv0]|x[\da-f]{2}|u[\da-f]{4})|%(?:25)*[\da-f]{2})/i;

/**
 * `word`: a longest run of word characters, dots and hyphens, with the backslash or percent sign before it. Of `\nAb…` the
 * letter n may belong to an escape or to the token: first the text after the escape is looked at, then that after the sign.
 */
function redactWord(word: string): string {
  // Too short for a token of either kind.
  if (word.length < 5) return word;
  const afterSign = /^[\\%]/.test(word) ? 1 : 0;
  const afterEscape = leadingEscape.exec(word)?.[0].length ?? afterSign;
  const redactFrom = (start: number) => word.slice(0, start) + redactTokens(word.slice(start));
  const redacted = redactFrom(afterEscape);
  return redacted === word && afterEscape !== afterSign ? redactFrom(afterSign) : redacted;
}

/** A JWT runs to the end of the word; other tokens are parts of it between dots. */
function redactTokens(word: string): string {
  const jwt = word.search(/(?<!\w)eyJ/);
  const isJwt = jwt >= 0 && word.slice(jwt).split(".").length > 2;
  return (isJwt ? word.slice(0, jwt) : word)
    .split(".")
    .map((part) => (part.length === 43 ? "[token]" : redactJoinedToken(part)))
    .join(".")
    .concat(isJwt ? "[token]" : "");
}

/**
 * `key-TOKEN`, `session_TOKEN`: 43 characters after a sign. Names of several words do not mix upper and lower case, tokens do.
 * `(?<![^_-])` and `(?![^_-])`: beside the token is a sign, or the part ends.
 */
function redactJoinedToken(part: string): string {
  if (part.length < 44 || !/[a-z]/.test(part) || !/[A-Z]/.test(part)) return part;
  return part.replace(/(?<![^_-])(?=[\w-]{0,42}[a-z])(?=[\w-]{0,42}[A-Z])[\w-]{43}(?![^_-])/g, "[token]");
}
