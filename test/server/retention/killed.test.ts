// A process that archives events is killed at random instants: no recorded event is lost, and the chain verifies from the
// first archive to the last event.

import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { verifyChains } from "../../../src/server/audit/verify.ts";
import { readPublicArchiveKey } from "../../../src/server/audit/archive-key.ts";
import { verifyArchives } from "../../../src/server/retention/verify-archives.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { makeRandom } from "../../support/random.ts";
import { inFull } from "../../support/soak.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const kills = inFull ? 200 : 15;
const secretKey = new Uint8Array(32).fill(7, 0, 9);
const program = join(import.meta.dir, "../../support/archiving.ts");

test("killed at any instant, no event is lost and the archives continue each other", async () => {
  using directory = temporaryDirectory();
  const random = makeRandom(20);
  const recorded = new Set<number>();
  for (let round = 0; round < kills; round++) {
    const child = Bun.spawn([process.execPath, program, directory.path], {
      stdout: "pipe",
      stderr: "inherit",
      timeout: 20_000,
      killSignal: "SIGKILL",
    });
    const enough = 20 + random() * 400;
    let text = "";
    for await (const chunk of child.stdout) {
      text += new TextDecoder().decode(chunk);
      if (text.length > enough) child.kill("SIGKILL");
    }
    await child.exited;
    for (const line of text.split("\n").slice(0, -1)) recorded.add(Number(line));
  }
  const db = await openSqlite({ path: join(directory.path, "control.db"), now: Date.now, role: "visitor" });
  const archive = join(directory.path, "archive");
  const kept = new Set((await db.all("SELECT id FROM events")).map((row) => Number(row["id"])));
  const paths = readdirSync(archive)
    .filter((name) => name.endsWith(".jsonl"))
    .map((name) => join(archive, name));
  for (const path of paths) {
    for (const line of readFileSync(path, "utf8").trim().split("\n").slice(2)) kept.add(JSON.parse(line).id);
  }
  expect([...recorded].filter((id) => !kept.has(id))).toEqual([]);
  const chains = await verifyChains(db, secretKey);
  expect(chains.map(({ breaks }) => breaks)).toEqual([[]]);
  const { verified } = verifyArchives(paths, chains, await readPublicArchiveKey(db, secretKey));
  // A kill between file and cut may leave one archive that nothing continues yet.
  const open = verified.filter(({ next }) => next === null);
  expect(open.length).toBeLessThanOrEqual(1);
  const chain = verified.filter(({ next }) => next !== null).toSorted((a, b) => a.first - b.first);
  expect(chain.length).toBeGreaterThan(kills);
  expect(chain.at(-1)?.next).toBe("the database");
  expect(chain.slice(1).every(({ first }, at) => first > (chain[at]?.last ?? 0))).toBe(true);
  await db.close();
}, 120_000);
