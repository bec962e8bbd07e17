// Routes: networks behind nodes, shown and changed by network. The subnets of the nodes are the only store, and every
// change passes `changeNode`.

import type { Route } from "../../api/paths/routes.ts";
import type { ListQuery } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import { defaultMetric, type RouteOptions } from "../../protocol/routing/advertised.ts";
import { record, type Actor } from "../audit/record.ts";
import { pageOf, type Page } from "../http/lists.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { nodeColumns, nodeRecord, type NodeRecord } from "../store/nodes.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { places, queryAll } from "../store/table.ts";
import { asEdit, changeNode, type UngroupedChange } from "./nodes.ts";
import type { NodeStore } from "./node-store.ts";
import type { Org } from "../http/route.ts";

type Presence = { isOnline(node: NodeRecord): boolean };

/** The networks behind nodes that match the search, sorted, each with its routers and the nodes that offer it. */
export async function listRoutes(
  reader: Reader,
  org: Org,
  query: ListQuery,
  presence: Presence,
): Promise<Page<Route>> {
  const all = routesOf(await readRouters(reader, org.id), presence);
  const search = query.search.toLowerCase();
  const found = all.filter(
    ({ network, routers }) =>
      network.includes(search) || routers.some(({ node_name: name }) => name.includes(search)),
  );
  const { limit, offset } = pageOf(query);
  return { items: found.slice(offset, offset + limit), total: found.length, query };
}

/** Nodes whose networks are listed, so that memory is bounded. Any node can offer networks: those that an administrator approved come first. */
const maxListed = 5000;

/** The nodes with networks behind them, or that offer some. `network`: only those of this one. */
const readRouters = (reader: Reader, orgId: number, network = "") =>
  queryAll(
    reader,
    nodeRecord,
    // Each half has an index; with OR, SQLite would read all nodes of the organization.
    `SELECT ${nodeColumns} FROM ${nodesWithSightings} WHERE org_id = $1 AND state <> 'revoked' AND id IN (
       SELECT id FROM nodes WHERE org_id = $1 AND subnets <> '[]' AND subnets LIKE $2
       UNION SELECT id FROM nodes WHERE org_id = $1 AND advertised <> '[]' AND advertised LIKE $2)
     ORDER BY CASE WHEN subnets = '[]' THEN 1 ELSE 0 END, id LIMIT ${maxListed}`,
    [orgId, network === "" ? "%" : `%"${network}"%`],
  );

function routesOf(routers: readonly NodeRecord[], { isOnline }: Presence): Route[] {
  const entries = routers.flatMap((node) => {
    const networks = new Set([...node.subnets, ...node.advertised.map(({ network }) => network)]);
    const online = isOnline(node);
    return [...networks].map((network) => ({ network, router: routerOf(node, network, online) }));
  });
  return [...Map.groupBy(entries, ({ network }) => network)]
    .map(([network, list]) => ({
      network,
      routers: list.map(({ router }) => router).sort((a, b) => a.node - b.node),
    }))
    .sort((a, b) => (a.network < b.network ? -1 : 1));
}

function routerOf(node: NodeRecord, network: string, online: boolean): Route["routers"][number] {
  const offer = node.advertised.find((each) => each.network === network);
  const { metric = defaultMetric, maintenance = false } = node.routeOptions[network] ?? {};
  return {
    node: node.id,
    node_name: node.name,
    online,
    approved: node.subnets.includes(network),
    offered: offer !== undefined,
    metric,
    maintenance,
    behind: offer?.behind ?? null,
    masquerade: offer === undefined ? null : (offer.masquerade ?? false),
    watch: offer?.watch ?? null,
    state: offer?.state ?? null,
    why: offer?.why ?? null,
  };
}

type Services = Pick<NodeStore, "db" | "system" | "authorities" | "secretKey">;
type Wanted = { network: string; via?: readonly number[] | undefined };

/**
 * Changes the routers of a network in one transaction. Without `via`: those that it has. `change`: of one node; not of its groups,
 * which would need the tests of the policy (nodes.ts).
 */
