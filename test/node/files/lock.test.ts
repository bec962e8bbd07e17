// The lock of an organization's directory between real processes: exclusive, names its holder, ends with its process.

import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { withLock } from "../../../src/node/files/lock.ts";
import { identifyProcess } from "../../../src/platform/process-identity.ts";
import { realSystem } from "../../../src/base/system.ts";
import { rejection } from "../../pki/thrown.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const source = join(import.meta.dir, "../../../src");
let directory: ReturnType<typeof temporaryDirectory>;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => directory[Symbol.dispose]());

/** Another process that holds the lock until it is killed. */
async function startHolder(command: string): Promise<Bun.Subprocess> {
  const script = `
    const { withLock } = await import("${source}/node/files/lock.ts");
    const { realSystem } = await import("${source}/base/system.ts");
    await withLock(${JSON.stringify(directory.path)}, ${JSON.stringify(command)}, realSystem(), async () => {
      process.stdout.write("held");
      await new Promise((resolve) => setTimeout(resolve, 600_000));
    });`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "inherit" });
  await child.stdout.getReader().read();
  return child;
}

test("a second process fails after 15 s naming the holder, and gets the lock after its end", async () => {
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
    `Another command is changing this organization: agent sync-config (process ${holder.pid})`,
  );
  const update = { path: join(directory.path, "lock"), doing: "updating the agent on this machine" };
  const other = await rejection(withLock(directory.path, "second", hurried, async () => 1, update));
  expect(other.message).toBe(
    `Another command is updating the agent on this machine: agent sync-config (process ${holder.pid})`,
  );
  holder.kill("SIGKILL");
  await holder.exited;
  expect(await withLock(directory.path, "second", realSystem(), async () => "in")).toBe("in");
  expect(readdirSync(directory.path)).toEqual([]);
});

/** Takes the lock repeatedly and is killed in one of three cases while it holds it. */
function startMortal(): Bun.Subprocess {
  const script = `
    const { withLock } = await import("${source}/node/files/lock.ts");
    const { closeSync, openSync, rmSync } = await import("node:fs");
    const inside = ${JSON.stringify(join(directory.path, "inside"))};
    for (;;) {
      await withLock(${JSON.stringify(directory.path)}, "mortal", { sleep: () => Bun.sleep(1) }, async () => {
        closeSync(openSync(inside, "wx"));
        await Bun.sleep(1);
        rmSync(inside);
        if (Math.random() < 1 / 3) process.kill(process.pid, "SIGKILL");
      });
    }`;
  return Bun.spawn([process.execPath, "-e", script], { stderr: "inherit" });
}

test("many processes take over the lock of killed holders one at a time", async () => {
  let deaths = 0;
  const mourned = async () => {
    while (deaths < 40) {
      const mortal = startMortal();
      await mortal.exited;
      // The exit status is 1 if another process was inside.
      expect(mortal.signalCode).toBe("SIGKILL");
      deaths++;
    }
  };
  await Promise.all(Array.from({ length: 6 }, mourned));
  expect(await withLock(directory.path, "last", realSystem(), async () => "in")).toBe("in");
  expect(readdirSync(directory.path)).toEqual([]);
});

test("lock is released after the work, also after a failure", async () => {
  const work = async () => {
    expect(JSON.parse(readFileSync(join(directory.path, "lock"), "utf8"))).toMatchObject({
      pid: process.pid,
    });
    throw new Error("failed");
  };
  expect(await withLock(directory.path, "work", realSystem(), work).catch(String)).toBe("Error: failed");
  expect(existsSync(join(directory.path, "lock"))).toBe(false);
});

test("lock of another process is not removed", async () => {
  const path = join(directory.path, "lock");
  await withLock(directory.path, "mine", realSystem(), async () => {
    rmSync(path);
    writeFileSync(path, "another's");
  });
  expect(readFileSync(path, "utf8")).toBe("another's");
});

test("lock works for a process with another boot id and process namespace", async () => {
  using _ = { [Symbol.dispose]: () => holder.kill("SIGKILL") };
  const holder = await startHolder("agent sync-config");
  const path = join(directory.path, "lock");
  writeFileSync(path, readFileSync(path, "utf8").replace(/"started":"[^"]*"/, '"started":"another boot:1"'));
  const hurried = { sleep: async () => {} };
  const error = await rejection(withLock(directory.path, "second", hurried, async () => 1));
  expect(error.code).toBe("busy");
});

test("a waiting process fails with conflict when the directory is removed", async () => {
  const inner = join(directory.path, ".acme.pending");
  mkdirSync(inner);
  const first = withLock(inner, "register", realSystem(), async () => {
    await Bun.sleep(20);
    renameSync(inner, join(directory.path, "acme"));
  });
  const second = rejection(withLock(inner, "register", realSystem(), async () => 1));
  await first;
  expect((await second).code).toBe("conflict");
});

/** The lock of version 0.1.0: the file itself, while its process lives. */
const former = (pid: number) =>
  JSON.stringify({ ...identifyProcess(pid), pid, command: "agent register", id: crypto.randomUUID() });

test("lock of a running version 0.1.0 is respected, and of an ended one taken over", async () => {
  const path = join(directory.path, "lock");
  const child = Bun.spawn(["sleep", "600"]);
  writeFileSync(path, former(child.pid));
  const hurried = { sleep: async () => {} };
  const error = await rejection(withLock(directory.path, "mine", hurried, async () => 1));
  expect(error.message).toContain(`agent register (process ${child.pid})`);
  child.kill();
  await child.exited;
  for (const left of [`${path}.123`, `${path}.abc12`]) {
    writeFileSync(left, "");
    utimesSync(left, new Date(0), new Date(0));
  }
  expect(await withLock(directory.path, "mine", realSystem(), async () => 1)).toBe(1);
  expect(readdirSync(directory.path)).toEqual([]);
});

test("only one of many concurrent calls runs at a time", async () => {
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

test("a reused process number and a damaged file are not locks", async () => {
  const path = join(directory.path, "lock");
  const stale = JSON.stringify({ pid: process.ppid, started: "another boot:1", command: "x", id: "y" });
  for (const lock of [stale, "{", ""]) {
    writeFileSync(path, lock);
    expect(await withLock(directory.path, "mine", realSystem(), async () => 1)).toBe(1);
    expect(readdirSync(directory.path)).toEqual([]);
  }
});
