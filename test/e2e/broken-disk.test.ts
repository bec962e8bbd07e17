// The disk below the database breaks: the kernel reports input/output errors, and the file system becomes read-only. What was
// acknowledged stays, known nodes check in, and after a repair in place all goes on by itself.

import { expect, test } from "bun:test";
import { chmodSync, closeSync, existsSync, openSync, writeSync } from "node:fs";
import { SQL } from "bun";
import { join } from "node:path";
import * as v from "valibot";
import { seed, slug } from "../bench/seed.ts";
import { agentJson, buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { inCi } from "../support/debian.ts";
import { failingDisk } from "../support/failing-disk.ts";
import { checkin, prepare, send } from "../support/postgres-plane.ts";
import { describePostgres, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

buildAgent();

const Refusal = v.looseObject({ hint: v.string() });
const Groups = v.array(v.looseObject({ name: v.string() }));

function writesTo({ url }: ControlPlane, admin: string) {
  const path = `/api/org/${slug}/groups/`;
  const accepted: string[] = [];
  let at = 0;
  return {
    accepted,
    async tryGroup() {
      const name = `g${at++}`;
      const answer = await send(url, "POST", path, admin, { name });
      if (answer.status === 201) accepted.push(name);
      return answer;
    },
    async names() {
      const answer = await send(url, "GET", `${path}?page_size=1000`, admin);
      expect(answer.status).toBe(200);
      return v.parse(Groups, await answer.json()).map(({ name }) => name);
    },
  };
}

const rooted = test.skipIf(process.getuid?.() !== 0 && !inCi);

/** While the disk fails: what is refused, and what goes on. */
async function expectRefusals(plane: ControlPlane, tryGroup: () => Promise<Response>): Promise<void> {
  await until(async () => (await tryGroup()).status === 503);
  for (let again = 0; again < 5; again++) {
    const refused = await tryGroup();
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    const { hint, ...body } = v.parse(Refusal, await refused.json());
    expect(body).toMatchObject({
      code: "storage_unavailable",
      detail: expect.stringContaining("The database"),
    });
    expect(hint).toContain("disk");
  }
  await until(async () => (await fetch(`${plane.url}/readyz`)).status === 503);
  expect((await fetch(`${plane.url}/healthz`)).status).toBe(200);
  for (const id of [1, 2, 3]) expect((await checkin(plane.url, id)).status).toBe(200);
}

async function expectRecovery(
  plane: ControlPlane,
  { accepted, tryGroup, names }: ReturnType<typeof writesTo>,
): Promise<void> {
  await until(async () => (await tryGroup()).status === 201);
  await until(async () => (await fetch(`${plane.url}/readyz`)).status === 200);
  const there = await names();
  expect(accepted.filter((name) => !there.includes(name))).toEqual([]);
  expect((await checkin(plane.url, 4)).status).toBe(200);
}

rooted(
  "a disk below SQLite that breaks, and is repaired in place",
  async () => {
    using directory = temporaryDirectory();
    using disk = failingDisk(directory.path, 64);
    const data = join(disk.path, "data");
    const { admin } = await seed({ dataDirectory: data }, 10);
    await using plane = await startControlPlane(data);
    const writes = writesTo(plane, admin);
    for (let round = 0; round < 2; round++) {
      for (let at = 0; at < 5; at++) expect((await writes.tryGroup()).status).toBe(201);
      for (const id of [1, 2, 3]) expect((await checkin(plane.url, id)).status).toBe(200);
      disk.fail();
      await expectRefusals(plane, writes.tryGroup);
      // Commands read, and say why they cannot write.
      const inData = (...words: string[]) => runAgent(["admin", ...words, "--data-dir", data]);
      expect(await inData("node", "list", slug)).toMatchObject({ status: 0 });
      const created = await inData("group", "create", slug, "late");
      // As the kernel says it: the file system is read-only once its journal has met the disk.
      expect(created).toMatchObject({
        status: 6,
        stderr: expect.stringMatching(/read-only|disk I\/O error/),
      });
      const file = join(directory.path, `backup-${round}`);
      const saved = await inData("backup", file);
      expect(saved).toMatchObject({
        status: 0,
        stdout: expect.stringContaining("does not know of this backup"),
      });
      const second = await runAgent(["serve", "--listen", "127.0.0.1:0", "--data-dir", data]);
      const said = second.stderr.includes("read-only") ? 5 : 6;
      expect(second).toMatchObject({
        status: said,
        stderr: expect.stringMatching(/read-only|disk I\/O error/),
      });
      disk.mend();
      await expectRecovery(plane, writes);
      await agentJson(["admin", "audit", "verify", "--data-dir", data]);
      expect(existsSync(file)).toBe(true);
    }
  },
  180_000,
);

rooted(
  "an index of the write-ahead log that became immutable ends the server, which starts again once that is undone",
  async () => {
    using directory = temporaryDirectory();
    using disk = failingDisk(directory.path, 64);
    const data = join(disk.path, "data");
    const { admin } = await seed({ dataDirectory: data }, 1);
    const change = (how: "+i" | "-i") =>
      Bun.spawnSync(["chattr", how, join(data, "control.db-shm")]).exitCode;
    const writes = await (async () => {
      await using plane = await startControlPlane(data);
      const { accepted, tryGroup } = writesTo(plane, admin);
      for (let at = 0; at < 5; at++) await tryGroup();
      expect(change("+i")).toBe(0);
      // The kernel ends a process that writes to a mapped page of an immutable file.
      while (await tryGroup().catch(() => undefined)) await Bun.sleep(10);
      return accepted;
    })();
    // Not 78: systemd starts it again every two seconds.
    const second = await runAgent(["serve", "--listen", "127.0.0.1:0", "--data-dir", data]);
    expect(second).toMatchObject({ status: 6, stderr: expect.stringContaining("lsattr") });
    expect(change("-i")).toBe(0);
    await using plane = await startControlPlane(data);
    const there = await writesTo(plane, admin).names();
    expect(writes.length).toBeGreaterThanOrEqual(5);
    expect(writes.filter((name) => !there.includes(name))).toEqual([]);
    await agentJson(["admin", "audit", "verify", "--data-dir", data]);
  },
  60_000,
);

describePostgres("below PostgreSQL", () => {
  rooted(
    "a disk that breaks, and is repaired in place",
    async () => {
      using directory = temporaryDirectory();
      using disk = failingDisk(directory.path, 256);
      for (const path of [directory.path, disk.path]) chmodSync(path, 0o755);
      await using cluster = await startPostgres([], disk.path);
      const { admin, data, flags } = await prepare(cluster, directory.path, 10);
      await using plane = await startControlPlane(data, flags);
      const writes = writesTo(plane, admin);
      for (let at = 0; at < 5; at++) expect((await writes.tryGroup()).status).toBe(201);
      for (const id of [1, 2, 3]) expect((await checkin(plane.url, id)).status).toBe(200);
      disk.fail();
      await expectRefusals(plane, writes.tryGroup);
      await cluster.restart(async () => disk.mend());
      await expectRecovery(plane, writes);
      await agentJson(["admin", "audit", "verify", "--data-dir", data, ...flags]);
    },
    180_000,
  );

  rooted(
    "a damaged page is told, and what is not in it goes on",
    async () => {
      using directory = temporaryDirectory();
      await using cluster = await startPostgres();
      const { admin, data, databaseUrl, flags } = await prepare(cluster, directory.path, 10);
      await using plane = await startControlPlane(data, flags);
      for (const id of [1, 2, 3]) expect((await checkin(plane.url, id)).status).toBe(200);
      const sql = new SQL(databaseUrl);
      const [row] = await sql`SELECT pg_relation_filepath('node_groups') AS path`;
      await sql.close();
      const path = join(cluster.directory, "data", v.parse(v.object({ path: v.string() }), row).path);
      await cluster.restart(async () => {
        const page = openSync(path, "r+");
        writeSync(page, Buffer.alloc(8192, 0xa5), 0, 8192, 0);
        closeSync(page);
      });
      const groups = () => send(plane.url, "GET", `/api/org/${slug}/groups/`, admin);
      const refused = await until(async () => {
        const answer = await groups();
        const { detail } = v.parse(v.looseObject({ detail: v.string() }), await answer.json());
        return detail.includes("damaged") && { status: answer.status };
      });
      expect(refused).toEqual({ status: 503 });
      for (const id of [1, 2, 3]) expect((await checkin(plane.url, id)).status).toBe(200);
      expect(plane.log()).toContain("invalid page");
      const ready = await fetch(`${plane.url}/readyz`);
      expect([ready.status, await ready.json()]).toEqual([
        200,
        { status: "ok", warnings: ["database_damaged"] },
      ]);
    },
    120_000,
  );
});
