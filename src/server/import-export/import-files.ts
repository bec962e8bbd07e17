// Reads a hand-made Nebula network from a directory: CA certificates and keys, host certificates, and configurations. Reads
// no private key of a host, and changes nothing. What it does not read, it names.

import { readdirSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { AppError, fromSystemError, messageOf } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { caKeyBanners } from "../../pki/ca-key.ts";
import { certificateBanners, decodeBundle } from "../../pki/bundle.ts";
import type { NebulaCertificate } from "../../pki/nebula.ts";
import { formatPem, parsePem } from "../../pki/pem.ts";
import { readBytes } from "../../base/open-file.ts";
import { quoted, readConfigs, type HandConfigs, type YamlFile } from "./hand-config.ts";
import { readPlacedYaml, type Placed } from "./placed-yaml.ts";

/** `file`: within the directory. */
export type FromFile<T> = { file: string; value: T };

export type HandMade = {
  directory: string;
  cas: FromFile<NebulaCertificate>[];
  /** The PEM of each CA key, plain or encrypted. */
  caKeys: FromFile<string>[];
  hosts: FromFile<NebulaCertificate>[];
  configs: HandConfigs;
  notes: string[];
};

const maxFileBytes = 8 * 1_048_576;
const maxDepth = 8;

/** Throws bad_configuration with the name of an unreadable file. */
export function readHandMade(directory: string): HandMade {
  const found: Found = { cas: [], caKeys: [], hosts: [], notes: [] };
  const yamls: YamlFile[] = [];
  for (const path of filesBelow(directory, directory, maxDepth, found.notes)) {
    const file = relative(directory, path);
    const text = decode(contentOf(path));
    if (/\.ya?ml$/i.test(path)) yamls.push({ file, root: readPlacedYaml(text, file) });
    else if (text.includes("-----BEGIN NEBULA")) addPem(found, file, text);
    else if (/\.(crt|pem)$/i.test(path))
      found.notes.push(`${quoted(file)} holds no certificate of Nebula; not read.`);
    else if (configLike.test(text))
      found.notes.push(
        `${quoted(file)} looks like a configuration, but its name does not end in .yml or .yaml; not read.`,
      );
  }
  for (const { file, root } of yamls)
    for (const { text, line } of inlinePems(root)) addPem(found, file, text, line);
  return { directory, ...found, configs: readConfigs(yamls.sort((a, b) => (a.file < b.file ? -1 : 1))) };
}

/** An engine reads its configuration from a file of any name. */
const configLike = /^[ \t{]*"?(pki|static_host_map|lighthouse|tun)"?[ \t]*:/m;

type Found = Pick<HandMade, "cas" | "caKeys" | "hosts" | "notes">;

/** By the byte order mark, in hexadecimal. */
const encodings = new Map<string, "utf-16le" | "utf-16be">([
  ["fffe", "utf-16le"],
  ["feff", "utf-16be"],
]);

/** Windows programs write a byte order mark, and PowerShell UTF-16. */
function decode(bytes: Buffer): string {
  const mark = bytes.subarray(0, 2).toString("hex");
  return new TextDecoder(encodings.get(mark) ?? "utf-8").decode(bytes);
}

function contentOf(path: string): Buffer {
  try {
    return readBytes(path, maxFileBytes);
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}

function filesBelow(top: string, directory: string, depth: number, notes: string[]): string[] {
  const skip = (path: string, why: string) => {
    notes.push(`${quoted(relative(top, path))} ${why}; not read.`);
    return [];
  };
  return entriesOf(directory).flatMap((entry) => {
    const path = join(directory, entry.name);
    if (entry.isDirectory())
      return depth > 0 ? filesBelow(top, path, depth - 1, notes) : skip(path, "is too deep in the directory");
    // Follows links to files only: a link to a directory could form a circle.
    const found = statIfThere(path);
    if (found === undefined) return skip(path, "is a link to nothing");
    if (found.isDirectory()) return skip(path, "is a link to a directory");
    if (!found.isFile()) return skip(path, "is not a file");
    if (found.size <= maxFileBytes) return [path];
    if (/\.(ya?ml|crt|pem|key)$/i.test(path)) {
      throw new AppError("bad_configuration", `Cannot read ${path}: it is larger than 8 MiB`, {
        hint: "Split the file, or remove it from the directory.",
      });
    }
    return skip(path, "is larger than 8 MiB");
  });
}

function statIfThere(path: string) {
  try {
    return statSync(path);
  } catch (error) {
    // A loop of links leads to nothing, too.
    if (["ENOENT", "ELOOP"].includes(systemErrorCode(error) ?? "")) return undefined;
    throw fromSystemError(`read ${path}`, error);
  }
}

function entriesOf(directory: string) {
  try {
    return readdirSync(directory, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1));
  } catch (error) {
    throw fromSystemError(`read ${directory}`, error);
  }
}

function addPem(found: Found, file: string, text: string, line?: number): void {
  try {
    for (const { banner, bytes } of parsePem(text)) {
      const pem = formatPem(banner, bytes);
      if (caKeyBanners.includes(banner)) found.caKeys.push({ file, value: pem });
      if (!certificateBanners.includes(banner)) continue;
      for (const value of decodeBundle(pem)) (value.isCa ? found.cas : found.hosts).push({ file, value });
    }
  } catch (error) {
    const place = line === undefined ? file : `${file}:${line}`;
    throw new AppError("bad_configuration", `Cannot read ${place}: ${messageOf(error)}`, {
      cause: error,
      hint: "Correct the file, or remove it from the directory if no engine reads it.",
    });
  }
}

/** Certificates in a configuration itself. */
function inlinePems(root: Placed): { text: string; line: number }[] {
  const pki = root.kind === "map" ? root.entries.get("pki") : undefined;
  return ["ca", "cert"].flatMap((key) => {
    const value = pki?.kind === "map" ? pki.entries.get(key) : undefined;
    return value?.kind === "leaf" && value.text.includes("-----BEGIN") ? [value] : [];
  });
}
