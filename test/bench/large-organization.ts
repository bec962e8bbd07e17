// `bun test/bench/large-organization.ts [RULES] [SECONDS]`: what one credential of an organization with a large
// configuration costs the others. It loops downloads on 1, 20 and 200 connections, while /healthz (bar: median 100 ms) and
// changes and revocations in another organization (bar: median 300 ms) are timed.

import { operator } from "../../src/server/audit/record.ts";
import { createOrganization } from "../../src/server/organizations/organizations.ts";
import { makePasswords } from "../../src/server/users/sign-in/hash-passwords.ts";
import { createServiceToken } from "../../src/server/users/service-tokens.ts";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { join } from "node:path";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { figure, median, print, startServer } from "./measure.ts";
import { seed, slug } from "./seed.ts";

/** Rules as an earlier version let an organization store them, and another organization with the rights of an admin. */
async function fill(dataDirectory: string, rules: number): Promise<{ reader: string; other: string }> {
  const system = realSystem();
  const { db, secretKey, clock } = await openData({ dataDirectory }, "server", system);
  const services = {
    db,
    system,
    clock,
    secretKey,
    publicUrl: "http://127.0.0.1",
    passwords: makePasswords(),
  };
  try {
    await db.write(async (tx) => {
      for (let at = 0; at < rules; at++) {
        await tx.run(
          `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, created_at)
           VALUES (1, 'inbound', 'tcp', $1, $2, '{"any":true}', 1)`,
          [String(1000 + at), JSON.stringify({ cidr: `10.${at % 200}.${(at >> 8) % 250}.0/24` })],
        );
      }
    });
    const maker = { userId: null, actor: operator };
    const reader = await createServiceToken(services, { id: 1 }, { name: "ro", role: "member" }, maker);
    const by = { ownerId: null, ownerEmail: null, actor: operator };
    const org = await createOrganization(services, { slug: "other", network: "10.1.0.0/16" }, by);
    const other = await createServiceToken(services, org, { name: "rw", role: "admin" }, maker);
    return { reader: reader.token, other: other.token };
  } finally {
    await db.close();
  }
}

type Asked = { method?: string; body?: unknown; token?: string };

async function ask(url: string, { method = "GET", body, token }: Asked): Promise<Response> {
  const headers = {
    ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { "Content-Type": "application/json" }),
  };
  return fetch(url, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
}

async function timed(work: () => Promise<Response>): Promise<number> {
  const begun = performance.now();
  const answer = await work();
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
  return performance.now() - begun;
}

/** Loops the request on so many connections, in a process of its own, until it is stopped. */
function flood(url: string, token: string, connections: number, body?: unknown): AsyncDisposable {
  const program = `
    const [url, token, count, body] = process.argv.slice(1);
    const init = { headers: { Authorization: "Bearer " + token, "Content-Type": "application/json" },
      ...(body === undefined ? {} : { method: "POST", body }) };
    const loop = async () => { for (;;) await fetch(url, init).then((answer) => answer.arrayBuffer(), () => undefined); };
    await Promise.all(Array.from({ length: Number(count) }, loop));`;
  const argv = [process.execPath, "-e", program, url, token, String(connections)];
  const child = Bun.spawn([...argv, ...(body === undefined ? [] : [JSON.stringify(body)])], {
    env: { ...process.env, BUN_CONFIG_MAX_HTTP_REQUESTS: "256" },
  });
  const stop = async () => {
    child.kill();
    await child.exited;
    // The server still answers what waits.
    await Bun.sleep(1000);
  };
  return { [Symbol.asyncDispose]: stop };
}

if (import.meta.main) {
  const rules = Number(process.argv[2] ?? 14_721);
  const seconds = Number(process.argv[3] ?? 5);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  await seed({ dataDirectory: data }, 10);
  const { reader, other } = await fill(data, rules);
  await using server = await startServer(["--data-dir", data]);
  const nodes = `${server.url}/api/org/${slug}/nodes/1/`;
  const attacks: Record<string, [string, unknown?]> = {
    tar: [`${nodes}download_config/?format=tar`],
    json: [`${nodes}download_config/`],
    config: [`${nodes}config/`],
    test: [
      `${server.url}/api/org/${slug}/firewall_rules/test/`,
      { from: 1, to: 2, protocol: "udp", port: 9 },
    ],
  };
  let made = 0;
  for (const [name, [url, body]] of Object.entries(attacks)) {
    const method = body === undefined ? "GET" : "POST";
    const alone: number[] = [];
    for (let at = 0; at < 5; at++) alone.push(await timed(() => ask(url, { method, body, token: reader })));
    print(`${name}, alone: first ${alone[0]?.toFixed(0)}, then ${median(alone.slice(1)).toFixed(1)} ms`);
    for (const connections of [1, 20, 200]) {
      await using _ = flood(url, reader, connections, body);
      await Bun.sleep(1000);
      const health: number[] = [];
      const changes: number[] = [];
      const revocations: number[] = [];
      const api = `${server.url}/api/org/other/`;
      const until = performance.now() + seconds * 1000;
      while (performance.now() < until) {
        health.push(await timed(() => ask(`${server.url}/healthz`, {})));
        const one = { method: "POST", token: other };
        changes.push(await timed(() => ask(`${api}groups/`, { ...one, body: { name: `g${made++}` } })));
        const node = await ask(`${api}nodes/`, { ...one, body: { name: `n${made++}` } });
        const { id } = (await node.json()) as { id: number };
        revocations.push(await timed(() => ask(`${api}nodes/${id}/`, { method: "DELETE", token: other })));
      }
      const what = `${name}, ${connections} connections`;
      figure(`${what}: /healthz`, health, { unit: "ms", digits: 0, most: 100 });
      figure(`${what}: change`, changes, { unit: "ms", digits: 0, most: 300 });
      figure(`${what}: revocation`, revocations, { unit: "ms", digits: 0, most: 300 });
    }
  }
  await server.stop();
}
