// Which release a control plane hands out, and what it says of its age.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { hostTarget } from "../../build.ts";
import { agingOf, readHandedOut } from "../../src/release/handed-out.ts";
import { makeRelease, makeReleaseKey, standIn } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const work = temporaryDirectory();
afterAll(() => work[Symbol.dispose]());
const key = makeReleaseKey();
const url = "https://control.example.org";
const day = 86_400_000;
const places = {
  executable: join(work.path, "bin/agent"),
  platform: "linux",
  releasesDirectory: join(work.path, "release"),
  keys: [makeReleaseKey().text, key.text],
} as const;

beforeAll(async () => {
  const executables = { [hostTarget()]: standIn("1.2.3", "exit 0"), "bun-other": standIn("1.2.3", "exit 1") };
  const expiresAt = "2026-12-01T00:00:00Z";
  await makeRelease(places.releasesDirectory, { version: "1.2.3", executables, expiresAt }, key);
});

test("the key that signed is named, and the systems whose program is there", () => {
  const read = () => readHandedOut(places, url);
  expect(read()).toMatchObject({ key: key.text, targets: [hostTarget(), "bun-other"], hasZst: true });
  rmSync(join(places.releasesDirectory, "agent-1.2.3-other.tar.zst"));
  expect(read()).toMatchObject({ targets: [hostTarget(), "bun-other"], hasZst: false });
  rmSync(join(places.releasesDirectory, "agent-1.2.3-other.tar.gz"));
  expect(read()).toMatchObject({ targets: [hostTarget()], hasZst: true });
  expect(() => readHandedOut(places, "http://control.example.org")).toThrow("by TLS only");
  expect(() => readHandedOut({ ...places, keys: [] }, url)).toThrow("an unsigned build");
  expect(() => readHandedOut({ ...places, releasesDirectory: undefined }, url)).toThrow("not kept here");
});

test("its age is told from two weeks before it expires", () => {
  const at = (ms: number) => agingOf(places, url, Date.parse("2026-12-01T00:00:00Z") + ms);
  expect(at(-15 * day)).toBeUndefined();
  expect(at(-13 * day)).toBe("Release 1.2.3, which is handed out, expires on 2026-12-01");
  expect(at(day)).toBe("Release 1.2.3, which is handed out, expired on 2026-12-01");
  expect(agingOf({ ...places, keys: [] }, url, Date.now())).toBeUndefined();
});
