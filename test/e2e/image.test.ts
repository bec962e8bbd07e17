// The image of the control plane: unpacked as a runtime does it, and run with what compose.yml says. Its root is read-only,
// and its user is not root.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chownSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { controlImage, makeImage } from "../../packaging/image.ts";
import { paths } from "../support/paths.ts";

import { seed, slug, tokenOf } from "../bench/seed.ts";
import { agent, buildAgent, root } from "../support/agent.ts";
import { cannotInstall, inCi, installMissing, runSync } from "../support/debian.ts";
import { freePort } from "../support/free-port.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const Bundle = v.object({
  process: v.object({
    args: v.array(v.string()),
    env: v.array(v.string()),
    user: v.object({ uid: v.number(), gid: v.number() }),
  }),
});
const Compose = v.object({
  services: v.object({
    control: v.object({
      command: v.array(v.string()),
      environment: v.record(v.string(), v.string()),
      volumes: v.array(v.string()),
      read_only: v.literal(true),
      tmpfs: v.array(v.string()),
      healthcheck: v.object({ test: v.array(v.string()) }),
    }),
  }),
});

const { user: imageUser } = controlImage("");
const reason = cannotInstall() ?? installMissing(["/usr/bin/umoci"]);
if (reason !== undefined && inCi) throw new Error(`image: ${reason}`);

