// Nodes that keep names, and the names that a node should have, computed from the rows alone.

import { certifiedGroups } from "../../src/protocol/users-groups.ts";
import * as v from "valibot";
import { applyNames } from "../../src/node/contact/fetch-names.ts";
import { CheckinAnswer } from "../../src/protocol/checkin.ts";
import { NamesAnswer, type HostsFile, type NamesRequest } from "../../src/protocol/names.ts";
import { decide, testable, type TestableRules } from "../../src/server/policy/firewall.ts";
import { atOnce } from "../../src/server/http/heavy-work.ts";
import { listRules } from "../../src/server/policy/stored-rules.ts";
import { nameAliases, nodes, type NodeRow } from "../../src/server/store/tables/nodes.ts";
import { organizations } from "../../src/server/store/tables/organizations.ts";
import type { Answer, TestServer } from "./server.ts";

export const noHosts: HostsFile = { schema: 1, version: 0, view: "", nodes: [], aliases: [] };

type Sender = { checkin(fields: Record<string, unknown>, options?: { wait?: number }): Promise<Answer> };

/** A node's list of names after a check-in, and the bytes of names that it got. `asksForPeers`: as nodes of this version do. */
export async function fetchNames(
  node: Sender,
  before: HostsFile = noHosts,
  { asksForPeers = false, ...options }: { wait?: number; asksForPeers?: boolean } = {},
): Promise<{ hosts: HostsFile; bytes: number; answers: NamesAnswer[] }> {
  let hosts = before;
  let bytes = 0;
  const answers: NamesAnswer[] = [];
  const peers = () => (asksForPeers ? { peers: hosts.peers?.digest ?? "" } : {});
  let asked: NamesRequest = { version: hosts.version, view: hosts.view, ...peers() };
  for (;;) {
    const answer = await node.checkin({ names: asked }, answers.length === 0 ? options : {});
    const { names } = v.parse(CheckinAnswer, answer.json);
    if (names === undefined) return { hosts, bytes, answers };
    bytes += JSON.stringify(names).length;
    const news = v.parse(NamesAnswer, names);
    answers.push(news);
    hosts = applyNames(hosts, news);
    if (!news.more) return { hosts, bytes, answers };
    asked = { version: news.version, view: news.view, part: true, ...peers() };
  }
}

/** The names and addresses of a list, in one order; aliases without their node are none. */
export function shownNames({ nodes: list, aliases }: Pick<HostsFile, "nodes" | "aliases">): string[] {
  const ids = new Set(list.map(({ id }) => id));
  return [
    ...list.map(({ id, name, ip, ip6 }) => `${id} ${name} ${ip} ${ip6 ?? "-"}`),
    ...aliases
      .filter(({ node_id }) => ids.has(node_id))
      .map(({ name, node_id, address }) => `alias ${name} ${node_id} ${address ?? "-"}`),
  ].sort();
}

/** The names that a node should have, by testing each pair of nodes with the firewall's own decision. */
export async function expectedNames({ db }: TestServer, orgId: number, viewerId: number): Promise<string[]> {
  const org = await organizations.find(db, { id: orgId });
  const rules = atOnce(testable(await listRules(db, { id: orgId })));
  const rows = await nodes.all(db, { orgId, state: "active" });
  const all = rows.map((row) => ({ ...row, groups: certifiedGroups(row) }));
  const viewer = all.find(({ id }) => id === viewerId);
  if (viewer === undefined || org === undefined) return [];
  const seen = all.filter(
    (node) =>
      node.id === viewerId || org.namesToAll || meets(rules, viewer, node) || meets(rules, node, viewer),
  );
  const labels = new Set(all.flatMap(({ name }) => (/^\d/.test(name) ? [name, `n-${name}`] : [name])));
  const aliases = await nameAliases.all(db, { orgId, deletedAt: null });
  return shownNames({
    nodes: seen.map(({ id, name, ip, ip6 }) => ({ id, name, ip, ...(ip6 === null ? {} : { ip6 }) })),
    aliases: aliases
      .filter(({ name }) => !labels.has(name))
      .map(({ id, name, nodeId, address }) => ({
        id,
        name,
        node_id: nodeId,
        ...(address === null ? {} : { address }),
      })),
  });
}

/** Ports that the rules of tests use, with one below, between and above. */
const ports = [1, 22, 80, 443, 5432, 65_535];

function meets(rules: TestableRules, from: NodeRow, to: NodeRow): boolean {
  return (
    decide(rules, from, to, { protocol: "icmp" }).allowed ||
    (["tcp", "udp"] as const).some((protocol) =>
      ports.some((port) => decide(rules, from, to, { protocol, port }).allowed),
    )
  );
}
