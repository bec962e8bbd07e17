// `agent unregister` where the file system keeps something: it removes the rest, and names what stays.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { initialHealing } from "../../../src/node/health/healing.ts";
import { savedHealthDirectory, writeSavedHealth } from "../../../src/node/health/saved-health.ts";
import { writeHealing } from "../../../src/node/health/saved-healing.ts";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../../support/node.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let world: NodeWorld;
beforeEach(async () => {
  world = await makeNodeWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

const setFlag = (flag: "+i" | "-i", ...paths: string[]): boolean =>
  Bun.spawnSync(["chattr", flag, ...paths], { stdout: "ignore", stderr: "ignore" }).success;

/** Only root can protect files from root, and not on every file system. */
function canProtect(): boolean {
  if (process.getuid?.() !== 0 || Bun.which("chattr") === null) return false;
  using directory = temporaryDirectory();
  const path = join(directory.path, "file");
  writeFileSync(path, "");
  return setFlag("+i", path) && setFlag("-i", path);
}

test.skipIf(!canProtect())(
  "unregister names each path that it could not remove, with the reason, and fails",
  async () => {
    await registerByCommand(world);
    const directory = join(world.root, "acme");
    mkdirSync(join(directory, "own"));
    writeFileSync(join(directory, "own/notes"), "x");
    const kept = ["host.key", "own/notes"];
    setFlag("+i", ...kept.map((name) => join(directory, name)));
    const gone = join(world.root, ".acme.removed");
    try {
      const { status, stderr, json } = await world.agent(["unregister", "--org-slug", "acme", "--json"]);
      expect([status, json]).toMatchObject([
        1,
        {
          org_slug: "acme",
          not_removed: expect.arrayContaining(
            kept.map((name) => ({ path: join(gone, name), reason: "permission denied" })),
          ),
        },
      ]);
      for (const name of kept)
        expect(stderr).toContain(`Could not remove ${join(gone, name)}: permission denied`);
      expect(stderr).toContain("Remove this by hand");
      // All else is gone, and the organization with it.
      expect(readdirSync(gone).sort()).toEqual(["host.key", "own"]);
      expect(existsSync(directory)).toBe(false);
      const again = await world.agent(["unregister", "--org-slug", "acme"]);
      expect([again.status, again.stderr]).toEqual([5, expect.stringContaining(gone)]);
    } finally {
      setFlag("-i", ...kept.map((name) => join(gone, name)));
    }
  },
);

/** What the checks of server mode write down is below /run. */
test.skipIf(process.getuid?.() !== 0 || process.platform !== "linux")(
  "unregister deletes what checks have seen of the node's peers",
  async () => {
    await registerByCommand(world);
    const directory = savedHealthDirectory(world.root, "linux");
    const clock = { now: Date.now, monotonic: () => 0 };
    try {
      writeSavedHealth(directory, "acme", { written_at: new Date().toISOString() });
      writeHealing(directory, "acme", { state: initialHealing, healings: [] }, clock);
      writeSavedHealth(directory, "other", { written_at: new Date().toISOString() });
      const plan = await world.agent(["unregister", "--org-slug", "acme", "--dry-run"]);
      expect(plan.stdout).toContain(join(directory, "acme.healing.json"));
      expect((await world.agent(["unregister", "--org-slug", "acme"])).status).toBe(0);
      expect(readdirSync(directory)).toEqual(["other.json"]);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  },
);

test("unregister deletes the keys of a registration that was not completed", async () => {
  const pending = join(world.root, ".acme.pending");
  mkdirSync(pending, { recursive: true, mode: 0o700 });
  writeFileSync(join(pending, "host.key"), "x", { mode: 0o600 });
  const plan = await world.agent(["unregister", "--org-slug", "acme", "--dry-run"]);
  expect([plan.status, plan.stdout]).toEqual([0, expect.stringContaining(pending)]);
  expect(existsSync(pending)).toBe(true);
  const { status, json } = await world.agent(["unregister", "--org-slug", "acme", "--json"]);
  expect([status, json]).toEqual([
    0,
    { org_slug: "acme", node_id: null, directory: pending, deleted: false },
  ]);
  expect(existsSync(pending)).toBe(false);
  expect((await world.agent(["unregister", "--org-slug", "acme"])).status).toBe(4);
});
