// Archives of events: which events go, that none is lost at any failure, and that the chain verifies across the cut.

import { afterEach, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readPublicArchiveKey } from "../../../src/server/audit/archive-key.ts";
import { Cut } from "../../../src/server/audit/archive-cut.ts";
import { listEvents } from "../../../src/server/audit/read.ts";
import { verifyChains } from "../../../src/server/audit/verify.ts";
import { operator, record } from "../../../src/server/audit/record.ts";
import { defaultRetention } from "../../../src/server/options.ts";
import { archiveBatch, type ArchiveDeps } from "../../../src/server/retention/archive.ts";
import { verifyArchive } from "../../../src/server/retention/archive-file.ts";
import { retain } from "../../../src/server/retention/retention.ts";
import { verifyArchives } from "../../../src/server/retention/verify-archives.ts";
import type { Database } from "../../../src/server/store/database.ts";
import { deliveries, webhooks } from "../../../src/server/store/tables/webhooks.ts";
import { writeMetrics } from "../../../src/server/metrics/metrics.ts";
import * as v from "valibot";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const day = 86_400_000;
const limits = { eventsS: 400 * 86_400, eventBytes: 1_000_000_000 };
const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each();
});

async function start(retention = {}) {
  const directory = temporaryDirectory();
  undo.push(() => directory[Symbol.dispose]());
  const options = { dataDirectory: directory.path, retention: { ...defaultRetention, ...retention } };
  const server = await makeTestServer(options);
  undo.push(() => server[Symbol.asyncDispose]());
  const org = await server.organization("acme");
  const archive = join(directory.path, "archive");
  const chain = { id: org.id, slug: "acme" };
  const deps: ArchiveDeps = { ...server.app.services, dataDirectory: directory.path };
  return { server, org, chain, deps, archive, ...helpersOf(server, org.id, archive) };
}

function helpersOf(server: TestServer, orgId: number, archive: string) {
  const { db, clock } = server;
  return {
    /** Records events, one each second. */
    fill: (count: number, after: Record<string, unknown> = {}) =>
      db.write(async (tx) => {
        for (let at = 0; at < count; at++) {
          const event = { orgId, at: (clock.ms += 1000), actor: operator, subject: `group/g${at}`, after };
          await record(tx, { ...event, type: "group.created" });
        }
      }),
    live: async () => {
      const rows = await db.all("SELECT id, type FROM events WHERE org_id = $1 ORDER BY id", [orgId]);
      return rows.map((row) => ({ id: Number(row["id"]), type: String(row["type"]) }));
    },
    chainOf: async () => {
      const chains = await verifyChains(db, server.app.services.secretKey);
      return chains.find(({ organization }) => organization === "acme");
    },
    files: () => readdirSync(archive).sort((a, b) => Number(a.split("-")[2]) - Number(b.split("-")[2])),
    key: () => readPublicArchiveKey(db, server.app.services.secretKey),
    retain: () => {
      clock.ms += 2 * 3_600_000;
      return retain(server.app.services, new AbortController().signal);
    },
  };
}

