// A full or broken disk at any write or fsync of register, sync-config and overlay update gives a clear message and
// leaves either the complete old state or the complete new one. strace injects the failures into system calls.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
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
import { inCi, installMissing } from "../support/debian.ts";
import { engines } from "../support/engines.ts";
import { makeOrganization, registerArguments, registerNode, type Organization } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { sha256Hex } from "../../src/base/sha256.ts";

const missing = installMissing();
if (missing !== undefined && inCi) throw new Error(missing);

const directory = temporaryDirectory();
let plane: ControlPlane;
let acme: Organization;
let token: string;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory.path, "server"));
  acme = await makeOrganization(plane);
  token = await acme.makeToken(["--uses", "500"]);
}, 240_000);

afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

const generation = [
  "ca.crt",
  "host.crt",
  "node.crt",
  "config.yml",
  "node-config.json",
  "server.yml",
  "sync.json",
];

/** The paths that the product writes, for strace -P; not standard output. */
function files(of: string, number: number): string[] {
  const inside = generation.map((name) => `${of}/generations/${number}/${name}`);
  return ["host.key", "node.key"]
    .map((name) => `${of}/${name}`)
    .concat(inside, `${of}/generations/${number}/test.yml`);
}

type Fault = { call: "write" | "fsync"; error: "ENOSPC" | "EIO"; nth: number };

/** Runs the command with one failing system call; `hit` is false if there were fewer calls. */
async function runWith(fault: Fault, of: readonly string[], words: readonly string[], input = "") {
  const trace = join(directory.path, "trace");
  const only = fault.call === "write" ? of.flatMap((path) => ["-P", path]) : [];
  const inject = `inject=${fault.call}:error=${fault.error}:when=${fault.nth}`;
  const child = Bun.spawn(
    [
      "/usr/bin/strace",
      "-f",
      "-qq",
      "-o",
      trace,
      "-e",
      `trace=${fault.call}`,
      "-e",
      inject,
      ...only,
      agent,
      ...words,
      "--json",
    ],
    {
      env: cleanEnvironment(),
      stdin: new Blob([input]),
      stdout: "pipe",
      stderr: "ignore",
    },
  );
  const [stdout, status] = await Promise.all([new Response(child.stdout).text(), child.exited]);
  return { status, stdout, hit: readFileSync(trace, "utf8").includes("(INJECTED)") };
}

/** Names for a new engine: they contain the id of a future process, one of the next ones. */
function candidates(place: string): string[] {
  const last = Number(readFileSync("/proc/loadavg", "utf8").trim().split(" ").at(-1));
  return Array.from({ length: 300 }, (_, at) => join(place, `.overlay.new.${last + at}`));
}

const faults: Omit<Fault, "nth">[] = (["write", "fsync"] as const).flatMap((call) =>
  (["ENOSPC", "EIO"] as const).map((error) => ({ call, error })),
);
const most = 50;

/** The calls that fail: each one, with one of the two errors, and in long runs with both. */
function calls(error: Fault["error"]): number[] {
  const all = Array.from({ length: most }, (_, at) => at + 1);
  return inFull ? all : all.filter((nth) => nth % 2 === (error === "ENOSPC" ? 1 : 0));
}
/** At least so many calls must have failed. */
const enough = inFull ? 5 : 2;

/** Checks that all files are of one generation, and that the engine's files exist. */
function isWhole(of: string): boolean {
  const names = [
    "host.key",
    "node.key",
    "credentials.json",
    "config.yml",
    "ca.crt",
    "host.crt",
    "node.crt",
    "node-config.json",
  ];
  return names.every(
    (name) => existsSync(join(of, name)) && readFileSync(join(of, name), "utf8").endsWith("\n"),
  );
}

