// Reads the body of a request: at most 64 KiB of JSON (a route may permit more) in UTF-8, with bounded depth, no key that is
// given twice, and no string that a database cannot store. Schemas check the content.

import { AppError } from "../../base/errors.ts";
import { readCapped } from "../../base/read-capped.ts";
import { isStorable, notStorable } from "../../base/text.ts";
import { makeDeadlines } from "./deadlines.ts";

export const maxBodyBytes = 65_536;
const maxDepth = 32;
/** The listener ends only connections without any byte for 75 s: one byte a minute would hold a connection for weeks. */
const bodyWithinMs = 60_000;

const deadlines = makeDeadlines(
  bodyWithinMs,
  () => performance.now(),
  () => new AppError("request_timeout", `The body was not complete after ${bodyWithinMs / 1000} seconds.`),
);

/**
 * Throws payload_too_large, request_timeout, unsupported_media_type for a compressed body, and bad_request for an incomplete
 * one.
 */
export function readText(request: Request, maxBytes = maxBodyBytes, { within } = deadlines): Promise<string> {
  if ((request.headers.get("content-encoding") ?? "identity").toLowerCase() !== "identity")
    return Promise.reject(new AppError("unsupported_media_type", "The body must have no Content-Encoding."));
  const length = request.headers.get("content-length");
  if (length === null && request.body !== null)
    return within(readChunks(request.body, maxBytes)).catch(incomplete);
  if (Number(length) > maxBytes) return Promise.reject(tooLarge(maxBytes));
  return within(request.text()).catch(incomplete);
}

/** The client disconnected while sending: not a failure of the server. */
function incomplete(error: unknown): never {
  if (error instanceof AppError) throw error;
  throw new AppError("bad_request", "The body is incomplete.", { cause: error });
}

/**
 * Parses the body, which must be an object; an empty body counts as {}. `type`: its Content-Type. Throws
 * unsupported_media_type, bad_request, or validation_failed for JSON that is not an object.
 */
export function objectOf(text: string, type: string | null): object {
  if (text === "") return {};
  if (type !== "application/json" && !isJson(type)) {
    throw new AppError("unsupported_media_type", "The body's Content-Type must be application/json.");
  }
  // The decoder replaces invalid UTF-8 by U+FFFD.
  if (text.includes("\ufffd")) throw new AppError("bad_request", "The body must be UTF-8 without U+FFFD.");
  const members = countColons(text);
  const value = parseText(text);
  // A key that is given twice: we take the last value, and what checked the request before us may have taken the first.
  if (members !== countMembers(value))
    throw new AppError("bad_request", "The body names a key more than once.");
  // In valid UTF-8, only an escape can make a null or a lone surrogate.
  if (text.includes("\\u")) checkStrings(value);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new AppError("validation_failed", "The request is not valid.", {
    errors: { non_field_errors: ["Expected an object."] },
  });
}

async function readChunks(body: ReadableStream<Uint8Array>, maxBytes: number): Promise<string> {
  const bytes = await readCapped(body, maxBytes, () => tooLarge(maxBytes));
  // Removes a byte order mark, as `Request.text` does.
  return new Response(new Uint8Array(bytes)).text();
}

function tooLarge(maxBytes: number): AppError {
  return new AppError("payload_too_large", `The body exceeds the maximum of ${maxBytes} bytes.`);
}

function isJson(type: string | null): boolean {
  return type !== null && /^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(type);
}

function parseText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new AppError("bad_request", "The body is not valid JSON.", { cause: error });
  }
}

const quote = '"'.charCodeAt(0);
const backslash = "\\".charCodeAt(0);
const colon = ":".charCodeAt(0);
const [openBrace, closeBrace] = ["{".charCodeAt(0), "}".charCodeAt(0)];
const [openBracket, closeBracket] = ["[".charCodeAt(0), "]".charCodeAt(0)];

/** The number of colons outside of strings: each member of an object has one. Throws bad_request for deep nesting. */
function countColons(text: string): number {
  let depth = 0;
  let colons = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) at = endOfString(text, at);
    else if (code === colon) colons++;
    else if (code === openBrace || code === openBracket) {
      if (++depth > maxDepth)
        throw new AppError("bad_request", `The body is nested deeper than ${maxDepth} levels.`);
    } else if (code === closeBrace || code === closeBracket) depth--;
  }
  return colons;
}

/** The index of the end of the string that begins here. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === backslash) at++;
    else if (code === quote) return at;
  }
  return text.length;
}

/** The members of all objects in a value. */
function countMembers(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const items: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  let sum = items === value ? 0 : items.length;
  for (const item of items) if (typeof item === "object") sum += countMembers(item);
  return sum;
}

function checkStrings(value: unknown): void {
  if (typeof value === "string") {
    if (!isStorable(value)) throw new AppError("bad_request", notStorable);
  } else if (typeof value === "object" && value !== null) {
    for (const [key, item] of Object.entries(value)) {
      checkStrings(key);
      checkStrings(item);
    }
  }
}
