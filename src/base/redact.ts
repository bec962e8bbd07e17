// Replaces secrets in foreign text, in linear time.

import { brand } from "../brand.ts";

/**
 * Replaces bearer values, JWTs, PEM private keys, join keys and tokens by their kind. Our tokens have 43 characters: 32 bytes
 * in base64url. Linear time: each expression can begin a match at a character only a bounded number of times.
 */
export function redact(text: string): string {
  // Nearly all texts have nothing to redact, and every request is logged.
  if (!mayHoldSecret.test(text)) return text;
  return withoutKeys(text)
    .replace(joinKey, "[join key]")
    .replace(/\b(Bearer\s+)[\w.~+/=-]+/gi, "$1[token]")
    .replace(/[\w.-]+/g, withoutTokens);
}

/** A quick test: every secret below contains one of these. */
const mayHoldSecret = new RegExp(`[\\w-]{43}|eyJ|Bearer|PRIVATE KEY|${brand.joinKeyPrefix}\\d`, "i");

/** Also the beginning of one: it holds address and organization, and soon the token. */
const joinKey = new RegExp(`${brand.joinKeyPrefix}\\d[\\w-]{4,}`, "g");

const keyLabel = "[A-Z0-9 ]{0,64}PRIVATE KEY-----";
/** A key without its end runs to the end of the text: a cut key is a secret too. */
const privateKey = new RegExp(`-----BEGIN ${keyLabel}.*?(?:-----END ${keyLabel}|$)`, "gs");
const keyEnd = new RegExp(`-----END ${keyLabel}`);

function withoutKeys(text: string): string {
  const parts = text.replace(privateKey, "[private key]").split(keyEnd);
  const last = parts.pop() ?? "";
  // In the last lines of a log, a key can lack its beginning: then its end marks it.
  return parts.map((part) => `${withoutBase64Tail(part)}[private key]`).join("") + last;
}

function withoutBase64Tail(text: string): string {
  let end = text.length;
  while (end > 0 && /[\w+/=\s\\]/.test(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

/** `word`: a longest run of word characters, dots and hyphens. */
function withoutTokens(word: string): string {
  const jwt = word.search(/(?<!\w)eyJ/);
  const isJwt = jwt >= 0 && word.slice(jwt).split(".").length > 2;
  return (isJwt ? word.slice(0, jwt) : word)
    .split(".")
    .map((part) => (part.length === 43 ? "[token]" : part))
    .join(".")
    .concat(isJwt ? "[token]" : "");
}
