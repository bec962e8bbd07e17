// What `agent setup` installs beside a package, and what the package itself brings: the same texts.

import { expect, test } from "bun:test";
import { sharedFiles } from "../../../packaging/files.ts";
import { debScripts, rpmScripts } from "../../../packaging/scripts.ts";
import type { Change } from "../../../src/platform/machine-changes.ts";
import {
  controlInstallation,
  controlService,
  controlSettingsPath,
  controlSysctl,
  controlSysctlPath,
  controlUnitPath,
  packagedControlUnitPath,
  packagedSysctlPath,
  type ControlState,
} from "../../../src/platform/systemd/control-unit.ts";

const unit = controlService("/usr/bin/agent", true);
const next = { settings: 'listen = "[::]:443"\n', unit };
const bare: ControlState = {
  hasUser: false,
  isParentOpen: false,
  sysctl: undefined,
  packagedSysctl: undefined,
  settings: undefined,
  unit: undefined,
  packagedUnit: undefined,
  isStale: false,
};
const packaged: ControlState = { ...bare, packagedSysctl: controlSysctl, packagedUnit: unit };
const done: ControlState = { ...packaged, hasUser: true, isParentOpen: true, settings: next.settings };

const pathsOf = (changes: readonly Change[]) =>
  changes.flatMap((each) => (each.change === "run" ? [] : [`${each.change} ${each.path}`]));
const commandsOf = (changes: readonly Change[]) =>
  changes.flatMap((each) => (each.change === "run" ? [each.argv.slice(2).join(" ")] : []));

test("the package brings the unit and the kernel setting that setup would write with its executable", async () => {
  const files = await sharedFiles({ version: "0.2.0", timeS: 1_790_000_000 });
  const contentOf = (path: string) => files.find(({ dst }) => dst === path)?.content;
  expect(contentOf(packagedControlUnitPath)).toBe(unit);
  expect(contentOf(packagedSysctlPath)).toBe(controlSysctl);
});

test("without a package, setup writes unit and kernel setting, and applies them", () => {
  const changes = controlInstallation(next, bare);
  expect(pathsOf(changes)).toEqual([
    `file ${controlSettingsPath}`,
    `file ${controlSysctlPath}`,
    `file ${controlUnitPath}`,
  ]);
  expect(commandsOf(changes).slice(-2)).toEqual([
    "daemon-reload",
    "enable --now overlay-agent-control.service",
  ]);
});

test("with a package, setup writes the settings alone", () => {
  const changes = controlInstallation(next, packaged);
  expect(pathsOf(changes)).toEqual([`file ${controlSettingsPath}`]);
  expect(commandsOf(changes).at(-1)).toBe("enable --now overlay-agent-control.service");
});

test("a unit in /etc that says the same as the package's is removed, and the service is not restarted", () => {
  const changes = controlInstallation(next, { ...done, unit });
  expect(pathsOf(changes)).toEqual([`file ${controlSettingsPath}`, `remove ${controlUnitPath}`]);
  expect(commandsOf(changes)).toEqual(["daemon-reload", "enable --now overlay-agent-control.service"]);
});

test("another port needs a unit in /etc, which stands above the package's", () => {
  const other = controlService("/usr/bin/agent", false);
  const changes = controlInstallation({ ...next, unit: other }, done);
  expect(pathsOf(changes)).toEqual([`file ${controlSettingsPath}`, `file ${controlUnitPath}`]);
  expect(commandsOf(changes)).toEqual([
    "daemon-reload",
    "enable --now overlay-agent-control.service",
    "restart overlay-agent-control.service",
  ]);
});

test("a process that is older than its settings is restarted, although nothing is left to write", () => {
  const commandsFor = (isStale: boolean) => commandsOf(controlInstallation(next, { ...done, isStale }));
  expect(commandsFor(true).at(-1)).toBe("restart overlay-agent-control.service");
  expect(commandsFor(false).at(-1)).toBe("enable --now overlay-agent-control.service");
});

test("an upgrade of the package lets the control plane hand over instead of restarting it", () => {
  for (const { postinstall } of [debScripts(), rpmScripts()]) {
    expect(postinstall).toContain("systemctl try-reload-or-restart overlay-agent-control.service");
    expect(postinstall).not.toMatch(/ (try-)?restart [^\n]*overlay-agent-control/);
  }
});