async function changeRouters(
  services: Services,
  org: Org,
  { network, via }: Wanted,
  actor: Actor,
  change: (node: NodeRecord) => UngroupedChange,
): Promise<void> {
  const { db, system } = services;
  await db.writeFor({ org: org.id }, async (tx) => {
    const routers = await chosenRouters(tx, org, network, via);
    const changes = routers.map((node) => ({ id: node.id, patch: change(node) }));
    const patches = changes.map(({ patch }) => patch);
    // Approved networks are a part of the policy: a change of them may be refused as an edit of it.
    await asEdit(tx, { orgId: org.id, now: system.now(), actor }, patches, async () => {
      for (const { id, patch } of changes) {
        const { updated, issued } = await changeNode(tx, services, org, id, patch, actor);
        await record(tx, [updated, ...issued]);
      }
    });
  });
}

/** The nodes `via`, or without it the routers of the network. Throws not_found if a node does not exist, or there is no router. */
async function chosenRouters(
  tx: Transaction,
  org: Org,
  network: string,
  via: readonly number[] | undefined,
): Promise<NodeRecord[]> {
  const found = await queryAll(
    tx,
    nodeRecord,
    `SELECT ${nodeColumns} FROM ${nodesWithSightings} WHERE org_id = $1 AND state <> 'revoked'
       AND ${via === undefined ? "subnets <> '[]'" : `id IN (${places(via, 2)})`} ORDER BY id`,
    [org.id, ...(via ?? [])],
  );
  const missing = via?.find((id) => !found.some((each) => each.id === id));
  if (missing !== undefined) throw new AppError("not_found", `There is no node ${missing}.`);
  const routers = via === undefined ? found.filter(({ subnets }) => subnets.includes(network)) : found;
  if (routers.length === 0) throw new AppError("not_found", `No node routes ${network}.`);
  return routers;
}

/** The route options of the node, with a change of those of one network. */
function withOptions({ routeOptions }: NodeRecord, network: string, change: RouteOptions[string]) {
  return { ...routeOptions, [network]: { ...routeOptions[network], ...change } };
}

async function shownRoute(services: Services, org: Org, network: string, presence: Presence): Promise<Route> {
  const all = routesOf(await readRouters(services.db, org.id, network), presence);
  return all.find((each) => each.network === network) ?? { network, routers: [] };
}

/** Makes the nodes `via` routers of the network, beside those that it has. Throws not_found, and what `checkSubnets` throws. */
export async function createRoute(
  services: Services,
  org: Org,
  { network, via, metric }: { network: string; via: readonly number[]; metric?: number | undefined },
  actor: Actor,
  presence: Presence,
): Promise<Route> {
  await changeRouters(services, org, { network, via }, actor, (node) => ({
    ...(node.subnets.includes(network) ? {} : { subnets: [...node.subnets, network] }),
    ...(metric === undefined ? {} : { routeOptions: withOptions(node, network, { metric }) }),
  }));
  return shownRoute(services, org, network, presence);
}

/** Changes metric or maintenance of routers. Throws not_found for a node that is no router of the network. */
export async function updateRoute(
  services: Services,
  org: Org,
  { network, via, ...options }: Wanted & { metric?: number | undefined; maintenance?: boolean | undefined },
  actor: Actor,
  presence: Presence,
): Promise<Route> {
  const change = given(options);
  await changeRouters(services, org, { network, via }, actor, (node) => {
    requireRouter(node, network);
    return { routeOptions: withOptions(node, network, change) };
  });
  return shownRoute(services, org, network, presence);
}

/** The nodes route the network no longer. Throws not_found for a node that is no router of it. */
export async function deleteRoute(services: Services, org: Org, wanted: Wanted, actor: Actor): Promise<void> {
  await changeRouters(services, org, wanted, actor, (node) => {
    requireRouter(node, wanted.network);
    return { subnets: node.subnets.filter((each) => each !== wanted.network) };
  });
}

function requireRouter({ name, subnets }: NodeRecord, network: string): void {
  if (!subnets.includes(network)) throw new AppError("not_found", `${name} is no router of ${network}.`);
}
