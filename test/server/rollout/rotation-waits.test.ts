// The waits of a rotation besides confirmations: tunnels that still use the former CA, and one lighthouse after the other.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { expect, setDefaultTimeout, test } from "bun:test";
import * as v from "valibot";
import { decodeCaBundle } from "../../../src/pki/nebula.ts";
import { openAuthorities } from "../../../src/server/certificates/authorities.ts";
import { Authorities, type RotationRequest } from "../../../src/api/certificates/authorities.ts";
import { advanceRotations } from "../../../src/server/rollout/rotation-phases.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { checkinOf, confirm, downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { makeClock } from "../../support/clock.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

// Check-ins are stored after half a second.
setDefaultTimeout(120_000);

const lighthouseGapMs = 14_000;
let server: TestServer;
let org: Organization;

// The server's own loops sleep on a clock that never moves: only the tests advance rotations.
const { call } = useNumbered((made) => ({ server, org } = made), { network: { sleep: makeClock().sleep } });

const advance = () => {
  const { services } = server.app;
  return advanceRotations({ ...services, authorities: openAuthorities(services) });
};
const rotation = async () => v.parse(Authorities, (await call("GET", "ca/")).json).rotation;
const steer = async (action: RotationRequest["action"], now?: true) => {
  const answer = await call("POST", "ca/rotate/", { action, ...(now === undefined ? {} : { now }) });
  expect(`${answer.status} ${answer.text}`).toStartWith("200 ");
};
const register = (name: string, hub?: number) =>
  registerNode(
    server,
    org,
    name,
    hub === undefined ? {} : { is_lighthouse: true, public_ip: `203.0.113.${hub}` },
  );

/** How many CAs each of the nodes trusts, by its token alone. */
async function trusts(nodes: readonly RegisteredNode[]): Promise<number[]> {
  const bundles = await Promise.all(nodes.map(async (node) => downloadOf(await node.download()).files));
  for (const files of bundles) {
    const x509 = (files["node.crt"] ?? "").split("-----BEGIN").length - 2;
    expect(x509).toBe(decodeCaBundle(files["ca.crt"]).length);
  }
  return bundles.map((files) => decodeCaBundle(files["ca.crt"]).length);
}

async function allConfirm(nodes: readonly RegisteredNode[]): Promise<void> {
  for (const node of nodes) await confirm(node);
}

async function pass(ms: number): Promise<void> {
  server.clock.ms += ms;
  await advance();
}

/** Advances until all nodes have just confirmed their certificates of the new CA. */
async function issueAll(nodes: readonly RegisteredNode[]): Promise<void> {
  await allConfirm(nodes);
  for (let round = 0; round < 3; round++) {
    await advance();
    await allConfirm(nodes);
  }
  await advance();
  expect(await rotation()).toMatchObject({ phase: "issue", waiting_for: [] });
}

/** Stores the check-in, and makes it an hour old. */
async function forget(node: RegisteredNode): Promise<void> {
  await server.app.services.reports.stop();
  await server.db.write(async (tx) => {
    await tx.run("UPDATE sightings SET last_checkin_at = last_checkin_at - 3600000 WHERE node_id = $1", [
      node.id,
    ]);
    await tx.run("UPDATE organizations SET rotation_heard_from = NULL WHERE id = $1", [org.id]);
  });
}

test("the former CA is removed a minute after the last confirmation, then from one lighthouse after the other", async () => {
  const [one, two] = [await register("one", 1), await register("two", 2)];
  const nodes = [await register("a"), await register("b")];
  const all = [one, two, ...nodes];
  await allConfirm(all);
  await steer("start");
  await issueAll(all);
  await pass(59_999);
  expect(await trusts(all)).toEqual([2, 2, 2, 2]);
  await pass(1);
  expect(await trusts(all)).toEqual([2, 2, 1, 1]);
  await pass(lighthouseGapMs);
  expect(await trusts(all)).toEqual([2, 2, 1, 1]);
  await allConfirm(all);
  await advance();
  expect((await rotation()).next_step_at).not.toBeNull();
  await pass(lighthouseGapMs - 1);
  expect(await trusts(all)).toEqual([2, 2, 1, 1]);
  await pass(1);
  expect(await trusts(all)).toEqual([1, 2, 1, 1]);
  // It has to confirm before the next lighthouse.
  await pass(lighthouseGapMs);
  expect(await rotation()).toMatchObject({ phase: "retire", waiting_for: [one.id] });
  await confirm(one);
  await advance();
  await pass(lighthouseGapMs);
  expect(await trusts(all)).toEqual([1, 1, 1, 1]);
  await confirm(two);
  await advance();
  expect(await rotation()).toMatchObject({ phase: "none", next_step_at: null });
});

