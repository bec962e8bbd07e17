// The same command several times concurrently, as a timer, a user and a script may run it: one registration, and every
// synchronization succeeds.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { makeOrganization, tryRegister, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory.path, "server"));
  acme = await makeOrganization(plane);
}, 60_000);

afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

const six = <T>(work: (at: number) => Promise<T>) =>
  Promise.all(Array.from({ length: 6 }, (_, at) => work(at)));

test("six concurrent registrations make one node, one directory, one use of the token; then six of the others", async () => {
  const root = join(directory.path, "node");
  mkdirSync(root);
  const token = await acme.makeToken(["--uses", "1"]);
  const results = await six(() => tryRegister(acme, root, "one", token));
  const said = results.map(({ status, stdout }) => `${status} ${stdout}`);
  expect(said.filter((each) => each.startsWith("0 "))).not.toEqual([]);
  for (const each of said) expect(each).toMatch(/^0 |"code":"(conflict|busy)"/);
  expect(readdirSync(root)).toEqual(["acme"]);
  const listed = await acme.api("GET", paths.nodes("acme"));
  expect(v.parse(v.array(v.object({ name: v.string() })), await listed.json())).toHaveLength(1);
  const here = ["--config-root", root, "--json"];
  expect((await six(() => runAgent(["checkin", ...here]))).map(({ status }) => status)).toEqual([
    0, 0, 0, 0, 0, 0,
  ]);

  await acme.api("POST", "/api/org/acme/groups/", { name: "a" });
  expect((await acme.api("PATCH", paths.node("acme", 1), { groups: ["a"] })).status).toBe(200);
  const before = readFileSync(join(root, "acme/host.crt"), "utf8");
  const synced = await six((at) => runAgent([at % 2 === 0 ? "sync-config" : "check-auth", ...here]));
  expect(
    synced.map(({ status, stdout }) => `${status} ${stdout}`).filter((each) => !each.startsWith("0 ")),
  ).toEqual([]);
  expect(synced.filter(({ stdout }) => stdout.includes('"changed"')).length).toBeLessThanOrEqual(1);
  expect(readFileSync(join(root, "acme/host.crt"), "utf8")).not.toBe(before);
  expect(readdirSync(join(root, "acme")).includes("lock")).toBe(false);
}, 120_000);
