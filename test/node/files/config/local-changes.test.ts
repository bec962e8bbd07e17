// What this machine changes in config.yml to heal tunnels.

import { expect, test } from "bun:test";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { finishConfig } from "../../../../src/node/files/config/config-file.ts";
import {
  readLocalChanges,
  withLocalChanges,
  writeLocalChanges,
} from "../../../../src/node/files/config/local-changes.ts";
import { readYaml } from "../../../../src/node/files/config/read-yaml.ts";
import { temporaryDirectory } from "../../../support/temporary.ts";

const listOf = (present: Record<string, boolean> | undefined, ...denied: string[]) =>
  withLocalChanges(
    { lighthouse: { interval: 10, ...(present === undefined ? {} : { remote_allow_list: present }) } },
    { denied },
  )["lighthouse"];

test("a denied address leaves all others as they were", () => {
  expect(listOf(undefined)).toEqual({ interval: 10 });
  expect(listOf(undefined, "203.0.113.7", "2001:db8::7")).toEqual({
    interval: 10,
    remote_allow_list: {
      "203.0.113.7/32": false,
      "2001:db8::7/128": false,
      "0.0.0.0/0": true,
      "::/0": true,
    },
  });
});

test("an administrator's list keeps its meaning", () => {
  // Only allowed networks: all others stay denied.
  expect(listOf({ "10.0.0.0/8": true }, "10.1.2.3")).toMatchObject({
    remote_allow_list: { "10.0.0.0/8": true, "10.1.2.3/32": false, "0.0.0.0/0": false },
  });
  // Only denied networks: all others stay allowed.
  expect(listOf({ "10.0.0.0/8": false }, "192.0.2.3")).toMatchObject({
    remote_allow_list: { "10.0.0.0/8": false, "192.0.2.3/32": false, "0.0.0.0/0": true },
  });
  expect(listOf({ "10.0.0.0/8": false, "0.0.0.0/0": true }, "192.0.2.3")).toMatchObject({
    remote_allow_list: { "10.0.0.0/8": false, "0.0.0.0/0": true, "192.0.2.3/32": false },
  });
});

test("config.yml has the changes only for engines that take them by their socket; damage counts as none", () => {
  using directory = temporaryDirectory();
  const { path } = directory;
  const finish = (localApi: boolean) =>
    readYaml(
      finishConfig({ lighthouse: {} }, path, { names: undefined, localApi, dataPlane: undefined }),
      "it",
    );
  writeLocalChanges(path, { denied: ["203.0.113.7"], try_promote: 2 });
  expect(statSync(join(path, "run")).mode & 0o777).toBe(0o700);
  expect(finish(true)).toMatchObject({
    lighthouse: { remote_allow_list: { "203.0.113.7/32": false } },
    counters: { try_promote: 2 },
  });
  expect(finish(false)).toEqual({ lighthouse: {}, pki: expect.anything() });
  const file = join(path, "run/local-changes.json");
  expect(readFileSync(file, "utf8")).toContain("203.0.113.7");
  for (const damage of ["", "{", '{"denied":["0.0.0.0/0"]}', '{"denied":7}']) {
    writeFileSync(file, damage);
    expect(readLocalChanges(path)).toEqual({ denied: [] });
  }
});
