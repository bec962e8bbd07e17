// Renders the site file of a phone, which the Nebula app imports by "From file": a config.yml with CA and certificate in it.
// It lacks the private key alone, which the browser appends: `pki` is the last section.

import { parseEngineVersion } from "../../engine/features.ts";
import { stringifyYaml, yamlSlices, type YamlMap } from "../../base/yaml.ts";
import { inSlices } from "../http/heavy-work.ts";
import type { NodeRow } from "../store/tables/nodes.ts";
import { kindOf, type ConfigNode, type ConfigView } from "./config-view.ts";
import { pkiSection, treeOf } from "./config.ts";

/** The engine in the first app that imports files, of February 2026. */
const oldestPhoneEngine = "1.10.3";

type Parts = {
  system: NodeRow["phone"];
  caPem: string;
  certificatePem: string;
  /** Overlay addresses of the name servers, and the domains that they answer for. */
  resolvers: readonly string[];
  domains: readonly string[];
};

export function renderSite(view: ConfigView, node: ConfigNode, parts: Parts): Promise<string> {
  return inSlices(siteSlices(view, node, parts));
}

function* siteSlices(view: ConfigView, node: ConfigNode, parts: Parts): Generator<unknown, string> {
  const engine = parseEngineVersion(oldestPhoneEngine);
  // A kind is all that a node's configuration depends on (config-view.ts). A phone reports no engine.
  const kind = { ...kindOf(view, node), overlayVersion: oldestPhoneEngine };
  const lines: string[] = [];
  for (const slice of yamlSlices({ ...treeOf(view, kind, engine), ...dnsSection(parts) })) {
    lines.push(slice);
    yield;
  }
  const { key: _, ...trust } = pkiSection(view, engine);
  const inline = { ...trust, ca: parts.caPem, cert: parts.certificatePem };
  // The lines of the blocklist are indented: they continue `pki`.
  return `${lines.join("\n")}\n${stringifyYaml({ pki: inline })}${view.blocklistYaml}`;
}

/**
 * Android has no domains to match: with a resolver, the phone would ask it for every name, and it answers only those of the
 * organization.
 */
function dnsSection({ system, resolvers, domains }: Parts): YamlMap {
  if (system !== "ios" || resolvers.length === 0) return {};
  return { mobile_nebula: { dns_resolvers: [...resolvers], match_domains: [...domains] } };
}