test("the wait between lighthouses depends on the interval of the engines' tunnel checks", async () => {
  expect((await call("PATCH", "", { alive_interval: 30 })).status).toBe(200);
  const all = [await register("hub", 1), await register("a")];
  await allConfirm(all);
  await steer("start");
  await issueAll(all);
  await pass(60_000);
  await allConfirm(all);
  await advance();
  const at = Date.parse((await rotation()).next_step_at ?? "");
  expect(at - server.clock.ms).toBe(70_000);
});

test("a late node or a pause restarts the minute", async () => {
  const [here, late] = [await register("here"), await register("late")];
  await allConfirm([here, late]);
  await forget(late);
  await steer("start");
  await issueAll([here]);
  await pass(59_000);
  // It has a certificate of the former CA.
  await confirm(late);
  await server.app.services.reports.stop();
  await advance();
  expect(await rotation()).toMatchObject({ waiting_for: [late.id], next_step_at: null });
  await allConfirm([here, late]);
  await pass(59_000);
  expect(await trusts([here, late])).toEqual([2, 2]);
  await pass(59_000);
  expect((await rotation()).phase).toBe("issue");
  await steer("pause");
  expect((await rotation()).next_step_at).toBeNull();
  await allConfirm([here, late]);
  await pass(60_000);
  await steer("resume");
  await advance();
  expect((await rotation()).phase).toBe("issue");
  await allConfirm([here, late]);
  await pass(60_000);
  expect(await trusts([here, late])).toEqual([1, 1]);
});

test("a clock that is set back does not stop a rotation", async () => {
  const node = await register("a");
  await confirm(node);
  await steer("start");
  await issueAll([node]);
  await pass(-3_600_000);
  await pass(60_000);
  expect((await rotation()).phase).toBe("retire");
  server.clock.ms += 3_540_000;
});

test("an offline lighthouse is not waited for, and loses the former CA when it returns", async () => {
  const [off, hub, node] = [await register("off", 1), await register("hub", 2), await register("a")];
  await allConfirm([off, hub, node]);
  await steer("start");
  await issueAll([off, hub, node]);
  await pass(60_000);
  await allConfirm([off, hub, node]);
  const before = checkinOf(await off.checkin()).config_version;
  await forget(off);
  await advance();
  await pass(lighthouseGapMs);
  await confirm(hub);
  await advance();
  expect((await rotation()).phase).toBe("none");
  const { config_changed } = checkinOf(await off.checkin({ config_version: before }));
  expect(config_changed).toBe(true);
  expect(await trusts([off, hub, node])).toEqual([1, 1, 1]);
});

test("a rollback while lighthouses keep the former CA makes all nodes trust both, then only the former", async () => {
  const all = [await register("hub", 1), await register("a")];
  await allConfirm(all);
  await steer("start");
  await issueAll(all);
  await pass(60_000);
  await steer("rollback");
  expect(await trusts(all)).toEqual([2, 2]);
  await issueAll(all);
  await pass(60_000);
  expect(await trusts(all)).toEqual([2, 1]);
  await allConfirm(all);
  await advance();
  await pass(lighthouseGapMs);
  expect(await trusts(all)).toEqual([1, 1]);
  await allConfirm(all);
  await advance();
  expect((await rotation()).phase).toBe("none");
});

test("a rotation in its last phase by an older release finishes as that release would", async () => {
  const all = [await register("hub", 1), await register("a")];
  await allConfirm(all);
  await steer("start");
  await issueAll(all);
  await pass(60_000);
  await server.db.write((tx) =>
    tx.run("UPDATE nodes SET keeps_former = 0, own_version = 0 WHERE org_id = $1", [org.id]),
  );
  await allConfirm(all);
  await advance();
  expect((await rotation()).phase).toBe("none");
  expect(await trusts(all)).toEqual([1, 1]);
});

for (const begin of ["start", "while it waits"] as const) {
  test(`now (${begin}): steps wait for nodes but not for tunnels, lighthouses last`, async () => {
    const all = [await register("hub", 1), await register("a")];
    await allConfirm(all);
    await steer("start", ...(begin === "start" ? ([true] as const) : []));
    if (begin === "while it waits") {
      await issueAll(all);
      await steer("start", true);
      expect((await rotation()).phase).toBe("issue");
      await advance();
    } else {
      for (let round = 0; round < 9 && (await rotation()).phase !== "retire"; round++) {
        await allConfirm(all);
        await advance();
      }
    }
    expect(await trusts(all)).toEqual([2, 1]);
    await allConfirm(all);
    await advance();
    expect(await trusts(all)).toEqual([1, 1]);
    await allConfirm(all);
    await advance();
    expect((await rotation()).phase).toBe("none");
    // The next rotation waits again.
    await steer("start");
    await issueAll(all);
    expect((await rotation()).next_step_at).not.toBeNull();
  });
}

test("now is refused with pause, and without a running rotation", async () => {
  const sent = async (action: string) => (await call("POST", "ca/rotate/", { action, now: true })).status;
  expect(await sent("pause")).toBe(400);
  expect(await sent("resume")).toBe(409);
  expect(await sent("rollback")).toBe(409);
});
