// `BUN_CONFIG_MAX_HTTP_REQUESTS=10000 bun test/bench/policy-apply.ts [ROUNDS] [NODES]`: a policy is applied while NODES nodes that it concerns and as many others
// wait for news. How long until the last one has its new configuration (bar: p99 2 s with 1,000), and what the others
// download (bar: nothing).

import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, spread, startServer } from "./measure.ts";
import { seed, slug, tokenOf } from "./seed.ts";

/** Group 0 for the first half, group 1 for the others. */
async function giveGroups(dataDirectory: string, nodes: number): Promise<void> {
  const { db } = await openData({ dataDirectory }, "server", realSystem());
  const sql = "UPDATE nodes SET groups = $1 WHERE id > $2 AND id <= $3";
  await db.write(async (tx) => {
    await tx.run(sql, [JSON.stringify(["group-0"]), 0, nodes]);
    await tx.run(sql, [JSON.stringify(["group-1"]), nodes, 2 * nodes]);
  });
  await db.close();
}

const policyOf = (port: number) => `rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: ${port}, peer: any, target: group:group-0}
  - {protocol: tcp, ports: 22, peer: any, target: group:group-1}
`;

type NodeState = { id: number; version: number; etag: string };
type Download = { at: number; status: number; bytes: number };

/** A node as it works: it polls, and asks for its configuration with the tag of the one that it has. */
function makeClient(url: string) {
  const headers = ({ id }: NodeState) => ({ Authorization: `Bearer ${tokenOf(id)}` });
  let running = 0;
  const waiting: (() => void)[] = [];
  return {
    async download(node: NodeState): Promise<Download> {
      if (running >= 128) await new Promise<void>((resolve) => waiting.push(resolve));
      running++;
      const more = node.etag === "" ? {} : { "If-None-Match": node.etag };
      const answer = await fetch(`${url}${paths.downloadConfig(slug, node.id)}`, {
        headers: { ...headers(node), ...more },
      });
      const { byteLength } = await answer.arrayBuffer();
      running--;
      waiting.shift()?.();
      node.etag = answer.headers.get("ETag") ?? node.etag;
      return { at: performance.now(), status: answer.status, bytes: byteLength };
    },
    /** Resolves when the control plane has news. */
    async poll(node: NodeState): Promise<void> {
      const body = { version: "0.1.0", uptime: 1, config_version: node.version, overlay_version: "1.10.3" };
      const answer = await fetch(`${url}${paths.checkin(slug, node.id)}`, {
        method: "POST",
        headers: { ...headers(node), "Content-Type": "application/json", Prefer: "wait=55" },
        body: JSON.stringify(body),
      });
      const { config_version: version }: { config_version: number } = JSON.parse(await answer.text());
      node.version = version;
    },
  };
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 20);
  const concerned = Number(process.argv[3] ?? 1000);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { admin } = await seed({ dataDirectory: data }, 2 * concerned);
  await giveGroups(data, concerned);
  await using server = await startServer(["--data-dir", data]);
  const apply = async (policy: string) => {
    const answer = await fetch(`${server.url}/api/org/${slug}/policy/apply/`, {
      method: "POST",
      headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
      body: JSON.stringify({ policy, prune: true }),
    });
    if (!answer.ok) throw new Error(`apply: ${answer.status} ${await answer.text()}`);
    await answer.arrayBuffer();
  };
  await apply(policyOf(1000));
  const client = makeClient(server.url);
  const all = Array.from({ length: 2 * concerned }, (_, at) => ({ id: at + 1, version: 1, etag: "" }));
  for (const node of all) await client.poll(node);
  await Promise.all(all.map((node) => client.download(node)));
  const times: number[] = [];
  const others: Download[] = [];
  for (let round = 1; round <= rounds; round++) {
    const news = all.map(async (node) => {
      await client.poll(node);
      return client.download(node);
    });
    // Until all wait.
    await Bun.sleep(2000);
    const begun = performance.now();
    await apply(policyOf(1000 + round));
    const downloads = await Promise.all(news);
    const own = downloads.slice(0, concerned);
    if (own.some(({ status }) => status !== 200)) throw new Error("A node that is concerned got nothing");
    times.push(Math.max(...own.map(({ at }) => at)) - begun);
    others.push(...downloads.slice(concerned).filter(({ status, bytes }) => status !== 304 || bytes > 0));
  }
  times.sort((a, b) => a - b);
  print(`until the last of ${concerned} nodes has it, ms (bar: p99 2000): ${spread(times)}`);
  print(`nodes that are not concerned: ${others.length} of ${rounds * concerned} downloaded (bar: 0)`);
}
