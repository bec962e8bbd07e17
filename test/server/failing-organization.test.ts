// One organization whose work in the background fails at each turn, and another one: it must not notice.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { AppError } from "../../src/base/errors.ts";
import { realSystem } from "../../src/base/system.ts";
import { forAll, inTurn, orgOf } from "../../src/server/for-all.ts";
import { LeaseLost } from "../../src/server/store/leases.ts";
import { openSqlite } from "../../src/server/store/sqlite/sqlite.ts";
import { registerNode, registrationToken } from "../support/nodes.ts";
import { makeTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { temporaryDirectory } from "../support/temporary.ts";

/** Longest pause of a loop here. */
const pauseMs = 10;
/** A lighthouse that is silent for so long is told, whatever else the server does. */
const awayMs = 5 * 60_000;

test("an organization whose ephemeral nodes cannot end keeps no other from its alarms", async () => {
  using directory = temporaryDirectory();
  let failing = 0;
  let failures = 0;
  const open = async (now: () => number) => {
    const db = await openSqlite({ path: `${directory.path}/control.db`, role: "server", now });
    const writeFor: typeof db.writeFor = async (concern, work) => {
      if (typeof concern === "object" && "org" in concern && concern.org === failing) {
        failures++;
        throw new Error("a row of acme is damaged");
      }
      return db.writeFor(concern, work);
    };
    return { db: { ...db, writeFor }, dispose: () => undefined };
  };
  const sleep = (ms: number, signal?: AbortSignal) => realSystem().sleep(Math.min(ms, pauseMs), signal);
  await using server = await makeTestServer({ open, network: { sleep } });
  const [acme, other] = [
    await server.organization("acme"),
    await server.organization("other", "10.78.0.0/16"),
  ];
  const ephemeral = await registrationToken(server, acme, {
    ephemeral: true,
    silence: "60s",
    expires_in: "30d",
  });
  await registerNode(server, acme, "job", { registration_token: ephemeral });
  const hub = await registerNode(server, other, "hub", { mode: "server" });
  const role =
    "UPDATE nodes SET is_lighthouse = 1, public_ip = '192.0.2.9', external_port = 4242 WHERE id = $1";
  await server.db.write((tx) => tx.run(role, [hub.id]));
  await hub.checkin({ config_version: 1 });
  await server.app.services.reports.stop();
  failing = acme.id;
  const watch = "SELECT value FROM meta WHERE key = 'ephemeral_watch'";
  const seen = async () => JSON.parse(String((await server.db.get(watch))?.["value"] ?? "{}")).seen ?? 0;
  for (let passed = 0; passed < awayMs; passed += 5000) {
    server.clock.ms += 5000;
    await until(async () => (await seen()) >= server.clock.ms);
  }
  await until(() => failures > 1);
  const raised = "SELECT org_id FROM events WHERE type = 'alarm.raised'";
  await until(async () => (await server.db.all(raised)).length > 0, { ms: 15_000 });
  expect(await server.db.all(raised)).toEqual([{ org_id: other.id }]);
}, 60_000);

describe("work for all", () => {
  const rows = [1, 2, 3, 4, 5].map((orgId) => ({ orgId }));
  /** Which organizations had their turn, and what was thrown, where these fail. */
  const run = async (failing: readonly number[], failure: (orgId: number) => Error) => {
    const done: number[] = [];
    const error = await forAll(rows, orgOf, async ({ orgId }) => {
      if (failing.includes(orgId)) throw failure(orgId);
      done.push(orgId);
    }).catch((reason: unknown) => reason);
    return { done, error };
  };

  test("is done for each, and the failures are thrown at the end with their organizations", async () => {
    const { done, error } = await run([1, 4], (id) => new Error(`row ${id} is damaged`));
    expect([done, String(error)]).toEqual([
      [2, 3, 5],
      "Error: organization 1: row 1 is damaged; organization 4: row 4 is damaged",
    ]);
    expect(await run([], () => new Error())).toEqual({ done: [1, 2, 3, 4, 5], error: undefined });
  });

  test("ends at once after another replica took over, and after three failures of the database in succession", async () => {
    expect(await run([2], () => new LeaseLost("upkeep"))).toMatchObject({
      done: [1],
      error: expect.any(LeaseLost),
    });
    const away = () => new AppError("storage_unavailable", "The database cannot be used now");
    expect((await run([1, 2, 4, 5], away)).done).toEqual([3]);
    expect(await run([1, 2, 3], away)).toMatchObject({ done: [], error: { code: "storage_unavailable" } });
    const mixed = await run([1, 2, 3, 4, 5], (id) => (id === 1 ? new Error("row 1 is damaged") : away()));
    expect(String(mixed.error)).toStartWith(
      "Error: organization 1: row 1 is damaged; organization 2: The database",
    );
    expect(String(mixed.error)).not.toContain("organization 5");
  });

  test("is done in each step, and one failure is thrown as it is", async () => {
    const steps: number[] = [];
    const failure = new Error("broken");
    const turn = inTurn(
      async () => Promise.reject(failure),
      async () => steps.push(2),
    );
    expect(await turn.catch((error: unknown) => error)).toBe(failure);
    expect(steps).toEqual([2]);
  });

  test("is the only loop over organizations in what runs in the background", () => {
    const folder = join(import.meta.dir, "../../src/server");
    const background = readFileSync(join(folder, "background.ts"), "utf8");
    const imported = [...background.matchAll(/from "(\.\/[^"]+)"/g)].map(([, path = ""]) =>
      join(folder, path),
    );
    expect(imported.length).toBeGreaterThan(20);
    const loops = imported.filter((path) =>
      /for \(const .*\borgId\b.* of (await queryAll|Map\.groupBy)/.test(readFileSync(path, "utf8")),
    );
    expect(loops).toEqual([]);
  });
});
