// Which domain, in addition to `.internal`, an organization's names end in on this machine: only one that root has allowed for this
// organization, and that hides no host which the machine needs to be managed.

import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import { clean } from "../../base/log.ts";
import { NameSuffix } from "../../protocol/names.ts";
import { readSyncState } from "../files/generations.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { credentialsIfOwn } from "../files/organizations.ts";
import { readPermissions } from "../files/permissions.ts";
import { overlayRoles } from "../files/config/read-config.ts";
import type { Suffix } from "./service-state.ts";

/** `sent`: the domain in hosts.json, which the control plane sends. Undefined for none. */
export async function examineSuffix(
  configRoot: string,
  slug: string,
  sent: string | undefined,
): Promise<Suffix | undefined> {
  if (sent === undefined || sent === "") return undefined;
  if (!v.is(NameSuffix, sent)) {
    // The name is from outside, and is printed.
    return { name: clean(sent, 255), reason: "it is no domain of two labels or more" };
  }
  try {
    const { name_suffixes: allowed } = readPermissions(join(configRoot, slug));
    if (!allowed.includes(sent))
      return { name: sent, reason: `root has not allowed it: sudo ${brand.executable} names allow ${sent}` };
    // From here on root has allowed it, and a reason means a refusal (`isRefused`).
    const reason = await whyRefused(configRoot, slug, sent);
    return reason === undefined ? { name: sent } : { name: sent, reason, isRefused: true };
  } catch (error) {
    return { name: sent, reason: messageOf(error), isRefused: true };
  }
}

/** Why the machine must not answer for this domain, though root allows it. */
export async function whyRefused(
  configRoot: string,
  slug: string,
  suffix: string,
): Promise<string | undefined> {
  const { hostWithin, overlaps, whyNoSuffix } = await import("../../protocol/name-suffix.ts");
  const why = whyNoSuffix(suffix);
  if (why !== undefined) return why;
  const slugs = listOrganizations(configRoot);
  const host = hostWithin(
    suffix,
    slugs.flatMap((each) => hostsOf(join(configRoot, each))),
  );
  if (host !== undefined)
    return `this machine needs ${host}, a control plane or lighthouse, and could not find it`;
  for (const other of slugs) {
    const taken = allowedIn(join(configRoot, other)).find((each) => overlaps(each, suffix));
    if (other !== slug && taken !== undefined) return `${taken} is allowed for the organization ${other}`;
  }
  return undefined;
}

/** Names of the control plane, of lighthouses and of relays. Engines before 1.7 get addresses: then the names are in sync.json. */
function hostsOf(directory: string): string[] {
  const { api_base: base } = credentialsIfOwn(directory) ?? {};
  const plane = base === undefined || !URL.canParse(base) ? [] : [new URL(base).hostname];
  return [...plane, ...underlaysOf(directory), ...Object.keys(readSyncState(directory)?.host_names ?? {})];
}

function underlaysOf(directory: string): string[] {
  try {
    return overlayRoles(readTextIfThere(join(directory, "config.yml")) ?? "").underlays;
  } catch {
    // A damaged file is reported where it is used; its engine does not run.
    return [];
  }
}

/** Ignore another organization's damaged file: it must not decide about this one. */
function allowedIn(directory: string): string[] {
  try {
    return readPermissions(directory).name_suffixes;
  } catch {
    return [];
  }
}
