// Rules in the Name Resolution Policy Table of Windows: for names in the organizations' domains, Windows asks our resolver.
// They are registry keys and outlive this process, so each start compares them and each end removes them.

import { brand } from "../../brand.ts";
import type { Registry, RegistryValues } from "../../platform/windows/registry.ts";
import { makeLastingSettings, type ResolutionSettings } from "./lasting-settings.ts";

const localRules = String.raw`SYSTEM\CurrentControlSet\Services\Dnscache\Parameters\DnsPolicyConfig`;
/** While this key exists, even without rules, Windows ignores local rules. Only group policies create it. */
const policyRules = String.raw`SOFTWARE\Policies\Microsoft\Windows NT\DNSClient\DnsPolicyConfig`;

/** Windows ignores further domains of one rule. */
const maxDomains = 50;
/** So many changes in a row are those of another program, not of a group policy that was refreshed once. */
const disputedAfter = 3;

const prefix = `${brand.id}-`;
const isOurs = (key: string) => key.toLowerCase().startsWith(prefix);

/** Pure. The rules by the names of their keys. A domain with a dot before it means the names below it. */
export function nrptRules(domains: readonly string[], host: string): Map<string, RegistryValues> {
  const all = [...new Set(domains)].map((domain) => `.${domain}`);
  const rules = new Map<string, RegistryValues>();
  for (let at = 0; at < all.length; at += maxDomains) {
    rules.set(`${prefix}${at / maxDomains + 1}`, {
      Version: 2,
      Name: all.slice(at, at + maxDomains),
      GenericDNSServers: host,
      // The rule says which server to ask, and nothing else.
      ConfigOptions: 8,
    });
  }
  return rules;
}

type Deps = { registry: Registry; host: string; monotonic: () => number };

export function makeNrpt({ registry, host, monotonic }: Deps): ResolutionSettings {
  /** How often in a row another program has changed our rules. */
  let losses = 0;
  return makeLastingSettings({
    monotonic,
    clear: () => clearNrpt(registry),
    apply(zones, haveZonesChanged) {
      const domains = zones.flatMap((zone) => zone.domains);
      const { hasChanged, inPolicy } = putRules(registry, nrptRules(domains, host));
      losses = hasChanged && !haveZonesChanged ? losses + 1 : 0;
      const state =
        losses < disputedAfter
          ? { state: "served" as const }
          : { state: "disputed" as const, reason: "another program changes the rules for name resolution" };
      return { way: "nrpt", links: zones.map(({ slug }) => ({ slug, ...state })), in_policy: inPolicy };
    },
  });
}

export function clearNrpt(registry: Registry): void {
  putRules(registry, new Map());
}

/** Makes our rules these, among the local ones and among those of group policies, and leaves the rules of others alone. */
function putRules(
  registry: Registry,
  rules: ReadonlyMap<string, RegistryValues>,
): { hasChanged: boolean; inPolicy: boolean } {
  const putIn = (base: string): boolean => {
    let hasChanged = false;
    for (const key of registry.keysIn(base) ?? []) {
      if (!isOurs(key) || rules.has(key)) continue;
      registry.remove(`${base}\\${key}`);
      hasChanged = true;
    }
    for (const [key, values] of rules) {
      const path = `${base}\\${key}`;
      if (Bun.deepEquals(registry.read(path, Object.keys(values)), values)) continue;
      registry.write(path, values);
      hasChanged = true;
    }
    return hasChanged;
  };
  const ofMachine = putIn(localRules);
  const inPolicy = registry.keysIn(policyRules) !== undefined;
  const ofPolicy = inPolicy && putIn(policyRules);
  // Windows uses changed rules only after this.
  if (ofMachine || ofPolicy) registry.announce(ofPolicy);
  return { hasChanged: ofMachine || ofPolicy, inPolicy };
}
