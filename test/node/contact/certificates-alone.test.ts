// A configuration that the engine refuses for ever does not keep a node from renewing its certificate.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { checkAuth } from "../../../src/node/contact/check-auth.ts";
import { isApplied, readSyncState } from "../../../src/node/files/generations.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { followDeps, makeControl, syncNow } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const organization = () => openOrganization(here.world.root, "acme");
const placeEngine = (test: string) => {
  const path = join(here.world.root, "..", "engine");
  const script = `#!/bin/sh\n[ $1 = -version ] && echo 'Version: 1.10.3' && exit\n${test}\n`;
  writeFileSync(path, script, { mode: 0o755 });
  return path;
};
const endInUse = () => (decodeBundle(here.read("host.crt"))[0]?.notAfter ?? 0) * 1000;
const days = (count: number) => (here.world.server.clock.ms += count * 86_400_000);

test("the certificate is renewed again and again, although the running engine refuses every new version", async () => {
  await here.sync();
  const version = readSyncState(here.organization.directory)?.config_version;
  here.tamper((config) => ({ ...config, cipher: "chachapoly" }));
  const control = makeControl();
  const picky = {
    ...control,
    restart: async () => {
      control.asked.push("restart");
      if (here.present()["cipher"] === "chachapoly") throw new AppError("engine_failed", "unknown cipher");
    },
  };
  for (let round = 0; round < 6; round++) {
    const before = endInUse();
    days(65);
    expect(before).toBeGreaterThan(here.world.server.clock.ms);
    await checkAuth(organization(), followDeps(here.world, organization(), picky), 0);
    expect(endInUse()).toBeGreaterThan(before);
  }
  expect(here.present()["cipher"]).toBe("aes");
  const state = readSyncState(here.organization.directory);
  expect(state?.config_version).toBe(version);
  expect(Date.parse(state?.certificate_not_after ?? "")).toBe(endInUse());
  expect(state?.left_out?.[0]?.reason).toContain("its certificates are in use");
  expect(isApplied(here.organization.directory)).toBe(true);
});

test("certificates that the engine refuses too are not used, and the former ones stay", async () => {
  await here.sync();
  here.tamper((config) => ({ ...config, cipher: "chachapoly" }));
  const never = placeEngine("exit 1");
  const before = endInUse();
  days(65);
  await here.world.agent(["checkin"]);
  const control = makeControl();
  const result = await syncNow(here.world, organization(), control, never);
  expect(result.reason).toContain("its certificates are NOT in use");
  expect(endInUse()).toBe(before);
  expect(control.asked).toEqual([]);
});

test("a failed switch of the files is no refusal by the running engine", async () => {
  await here.sync();
  here.tamper((config) => ({ ...config, cipher: "chachapoly" }));
  const picky = placeEngine('! grep -q chachapoly "$3"');
  days(65);
  await here.world.agent(["checkin"]);
  // The pointer to the generation in force cannot be replaced.
  mkdirSync(join(here.organization.directory, ".current.tmp"));
  const control = makeControl();
  const result = await syncNow(here.world, organization(), control, picky);
  expect(result.reason).toContain("its certificates are NOT in use: Cannot switch");
  expect(control.asked).toEqual([]);
  expect(readSyncState(here.organization.directory)?.refused).toBeUndefined();
});
