// Lines of an engine's log for reading: `2026-11-22 12:00:00 info  Handshake message received  vpnAddrs=10.77.0.1`.

import { jsonFields } from "../../node/engine/log-lines.ts";

/** Fingerprints and the like: the beginning is enough to compare them. */
const longHex = /^[0-9a-f]{40,}$/;
const levelWidth = 5;

/** A line that is no JSON object of the engine is returned as it is. */
export function readableLine(line: string): string {
  const fields = line.startsWith("{") ? jsonFields(line) : undefined;
  if (fields === undefined) return line;
  const { level, msg, time, ...rest } = fields;
  if (typeof msg !== "string") return line;
  const when = typeof time === "string" ? time.slice(0, 19).replace("T", " ") : "";
  const how = typeof level === "string" ? level.toLowerCase().padEnd(levelWidth) : "";
  const pairs = Object.entries(rest).flatMap(([key, value]) => pairsOf(key, value));
  return [[when, how, msg].filter((part) => part !== "").join(" "), ...pairs].join("  ");
}

/** `key=value` for each value that is not empty. */
function pairsOf(key: string, value: unknown): string[] {
  if (value === null || value === "") return [];
  if (Array.isArray(value)) return value.length === 0 ? [] : [`${key}=${value.map(textOf).join(",")}`];
  if (typeof value === "object")
    return Object.entries(value).flatMap(([inner, each]) => pairsOf(`${key}.${inner}`, each));
  return [`${key}=${textOf(value)}`];
}

function textOf(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (longHex.test(text)) return `${text.slice(0, 12)}…`;
  return /[\s"=]/.test(text) ? JSON.stringify(text) : text;
}
