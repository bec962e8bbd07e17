// A configuration that the engine refuses for ever does not keep a node from renewing its certificate.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
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
  const never = join(here.world.root, "..", "never");
  writeFileSync(never, "#!/bin/sh\n[ $1 = -version ] && echo 'Version: 1.10.3' && exit\nexit 1\n", {
    mode: 0o755,
  });
  const before = endInUse();
  days(65);
  await here.world.agent(["checkin"]);
  const control = makeControl();
  const result = await syncNow(here.world, organization(), control, never);
  expect(result.reason).toContain("its certificates are NOT in use");
  expect(endInUse()).toBe(before);
  expect(control.asked).toEqual([]);
});