test("old events move to a signed file, and the chain verifies across the cut", async () => {
  const { server, org, archive, fill, live, chainOf, files, key, retain: run } = await start();
  await fill(10);
  const old = (await live()).length;
  server.clock.ms += 399 * day;
  await fill(3);
  const before = await chainOf();
  await run();
  expect(files).toThrow();
  server.clock.ms += 2 * day;
  await run();
  const [cut] = (await listEvents(server.db, org.id, { after: 0, limit: 100 })).events.slice(-1);
  expect(cut).toMatchObject({
    type: "events.archived",
    actor: { kind: "server" },
    subject: `events/1-${old}`,
  });
  expect((await live()).length).toBe(4);
  const { archive: header, file } = v.parse(Cut, cut?.after);
  expect(files()).toEqual([file]);
  expect(header).toMatchObject({ organization: "acme", events: old, previous_hash: "", key: await key() });
  const verified = verifyArchive(join(archive, file), await key());
  expect(verified.header).toEqual(header);
  // Every archived event is as the API answered it; the chain goes on from the last one.
  const lines = readFileSync(join(archive, file), "utf8").trim().split("\n").slice(2);
  expect(JSON.parse(lines.at(-1) ?? "").hash).toBe(header.last_hash);
  const after = await chainOf();
  expect(after).toMatchObject({ events: 4, breaks: [], archived: { last_hash: header.last_hash, file } });
  expect(after?.head).toBe(cut?.hash ?? "");
  expect(before?.breaks).toEqual([]);
  // Nothing more is due, and the next events continue the chain.
  await run();
  expect(files().length).toBe(1);
  await fill(2);
  expect(await chainOf()).toMatchObject({ events: 6, breaks: [] });
});