describe.skipIf(reason !== undefined)("the image of the control plane", () => {
  const work = temporaryDirectory();
  const at = (name: string) => join(work.path, name);
  const compose = v.parse(Compose, Bun.YAML.parse(readFileSync(join(root, "packaging/compose.yml"), "utf8")));
  const { control } = compose.services;
  const [port, metrics] = [freePort(), freePort()];
  let settings: string[] = [];
  let args: string[] = [];

  beforeAll(() => {
    buildAgent();
    makeImage(at("image.tar"), controlImage(agent), { version: "0.2.0", timeS: 1_790_000_000 });
    mkdirSync(at("layout"));
    runSync(["tar", "-xf", at("image.tar"), "-C", at("layout")]);
    runSync(["umoci", "unpack", "--image", `${at("layout")}:0.2.0`, at("bundle")]);
    const { process: told } = v.parse(Bundle, JSON.parse(readFileSync(at("bundle/config.json"), "utf8")));
    expect(told.user).toEqual({ uid: imageUser, gid: imageUser });
    expect(told.args).toEqual(["/usr/bin/agent", ...control.command]);
    args = told.args.slice(0, 1);
    // The name of the example has no certificate here.
    const here = {
      AGENT_LISTEN: `127.0.0.1:${port}`,
      AGENT_METRICS_LISTEN: `127.0.0.1:${metrics}`,
      AGENT_TLS: "auto",
      AGENT_PUBLIC_URL: `https://127.0.0.1:${port}`,
    };
    const { AGENT_ACME_LISTEN: _, ...environment } = control.environment;
    settings = [
      ...told.env,
      ...Object.entries({ ...environment, ...here }).map(([key, value]) => `${key}=${value}`),
    ];
    mkdirSync(at("data"), { mode: 0o700 });
  }, 300_000);
  afterAll(() => work[Symbol.dispose]());

  /** Runs words in the image, as a runtime does: own mounts, a read-only root, the user of the image, its environment. */
  const inImage = (words: readonly string[]): string[] => {
    const place = at("bundle/rootfs");
    const mounts = [
      `mount --bind ${place} ${place}`,
      `mkdir -p ${place}/dev ${place}/proc`,
      ...["/dev", "/proc"].map((path) => `mount --rbind ${path} ${place}${path}`),
      `mount -o remount,ro,bind ${place}`,
      `mount --bind ${at("data")} ${place}/data`,
      ...control.tmpfs.map((path) => `mount -t tmpfs -o mode=1777 tmpfs ${place}${path}`),
      `exec chroot --userspec=${imageUser}:${imageUser} --groups= ${place} "$@"`,
    ];
    const script = mounts.join(" && ");
    return ["env", "-i", ...settings, "unshare", "--mount", "sh", "-c", script, "sh", ...args, ...words];
  };
  const run = (words: readonly string[]) =>
    Bun.spawnSync(inImage(words), { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const start = () =>
    Bun.spawn(inImage(control.command), { stdin: "ignore", stdout: "ignore", stderr: Bun.file(at("log")) });
  const health = () => run(control.healthcheck.test.slice(2)).exitCode;
  const untilHealthy = async () => {
    for (let tries = 0; health() !== 0; tries++) {
      if (tries === 100)
        throw new Error(`The control plane does not start\n${await Bun.file(at("log")).text()}`);
      await Bun.sleep(100);
    }
  };
  const heldCheckin = (node: number) =>
    fetch(`https://127.0.0.1:${port}${paths.checkin(slug, node)}`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${tokenOf(node)}`,
        "Content-Type": "application/json",
        Prefer: "wait=50",
      },
      body: JSON.stringify({ version: "0.1.0", uptime: 1, config_version: 1 }),
      tls: { rejectUnauthorized: false },
    });

  const untilHeld = async (count: number) => {
    for (let tries = 0; ; tries++) {
      const text = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
      if (text.includes(`long_polls_waiting ${count}\n`)) return;
      if (tries === 100) throw new Error(`Waited in vain for ${count} held check-ins\n${text}`);
      await Bun.sleep(100);
    }
  };

  test("it starts as its own user on a read-only root, is healthy, and SIGTERM loses no request", async () => {
    const count = 20;
    await seed({ dataDirectory: at("data") }, count);
    runSync(["chown", "-R", `${imageUser}:${imageUser}`, at("data")]);
    chownSync(at("data"), imageUser, imageUser);
    expect(health()).toBe(6);
    const child = start();
    await untilHealthy();
    expect(readFileSync(`/proc/${child.pid}/status`, "utf8")).toMatch(new RegExp(`Uid:\\s${imageUser}\\s`));
    expect(readFileSync(`/proc/${child.pid}/status`, "utf8")).toMatch(/CapEff:\s0{16}\n/);
    expect(statSync(at("data/control.db")).uid).toBe(imageUser);
    const admin = run(["admin", "org", "list", "--json"]);
    expect([admin.exitCode, admin.stdout.toString().includes(slug)]).toEqual([0, true]);
    // The server has all of them: a request that meets a connection that is just being closed may be reset.
    const held = Array.from({ length: count }, (_, index) => heldCheckin(index + 1));
    await untilHeld(count);
    child.kill("SIGTERM");
    const statuses = (await Promise.all(held)).map(({ status }) => status);
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect(await child.exited).toBe(0);
    expect(health()).toBe(6);
  }, 120_000);

  test("it holds only the executable, CA certificates, the C library and three small files", () => {
    const files = runSync(["find", at("bundle/rootfs"), "-xdev", "-type", "f", "-printf", "/%P\n"])
      .trim()
      .split("\n");
    const [others, libraries] = [
      files.filter((path) => !path.startsWith("/lib")),
      files.filter((path) => path.startsWith("/lib")),
    ];
    expect(others.sort()).toEqual([
      "/etc/group",
      "/etc/nsswitch.conf",
      "/etc/passwd",
      "/etc/ssl/certs/ca-certificates.crt",
      "/usr/bin/agent",
    ]);
    expect(libraries.length).toBeGreaterThan(1);
    expect(libraries.every((path) => /\/(ld-linux|lib(c|m|dl|pthread)\.so)/.test(path))).toBe(true);
    expect(control.volumes).toEqual(["control:/data"]);
  });

  test("the same executable gives the same bytes", () => {
    makeImage(at("again.tar"), controlImage(agent), { version: "0.2.0", timeS: 1_790_000_000 });
    runSync(["cmp", at("image.tar"), at("again.tar")]);
  }, 60_000);
});
