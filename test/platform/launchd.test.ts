// The property list as libplist reads it, and the plans that install and remove the job.

import { describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { planChanges } from "../../src/platform/machine-changes.ts";
import type { DaemonPlaces } from "../../src/platform/daemon-args.ts";
import { launchdInstallation, launchdPlist, launchdRemoval, plistPath } from "../../src/platform/launchd.ts";
import { inCi, installMissing, runSync } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const plistutil = "/usr/bin/plistutil";
const missing = installMissing([plistutil]);
if (missing !== undefined && inCi) throw new Error(missing);

const places: DaemonPlaces = {
  configRoot: "/etc/overlay-agent/",
  overlayBinary: "/usr/local/bin/overlay",
  stateDb: "/var/lib/overlay-agent/state.db",
  socketPath: "/var/run/overlay-agent/cmd.sock",
  pipeName: "",
  autostart: false,
};
const mac = { platform: "darwin", env: {}, executable: "/usr/local/bin/agent" };
const plain = launchdPlist({ ...places, executable: mac.executable });
const words = (changes: ReturnType<typeof launchdRemoval>) =>
  changes.map((change) => (change.change === "run" ? change.argv.slice(0, 2).join(" ") : change.change));

/** What libplist understands, written down by libplist: through its binary form, in which no text of ours is left. */
function understood(text: string): string {
  using directory = temporaryDirectory();
  const [given, binary, back] = ["given.plist", "binary.plist", "back.plist"].map((name) =>
    join(directory.path, name),
  );
  writeFileSync(given ?? "", text);
  for (const [from, to, format] of [
    [given, binary, "bin"],
    [binary, back, "xml"],
  ])
    runSync([plistutil, "-i", from ?? "", "-f", format ?? "", "-o", to ?? ""]);
  return inner(readFileSync(back ?? "", "utf8"));
}

/** Without head, comment and indentation. */
const inner = (text: string) => text.slice(text.indexOf("<plist")).replace(/>\s+</g, "><").trim();

describe.skipIf(missing !== undefined)("libplist", () => {
  test("reads the intended values", () => {
    expect(plain).toContain("<string>io.overlay-agent.daemon</string>");
    expect(understood(plain)).toBe(inner(plain));
  });

  test("reads paths with special characters of XML", () => {
    const odd = "/opt/a & b/<c>/ü ]]>/agent";
    const text = launchdPlist({ ...places, executable: odd, configRoot: "/srv/&amp;/", autostart: true });
    expect(text).toContain("<string>/srv/&amp;amp;/</string>\n    <string>--autostart</string>");
    expect(understood(text)).toBe(inner(text));
  });

  test("refuses a broken property list", () => {
    expect(() => understood(plain.replace("</dict>\n</plist>", "</plist>"))).toThrow();
  });
});

test("relative paths and control characters are refused", () => {
  for (const executable of ["agent", "/a\nb"])
    expect(() => launchdPlist({ ...places, executable })).toThrow("absolute paths");
});

test("the first installation creates the group, writes, loads and starts", () => {
  const changes = launchdInstallation(places, mac, undefined);
  expect(words(changes)).toEqual([
    "/usr/sbin/dseditgroup -o",
    "file",
    "/bin/launchctl enable",
    "/bin/launchctl bootstrap",
    "/bin/launchctl kickstart",
  ]);
  expect(planChanges(changes).find(({ step }) => step === "file")).toMatchObject({
    path: plistPath,
    mode: "0644",
  });
});

test("a changed job is unloaded first, an unchanged job is only started", () => {
  expect(words(launchdInstallation(places, mac, "another"))[1]).toBe("/bin/launchctl bootout");
  expect(words(launchdInstallation(places, mac, plain))).toEqual(["file", "/bin/launchctl kickstart"]);
});

test("a plan made on another system has the paths of macOS", () => {
  const linux = { ...mac, platform: "linux" };
  expect(launchdInstallation({ ...places, autostart: true }, linux, plain)).toHaveLength(2);
});

test("removal unloads the job and deletes its file; without a job it does nothing", () => {
  expect(words(launchdRemoval(plain))).toEqual(["/bin/launchctl bootout", "remove"]);
  expect(launchdRemoval(undefined)).toEqual([]);
});