test("the lines of the document verify an archive without the server", async () => {
  const { server, archive, fill, files, key, retain: run } = await start();
  await fill(5, { text: 'ä \u2028 " \\' });
  server.clock.ms += 401 * day;
  await run();
  const path = join(archive, files().at(-1) ?? "");
  const document = readFileSync(join(import.meta.dir, "../../../docs/production.md"), "utf8");
  const block = /```sh\nKEY=.*\n([^`]*)```/.exec(document)?.[1] ?? "";
  const script = `set -e\n${block}`;
  const env = { ...process.env, KEY: (await key()) ?? "", FILE: path };
  using directory = temporaryDirectory();
  const { stdout, stderr } = Bun.spawnSync(["bash", "-c", script], { cwd: directory.path, env });
  expect(stderr.toString()).toBe("");
  expect(stdout.toString()).toContain("Signature Verified Successfully");
  expect(stdout.toString()).toContain(verifyArchive(path, await key()).header.sha256);
});

test("an organization with more bytes than allowed loses its oldest events to archives, in several files", async () => {
  const {
    fill,
    live,
    chainOf,
    files,
    archive,
    key,
    retain: run,
    server,
  } = await start({ eventBytes: 6_000_000 });
  for (let at = 0; at < 10; at++) await fill(30, { text: "x".repeat(50_000) });
  await run();
  const kept = await live();
  expect(kept.length).toBeGreaterThan(80);
  expect(kept.length).toBeLessThan(125);
  expect(files().length).toBeGreaterThan(1);
  const chain = await chainOf();
  expect(chain?.breaks).toEqual([]);
  const paths = files().map((file) => join(archive, file));
  const chains = await verifyChains(server.db, server.app.services.secretKey);
  const { verified } = verifyArchives(paths, chains, await key());
  expect(verified.map(({ next }) => next)).toEqual([...paths.slice(1), "the database"]);
  expect(verified.reduce((sum, { events }) => sum + events, 0) + kept.length).toBe(301 + files().length);
  // Only the first and the last given: the chain between them is not verified.
  expect(verifyArchives(paths.slice(0, 1), chains, await key()).verified[0]?.next).toBe(
    paths.length === 1 ? "" : null,
  );
  await run();
  expect(files().length).toBe(paths.length);
});

test("a changed archive, a changed event and a forged cut are found", async () => {
  const { server, org, archive, fill, chainOf, files, key, retain: run } = await start();
  await fill(5);
  server.clock.ms += 401 * day;
  await run();
  await fill(2);
  const path = join(archive, files().at(-1) ?? "");
  const good = readFileSync(path, "utf8");
  const publicKey = await key();
  for (const [bad, reason] of [
    [good.replace("group/g3", "group/g4"), "its events were changed"],
    [good.replace('"events":6', '"events":5'), "its signature is wrong"],
    [good.slice(0, -200), "its events were changed"],
    ["", "not the header"],
  ] as const) {
    writeFileSync(path, bad);
    expect(() => verifyArchive(path, publicKey)).toThrow(reason);
  }
  writeFileSync(path, good);
  expect(() => verifyArchive(path, "00".repeat(32))).toThrow("not the key of this control plane");
  // The database without the secret key is not enough to shorten the chain.
  expect((await chainOf())?.breaks).toEqual([]);
  const { events } = await listEvents(server.db, org.id, { after: 0, limit: 100 });
  const [cut, first, second] = events;
  const forged = v.parse(Cut, cut?.after);
  await server.db.write(async (tx) => {
    const header = { ...forged.archive, last: first?.id ?? 0, last_hash: first?.hash ?? "" };
    const after = { ...forged, archive: header };
    await record(tx, { orgId: org.id, at: 1, type: "events.archived", actor: operator, subject: "x", after });
    await tx.run("DELETE FROM events WHERE org_id = $1 AND id < $2", [org.id, second?.id ?? 0]);
  });
  expect((await chainOf())?.breaks).not.toEqual([]);
});

test("nothing is deleted if the archive cannot be written; log and metric tell", async () => {
  const { server, org, archive, fill, live, files, retain: run } = await start();
  await fill(5);
  server.clock.ms += 401 * day;
  const all = await live();
  writeFileSync(archive, "");
  await run();
  expect(await live()).toEqual(all);
  expect(server.log.join("")).toContain("Cannot archive events; none of them was deleted");
  expect(await writeMetrics(server.app.services)).toContain('event_archives_total{result="failed"} 1');
  rmSync(archive);
  // A file of the same name with other content is not replaced.
  mkdirSync(archive);
  const name = join(archive, `events-${org.id}-${all[0]?.id}-${all.at(-1)?.id}.jsonl`);
  writeFileSync(name, "mine");
  await run();
  expect(await live()).toEqual(all);
  expect(readFileSync(name, "utf8")).toBe("mine");
  expect(server.log.join("")).toContain("exists and holds something else");
  rmSync(name);
  await run();
  expect((await live()).map(({ type }) => type)).toEqual(["events.archived"]);
  expect(files().length).toBe(1);
});

test.skipIf(process.getuid?.() !== 0 || process.platform !== "linux")(
  "a full disk deletes nothing, and leaves no incomplete file",
  async () => {
    const { server, archive, fill, live, files, retain: run } = await start();
    await fill(300, { text: "x".repeat(1000) });
    server.clock.ms += 401 * day;
    const all = await live();
    mkdirSync(archive);
    expect(Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", archive]).exitCode).toBe(0);
    try {
      await run();
      expect(await live()).toEqual(all);
      expect(server.log.join("")).toContain("no space left on the disk");
      expect(readdirSync(archive).filter((name) => !name.startsWith("events-0-"))).toEqual([]);
    } finally {
      Bun.spawnSync(["umount", archive]);
    }
    await run();
    expect((await live()).map(({ type }) => type)).toEqual(["events.archived"]);
    expect(files().length).toBe(1);
  },
);

test("a run that ends between file and deletion is repeated with the same file", async () => {
  const { server, chain, deps, fill, live, chainOf, files, archive } = await start();
  await fill(5);
  server.clock.ms += 401 * day;
  const all = await live();
  // The key exists already, so that the only write is the cut.
  await archiveBatch(deps, { id: null, slug: null }, limits);
  const failing: Database = { ...deps.db, write: () => Promise.reject(new Error("killed")) };
  const failure = await archiveBatch({ ...deps, db: failing }, chain, limits).catch(String);
  expect(failure).toContain("killed");
  expect(await live()).toEqual(all);
  await archiveBatch(deps, chain, limits);
  expect((await live()).length).toBe(1);
  expect(files().filter((name) => name.startsWith(`events-${chain.id}-`)).length).toBe(1);
  expect(readdirSync(archive).filter((name) => name.endsWith(".part"))).toEqual([]);
  expect((await chainOf())?.breaks).toEqual([]);
});

test("two servers archive each event once, and one of them takes the hourly turn", async () => {
  const { server, chain, deps, fill, live, chainOf, files } = await start();
  // The CAs expire within the 401 days. A slow machine reaches the turn of the loop that says so.
  const left = async () => (await live()).map(({ type }) => type).filter((type) => type !== "ca.expiring");
  await fill(5);
  server.clock.ms += 401 * day;
  await archiveBatch(deps, { id: null, slug: null }, limits);
  const both = await Promise.allSettled([
    archiveBatch(deps, chain, limits),
    archiveBatch(deps, chain, limits),
  ]);
  expect(both.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
  expect(await left()).toEqual(["events.archived"]);
  expect((await chainOf())?.breaks).toEqual([]);
  expect(files().filter((name) => name.startsWith(`events-${chain.id}-`)).length).toBe(1);
  await fill(3);
  server.clock.ms += 401 * day;
  const signal = new AbortController().signal;
  await Promise.all([retain(server.app.services, signal), retain(server.app.services, signal)]);
  expect(server.log.join("")).not.toContain("Cannot archive");
  expect(await left()).toEqual(["events.archived"]);
});

test("events that a webhook has not got stay, with everything after them", async () => {
  const { server, org, fill, live, chainOf, retain: run } = await start();
  await fill(4);
  const all = await live();
  const last = all.at(-1)?.id ?? 0;
  const { db } = server;
  const hook = await db.write((tx) =>
    webhooks.insertReturning(tx, {
      orgId: org.id,
      url: "https://example.org/",
      events: ["node.revoked"],
      secretSealed: "",
      createdAt: 1,
      seenEventId: last,
    }),
  );
  const [first, second] = all;
  const waiting = { webhookId: hook.id, createdAt: 1, nextAt: Number.MAX_SAFE_INTEGER };
  await db.write(async (tx) => {
    await deliveries.insert(tx, { ...waiting, eventId: first?.id ?? 0, nextAt: null, deliveredAt: 2 });
    await deliveries.insert(tx, { ...waiting, eventId: second?.id ?? 0 });
  });
  server.clock.ms += 401 * day;
  await run();
  expect((await live())[0]?.id).toBe(second?.id ?? 0);
  await db.write((tx) => deliveries.update(tx, { eventId: second?.id ?? 0 }, { nextAt: null }));
  // Not queued yet.
  await db.write((tx) => webhooks.update(tx, { id: hook.id }, { seenEventId: all[2]?.id ?? 0 }));
  server.clock.ms += 8 * day;
  await run();
  expect((await live())[0]?.id).toBe(all[3]?.id ?? 0);
  await db.write((tx) => webhooks.update(tx, { id: hook.id }, { deletedAt: 1 }));
  server.clock.ms += 8 * day;
  await run();
  expect((await live()).some(({ id }) => id === last)).toBe(false);
  expect((await chainOf())?.breaks).toEqual([]);
});

test("a quiet organization gets one archive for many events, and an idle one no more", async () => {
  const { server, org, fill, files, live, retain: run } = await start();
  // Nothing else records events: the clock passes the end of the CAs, and the server looks at them each second.
  await server.app.flush();
  server.clock.ms += 401 * day;
  await run();
  for (let at = 0; at < 30; at++) {
    await fill(1);
    server.clock.ms += day;
  }
  server.clock.ms += 371 * day;
  for (let at = 0; at < 30; at++) {
    await run();
    server.clock.ms += day;
  }
  expect(files().filter((name) => name.startsWith(`events-${org.id}-`)).length).toBeLessThanOrEqual(7);
  server.clock.ms += 1000 * day;
  await run();
  const count = files().length;
  for (let at = 0; at < 5; at++) {
    server.clock.ms += 500 * day;
    await run();
  }
  expect(files().length).toBeLessThanOrEqual(count + 1);
  expect((await live()).at(-1)?.type).toBe("events.archived");
});
