// `bun test/bench/polls.ts [NODES]`: what a waiting long poll costs (bar: 16 KB), how soon a revocation has woken all of
// them (bar: 1 s), and when all have fetched the new blocklist (bar: 15 s). On SQLite and on PostgreSQL.
// `bun test/bench/polls.ts rest [MINUTES] [NODES]`: anonymous memory of a control plane whose nodes do nothing but hold
// polls, after ten quiet minutes (bar: 28 MB for 100 nodes). The kernel can drop file pages, so RssAnon counts, not VmRSS.

import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { buildAgent } from "../support/agent.ts";
import { createDatabase, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import {
  anonymousMb,
  choose,
  figure,
  load,
  print,
  residentKb,
  startServer,
  writeRequests,
} from "./measure.ts";
import { ConfigVersion, sendAll } from "./poll-client.ts";
import { checkins } from "./checkin.ts";
import { seed, slug, tokenOf } from "./seed.ts";

/** A check-in that waits 55 s for news. */
function poll(host: string, id: number): string {
  const body = JSON.stringify({ version: "0.1.0", uptime: id, config_version: 1, overlay_version: "1.10.3" });
  const headers = [`Host: ${host}`, `Authorization: Bearer ${tokenOf(id)}`, "Content-Type: application/json"];
  const lines = [...headers, "Prefer: wait=55", `Content-Length: ${body.length}`];
  return `POST ${paths.checkin(slug, id)} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n${body}`;
}

async function measure(name: string, flags: string[], admin: string, nodes: number, directory: string) {
  await using server = await startServer(flags);
  // All nodes once: what is read for the first time is not part of a poll's cost.
  await load(server.url, writeRequests(join(directory, "warm"), checkins(nodes, nodes)), { seconds: 5 });
  await Bun.sleep(1500);
  const before = residentKb(server.pid);
  const host = new URL(server.url).host;
  const waiting = await sendAll(
    server.url,
    // All but the last one, which is revoked.
    Array.from({ length: nodes - 1 }, (_, at) => poll(host, at + 1)),
  );
  await Bun.sleep(3000);
  const each = (residentKb(server.pid) - before) / nodes;
  figure(`${name}: each of ${nodes} polls`, each, { unit: "KB", most: 16 });
  figure(`${name}: memory in all`, residentKb(server.pid) / 1024, { unit: "MB", digits: 0 });

  const from = performance.now();
  const path = paths.node(slug, nodes);
  const headers = { Authorization: `Bearer ${admin}` };
  const deleted = await fetch(`${server.url}${path}`, { method: "DELETE", headers });
  const answered = performance.now() - from;
  if (deleted.status !== 204) throw new Error(`DELETE: ${deleted.status} ${await deleted.text()}`);
  const woken = await waiting.answered;
  figure(`${name}: answer to a revocation`, answered, { unit: "ms", digits: 0 });
  const wokenMs = Math.max(...woken) - from;
  figure(`${name}: all woken after it was sent`, wokenMs, { unit: "ms", digits: 0, most: 1000 });
  const versions = new Set(
    waiting.bodies.map((body) => v.parse(ConfigVersion, JSON.parse(body)).config_version),
  );
  if (versions.size !== 1 || versions.has(1)) throw new Error(`Versions told: ${[...versions].join(", ")}`);
  waiting.close();
  await fetchAll(name, server.url, nodes, from);
}

/** As the nodes do: each its own configuration, a few hundred of them at once. */
async function fetchAll(name: string, url: string, nodes: number, from: number): Promise<void> {
  let next = 1;
  let blocked = 0;
  const work = async () => {
    while (next < nodes) {
      const id = next++;
      const headers = { Authorization: `Bearer ${tokenOf(id)}` };
      const answer = await fetch(`${url}${paths.downloadConfig(slug, id)}`, { headers });
      if (/blocklist:\\n\s+- /.test(await answer.text())) blocked++;
    }
  };
  await Promise.all(Array.from({ length: 64 }, work));
  const seconds = (performance.now() - from) / 1000;
  if (blocked !== nodes - 1) throw new Error(`Only ${blocked} configurations hold the blocklist`);
  figure(`${name}: all ${blocked} have fetched the blocklist after`, seconds, { unit: "s", most: 15 });
}

async function news([count = "10000"]: string[]): Promise<void> {
  const nodes = Number(count);
  buildAgent();
  using directory = temporaryDirectory();
  const sqlite = join(directory.path, "sqlite");
  const seeded = await seed({ dataDirectory: sqlite }, nodes);
  await measure("SQLite", ["--data-dir", sqlite], seeded.admin, nodes, directory.path);
  await using cluster = await startPostgres();
  const data = {
    dataDirectory: join(directory.path, "data"),
    databaseUrl: await createDatabase(cluster.directory),
  };
  const { admin } = await seed(data, nodes);
  const flags = ["--data-dir", data.dataDirectory, "--database-url", data.databaseUrl];
  await measure("PostgreSQL", flags, admin, nodes, directory.path);
}

async function rest(given: string[]): Promise<void> {
  const [minutes = 10, nodes = 100] = given.map(Number);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  await seed({ dataDirectory: data }, nodes);
  await using server = await startServer(["--data-dir", data]);
  const polls = Array.from({ length: nodes }, (_, at) => poll(new URL(server.url).host, at + 1));
  let last = Number.NaN;
  for (let minute = 0; minute < minutes; minute++) {
    const waiting = await sendAll(server.url, polls);
    await Bun.sleep(50_000);
    last = anonymousMb(server.pid);
    print(`minute ${minute + 1}: ${last.toFixed(1)} MB while ${nodes} polls are held`);
    await waiting.answered;
    waiting.close();
  }
  const bar = minutes >= 10 && nodes === 100 ? { most: 28 } : {};
  figure(`RssAnon while ${nodes} polls are held`, last, { unit: "MB", ...bar });
}

if (import.meta.main) await choose({ news, rest });
