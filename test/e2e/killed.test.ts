// `register`, `sync-config` and `overlay update` are killed at up to 200 times: each leaves the old state or the new one,
// never a mixture, and the next run succeeds. A registration leaves one node and one use of its token; a proxy produces
// its most critical moments.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import {
  agent,
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { openChannel, packEngine } from "../support/engine-channel.ts";
import { engines, missing } from "../support/engines.ts";
import { inCi } from "../support/debian.ts";
import { makeOrganization, registerArguments, registerNode, type Organization } from "../support/overlay.ts";
import { instants, inFull } from "../support/soak.ts";
import { sha256Hex } from "../../src/base/sha256.ts";

if (inCi && missing !== undefined) throw new Error(missing);

const directory = mkdtempSync(join(tmpdir(), "agent-test-"));
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory, "server"));
  acme = await makeOrganization(plane);
});

afterAll(async () => {
  await plane.stop();
  rmSync(directory, { recursive: true, force: true });
});

function startQuietly(words: readonly string[]): Bun.Subprocess {
  return Bun.spawn([agent, ...words], { env: cleanEnvironment(), stdio: ["ignore", "ignore", "ignore"] });
}

function startRegister(url: string, root: string, name: string, token: string): Bun.Subprocess {
  const args = registerArguments({ slug: "acme", plane: { url } }, root, name);
  return Bun.spawn([agent, ...args], {
    env: cleanEnvironment(),
    stdin: new Blob([token]),
    stdout: "ignore",
    stderr: "ignore",
  });
}

/** After a kill, the second run completes the first one. */
async function finishes(name: string, root: string, token: string): Promise<void> {
  expect(
    readdirSync(root)
      .filter((entry) => !entry.startsWith("."))
      .every((entry) => entry === "acme"),
  ).toBe(true);
  if (!readdirSync(root).includes("acme")) await registerNode(acme, root, name, token);
  expect(readdirSync(root)).toEqual(["acme"]);
  const listed = await acme.api("GET", `${paths.nodes("acme")}?search=${name}`);
  const nodes = v.parse(v.array(v.object({ name: v.string() })), await listed.json());
  expect(nodes.filter((node) => node.name === name)).toHaveLength(1);
  // The stored token works.
  expect((await runAgent(["checkin", "--config-root", root])).status).toBe(0);
}

for (const moment of ["before the request arrives", "after it is done, before the answer"] as const) {
  test(`killed ${moment}`, async () => {
    const name = moment.startsWith("before") ? "early" : "late";
    const root = mkdtempSync(join(directory, `${name}-`));
    const token = await acme.makeToken(["--uses", "1"]);
    const dead = Promise.withResolvers<void>();
    using proxy = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      async fetch(request) {
        const path = new URL(request.url).pathname;
        const forward = async () =>
          fetch(plane.url + path, {
            method: request.method,
            headers: request.headers,
            body: await request.text(),
          });
        if (path !== paths.register("acme")) return forward();
        if (name === "late") await forward();
        dead.resolve();
        return new Promise<Response>(() => {});
      },
    });
    const child = startRegister(`http://127.0.0.1:${proxy.port}`, root, name, token);
    await dead.promise;
    child.kill("SIGKILL");
    await child.exited;
    await finishes(name, root, token);
  }, 30_000);
}

/** The time of one complete run, plus a third: the kills are spread over it. */
async function longest(run: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await run();
  return (performance.now() - from) * 1.33;
}

async function killAfter(ms: number, child: Bun.Subprocess): Promise<void> {
  await Promise.race([Bun.sleep(ms), child.exited]);
  child.kill("SIGKILL");
  await child.exited;
}

const kills = 200;

