// The lock of an organization's directory between real processes: one at a time, the holder named, a dead one's taken over.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { withLock } from "../../../src/node/files/lock.ts";
import { realSystem } from "../../../src/system.ts";
import { rejection } from "../../pki/thrown.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const source = join(import.meta.dir, "../../../src");
let directory: ReturnType<typeof temporaryDirectory>;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => directory[Symbol.dispose]());

/** Another process that takes the lock, and holds it until it is killed. */
async function startHolder(command: string): Promise<Bun.Subprocess> {
  const script = `
    const { withLock } = await import("${source}/node/files/lock.ts");
    const { realSystem } = await import("${source}/system.ts");
    await withLock(${JSON.stringify(directory.path)}, ${JSON.stringify(command)}, realSystem(), async () => {
      process.stdout.write("held");
      await new Promise((resolve) => setTimeout(resolve, 600_000));
    });`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "inherit" });
  await child.stdout.getReader().read();
  return child;
}

test("the second says who holds it, after 15 s; and is in when the first was killed", async () => {
  const holder = await startHolder("agent sync-config");
  let waitedMs = 0;
  const hurried = {
    sleep: async (ms: number) => {
      waitedMs += ms;
    },
  };
  const error = await rejection(withLock(directory.path, "second", hurried, async () => 1));
  expect(waitedMs).toBe(15_000);
  expect(error.exitStatus).toBe(1);
  expect(error.message).toBe(
    `Another run works on this organization: agent sync-config (process ${holder.pid})`,
  );
  holder.kill("SIGKILL");
  await holder.exited;
  expect(await withLock(directory.path, "second", realSystem(), async () => "in")).toBe("in");
  expect(readdirSync(directory.path)).toEqual([]);
});

/** Takes the lock again and again, and is killed while it holds it one time in three: the next takes it over. */
function startMortal(): Bun.Subprocess {
  const script = `
    const { withLock } = await import("${source}/node/files/lock.ts");
    const { closeSync, openSync, rmSync } = await import("node:fs");
    const inside = ${JSON.stringify(join(directory.path, "inside"))};
    for (;;) {
      await withLock(${JSON.stringify(directory.path)}, "mortal", { sleep: () => Bun.sleep(0) }, async () => {
        closeSync(openSync(inside, "wx"));
        await Bun.sleep(1);
        rmSync(inside);
        if (Math.random() < 1 / 3) process.kill(process.pid, "SIGKILL");
      });
    }`;
  return Bun.spawn([process.execPath, "-e", script], { stderr: "inherit" });
}

test("many at a lock whose holders die take it over one at a time", async () => {
  let deaths = 0;
  const mourned = async () => {
    while (deaths < 40) {
      const mortal = startMortal();
      await mortal.exited;
      // It would be 1 where it found another inside.
      expect(mortal.signalCode).toBe("SIGKILL");
      deaths++;
    }
  };
  await Promise.all(Array.from({ length: 6 }, mourned));
  expect(await withLock(directory.path, "last", realSystem(), async () => "in")).toBe("in");
  expect(readdirSync(directory.path)).toEqual([]);
});

test("it ends with the work, also where that fails", async () => {
  const work = async () => {
    expect(JSON.parse(readFileSync(join(directory.path, "lock"), "utf8"))).toMatchObject({
      pid: process.pid,
    });
    throw new Error("failed");
  };
  expect(await withLock(directory.path, "work", realSystem(), work).catch(String)).toBe("Error: failed");
  expect(existsSync(join(directory.path, "lock"))).toBe(false);
});

test("it removes no lock of another that lies there by now", async () => {
  const path = join(directory.path, "lock");
  const another = JSON.stringify({ pid: process.pid, started: "another boot:1", command: "x" });
  await withLock(directory.path, "mine", realSystem(), async () => writeFileSync(path, another));
  expect(readFileSync(path, "utf8")).toBe(another);
});

test("of many at once one is in at a time", async () => {
  let inside = 0;
  let most = 0;
  const work = async () => {
    most = Math.max(most, ++inside);
    await Bun.sleep(2);
    inside--;
  };
  await Promise.all(Array.from({ length: 8 }, () => withLock(directory.path, "one", realSystem(), work)));
  expect(most).toBe(1);
});

test("a number that another process has by now holds nothing, nor does what is damaged", async () => {
  const path = join(directory.path, "lock");
  const stale = JSON.stringify({ pid: process.ppid, started: "another boot:1", command: "x" });
  /** What whoever removes the stale one holds meanwhile. */
  const claim = `${path}.${Bun.hash(stale).toString(36)}`;
  for (const [lock, claimed] of [[stale], ["{"], [""], [stale, stale], [stale, "{"], [stale, ""]] as const) {
    writeFileSync(path, lock);
    if (claimed !== undefined) writeFileSync(claim, claimed);
    expect(await withLock(directory.path, "mine", realSystem(), async () => 1)).toBe(1);
    expect(readdirSync(directory.path)).toEqual([]);
  }
});
