// Which command belongs to which system, as the command line reports it.

import { expect, test } from "bun:test";
import { run } from "../../src/cli/run.ts";
import {
  daemonStartHint,
  refuseMode,
  requireManager,
  serviceManager,
} from "../../src/platform/service-manager.ts";
import { realSystem, type System } from "../../src/base/system.ts";

const commands = { linux: "install-systemd", darwin: "install-launchd", win32: "install-tap" } as const;
const managers = { linux: "systemd", darwin: "launchd", win32: "task" } as const;
const systems = ["linux", "darwin", "win32"] as const;

for (const platform of systems) {
  for (const other of systems.filter((each) => each !== platform)) {
    test(`on ${platform}, ${commands[other]} fails and names ${commands[platform]}; --dry-run works`, async () => {
      const out: string[] = [];
      const stdout = { write: (text: string) => void out.push(text), isTerminal: false, columns: 80 };
      const system: System = { ...realSystem(), platform, env: {}, stdout };
      expect(await run([commands[other], "--json"], system)).toBe(1);
      const { error } = JSON.parse(out.join(""));
      expect(error).toMatchObject({ hint: `Use: agent ${commands[platform]}` });
      expect(error.message).toBe(`${commands[other]} does not work on this system (${platform})`);
      out.length = 0;
      expect(await run([commands[other], "--dry-run", "--json"], system)).toBe(0);
      expect(JSON.parse(out.join("")).plan.length).toBeGreaterThan(1);
    });
  }

  test(`${platform} has its own service manager and its own hint to start the daemon`, () => {
    expect(() => requireManager(managers[platform], { platform })).not.toThrow();
    const start = { linux: "systemctl", darwin: "launchctl", win32: "schtasks" }[platform];
    expect(daemonStartHint({ platform })).toContain(`Start it: ${start}`);
  });
}

test("an unknown system has no service manager", () => {
  expect(serviceManager({ platform: "freebsd" })).toBeUndefined();
  expect(() => requireManager("launchd", { platform: "freebsd" })).toThrow("does not work on this system");
});

test("the daemon refuses the --ipc-mode of another system before it creates files", async () => {
  for (const [platform, mode] of [
    ["linux", "pipe"],
    ["darwin", "pipe"],
    ["win32", "socket"],
  ] as const) {
    const said: string[] = [];
    const stderr = { write: (text: string) => void said.push(text), isTerminal: false, columns: 80 };
    const system: System = { ...realSystem(), platform, env: {}, stderr };
    expect(await run(["--ipc-mode", mode], system)).toBe(2);
    expect(said.join("")).toContain(`--ipc-mode ${mode} does not work on this system`);
  }
});

test("server mode works only on Linux", () => {
  refuseMode("server", { platform: "linux" });
  refuseMode("desktop", { platform: "win32" });
  expect(() => refuseMode("server", { platform: "darwin" })).toThrow("--mode server works only on Linux");
});
