// `agent unregister` where the file system keeps something: it removes the rest, and names what stays.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeNodeWorld, registerByCommand, type NodeWorld } from "../support/node.ts";
import { temporaryDirectory } from "../support/temporary.ts";

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
