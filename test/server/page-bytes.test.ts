// Pages of lists are bounded in bytes, whatever their rows hold, and following their links reads every item once.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterAll, beforeAll, expect, test } from "bun:test";
import * as v from "valibot";
import { operator, record } from "../../src/server/audit/record.ts";
import { maxPageBytes } from "../../src/server/http/lists.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { nodes } from "../../src/server/store/tables/nodes.ts";
import { registrationTokens } from "../../src/server/store/tables/joining.ts";
import { rolloutNodes, rollouts } from "../../src/server/store/tables/rollouts.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let org: Organization;
let staff: string;
beforeAll(async () => {
  server = await makeTestServer();
  org = await server.organization("acme");
  staff = await server.person("staff@example.org", { isStaff: true });
  await server.join(org, "staff@example.org", "owner");
});
afterAll(() => server[Symbol.asyncDispose]());

const ranges = Object.fromEntries(
  Array.from({ length: 2500 }, (_, at) => [`10.${at >> 8}.${at & 255}.0/24`, true]),
);
/** About 56 KB. */
const overrides = { lighthouse: { remote_allow_list: ranges } };
const Items = v.array(v.looseObject({ id: v.number() }));

async function get(path: string) {
  const answer = await server.send("GET", path, { token: staff });
  expect(answer.status).toBe(200);
  const next = /<https:\/\/control\.example([^>]*)>; rel="next"/.exec(answer.headers.get("link") ?? "")?.[1];
  return { ids: v.parse(Items, answer.json).map(({ id }) => id), bytes: answer.text.length, next };
}

/** Follows the links from a path. Each page is bounded; the ids rise without a gap in the order of the pages. */
async function follow(path: string): Promise<number[]> {
  const ids: number[] = [];
  for (let next: string | undefined = path; next !== undefined;) {
    const page = await get(next);
    expect(page.bytes).toBeLessThanOrEqual(maxPageBytes);
    expect(page.ids.length).toBeGreaterThan(0);
    ids.push(...page.ids);
    next = page.next;
  }
  expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
  return ids;
}

test("a page of large events ends early, and its cursor continues behind it", async () => {
  const event = {
    orgId: org.id,
    at: server.clock.ms,
    type: "organization.updated",
    actor: operator,
  } as const;
  await server.db.write(async (tx) => {
    for (let at = 0; at < 60; at++) await record(tx, { ...event, subject: "x", after: { overrides } });
    await record(tx, { ...event, subject: "large", after: { text: "x".repeat(2 * maxPageBytes) } });
    await record(tx, { ...event, subject: "last" });
  });
  const rows = await server.db.all("SELECT id FROM events WHERE org_id = $1 ORDER BY id", [org.id]);
  const all = rows.map((row) => Number(row["id"]));
  const large = all.at(-2) ?? 0;
  const first = await get("/api/org/acme/events/?limit=1000");
  expect(first.bytes).toBeLessThanOrEqual(maxPageBytes);
  expect(first.ids).toEqual(all.slice(0, first.ids.length));
  const read: number[] = [];
  for (let next: string | undefined = "/api/org/acme/events/?limit=1000"; next !== undefined;) {
    const page = await get(next);
    read.push(...page.ids);
    // An event that is larger than a page comes alone.
    if (page.ids.includes(large)) expect(page.ids).toEqual([large]);
    else expect(page.bytes).toBeLessThanOrEqual(maxPageBytes);
    next = page.next;
  }
  expect(read).toEqual(all);
});

test("pages of nodes, organizations and tokens with large rows are smaller than asked", async () => {
  const { db } = server;
  await db.write(async (tx) => {
    for (let at = 0; at < 150; at++) {
      const configOverrides = at % 3 === 0 ? overrides : {};
      const ip = `10.77.9.${at}`;
      await nodes.insert(tx, {
        orgId: org.id,
        name: `n${at}`,
        ip,
        state: "pending",
        configOverrides,
        createdAt: 1,
      });
      const groups = Array.from({ length: 64 }, (_, group) => `${group}`.padStart(60, "g"));
      const token = {
        tokenHash: `hash ${at}`,
        uses: 1,
        groups,
        expiresAt: server.clock.ms + 1e9,
        createdAt: 1,
      };
      for (const more of ["a", "b"])
        await registrationTokens.insert(tx, { ...token, orgId: org.id, tokenHash: `${at} ${more}` });
    }
  });
  for (let at = 0; at < 20; at++) await server.organization(`org${at}`, `10.${100 + at}.0.0/16`);
  await db.write((tx) =>
    tx.run("UPDATE organizations SET config_overrides = $1", [JSON.stringify(overrides)]),
  );
  for (const size of ["", "?page_size=40", "?page_size=1000"]) {
    expect((await follow(`/api/org/acme/nodes/${size}`)).length).toBe(150);
    expect((await follow(`/api/org/${size}`)).length).toBe(21);
    expect((await follow(`/api/org/acme/registration_tokens/${size}`)).length).toBe(300);
  }
  // A reader that counts pages by itself misses nothing either.
  const counted: number[] = [];
  for (let page = 1; ; page++) {
    const { ids } = await get(`/api/org/acme/nodes/?page_size=1000&page=${page}`);
    if (ids.length === 0) break;
    counted.push(...ids);
  }
  expect(counted.length).toBe(150);
}, 120_000);

test("pages of rollouts with large settings, and of their nodes with long reasons, are smaller than asked", async () => {
  const times = { since: 1, createdAt: 1, endedAt: 1 };
  const ended = { orgId: org.id, agent: null, engine: null, groups: [], hours: [], watchS: 60, ...times };
  const said = {
    ring: 1,
    state: "failed",
    at: 1,
    reason: "\u4e2d".repeat(500),
    logLine: "\u4e2d".repeat(500),
  } as const;
  const ids = await server.db.write(async (tx) => {
    const made: number[] = [];
    for (let at = 0; at < 40; at++) {
      const row = { ...ended, settings: overrides, state: "stopped", ring: 1, rings: 1 } as const;
      made.push((await rollouts.insertReturning(tx, row)).id);
    }
    for (let at = 0; at < 500; at++) {
      const node = { orgId: org.id, name: `of-rollout-${at}`, ip: `10.77.${20 + (at >> 8)}.${at & 255}` };
      const { id: nodeId } = await nodes.insertReturning(tx, { ...node, state: "pending", createdAt: 1 });
      await rolloutNodes.insert(tx, { rolloutId: made[0] ?? 0, nodeId, ...said });
    }
    return made;
  });
  const read = async (path: string) => {
    let items = 0;
    for (let next: string | undefined = path; next !== undefined;) {
      const answer = await server.send("GET", next, { token: staff });
      expect(Buffer.byteLength(answer.text)).toBeLessThanOrEqual(maxPageBytes);
      items += v.parse(v.array(v.unknown()), answer.json).length;
      next = /<https:\/\/control\.example([^>]*)>; rel="next"/.exec(answer.headers.get("link") ?? "")?.[1];
    }
    return items;
  };
  expect(await read("/api/org/acme/rollouts/?page_size=1000")).toBe(ids.length);
  expect(await read(`/api/org/acme/rollouts/${ids[0]}/nodes/?page_size=1000`)).toBe(500);
}, 120_000);
