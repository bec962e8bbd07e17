// Reads a hand-made Nebula network from a directory: CA certificates and keys, host certificates, and the lighthouses and
// blocklists of the configurations. Reads no private key of a host, and changes nothing.

import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError, fromSystemError, messageOf } from "../../errors.ts";
import { caKeyBanners } from "../../pki/ca-key.ts";
import { certificateBanners, decodeBundle } from "../../pki/bundle.ts";
import { type NebulaCertificate } from "../../pki/nebula.ts";
import { formatPem, parsePem } from "../../pki/pem.ts";
import { readText } from "../../open-file.ts";

/** One configuration file of the directory. */
export type HandConfig = {
  path: string;
  blocklist: string[];
  /** Overlay address → underlay addresses, "host:port". */
  staticHosts: Record<string, string[]>;
  lighthouses: string[];
  relays: string[];
};

export type HandMade = {
  cas: NebulaCertificate[];
  /** The PEM of each CA key, plain or encrypted. */
  caKeys: string[];
  hosts: NebulaCertificate[];
  configs: HandConfig[];
};

const maxFileBytes = 1_048_576;
const maxDepth = 6;

/** Throws bad_configuration with the name of an unreadable file. */
export function readHandMade(directory: string): HandMade {
  const found: HandMade = { cas: [], caKeys: [], hosts: [], configs: [] };
  for (const path of filesBelow(directory, maxDepth)) {
    const text = readText(path, maxFileBytes);
    try {
      if (/\.ya?ml$/.test(path)) addConfig(found, path, text);
      else if (text.includes("-----BEGIN NEBULA")) addPem(found, text);
    } catch (error) {
      throw new AppError("bad_configuration", `Cannot read ${path}: ${messageOf(error)}`, { cause: error });
    }
  }
  return found;
}

function filesBelow(directory: string, depth: number): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .sort((a, b) => (a.name < b.name ? -1 : 1))
      .flatMap((entry) => {
        const path = join(directory, entry.name);
        if (entry.isDirectory()) return depth > 0 ? filesBelow(path, depth - 1) : [];
        // Follows links to files only: a link to a directory could form a circle.
        const found = statSync(path, { throwIfNoEntry: false });
        return found?.isFile() === true && found.size <= maxFileBytes ? [path] : [];
      });
  } catch (error) {
    throw fromSystemError(`read ${directory}`, error);
  }
}

function addPem(found: HandMade, text: string): void {
  for (const { banner, bytes } of parsePem(text)) {
    if (caKeyBanners.includes(banner)) found.caKeys.push(formatPem(banner, bytes));
    if (!certificateBanners.includes(banner)) continue;
    for (const each of decodeBundle(formatPem(banner, bytes)))
      (each.isCa ? found.cas : found.hosts).push(each);
  }
}

const Texts = v.fallback(v.array(v.string()), []);
const Config = v.object({
  pki: v.optional(
    v.object({ blocklist: v.optional(Texts), ca: v.optional(v.string()), cert: v.optional(v.string()) }),
  ),
  static_host_map: v.optional(v.fallback(v.record(v.string(), Texts), {})),
  lighthouse: v.optional(v.fallback(v.object({ hosts: v.optional(Texts) }), {})),
  relay: v.optional(v.fallback(v.object({ relays: v.optional(Texts) }), {})),
});

/** Ignores YAML files that are not engine configurations. A configuration may contain certificates. */
function addConfig(found: HandMade, path: string, text: string): void {
  const parsed = v.safeParse(Config, Bun.YAML.parse(text));
  if (!parsed.success || parsed.output.pki === undefined) return;
  const { pki, static_host_map, lighthouse, relay } = parsed.output;
  for (const inline of [pki.ca, pki.cert]) if (inline?.includes("-----BEGIN") === true) addPem(found, inline);
  found.configs.push({
    path,
    blocklist: (pki.blocklist ?? [])
      .map((each) => each.toLowerCase())
      .filter((each) => /^[0-9a-f]{64}$/.test(each)),
    staticHosts: static_host_map ?? {},
    lighthouses: lighthouse?.hosts ?? [],
    relays: relay?.relays ?? [],
  });
}
