// docs/several-servers.md as it stands: three servers behind HAProxy, on PostgreSQL with a standby. A server is killed, then
// the machine of the primary database loses its power. Nothing acknowledged is lost, and all goes on. The machines are network namespaces.

import { afterAll, beforeAll, expect, onTestFinished, test } from "bun:test";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { seed, slug, tokenOf } from "../bench/seed.ts";
import { agent, buildAgent } from "../support/agent.ts";
import { installMissing, runSync } from "../support/debian.ts";
import { blocksOf } from "../support/documents.ts";
import { makeLan, type Host, type Lan } from "../support/namespaces.ts";
import { asPostgres, describePostgres, giveToPostgres, programs } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

const blocks = blocksOf("docs/several-servers.md").map(({ text }) => `${text}\n`);
/** The block of the page that begins like this. */
const block = (begin: string) => {
  const found = blocks.find((text) => text.trimStart().startsWith(begin));
  if (found === undefined) throw new Error(`docs/several-servers.md has no block that begins with ${begin}`);
  return found;
};

describePostgres("several servers as documented", () => {
  let lan: Lan;
  let directory: ReturnType<typeof temporaryDirectory>;
  beforeAll(() => {
    buildAgent();
    expect(installMissing(["/usr/sbin/haproxy", "/usr/sbin/ip", "/usr/bin/openssl"])).toBeUndefined();
    directory = temporaryDirectory();
    chmodSync(directory.path, 0o755);
    lan = makeLan(["proxy", "one", "two", "three", "database-1", "database-2"]);
  }, 180_000);
  afterAll(() => {
    lan.remove();
    directory[Symbol.dispose]();
  });

  const socketOf = (host: Host) => join(directory.path, host.name);
  const pathOf = (name: string) => join(directory.path, `${name}.log`);
  const log = (name: string) => openSync(pathOf(name), "a");

  function writeSettings(host: Host): void {
    const data = join(socketOf(host), "data");
    const own = `unix_socket_directories = '${socketOf(host)}'\nfsync = off\nlog_connections = on\n`;
    writeFileSync(join(data, "postgresql.conf"), own + block("listen_addresses"));
    writeFileSync(join(data, "pg_hba.conf"), `local all all trust\n${block("host overlay")}\n`);
  }

  async function startDatabase(host: Host): Promise<Bun.Subprocess> {
    const argv = [...asPostgres, `${programs}/postgres`, "-D", join(socketOf(host), "data")];
    const child = host.spawn(argv, { stdout: log(host.name) });
    await until(async () => sql(host, "SELECT 1") === "1");
    return child;
  }

  function sql(host: Host, statements: string): string | undefined {
    const argv = ["psql", "-qtAX", "-U", "postgres", "-h", socketOf(host), "-d", "postgres"];
    const { exitCode, stdout } = Bun.spawnSync([...asPostgres, ...argv], {
      stdin: Buffer.from(statements),
      stderr: "ignore",
    });
    return exitCode === 0 ? stdout.toString().trim() : undefined;
  }

  function makePlace(host: Host): string {
    const place = socketOf(host);
    mkdirSync(place);
    giveToPostgres(place);
    return join(place, "data");
  }

  /** Both databases, the second one as the standby of the first. */
  async function startDatabases(): Promise<{ primary: Bun.Subprocess; standby: Host }> {
    const [first, second] = [lan.host("database-1"), lan.host("database-2")];
    const data = makePlace(first);
    runSync([
      ...asPostgres,
      `${programs}/initdb`,
      "-D",
      data,
      "-U",
      "postgres",
      "-A",
      "trust",
      "-E",
      "UTF8",
      "-N",
    ]);
    writeSettings(first);
    const primary = await startDatabase(first);
    // Commits wait for the standby, which is not there yet.
    const local = "SET synchronous_commit = local;\n";
    for (const line of block("CREATE ROLE overlay").trim().split("\n"))
      expect(sql(first, local + line)).toBeDefined();
    const copy = block("export PGPASSWORD=replicator-password").replace(
      "/var/lib/postgresql/15/main",
      makePlace(second),
    );
    second.run([...asPostgres, "/bin/sh", "-ec", `PATH=${programs}:$PATH\n${copy}`]);
    writeSettings(second);
    await startDatabase(second);
    await until(async () => sql(first, "SELECT sync_state FROM pg_stat_replication") === "sync");
    return { primary, standby: second };
  }

  async function startProxy(): Promise<string> {
    const host = lan.host("proxy");
    const place = join(directory.path, "haproxy");
    mkdirSync(place);
    const here = (text: string) => text.replaceAll("/etc/haproxy", place);
    writeFileSync(join(place, "haproxy.cfg"), here(block("global\n")));
    writeFileSync(join(place, "is-primary"), block("#!/bin/sh"), { mode: 0o755 });
    const [key, certificate] = [join(place, "key.pem"), join(place, "certificate.pem")];
    const subject = ["-subj", "/CN=control.example.org", "-addext", "subjectAltName=DNS:control.example.org"];
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    runSync(["openssl", "req", "-x509", ...curve, ...subject, "-keyout", key, "-out", certificate]);
    writeFileSync(join(place, "control.pem"), readFileSync(certificate, "utf8") + readFileSync(key, "utf8"));
    host.spawn(["/usr/sbin/haproxy", "-db", "-f", join(place, "haproxy.cfg")], { stdout: log("haproxy") });
    return certificate;
  }

  /** The commands of the page on the server with this name, which systemd starts again when it ends. */
  function startServer(name: string): { kill(): void } {
    const host = lan.host(name);
    const data = join(directory.path, name);
    const words = block("agent serve").trim().split(" ").slice(1);
    const own = words.map((word) =>
      word === "192.0.2.2:8420"
        ? `${host.address}:8420`
        : word.replace("/var/lib/overlay-agent/server", data).replace("/etc", directory.path),
    );
    const ended = new AbortController();
    let child: Bun.Subprocess | undefined;
    const keep = async () => {
      while (!ended.signal.aborted) {
        child = host.spawn([agent, ...own], { stdout: log(name) });
        await child.exited;
        await Bun.sleep(1000);
      }
    };
    void keep();
    return {
      kill() {
        ended.abort();
        child?.kill("SIGKILL");
      },
    };
  }

  const logOf = (name: string) => readFileSync(pathOf(name), "utf8");
  const proxyLog = () => logOf("haproxy");

  /** A check-in of the node from the proxy's machine. `to`: the origin, after flags of curl. */
  async function checkin(to: readonly string[], { version = 0, waitS = 0 } = {}) {
    const headers = [
      `Authorization: Bearer ${tokenOf(1)}`,
      "Content-Type: application/json",
      "Host: control.example.org",
      ...(waitS === 0 ? [] : [`Prefer: wait=${waitS}`]),
    ].flatMap((each) => ["-H", each]);
    const body = JSON.stringify({ version: "0.1.0", uptime: 1, config_version: version });
    const url = `${to.at(-1)}${paths.checkin(slug, 1)}`;
    const argv = ["curl", "-s", ...to.slice(0, -1), ...headers, "-d", body, "-w", "\\n%{http_code}", url];
    const child = Bun.spawn(lan.host("proxy").inside(argv), { stdout: "pipe", stderr: "ignore" });
    const [answer = "", status = ""] = (await new Response(child.stdout).text()).split("\n");
    return { status, version: Number(/"config_version":(\d+)/.exec(answer)?.[1]) };
  }

  /** A machine without network closes no connection. */
  async function expectPollsToBreak(proxied: readonly string[]): Promise<void> {
    await until(async () => /Server servers\/three is UP/.test(proxyLog()));
    const { version } = await checkin(proxied);
    const ended: string[] = [];
    const polls = Array.from({ length: 6 }, async () =>
      ended.push((await checkin(proxied, { version, waitS: 25 })).status),
    );
    await Bun.sleep(2000);
    expect(ended).toEqual([]);
    const begun = performance.now();
    lan.host("three").link("down");
    await until(async () => ended.length > 0);
    // None of them ends by itself so soon.
    expect(performance.now() - begun).toBeLessThan(15_000);
    expect(ended).toContain("502");
    lan.host("three").link("up");
    await Promise.all(polls);
  }

  test("a server and then the primary database are killed: nothing acknowledged is lost", async () => {
    let isDone = false;
    onTestFinished(() => {
      if (isDone) return;
      for (const name of ["haproxy", "one", "two", "three"])
        process.stderr.write(`-- ${name}\n${existsSync(pathOf(name)) ? logOf(name).slice(-4000) : ""}\n`);
    });
    const { primary, standby } = await startDatabases();
    const certificate = await startProxy();
    const url = block("postgres://").trim();
    const file = join(directory.path, "overlay-agent-database");
    writeFileSync(file, `${url}\n`, { mode: 0o600 });
    const first = join(directory.path, "one");
    const socket = encodeURIComponent(socketOf(lan.host("database-1")));
    const { admin } = await seed(
      { dataDirectory: first, databaseUrl: `postgres://overlay@localhost/overlay?host=${socket}` },
      1,
    );
    for (const name of ["two", "three"]) {
      mkdirSync(join(directory.path, name), { mode: 0o700 });
      copyFileSync(join(first, "secret.key"), join(directory.path, name, "secret.key"));
    }
    const proxy = lan.host("proxy");
    const succeeds = (argv: readonly string[]) =>
      Bun.spawnSync(proxy.inside(argv), { stdout: "ignore", stderr: "ignore" }).exitCode === 0;
    // Until its checks have failed twice, HAProxy takes the standby for a primary.
    await until(async () => /database-2 is DOWN/.test(proxyLog()));
    const servers = ["one", "two", "three"].map(startServer);
    const groups = `https://control.example.org/api/org/${slug}/groups/`;
    const curl = [
      "curl",
      "-sS",
      "--fail",
      "--cacert",
      certificate,
      "--resolve",
      "control.example.org:443:192.0.2.1",
    ];
    const proxied = [...curl.slice(1), "https://control.example.org"];
    const authorized = ["-H", `Authorization: Bearer ${admin}`];
    await until(async () => succeeds([...curl, ...authorized, groups]));

    const output = join(directory.path, "acknowledged");
    const program = join(import.meta.dir, "../support/write-groups.ts");
    const writer = proxy.spawn(
      [process.execPath, program, groups.replace("control.example.org", "192.0.2.1"), admin, certificate],
      { stdout: openSync(output, "a") },
    );
    const acknowledged = () => readFileSync(output, "utf8").split("\n").slice(0, -1);
    const goesOn = async () => {
      const before = acknowledged().length;
      await until(async () => acknowledged().length > before + 20);
    };
    await goesOn();
    await expectPollsToBreak(proxied);
    servers[1]?.kill();
    await goesOn();
    servers[1] = startServer("two");
    // Each server knows the node.
    for (const at of [2, 3, 4])
      await until(async () => (await checkin([`http://192.0.2.${at}:8420`])).status === "200");
    // Once before the servers were started.
    const withoutDatabase = () => proxyLog().split("backend 'servers' has no server available").length;
    const before = withoutDatabase();
    // Nothing answers any more, and nothing refuses.
    lan.host("database-1").link("down");
    primary.kill("SIGKILL");
    await until(async () => sql(lan.host("database-1"), "SELECT 1") === undefined);
    await until(async () => withoutDatabase() > before);
    const answers = [];
    for (let at = 0; at < 6; at++) answers.push((await checkin(proxied)).status);
    expect(answers).toEqual(Array.from({ length: 6 }, () => "200"));
    for (const line of block("ALTER SYSTEM").trim().split("\n")) expect(sql(standby, line)).toBeDefined();
    await goesOn();
    // The mistake that the page warns of: the former primary, as it was.
    lan.host("database-1").link("up");
    const [former, logged] = [logOf("database-1").length, proxyLog().length];
    await startDatabase(lan.host("database-1"));
    // Checks of both databases ask it for its timeline.
    const checks = () =>
      logOf("database-1")
        .slice(former)
        .match(/connection authorized: user=overlay/g)?.length ?? 0;
    await until(async () => checks() >= 8);
    await goesOn();
    expect(proxyLog().slice(logged)).not.toContain("database-1 is UP");
    writer.kill("SIGTERM");
    await writer.exited;

    const lines = acknowledged();
    expect(lines.filter((line) => line.startsWith("!"))).toEqual([]);
    const stored = sql(standby, "\\c overlay\nSELECT name FROM node_groups")?.split("\n") ?? [];
    expect(lines.filter((name) => !stored.includes(name))).toEqual([]);
    const list = ["admin", "server", "list", "--json", "--data-dir", first, "--database-url-file", file];
    await until(
      async () =>
        (
          lan
            .host("one")
            .run([agent, ...list])
            .match(/"running":true/g) ?? []
        ).length === 3,
    );
    isDone = true;
  }, 180_000);
});
