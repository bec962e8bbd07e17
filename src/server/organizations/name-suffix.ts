// The domain, beside `.internal`, that an organization's names may end in. Each machine needs root's permission for it, too.

import { AppError, invalidField } from "../../base/errors.ts";
import { parseAddress } from "../../base/ip.ts";
import type { ServerOptions } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { identityProviders } from "../store/tables/providers.ts";
import { nodes } from "../store/tables/nodes.ts";

const issuers = identityProviders.pick("issuer");
const publicHosts = nodes.pick("publicIp");

/** Throws validation_failed for a public suffix, and for one that hides a host which the nodes or their users need. */
export async function checkNameSuffix(
  reader: Reader,
  orgId: number,
  suffix: string,
  { publicUrl }: Pick<ServerOptions, "publicUrl">,
): Promise<void> {
  // Loaded on demand: the list of public suffixes is large.
  const { hostWithin, whyNoSuffix } = await import("../../protocol/name-suffix.ts");
  const why = whyNoSuffix(suffix);
  if (why !== undefined) throw refused(`Names cannot end in .${suffix}: ${why}.`);
  // Ignores providers of other organizations: trying suffixes must not reveal them.
  const own = `SELECT ${issuers.select()} FROM identity_providers WHERE org_id IS NULL OR org_id = $1`;
  const providers = await queryAll(reader, issuers, own, [orgId]);
  const hosts = `SELECT ${publicHosts.select()} FROM nodes
    WHERE org_id = $1 AND public_ip IS NOT NULL AND state <> 'revoked'`;
  const needed = [
    ...[publicUrl, ...providers.map(({ issuer }) => issuer)].map((url) => hostOf(url)),
    ...(await queryAll(reader, publicHosts, hosts, [orgId])).map(({ publicIp }) => publicIp ?? ""),
  ];
  // Addresses lie below no domain. Neither does "", which stands for no host.
  const host = hostWithin(
    suffix,
    needed.filter((each) => parseAddress(each) === undefined),
  );
  if (host === undefined) return;
  throw refused(
    `Names cannot end in .${suffix}: nodes would no longer find ${host}, which is below it.`,
    `Choose a domain that holds nothing else, such as nodes.${suffix}.`,
  );
}

const hostOf = (url: string) => (URL.canParse(url) ? new URL(url).hostname : "");

function refused(sentence: string, hint = "Choose a domain of your own, such as corp.example."): AppError {
  return invalidField("name_suffix", sentence, { hint });
}
