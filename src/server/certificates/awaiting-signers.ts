// Lists the nodes that need certificates of an offline CA, for signers. Signers do not trust this list: their tool shows what they
// sign, and each machine itself shows the words of its host key. Offline: the CA's key is on the machines of signers.

import { formatTime } from "../../base/quantities.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { isExit } from "../../protocol/routing/roles.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import type { Reader } from "../store/database.ts";
import { computed, integer, queryAll, text } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { nodeRecordOf } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import type { NodeRow } from "../store/tables/nodes.ts";
import type { Sealable } from "../../api/certificates/seals.ts";
import { isWhole, networksOf, readIssuingOrg, subnetsOf, versionsOf } from "./issue.ts";

const offlinePick = certificates.pick("nodeId", "pem", "notAfter");
const allOffline = `SELECT ${offlinePick.select("c")} FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.org_id = $1 AND c.state = 'current' AND c.kind = 'overlay' AND a.offline = 1 AND a.retired_at IS NULL AND c.not_after > $2`;

const allActive = `SELECT * FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active' ORDER BY id`;

/**
 * Members of these groups, lighthouses, relays, routers and exits. Without phones and ephemeral nodes: signers sign nothing for
 * them.
 */
export async function listSealable(
  reader: Reader,
  orgId: number,
  groups: readonly string[],
  now: number,
): Promise<Sealable[]> {
  const org = await readIssuingOrg(reader, orgId);
  const active = (await reader.all(allActive, [orgId])).map(nodeRecordOf);
  const certificatesByNode = Map.groupBy(
    await queryAll(reader, offlinePick, allOffline, [orgId, now]),
    ({ nodeId }) => nodeId,
  );
  return active.flatMap((node) => {
    const { hostPublicKey, phone, ephemeralSilenceS } = node;
    const why = reasonsOf(node, groups);
    if (why.length === 0 || hostPublicKey === null || phone !== null || ephemeralSilenceS !== null) return [];
    const own = certificatesByNode.get(node.id) ?? [];
    // A signer makes the certificates of all versions at once, with one CA: each of them tells the issuer.
    const held = own.flatMap(({ pem }) => decodeBundle(pem));
    return {
      name: node.name,
      host_public_key: hostPublicKey,
      groups: certifiedGroups(node).toSorted(),
      addresses: [node.ip, ...(node.ip6 === null ? [] : [node.ip6])],
      versions: versionsOf(org).map((version) => ({
        version,
        networks: networksOf(org, node, version),
        unsafe_networks: subnetsOf(node, version),
      })),
      why,
      certified_until: own.length === 0 ? null : formatTime(Math.min(...own.map(({ notAfter }) => notAfter))),
      issuer: held.at(-1)?.issuer ?? null,
      is_whole: isWhole(org, node, held),
      agent_version: node.agentVersion,
      engine_version: node.overlayVersion,
    };
  });
}

function reasonsOf(node: NodeRow, groups: readonly string[]): string[] {
  return [
    ...(node.isLighthouse ? ["lighthouse"] : []),
    ...(node.isRelay ? ["relay"] : []),
    ...(node.subnets.length > 0 ? ["router"] : []),
    ...(isExit(node) ? ["exit"] : []),
    ...certifiedGroups(node)
      .filter((group) => groups.includes(group))
      .map((group) => `group ${group}`),
  ];
}

const countPick = computed({ agent: text(), engine: text(), n: integer() });

/**
 * How many active nodes run each version. A signer enforces nothing that agents could not follow; engines before 1.10 have no
 * tunnel with nodes of the sealed network.
 */
export async function countVersions(reader: Reader, orgId: number) {
  const agent = "coalesce(s.reported_version, n.agent_version, '')";
  const engine = "coalesce(n.overlay_version, '')";
  const sql = `SELECT ${agent} AS agent, ${engine} AS engine, count(*) AS n
    FROM nodes n LEFT JOIN sightings s ON s.node_id = n.id
    WHERE n.org_id = $1 AND n.state = 'active' AND n.phone IS NULL GROUP BY ${agent}, ${engine}`;
  const rows = await queryAll(reader, countPick, sql, [orgId]);
  const count = (what: "agent" | "engine") =>
    [...Map.groupBy(rows, (row) => row[what])]
      .map(([version, some]) => ({ version, n: some.reduce((sum, { n }) => sum + n, 0) }))
      .toSorted((a, b) => (a.version < b.version ? -1 : 1));
  return {
    agents: count("agent").map(({ version, n }) => ({ agent: version, n })),
    engines: count("engine").map(({ version, n }) => ({ engine: version, n })),
  };
}
