// What a machine remembers of its user's confirmation, and what doctor says of it.

import { expect, test } from "bun:test";
import { confirmationIn } from "../../../src/protocol/confirmation.ts";
import { CheckinAnswer } from "../../../src/protocol/checkin.ts";
import { healthRecord } from "../../../src/node/contact/server-mode/health-record.ts";
import { examineTraffic } from "../../../src/node/doctor/traffic.ts";
import { readSavedHealth } from "../../../src/node/health/saved-health.ts";
import type { Organization } from "../../../src/node/files/organizations.ts";
import { realSystem } from "../../../src/base/system.ts";
import * as v from "valibot";
import { temporaryDirectory } from "../../support/temporary.ts";
import { rmSync } from "node:fs";

const system = realSystem();
const confirm = { until: "2026-11-27T12:00:00.000Z", url: "https://vpn.example.org/console/acme/" };
const answer = {
  last_checkin_at: "2026-11-20T12:00:00.000Z",
  server_time: "2026-11-20T12:00:00.000Z",
  config_version: 1,
  config_changed: false,
  certificate_not_after: "2027-01-01T00:00:00.000Z",
};

test("a control plane that says nothing of it, or something else, asks for no confirmation; the answer stays valid", () => {
  const strange: unknown[] = [
    null,
    "soon",
    {},
    { ...confirm, until: "soon" },
    { ...confirm, url: "javascript:alert(1)" },
    { ...confirm, url: "https://vpn.example.org/\u001b[2J" },
    { ...confirm, url: `https://${"a".repeat(2100)}` },
  ];
  for (const each of strange)
    expect(confirmationIn(v.parse(CheckinAnswer, { ...answer, confirm: each }))).toBeUndefined();
  expect(confirmationIn(v.parse(CheckinAnswer, answer))).toBeUndefined();
  expect(confirmationIn(v.parse(CheckinAnswer, { ...answer, confirm }))).toEqual(confirm);
});

test("check-auth writes down what the last check-in said, and forgets it with the next one that does not", () => {
  using config = temporaryDirectory();
  const organization = { slug: "acme" } as unknown as Organization;
  const watched = {
    settings: { configRoot: config.path },
    system,
    log: { debug() {} },
  } as unknown as Parameters<typeof healthRecord>[1];
  const open = () => healthRecord(organization, watched);
  const { directory } = open();
  const saved = () => readSavedHealth(directory, "acme", system.now())?.confirm;
  try {
    const first = open();
    first.onCheckin({ ...answer, confirm });
    first.write(undefined);
    expect(saved()).toEqual(confirm);
    // The control plane does not answer.
    open().write(undefined);
    expect(saved()).toEqual(confirm);
    const next = open();
    next.onCheckin(answer);
    next.write(undefined);
    expect(saved()).toBeUndefined();
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test("doctor warns of it with the page to open, and is silent before", async () => {
  const organization = { slug: "acme", directory: "/nonexistent" } as unknown as Organization;
  const examine = async (state: string, asked: object) => {
    const seen = { state, wanted: "up", ...asked } as const;
    const checks = await examineTraffic(organization, seen, system);
    return checks.find(({ id }) => id === "confirmation");
  };
  expect(await examine("running", { confirm })).toEqual({
    id: "confirmation",
    org_slug: "acme",
    verdict: "warn",
    evidence: `its user has to confirm it by ${confirm.until}, or it is revoked`,
    remedy: `Its user signs in and confirms it: ${confirm.url}`,
  });
  expect(await examine("running", {})).toBeUndefined();
  expect(await examine("revoked", { confirm })).toBeUndefined();
});
