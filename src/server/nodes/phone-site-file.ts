// The site file of a phone with what its node has now: certificates, CAs, name servers and domains.

import type { PhoneSite } from "../../api/phones.ts";
import { brand } from "../../brand.ts";
import { renderSite } from "../config/phone-site.ts";
import { readTogether, type Views } from "../config/organization-views.ts";
import { queryAll } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import type { NodeStore } from "./node-store.ts";
import { showOne } from "./show-nodes.ts";

type Services = NodeStore & { views: Views };

const pemPick = certificates.pick("pem");
const currentPems = `SELECT ${pemPick.select()} FROM certificates
  WHERE node_id = $1 AND kind = 'overlay' AND state = 'current' ORDER BY version`;
const ipPick = nodes.pick("ip");
const nameServers = `SELECT ${ipPick.select()} FROM nodes
  WHERE org_id = $1 AND state = 'active' AND is_name_server = 1 ORDER BY id LIMIT 3`;

/** The node of a phone, and its site file without the private key, which the browser adds. */
export async function readPhoneSite(services: Services, orgId: number, id: number): Promise<PhoneSite> {
  const { db, views } = services;
  const { view, node } = await readTogether(db, views, orgId, id);
  const [org, pems, resolvers] = await Promise.all([
    organizations.find(db, { id: orgId }),
    queryAll(db, pemPick, currentPems, [id]),
    queryAll(db, ipPick, nameServers, [orgId]),
  ]);
  const suffix = org?.nameSuffix ?? null;
  const site = await renderSite(view.config, node, {
    system: node.phone,
    caPem: view.trust.caPem,
    certificatePem: pems.map(({ pem }) => pem).join(""),
    resolvers: resolvers.map(({ ip }) => ip),
    domains: [`${view.slug}.${brand.internalDomain}`, ...(suffix === null ? [] : [suffix])],
  });
  return { node: await showOne(services, { id: orgId }, node), site };
}
