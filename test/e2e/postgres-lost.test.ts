// PostgreSQL at its worst: a failover to a standby that lacks acknowledged commits, and a disk that is full.

import { beforeAll, expect, onTestFinished, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { slug } from "../bench/seed.ts";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { runSync } from "../support/debian.ts";
import { checkin, prepare, send } from "../support/postgres-plane.ts";
import {
  asPostgres,
  describePostgres,
  giveToPostgres,
  programs,
  startPostgres,
} from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

type Plane = Awaited<ReturnType<typeof startControlPlane>>;

const Groups = v.array(v.looseObject({ name: v.string() }));

/** Makes and reads groups of the organization, as its administrator. */
function groupsOf(admin: string) {
  const path = `/api/org/${slug}/groups/`;
  return {
    make: (plane: Plane, name: string) => send(plane.url, "POST", path, admin, { name }),
    async names(plane: Plane): Promise<string[]> {
      const answer = await send(plane.url, "GET", `${path}?page_size=1000`, admin);
      expect(answer.status).toBe(200);
      return v.parse(Groups, await answer.json()).map(({ name }) => name);
    },
  };
}

/** A copy of the running cluster. Returns what starts it as the new primary. */
function makeStandby(primary: string, directory: string) {
  const data = join(directory, "standby");
  mkdirSync(directory, { recursive: true });
  giveToPostgres(directory);
  const of = ["-h", primary, "-U", "postgres", "-D", data, "-c", "fast", "-R"];
  runSync([...asPostgres, `${programs}/pg_basebackup`, ...of], { cwd: directory });
  writeFileSync(join(data, "postgresql.auto.conf"), `unix_socket_directories = '${directory}'\n`);
  giveToPostgres(join(data, "postgresql.auto.conf"));
  return async () => {
    const argv = [...asPostgres, "--pdeathsig=INT", `${programs}/postgres`, "-D", data];
    const log = Bun.file(join(directory, "log"));
    const child = Bun.spawn(argv, { cwd: directory, stdin: "ignore", stdout: "ignore", stderr: log });
    const isReady = [...asPostgres, `${programs}/pg_isready`, "-q", "-h", directory];
    await until(() => Bun.spawnSync(isReady, { cwd: directory }).exitCode === 0);
    runSync([...asPostgres, `${programs}/pg_ctl`, "-D", data, "-w", "promote"], { cwd: directory });
    return {
      stop: async () => {
        child.kill("SIGQUIT");
        await child.exited;
      },
    };
  };
}

/** A file system in memory, for PostgreSQL and little more. */
function smallDisk(path: string, megabytes = 128) {
  mkdirSync(path);
  runSync(["mount", "-t", "tmpfs", "-o", `size=${megabytes}m,mode=0755`, "tmpfs", path]);
  return { path, [Symbol.dispose]: () => void runSync(["umount", "--lazy", path]) };
}

const hasEnded = ({ pid }: Plane) => !existsSync(`/proc/${pid}`);

/** To become the user of PostgreSQL, and to mount. */
const rooted = test.skipIf(process.getuid?.() !== 0);

describePostgres("on PostgreSQL", () => {
  beforeAll(() => void buildAgent());

  rooted(
    "a server that had read a lost commit ends after a failover, and goes on when it is started again",
    async () => {
      using directory = temporaryDirectory();
      chmodSync(directory.path, 0o755);
      using disk = smallDisk(join(directory.path, "disk"), 512);
      await using primary = await startPostgres(["max_wal_senders = 4"], disk.path);
      const { admin, data, databaseUrl } = await prepare(primary, directory.path, 5);
      // The address that a failover moves.
      const address = join(directory.path, "address");
      const other = join(disk.path, "other");
      const pointTo = (cluster: string) => {
        rmSync(address, { force: true });
        symlinkSync(cluster, address);
      };
      pointTo(primary.directory);
      const url = new URL(databaseUrl);
      url.searchParams.set("host", address);
      const flags = ["--database-url", url.href];
      const start = () => startControlPlane(data, flags);
      const { make, names } = groupsOf(admin);
      await using writer = await start();
      await using reader = await start();
      expect((await make(writer, "kept")).status).toBe(201);
      for (const plane of [writer, reader]) expect((await checkin(plane.url, 1)).status).toBe(200);
      // As asynchronous replication that is behind: it has nothing of what comes now.
      const promote = makeStandby(primary.directory, other);
      expect((await make(writer, "lost")).status).toBe(201);
      // Each has read a change of the other.
      for (const [id, by, of] of [
        [2, writer, reader],
        [3, reader, writer],
      ] as const) {
        expect((await send(by.url, "DELETE", paths.node(slug, id), admin)).status).toBe(204);
        await until(async () => (await checkin(of.url, id)).status === 403);
      }
      await primary.stop();
      for (const plane of [writer, reader]) expect((await checkin(plane.url, 1)).status).toBe(200);
      pointTo(other);
      const promoted = await promote();
      onTestFinished(promoted.stop);
      for (const plane of [writer, reader]) {
        await until(() => hasEnded(plane));
        // With an error, so that systemd starts it again.
        expect(await plane.stop()).toBeGreaterThan(0);
      }
      await using again = await start();
      expect(await names(again)).toEqual(expect.arrayContaining(["kept"]));
      expect(await names(again)).not.toContain("lost");
      // The nodes are as the database has them.
      for (const id of [1, 2, 3]) expect((await checkin(again.url, id)).status).toBe(200);
      expect((await make(again, "lost")).status).toBe(201);
      await agentJson(["admin", "audit", "verify", "--data-dir", data, ...flags]);
    },
    180_000,
  );

  rooted(
    "while its disk is full writes are refused and nodes check in, and all goes on when there is room",
    async () => {
      using directory = temporaryDirectory();
      chmodSync(directory.path, 0o755);
      using disk = smallDisk(join(directory.path, "disk"));
      await using cluster = await startPostgres([], disk.path);
      const { admin, data, flags } = await prepare(cluster, directory.path, 5);
      await using server = await startControlPlane(data, flags);
      const { make, names } = groupsOf(admin);
      const accepted: string[] = [];
      let at = 0;
      const tryGroup = async () => {
        const name = `g${at++}-${"x".repeat(40)}`;
        const answer = await make(server, name);
        if (answer.status === 201) accepted.push(name);
        return answer;
      };
      for (const id of [1, 2]) expect((await checkin(server.url, id)).status).toBe(200);
      expect((await tryGroup()).status).toBe(201);

      const filling = join(disk.path, "filling");
      const fill = () =>
        Bun.spawnSync(["dd", "if=/dev/zero", `of=${filling}`, "bs=64k"], { stderr: "ignore" });
      const isRefused = async () => {
        const refused = await until(async () => {
          const answer = await tryGroup();
          return answer.status !== 201 && answer;
        });
        expect(refused.status).toBe(503);
        expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
        expect(await refused.json()).toMatchObject({ code: "storage_unavailable" });
        for (const id of [1, 2]) expect((await checkin(server.url, id)).status).toBe(200);
      };
      const goesOn = async () => {
        await until(async () => (await tryGroup()).status === 201);
        await until(async () => (await fetch(`${server.url}/readyz`)).status === 200);
        const there = await names(server);
        expect(accepted.filter((name) => !there.includes(name))).toEqual([]);
        expect((await checkin(server.url, 3)).status).toBe(200);
      };
      fill();
      await isRefused();
      rmSync(filling);
      await goesOn();

      // Without room for its log, PostgreSQL itself ends.
      fill();
      const message =
        "SELECT pg_logical_emit_message(false, 'full', repeat('x', 1000000)) FROM generate_series(1, 200)";
      const psql = [...asPostgres, `${programs}/psql`, "-h", cluster.directory, "-U", "postgres"];
      expect(Bun.spawnSync([...psql, "-c", message], { cwd: disk.path, stderr: "ignore" }).exitCode).not.toBe(
        0,
      );
      await isRefused();
      await cluster.restart(async () => rmSync(filling));
      await goesOn();
      await agentJson(["admin", "audit", "verify", "--data-dir", data, ...flags]);
    },
    180_000,
  );
});
