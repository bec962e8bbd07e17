// The scheduled task of Windows: its XML as libxml reads it, and the plans that install and remove it.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DaemonPlaces } from "../../../src/platform/daemon-args.ts";
import { taskInstallation, taskRemoval, taskXml } from "../../../src/platform/windows/task.ts";
import { pipeList } from "../../../src/platform/windows/access.ts";
import { inCi, installMissing, runSync } from "../../support/debian.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const xmllint = "/usr/bin/xmllint";
const missing = installMissing([xmllint]);
if (missing !== undefined && inCi) throw new Error(missing);

const places: DaemonPlaces & { executable: string } = {
  executable: "C:\\Program Files\\overlay-agent\\agent.exe",
  configRoot: "C:\\ProgramData\\overlay-agent\\",
  overlayBinary: "C:\\Program Files\\overlay-agent\\overlay.exe",
  stateDb: "C:\\ProgramData\\overlay-agent\\state.db",
  socketPath: "",
  pipeName: "\\\\.\\pipe\\overlay-agent.cmd",
  autostart: false,
};

/** The text of the one element of this name, as libxml reads it. */
function textOf(xml: string, name: string): string {
  using directory = temporaryDirectory();
  const path = join(directory.path, "task.xml");
  writeFileSync(path, xml);
  return runSync([xmllint, "--xpath", `string(//*[local-name()='${name}'])`, path]).trimEnd();
}

test.skipIf(missing !== undefined)("the XML contains the program and its arguments", () => {
  const plain = taskXml(places, {});
  expect(textOf(plain, "Command")).toBe(places.executable);
  expect(textOf(plain, "Arguments")).toBe(
    "--ipc-mode pipe --log-file C:\\ProgramData\\overlay-agent\\daemon.log",
  );
  expect(textOf(plain, "UserId")).toBe("S-1-5-18");
  // Else Windows ends it after three days, and on battery.
  expect(textOf(plain, "ExecutionTimeLimit")).toBe("PT0S");
  expect(textOf(plain, "StopIfGoingOnBatteries")).toBe("false");
});

test.skipIf(missing !== undefined)(
  "places that need quoting, and letters beyond ASCII, arrive as they are",
  () => {
    const odd = {
      ...places,
      executable: "D:\\a & b\\Ünser.exe",
      configRoot: "D:\\a & <b>\\",
      autostart: true,
    };
    const xml = taskXml(odd, {});
    expect(xml).toMatch(/^[\n -~]*$/);
    expect(textOf(xml, "Command")).toBe(odd.executable);
    expect(textOf(xml, "Arguments")).toBe(
      '--ipc-mode pipe --log-file C:\\ProgramData\\overlay-agent\\daemon.log --config-root "D:\\a & <b>\\\\" --autostart',
    );
  },
);

test("an unchanged task is only started; removal ends the task before deleting it", () => {
  using directory = temporaryDirectory();
  mkdirSync(join(directory.path, "data"));
  const here = { ...places, stateDb: join(directory.path, "data/state.db") };
  const machine = { platform: "win32", env: {}, executable: places.executable };
  const words = (changes: ReturnType<typeof taskRemoval>) =>
    changes.map((change) => (change.change === "run" ? change.argv[1] : change.change));
  expect(taskRemoval(here, machine)).toEqual([]);
  const first = taskInstallation(here, machine);
  expect(words(first)).toEqual(["file", "/create", "file", "/run"]);
  const again = ["file", "/create", "/end", "file", "/run"];
  // As after a run that failed or was killed between its changes.
  for (const [at, change] of first.entries()) {
    if (change.change === "file") writeFileSync(change.path, change.content);
    expect(words(taskInstallation(here, machine))).toEqual(at < 2 ? again : ["file", "/run"]);
  }
  expect(words(taskInstallation(here, machine))).toEqual(["file", "/run"]);
  const elsewhere = { ...here, configRoot: "D:\\etc\\" };
  expect(words(taskInstallation(elsewhere, machine))).toEqual(again);
  expect(words(taskRemoval(here, machine))).toEqual(["/end", "/delete", "remove"]);
});

test("the pipe denies the network, and members of the group cannot create a pipe with its name", () => {
  expect(pipeList(undefined)).toBe("D:P(D;;FA;;;NU)(A;;FA;;;SY)(A;;FA;;;BA)");
  expect(pipeList("S-1-5-21-1-2-3-1001")).toContain("(A;;0x12019b;;;S-1-5-21-1-2-3-1001)");
});