for (const { call, error } of faults) {
  test.skipIf(missing !== undefined)(
    `register, ${error} at each ${call}`,
    async () => {
      let met = 0;
      for (const nth of calls(error)) {
        const name = `${call}-${error}-${nth}`.toLowerCase();
        const root = join(directory.path, name);
        mkdirSync(root);
        const words = registerArguments(acme, root, name);
        const { status, stdout, hit } = await runWith(
          { call, error, nth },
          files(join(root, ".acme.pending"), 1),
          words,
          token,
        );
        if (!hit) {
          expect(status).toBe(0);
          break;
        }
        met++;
        expect(`${nth}: ${status} ${stdout}`).toMatch(
          error === "ENOSPC"
            ? /: 1 \{"error":\{"code":"disk_full"/
            : /: 1 \{"error":\{"code":"failed","message":"Cannot /,
        );
        const present = readdirSync(root);
        if (present.includes("acme")) expect(isWhole(join(root, "acme"))).toBe(true);
        else await registerNode(acme, root, name, token);
        expect(readdirSync(root)).toEqual(["acme"]);
        const listed = await acme.api("GET", `${paths.nodes("acme")}?search=${name}`);
        const nodes = v.parse(v.array(v.object({ name: v.string() })), await listed.json());
        expect(nodes.filter((node) => node.name === name)).toHaveLength(1);
      }
      expect(met).toBeGreaterThan(enough);
    },
    240_000,
  );

  test.skipIf(missing !== undefined)(
    `sync-config, ${error} at each ${call}`,
    async () => {
      const name = `sync-${call}-${error}`.toLowerCase();
      const root = join(directory.path, name);
      const { node_id: id } = await registerNode(acme, root, name, token);
      const of = join(root, "acme");
      let met = 0;
      for (const nth of calls(error)) {
        const group = `g${nth}-${name}`;
        await acme.api("POST", "/api/org/acme/groups/", { name: group });
        expect((await acme.api("PATCH", paths.node("acme", id), { groups: [group] })).status).toBe(200);
        const before = {
          number: Number(readlinkSync(join(of, "current")).split("/")[1]),
          config: readFileSync(join(of, "host.crt"), "utf8"),
        };
        const words = ["sync-config", "--config-root", root];
        const { status, stdout, hit } = await runWith(
          { call, error, nth },
          files(of, before.number + 1),
          words,
        );
        if (!hit) {
          expect(status).toBe(0);
          break;
        }
        met++;
        expect(`${nth}: ${status} ${stdout}`).toMatch(
          /: 1 .*"result":"failed","config_version":\d+,"reason":"Cannot /,
        );
        expect(isWhole(of)).toBe(true);
        const now = readFileSync(join(of, "host.crt"), "utf8");
        const isOld = now === before.config;
        if (!isOld) expect(readlinkSync(join(of, "current"))).toBe(`generations/${before.number + 1}`);
        const again = await runAgent(["sync-config", "--config-root", root, "--json"]);
        expect(`${again.status} ${again.stdout}`).toMatch(isOld ? /^0 .*"changed"/ : /^0 /);
        expect(readFileSync(join(of, "host.crt"), "utf8")).not.toBe(before.config);
      }
      expect(met).toBeGreaterThan(enough);
    },
    240_000,
  );

  test.skipIf(missing !== undefined || engines.length < 2)(
    `overlay update, ${error} at each ${call}`,
    async () => {
      const [older, newer] = engines;
      if (older === undefined || newer === undefined) return;
      const place = join(directory.path, `overlay-${call}-${error}`);
      mkdirSync(place);
      const overlay = join(place, "overlay");
      copyFileSync(older.nebula, overlay);
      const words = [
        "overlay",
        "update",
        "--file",
        newer.nebula,
        "--overlay-binary",
        overlay,
        "--config-root",
        place,
      ];
      const sums = [older, newer].map(({ nebula }) => sha256Hex(readFileSync(nebula)));
      let met = 0;
      for (let nth = 1; nth <= most; nth++) {
        const { status, stdout, hit } = await runWith({ call, error, nth }, candidates(place), words);
        if (!hit) {
          expect(status).toBe(0);
          break;
        }
        met++;
        expect(`${nth}: ${status} ${stdout}`).toMatch(
          error === "ENOSPC"
            ? /: 1 \{"error":\{"code":"disk_full"/
            : /: 1 \{"error":\{"code":"failed","message":"Cannot /,
        );
        expect(sums).toContain(sha256Hex(readFileSync(overlay)));
        expect(readdirSync(place).filter((name) => !/^overlay(\.old)?$/.test(name))).toEqual([]);
        expect((await runAgent(words)).status).toBe(0);
        expect(sha256Hex(readFileSync(overlay))).toBe(sums[1] ?? "");
        copyFileSync(older.nebula, overlay);
      }
      expect(met).toBeGreaterThan(0);
    },
    240_000,
  );
}
