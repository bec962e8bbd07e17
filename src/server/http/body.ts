// Reads the body of a request: at most 64 KiB, JSON in UTF-8, not too deep, and no text that a database cannot hold.
// What the JSON means is for the schemas.

import { AppError } from "../../errors.ts";

export const maxBodyBytes = 65_536;
const maxDepth = 32;

/** Throws payload_too_large, and bad_request where it did not come whole. */
export function readText(request: Request): Promise<string> {
  const length = request.headers.get("content-length");
  if (length === null && request.body !== null) return readChunks(request.body).catch(notWhole);
  if (Number(length) > maxBodyBytes) return Promise.reject(tooLarge());
  return request.text().catch(notWhole);
}

/** Who hangs up in the middle is no failure of ours, and nobody is there to read this. */
function notWhole(error: unknown): never {
  if (error instanceof AppError) throw error;
  throw new AppError("bad_request", "The body did not come whole.", { cause: error });
}

/**
 * The object that a body is; an empty body counts as {}. `type`: its Content-Type. Throws unsupported_media_type,
 * bad_request, or validation_failed for JSON that is no object.
 */
export function objectOf(text: string, type: string | null): object {
  if (text === "") return {};
  if (type !== "application/json" && !isJson(type)) {
    throw new AppError("unsupported_media_type", "The body's Content-Type must be application/json.");
  }
  // What is no UTF-8 was read as this; nobody has a use for it.
  if (text.includes("\ufffd")) throw new AppError("bad_request", "The body is not UTF-8, or holds U+FFFD.");
  checkDepth(text);
  const value = parseText(text);
  // Only an escape can smuggle in what UTF-8 cannot.
  if (text.includes("\\u")) checkTexts(value);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new AppError("validation_failed", "The request does not hold what it should.", {
    errors: { non_field_errors: ["Expected an object."] },
  });
}

async function readChunks(body: ReadableStream<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let total = 0;
  for await (const chunk of body) {
    total += chunk.length;
    if (total > maxBodyBytes) throw tooLarge();
    chunks.push(chunk);
  }
  return new Response(Buffer.concat(chunks)).text();
}

function tooLarge(): AppError {
  return new AppError("payload_too_large", `A body may have ${maxBodyBytes} bytes at most.`);
}

function isJson(type: string | null): boolean {
  return type !== null && /^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(type);
}

function parseText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new AppError("bad_request", "The body is not JSON.", { cause: error });
  }
}

/** Counts brackets outside of strings, where there are enough for it to matter. */
function checkDepth(text: string): void {
  if (!hasMore(text, "{", maxDepth / 2) && !hasMore(text, "[", maxDepth / 2)) return;
  let depth = 0;
  let inText = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (inText) {
      if (code === 0x5c) at++;
      else if (code === 0x22) inText = false;
    } else if (code === 0x22) inText = true;
    else if (code === 0x7b || code === 0x5b) {
      if (++depth > maxDepth)
        throw new AppError("bad_request", `The body is nested deeper than ${maxDepth}.`);
    } else if (code === 0x7d || code === 0x5d) depth--;
  }
}

function hasMore(text: string, what: string, most: number): boolean {
  let count = 0;
  for (let at = text.indexOf(what); at !== -1; at = text.indexOf(what, at + 1))
    if (++count > most) return true;
  return false;
}

function checkTexts(value: unknown): void {
  if (typeof value === "string") {
    if (value.includes("\0")) throw new AppError("bad_request", "Null characters are not allowed.");
    if (!value.isWellFormed()) throw new AppError("bad_request", "Surrogate characters are not allowed.");
  } else if (typeof value === "object" && value !== null) {
    for (const [key, item] of Object.entries(value)) {
      checkTexts(key);
      checkTexts(item);
    }
  }
}
