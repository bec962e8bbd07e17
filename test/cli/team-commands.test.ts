// start, stop, restart and switch of an organization in server mode: their plans, and what they say where they cannot work.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { planUnit } from "../../src/cli/node/organization-command.ts";
import { isStopped, markStopped } from "../../src/node/files/stopped-by-user.ts";
import { renderPlan } from "../../src/base/plan/plan.ts";
import { refuseRevoked, startsWhenRestored, writeRevokedNote } from "../../src/node/files/revoked-notes.ts";
import { openState } from "../../src/daemon/state.ts";
import type { Organization } from "../../src/node/files/organizations.ts";
import { thrown } from "../pki/thrown.ts";
import { makeNodeWorld, type NodeWorld } from "../support/node.ts";

let world: NodeWorld;
let organization: Organization;

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
});

afterEach(() => world[Symbol.asyncDispose]());

const unit = "overlay-agent@acme.service";
const revoke = () =>
  writeRevokedNote(organization.directory, {
    revoked_at: "2026-11-20T00:00:00Z",
    reason: "left",
    node_id: 1,
  });

/** "FILE change" and the words of systemctl. */
async function plan(verb: "start" | "stop" | "restart"): Promise<string[]> {
  const lines = renderPlan(await planUnit(verb, organization))
    .trim()
    .split("\n");
  return lines.map((line) =>
    line
      .replace(`file     ${organization.directory}/`, "")
      .replace("run      /usr/bin/systemctl --no-ask-password ", ""),
  );
}

test("plans name the file that stores a stop, and what systemd is asked", async () => {
  expect(await plan("stop")).toEqual(["stopped (0644) created", `disable --now ${unit}`]);
  expect(await plan("start")).toEqual([`enable ${unit}`, `start ${unit}`]);
  markStopped(organization.directory);
  expect(await plan("stop")).toEqual([`disable --now ${unit}`]);
  expect(await plan("restart")).toEqual(["stopped (0644) removed", `enable ${unit}`, `restart ${unit}`]);
  revoke();
  expect(await plan("start")).toEqual(["stopped (0644) removed", `enable ${unit}`]);
  expect(isStopped(organization.directory)).toBe(true);
});

test("a start in a deleted organization says to leave it: no restore will follow", async () => {
  await world.api("DELETE", "/api/org/acme/");
  await world.agent(["check-auth"]);
  const leave = "agent unregister --org-slug acme";
  expect((await world.agent(["doctor"])).stdout).toContain(leave);
  const refusal = (hint?: string) => {
    const error = thrown(() => refuseRevoked(organization, hint));
    return [error.message, error.details.hint];
  };
  expect(refusal(startsWhenRestored)).toEqual([
    "The access of acme was revoked: the organization was deleted",
    expect.stringContaining(leave),
  ]);
  revoke();
  expect(refusal(startsWhenRestored)[1]).toBe(startsWhenRestored);
});

test("switch is refused in server mode, as a plan too", async () => {
  for (const flags of [[], ["--dry-run"]]) {
    const { status, stderr } = await world.agent(["switch", "acme", ...flags]);
    expect(status).toBe(2);
    expect(stderr).toContain('"acme" is in server mode and runs beside the others');
  }
});

test("unregister without a daemon removes what the daemon has stored, and moving to server mode too", async () => {
  const path = join(world.root, "../state.db");
  const stored = () => {
    const store = openState(path, world.log, Date.now);
    const slugs = [...store.records().keys()];
    store.close();
    return slugs;
  };
  const put = () => {
    const store = openState(path, world.log, Date.now);
    for (const slug of ["acme", "beta"]) store.putRecord(slug, { wanted: "down", forgotten: false });
    store.close();
  };
  await world.register({ force: true, mode: "desktop" });
  put();
  const token = `${await world.token()}\n`;
  const words =
    "register --api-base https://control.example --org-slug acme --node-name alpha --force --no-start";
  const moved = await world.agent(
    [...words.split(" "), "--mode", "server", "--registration-token-file", "-"],
    { stdin: token },
  );
  expect(`${moved.status} ${moved.stderr}`).toStartWith("0 ");
  expect(stored()).toEqual(["beta"]);
  await world.register({ force: true, mode: "desktop" });
  put();
  expect(await world.agent(["unregister", "--org-slug", "acme"])).toMatchObject({ status: 0 });
  expect(stored()).toEqual(["beta"]);
});

test("a database of the daemon that cannot be read does not keep an organization from leaving", async () => {
  await world.register({ force: true, mode: "desktop" });
  const path = join(world.root, "../state.db");
  mkdirSync(path);
  const { status, stderr } = await world.agent(["unregister", "--org-slug", "acme"]);
  expect(status).toBe(0);
  expect(stderr).toContain("The daemon's state of the organization could not be removed");
});

test("the only organization need not be named, and a mistyped one is answered with those that are there", async () => {
  const plan = async (...words: string[]) => (await world.agent([...words, "--dry-run"])).stdout;
  const mistyped = await world.agent(["unregister", "--org-slug", "acmee"]);
  expect([mistyped.status, mistyped.stderr]).toEqual([4, expect.stringContaining("Registered here: acme. ")]);
  expect(await plan("unregister")).toContain(organization.directory);
  for (const verb of ["start", "stop", "restart"])
    expect(await world.agent([verb])).toEqual(await world.agent([verb, "acme"]));
  mkdirSync(join(world.root, "beta"));
  writeFileSync(join(world.root, "beta/node-config.json"), "{}");
  for (const verb of ["start", "stop", "restart", "unregister"]) {
    const { status, stderr } = await world.agent([verb]);
    expect([verb, status]).toEqual([verb, 2]);
    expect(stderr).toContain("Name one of them: acme, beta");
  }
});
