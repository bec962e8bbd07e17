// Finds what nodes miss although nothing is away: a lighthouse that there is not, and networks that do not answer behind their routers.
// The nodes report it. Keys are no ids of nodes, unlike those of alarms of the same kinds about nodes that are away.

import { brand } from "../../brand.ts";
import { onlineMs } from "../../api/values.ts";
import type { FindingKind } from "../../protocol/finding-kinds.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { maxNamed, namesOf } from "./away-causes.ts";
import { nothing, type Finder } from "./finder.ts";

/** Reported by nodes with a peer, so not while an organization is being set up. */
const reportedKind: FindingKind = "no_lighthouse";
/** Online nodes that miss a lighthouse; 0 if there is one. */
const missing = `SELECT count(*) AS n FROM nodes n JOIN sightings s ON s.node_id = n.id
  WHERE n.org_id = $1 AND n.state = 'active' AND s.last_checkin_at > $2 AND s.overlay_state = $3
    AND NOT EXISTS (SELECT 1 FROM nodes WHERE org_id = $1 AND state = 'active' AND is_lighthouse = 1)`;

/** However the last lighthouse went: by a change of a node, a policy, a revocation or a deletion. `value`: minutes. */
export const findNoLighthouse: Finder = async ({ db, org, now, value }) => {
  const count = await queryNumber(db, missing, [org.id, now - onlineMs, reportedKind]);
  if (count === 0) return nothing;
  return {
    keys: ["none"],
    afterMs: value * 60_000,
    describe: () => ({
      title: `${org.slug} has no lighthouse`,
      text:
        `${count} ${count === 1 ? "node reports" : "nodes report"} it. Nodes that have no tunnel yet do not find each other. ` +
        `Make one: \`${brand.executable} admin node update ${org.slug} NODE --lighthouse --public-ip ADDRESS\`, ` +
        `or a new one by \`${brand.executable} admin token create ${org.slug} --lighthouse\`.`,
      isUrgent: true,
      since: now - value * 60_000,
    }),
  };
};

const routerPick = nodes.pick("name", "subnets", "advertised");
/** Without `state`, a router reports that what it routes is ready. */
const routers = `SELECT ${routerPick.select("n")} FROM nodes n JOIN sightings s ON s.node_id = n.id
  WHERE n.org_id = $1 AND n.state = 'active' AND n.subnets <> '[]' AND s.last_checkin_at > $2 ORDER BY n.name`;

/** Keys: networks, of which no router that is online says that they answer. `value`: minutes. */
export const findCutOffNetworks: Finder = async ({ db, org, now, value }) => {
  const online = await queryAll(db, routerPick, routers, [org.id, now - onlineMs]);
  /** The names of routers behind which each network does not answer. */
  const cutOff = new Map<string, string[]>();
  const working = new Set<string>();
  for (const { name, subnets, advertised } of online)
    for (const network of subnets) {
      const offer = advertised.find((each) => each.network === network);
      // Without an offer of its root, a router reports nothing, and may forward.
      if (offer?.state === "down") cutOff.getOrInsertComputed(network, () => []).push(name);
      else if (offer?.state !== "failed") working.add(network);
    }
  const keys = [...cutOff.keys()].filter((network) => !working.has(network));
  return {
    keys,
    afterMs: value * 60_000,
    describe: (newKeys) => ({
      title:
        newKeys.length === 1
          ? `${newKeys[0]} does not answer behind ${namesOf(cutOff.get(newKeys[0] ?? "") ?? [])}`
          : `${newKeys.length} networks do not answer behind their routers: ${namesOf(newKeys)}`,
      text: [
        "All nodes lose it, although its routers are online.",
        ...newKeys
          .slice(0, maxNamed)
          .map((network) => `${network}: behind ${namesOf(cutOff.get(network) ?? [])}.`),
        `Look at the links of the routers: \`sudo ${brand.executable} doctor\` there. See: \`${brand.executable} admin route list ${org.slug}\`.`,
      ].join("\n"),
      isUrgent: true,
      since: now - value * 60_000,
    }),
  };
};
