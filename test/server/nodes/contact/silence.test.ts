// Silence ends ephemeral nodes: what counts as silence, and what does not.

import { expect, test } from "bun:test";
import { countedSilence, watchAt } from "../../../../src/server/nodes/contact/silence.ts";
import { hour, minute, useEphemeral } from "../../../support/ephemeral.ts";
import { certificateOf, checkinOf, codeOf, downloadOf } from "../../../support/nodes.ts";
import type { TestServer } from "../../../support/server.ts";

let server: TestServer;
const { job, rowOf, isLive, eventsOf, pass, watch } = useEphemeral((made) => ({ server } = made));

test("silence ends a node after 10 minutes, or as its token says", async () => {
  const [usual, quick] = [await job("usual"), await job("quick", { silence: "60s" })];
  // Reports of other servers may be noticed 10 s late.
  await pass(69_000);
  expect([await isLive(usual), await isLive(quick)]).toEqual([true, true]);
  await pass(1000);
  expect([await isLive(usual), await isLive(quick)]).toEqual([true, false]);
  await usual.checkin({ overlay_state: "running" });
  await pass(10 * minute + 9000);
  expect(await isLive(usual)).toBe(true);
  await pass(1000);
  expect(await rowOf(usual)).toMatchObject({ state: "revoked", revoke_reason: "silent" });
});

test("silence counts only while the server was up", async () => {
  const node = await job("job");
  await pass(9 * minute);
  server.clock.ms += 5 * hour;
  await watch();
  expect(await isLive(node)).toBe(true);
  await pass(50_000);
  expect(await isLive(node)).toBe(true);
  await pass(20_000);
  expect(await isLive(node)).toBe(false);
});

test("however many nodes an outage keeps, another one ends in time", async () => {
  const kept = await job("kept");
  const { id: _, ...row } = (await server.db.get("SELECT * FROM nodes WHERE id = $1", [kept.id])) ?? {};
  const columns = Object.keys(row);
  const sql = `INSERT INTO nodes (${columns.join(", ")}) VALUES (${columns.map((_column, at) => `$${at + 1}`).join(", ")})`;
  await server.db.write(async (tx) => {
    for (let at = 0; at < 1000; at++) {
      const copy = { ...row, name: `kept-${at}`, ip: `copy-${at}`, token_hash: null };
      await tx.run(sql, Object.values(copy));
    }
  });
  await watch();
  server.clock.ms += 5 * hour;
  await watch();
  const quick = await job("quick", { silence: "60s" });
  await pass(70_000);
  expect([await isLive(kept), await isLive(quick)]).toEqual([true, false]);
});

test("a node that holds polls at another server, whose clock is behind, is not silent", async () => {
  const node = await job("job", { silence: "60s" });
  const skewMs = 4900;
  await node.checkin({ overlay_state: "running" });
  const heard = async (at: number) =>
    server.db.writeFor("rows", (tx) =>
      tx.run("UPDATE sightings SET last_checkin_at = $2 WHERE node_id = $1", [node.id, at - skewMs]),
    );
  await watch();
  for (let polls = 0; polls < 3; polls++) {
    await heard(server.clock.ms);
    await pass(55_000);
    // The next poll, and the second until its report is written.
    await pass(1000);
    expect(await isLive(node)).toBe(true);
  }
  // The database was away for 9 s, just before the report.
  server.clock.ms += 9000;
  await watch();
  expect(await isLive(node)).toBe(true);
});

test("a node whose engine is stopped counts as silent, also without a farewell", async () => {
  const node = await job("job");
  for (let n = 0; n < 11; n++) {
    await pass(minute);
    await node.checkin({ overlay_state: "stopped" });
  }
  expect(await isLive(node)).toBe(false);
  expect((await node.checkin({ overlay_state: "stopped" })).status).toBe(200);
  expect(await isLive(node)).toBe(false);
});

test("a silent node comes back with its next check-in, its name and its address, and a new certificate", async () => {
  const node = await job("job");
  await pass(11 * minute);
  expect(codeOf(await node.download())).toEqual([409, "conflict"]);
  const answer = checkinOf(await node.checkin({ overlay_state: "running", config_version: 1 }));
  expect(answer.config_changed).toBe(true);
  expect(await rowOf(node)).toMatchObject({ state: "active", ended_at: null, ip: node.ip });
  const files = downloadOf(await node.download());
  expect(certificateOf(files, server.clock.ms).notAfter * 1000 - server.clock.ms).toBe(hour);
  expect((await eventsOf(node)).slice(-3)).toEqual(["node.ended", "node.returned", "certificate.issued"]);
  // It is heard of again: the former silence does not count.
  await pass(minute);
  expect(await isLive(node)).toBe(true);
});

test("gaps between two looks do not count as silence", () => {
  expect(countedSilence(0, 100, [])).toBe(100);
  expect(countedSilence(0, 100, [[20, 50]])).toBe(70);
  expect(countedSilence(30, 100, [[20, 50]])).toBe(50);
  expect(countedSilence(60, 100, [[20, 50]])).toBe(40);
  expect(countedSilence(0, 100, [[90, 200]])).toBe(90);
  expect(watchAt(undefined, 5)).toEqual({ seen: 5, gaps: [] });
  expect(watchAt({ seen: 0, gaps: [] }, 10_000)).toEqual({ seen: 10_000, gaps: [] });
  expect(watchAt({ seen: 0, gaps: [] }, 10_001)).toEqual({ seen: 10_001, gaps: [[0, 10_001]] });
});