test(`register killed ${kills} times: one node, one directory, one use`, async () => {
  const whole = mkdtempSync(join(directory, "whole-"));
  const first = await acme.makeToken();
  const longestMs = await longest(() => registerNode(acme, whole, "whole", first));
  for (const [at, ms] of instants(kills, longestMs).entries()) {
    const name = `sweep-${at}`;
    const root = mkdtempSync(join(directory, `${name}-`));
    const token = await acme.makeToken(["--uses", "1"]);
    await killAfter(ms, startRegister(plane.url, root, name, token));
    await finishes(name, root, token);
  }
}, 600_000);

test(`sync-config killed ${kills} times: old files or new ones, and the next run succeeds`, async () => {
  const root = mkdtempSync(join(directory, "sync-"));
  const { node_id: id } = await registerNode(acme, root, "sync", await acme.makeToken());
  const of = join(root, "acme");
  for (const name of ["even", "odd"]) await acme.api("POST", "/api/org/acme/groups/", { name });
  const regroup = (name: string) => acme.api("PATCH", paths.node("acme", id), { groups: [name] });
  const words = ["sync-config", "--config-root", root];
  await regroup("odd");
  const longestMs = await longest(() => runAgent(words));
  const met = { old: 0, new: 0 };
  for (const [at, ms] of instants(kills, longestMs).entries()) {
    const before = readlinkSync(join(of, "current"));
    await regroup(at % 2 === 0 ? "even" : "odd");
    await killAfter(ms, startQuietly(words));
    const generation = readlinkSync(join(of, "current"));
    met[generation === before ? "old" : "new"]++;
    for (const name of ["config.yml", "ca.crt", "host.crt", "node.crt", "node-config.json"]) {
      expect(readlinkSync(join(of, name))).toBe(`current/${name}`);
      expect(readFileSync(join(of, generation, name), "utf8")).toEndWith("\n");
    }
    const next = await runAgent([...words, "--json"]);
    expect(`${at}: ${next.status} ${next.stdout}`).toMatch(/^\d+: 0 .*"(changed|same)"/);
    if (generation === before) expect(readlinkSync(join(of, "current"))).not.toBe(before);
  }
  // Both must happen, or the times of the kills are not useful.
  expect(met.old).toBeGreaterThan(0);
  if (inFull) expect(met.new).toBeGreaterThan(0);
}, 600_000);

const [older, newer] = engines;
test.skipIf(older === undefined || newer === undefined)(
  `overlay update killed ${kills} times: old engine or new one, and the next run succeeds`,
  async () => {
    if (older === undefined || newer === undefined) return;
    using channel = openChannel();
    for (const engine of [older, newer]) channel.publish(engine.version, packEngine(directory, engine));
    const place = mkdtempSync(join(directory, "overlay-"));
    const overlay = join(place, "overlay");
    const sum = (path: string) => sha256Hex(readFileSync(path));
    const sums = { [older.version]: sum(older.nebula), [newer.version]: sum(newer.nebula) };
    const words = (version: string) => {
      const from = ["--source", "release", "--release-url", channel.url, "--version", version];
      return ["overlay", "update", ...from, "--overlay-binary", overlay, "--config-root", place];
    };
    copyFileSync(older.nebula, overlay);
    const longestMs = await longest(() => runAgent(words(newer.version)));
    const met = { old: 0, new: 0 };
    for (const [at, ms] of instants(kills, longestMs).entries()) {
      const before = sum(overlay);
      const { version } = at % 2 === 0 ? older : newer;
      await killAfter(ms, startQuietly(words(version)));
      const after = sum(overlay);
      expect(`${at}: ${[before, sums[version]].includes(after)}`).toEndWith("true");
      met[after === before ? "old" : "new"]++;
      const next = await runAgent([...words(version), "--json"]);
      expect(`${at}: ${next.status} ${next.stdout}`).toMatch(/^\d+: 0 /);
      expect(sum(overlay)).toBe(sums[version] ?? "");
      expect(readdirSync(place).sort()).toEqual(["overlay", "overlay.old"]);
    }
    expect(met.old).toBeGreaterThan(0);
    if (inFull) expect(met.new).toBeGreaterThan(0);
  },
  600_000,
);
