// The engine that installed services name.

import { expect, test } from "bun:test";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isStartedByUnits, readPinnedEngine } from "../../src/engine/pinned-engine.ts";
import { withEngine, type UnitPlaces } from "../../src/platform/systemd/units.ts";
import { systemdUnits } from "../../src/platform/systemd/installation.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const places = (overlayBinary: string): UnitPlaces => ({
  executable: "/usr/local/bin/agent",
  engine: overlayBinary,
  overlayBinary,
  configRoot: "/etc/overlay-agent/",
  stateDb: "/var/lib/overlay-agent/state.db",
  socketPath: "/var/run/overlay-agent/cmd.sock",
  autostart: true,
});

test("services name another engine than the default one, in both modes, with any path", () => {
  using directory = temporaryDirectory();
  const units = join(directory.path, "units");
  expect(readPinnedEngine(units)).toBeUndefined();
  for (const mode of ["server", "desktop"] as const) {
    for (const path of ["/usr/local/bin/overlay", "/opt/nebula", "/opt/my engine/100%/$neb"]) {
      mkdirSync(units);
      for (const [name, text] of systemdUnits([{ slug: "acme", mode }], places(path)).files)
        writeFileSync(join(units, name), text);
      expect(readPinnedEngine(units)).toBe(path === "/usr/local/bin/overlay" ? undefined : path);
      rmSync(units, { recursive: true });
    }
  }
});

test("the unit in /etc stands above the packaged one, which counts if the one in /etc is a mask", () => {
  using directory = temporaryDirectory();
  const [etc, lib] = [join(directory.path, "etc"), join(directory.path, "lib")];
  const startedBy = () => ["/opt/a", "/opt/b"].map((path) => isStartedByUnits(path, [etc, lib]));
  expect(startedBy()).toEqual([false, false]);
  expect(isStartedByUnits("C:\\overlay.exe", [etc, lib])).toBe(false);
  for (const [place, path] of [
    [lib, "/opt/a"],
    [etc, "/opt/b"],
  ] as const) {
    const { files } = systemdUnits([{ slug: "acme", mode: "server" }], places(path));
    mkdirSync(place);
    writeFileSync(join(place, "overlay-agent@.service"), files.get("overlay-agent@.service") ?? "");
    expect(startedBy()).toEqual([path === "/opt/a", path === "/opt/b"]);
  }
  rmSync(join(etc, "overlay-agent@.service"));
  symlinkSync("/dev/null", join(etc, "overlay-agent@.service"));
  expect(startedBy()).toEqual([true, false]);
});

test("the unit's engine is exchanged only if it is one of the former ones, and nothing else changes", () => {
  const template = (path: string) =>
    systemdUnits([{ slug: "acme", mode: "server" }], places(path)).files.get("overlay-agent@.service") ?? "";
  const edited = template("/usr/bin/nebula").replace("RestartSec=5", "RestartSec=$& 7");
  const former = ["/usr/local/bin/overlay", "/usr/bin/nebula"];
  expect(withEngine(edited, former, "/usr/local/bin/overlay")).toBe(
    template("/usr/local/bin/overlay").replace("RestartSec=5", "RestartSec=$& 7"),
  );
  expect(withEngine(template("/opt/own"), former, "/usr/local/bin/overlay")).toBe(template("/opt/own"));
  const other = template("/usr/bin/nebula").replace(" -config ", " -other -config ");
  expect(withEngine(other, former, "/usr/local/bin/overlay")).toBe(other);
});
