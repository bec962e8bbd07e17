// Join keys: one string with everything that a machine needs to join an organization. Made by the control plane, read by
// `agent up`. A key is a secret: it holds a registration token.

import { given } from "../base/given.ts";
import { createHash } from "node:crypto";
import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { Slug, jsonTextOf } from "./values.ts";
import { foreignText } from "../base/text.ts";

export type JoinKey = {
  /** URL of the control plane. */
  apiBase: string;
  slug: string;
  /** `sha256:HEX` of the control plane's own TLS CA, if it has one. */
  caFingerprint?: string;
  registrationToken: string;
  role: "node" | "lighthouse";
  /**
   * May be an argument of a command: the key is for one machine, for an hour at most. Process lists, shell histories and logs of
   * cloud-init keep the arguments of a command.
   */
  isShortLived: boolean;
  /** The hash of the newest seal when the key was made, if nodes enforce it: the node takes nothing that does not follow it. */
  seal?: string;
};

const formatVersion = "1";
const checksumBytes = 4;
/** Far above what the maxima of its parts allow. */
const maxLength = 4096;

/** Fields of JoinKey with short names, because users copy the key. */
const Content = v.strictObject({
  a: v.pipe(foreignText(512), v.url(), v.regex(/^https?:\/\//)),
  o: Slug,
  c: v.optional(v.pipe(foreignText(71), v.regex(/^sha256:[0-9a-f]{64}$/))),
  t: v.pipe(foreignText(128), v.regex(/^[\w-]+$/)),
  r: v.picklist(["node", "lighthouse"]),
  w: v.boolean(),
  s: v.optional(v.pipe(foreignText(64), v.regex(/^[0-9a-f]{64}$/))),
});

export function formatJoinKey(key: JoinKey): string {
  const content = Buffer.from(
    JSON.stringify({
      a: key.apiBase,
      o: key.slug,
      ...given({ c: key.caFingerprint }),
      t: key.registrationToken,
      r: key.role,
      w: key.isShortLived,
      ...given({ s: key.seal }),
    } satisfies v.InferInput<typeof Content>),
  );
  const text = Buffer.concat([content, checksum(content)]).toString("base64url");
  return `${brand.joinKeyPrefix}${formatVersion}${text}`;
}

/** Whether a text is meant as a join key, of any version. */
export function looksLikeJoinKey(text: string): boolean {
  return new RegExp(`^\\s*${brand.joinKeyPrefix}\\d`).test(text);
}

/** Drops spaces and line breaks, which terminals and mail programs add. Throws usage; errors never repeat the text. */
export function parseJoinKey(text: string): JoinKey {
  if (text.trim() === "")
    throw refused("The join key is empty", "Look at the file or variable that should hold it.");
  if (text.length > maxLength || !looksLikeJoinKey(text)) {
    throw refused(
      "This is not a join key",
      `A join key begins with ${brand.joinKeyPrefix}${formatVersion}. An administrator makes it: \`${brand.executable} admin token create ORG\` shows it, and has it as join_key with --json.`,
    );
  }
  const word = text.replace(/\s+/g, "");
  const start = brand.joinKeyPrefix.length + formatVersion.length;
  if (word.slice(brand.joinKeyPrefix.length, start) !== formatVersion) {
    throw refused(
      "This join key has a form that this version does not know",
      `Update with \`${brand.executable} self-update\`.`,
    );
  }
  const bytes = Buffer.from(word.slice(start), "base64url");
  const content = bytes.subarray(0, -checksumBytes);
  if (!/^[\w-]+$/.test(word) || !checksum(content).equals(bytes.subarray(-checksumBytes)))
    throw refused(
      "This join key is incomplete or mistyped",
      "Copy it again, from its first character to its last.",
    );
  const parsed = v.safeParse(jsonTextOf(Content), content.toString("utf8"));
  if (!parsed.success) {
    throw refused(
      "This join key holds something that this version does not know",
      `Update with \`${brand.executable} self-update\`, or ask for a new key.`,
    );
  }
  const { a, o, c, t, r, w, s } = parsed.output;
  return {
    apiBase: a,
    slug: o,
    ...given({ caFingerprint: c }),
    registrationToken: t,
    role: r,
    isShortLived: w,
    ...given({ seal: s }),
  };
}

function checksum(content: Uint8Array): Buffer {
  return createHash("sha256").update(content).digest().subarray(0, checksumBytes);
}

function refused(message: string, hint: string): AppError {
  return new AppError("usage", message, { hint });
}
