// The engine of a systemd unit. systemd and the journal are answers that are given here; the process is this one.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { realSystem, type System } from "../../../src/base/system.ts";
import { defaultPlaces } from "../../../src/brand.ts";
import { systemdEngine } from "../../../src/node/engine/systemd-engine.ts";

const directory = join(defaultPlaces("linux", {}).configRoot, "acme");

test("a read of the journal that fails is tried again: it ends neither the restart nor the process", async () => {
  const { sleep } = realSystem();
  const unhandled: unknown[] = [];
  const onUnhandled = (error: unknown) => void unhandled.push(error);
  process.on("unhandledRejection", onUnhandled);
  let reads = 0;
  const journal = () => {
    reads += 1;
    if (reads === 2) throw new Error("Cannot run /usr/bin/journalctl: too many open files");
    const line = reads === 1 ? "" : 'level=info msg="Nebula interface is active"\n';
    return `${line}-- cursor: s=${reads}\n`;
  };
  const run: System["run"] = async (argv) => {
    const answer = (stdout: string) => ({ status: 0, stdout, stderr: "", timedOut: false });
    if (argv[0]?.endsWith("journalctl") === true) return answer(journal());
    if (argv.includes("try-restart")) {
      await sleep(500);
      return answer("");
    }
    return answer(`MainPID=${process.pid}\nActiveState=active\n`);
  };
  await systemdEngine({ slug: "acme", directory }, { run, sleep, platform: "linux" }).restart();
  process.off("unhandledRejection", onUnhandled);
  expect(unhandled).toEqual([]);
  expect(reads).toBeGreaterThan(2);
});
