// Parses and formats PEM (RFC 7468): blocks of base64 with a label. Must not know specific labels.

import { AppError } from "../base/errors.ts";

/** `banner`: the label of a block. */
export type PemBlock = { banner: string; bytes: Uint8Array };

/** 16 MiB. A bundle of ten thousand certificates has 4 MiB. */
const maxTextLength = 16_777_216;
const begin = /^-----BEGIN ([A-Z0-9][A-Z0-9 ]{0,63})-----$/;
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/**
 * All blocks in order. Text before and between blocks is a comment. After the last block only white space may follow,
 * because the engine would refuse the whole file. Throws `bad_request`.
 */
export function parsePem(text: string): PemBlock[] {
  if (text.length > maxTextLength)
    throw new AppError("bad_request", "Cannot read PEM: the text is over 16 MiB");
  const blocks: PemBlock[] = [];
  let open: { banner: string; lines: string[] } | undefined;
  /** The first text after the last block so far. */
  let textAfter = "";
  for (const raw of text.split("\n")) {
    const line = raw.trimEnd();
    if (open === undefined) {
      const banner = begin.exec(line)?.[1];
      if (banner === undefined) textAfter ||= line.trim();
      else open = { banner, lines: [] };
    } else if (line === `-----END ${open.banner}-----`) {
      blocks.push({ banner: open.banner, bytes: decodeBase64(open.banner, open.lines.join("")) });
      open = undefined;
      textAfter = "";
    } else {
      open.lines.push(line);
    }
  }
  if (open !== undefined) {
    throw new AppError("bad_request", `Cannot read PEM: the block "${open.banner}" has no end`);
  }
  if (textAfter !== "")
    throw new AppError("bad_request", "Cannot read PEM: there is text after the last block");
  return blocks;
}

/** The bytes of the only block, which must have one of these labels. Throws `bad_request`. */
export function parseOnePem(text: string, banners: readonly string[]): PemBlock {
  const blocks = parsePem(text);
  const [block] = blocks;
  if (block !== undefined && blocks.length === 1 && banners.includes(block.banner)) return block;
  const found = block === undefined ? "none" : blocks.map(({ banner }) => `"${banner}"`).join(", ");
  throw new AppError("bad_request", `Expected one PEM block "${banners.join('" or "')}", found ${found}`);
}

/** One block: 64 columns, standard base64, a newline at the end. */
export function formatPem(banner: string, bytes: Uint8Array): string {
  const lines =
    Buffer.from(bytes)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${banner}-----`, ...lines, `-----END ${banner}-----`, ""].join("\n");
}

function decodeBase64(banner: string, text: string): Uint8Array {
  const bytes = base64.test(text) ? Uint8Array.from(Buffer.from(text, "base64")) : undefined;
  if (bytes === undefined || bytes.length === 0) {
    throw new AppError("bad_request", `Cannot read PEM: the block "${banner}" does not contain base64`);
  }
  return bytes;
}
