import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { X509Certificate } from "node:crypto";
import * as v from "valibot";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { decodeCaBundle, fingerprint } from "../../../src/pki/nebula.ts";
import { DownloadAnswer } from "../../../src/protocol/download.ts";
import { openAuthorities } from "../../../src/server/certificates/authorities.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { Authorities, type RotationRequest } from "../../../src/api/certificates/authorities.ts";
import { advanceRotations, resetSilenceTimer } from "../../../src/server/rollout/rotation-phases.ts";
import { makeRotations } from "../../../src/server/rollout/rotation-schedule.ts";
import { raiseOwnVersion } from "../../../src/server/store/versions.ts";
import { makeClock } from "../../support/clock.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";
import {
  blocklistOf,
  certificateOf,
  checkinOf,
  confirm,
  downloadOf,
  registerNode,
  type RegisteredNode,
} from "../../support/nodes.ts";

// Check-ins are stored after half a second.
setDefaultTimeout(120_000);

const day = 86_400_000;
let server: TestServer;
let org: Organization;

// The server's own loops sleep on a clock that never moves: only the tests advance rotations.
const { call } = useNumbered((made) => ({ server, org } = made), { network: { sleep: makeClock().sleep } });

const store = () => {
  const { services } = server.app;
  return { ...services, authorities: openAuthorities(services) };
};
const advance = () => advanceRotations(store());
const show = async () => v.parse(Authorities, (await call("GET", "ca/")).json);
/** What commands change. What it waits for also changes when a check-in is stored. */
const steered = async () => {
  const { cas, rotation } = await show();
  return { cas, phase: rotation.phase, paused: rotation.paused, rolling_back: rotation.rolling_back };
};
const phase = async () => (await show()).rotation.phase;
const steer = async (action: RotationRequest["action"], now?: true) => {
  const answer = await call("POST", "ca/rotate/", { action, ...(now === undefined ? {} : { now }) });
  if (answer.status !== 200) throw new Error(`${action}: ${answer.status} ${answer.text}`);
  return v.parse(Authorities, answer.json);
};
const overlayCa = async (state: "next" | "active" | "former") =>
  (await show()).cas.find((ca) => ca.kind === "overlay" && ca.state === state)?.fingerprint ?? "none";

/** The node's issuers and trusted CAs, as its token downloads them. */
async function has(node: RegisteredNode) {
  const answer = downloadOf(await node.download());
  certificateOf(answer, server.clock.ms);
  return { ...readFiles(answer), blocked: blocklistOf(answer) };
}

function readFiles({ files }: DownloadAnswer) {
  const [leaf, ...trusted] = (files["node.crt"] ?? "")
    .split(/(?=-----BEGIN)/)
    .map((pem) => new X509Certificate(pem));
  return {
    issuers: decodeBundle(files["host.crt"]).map(({ issuer }) => issuer),
    trusts: decodeCaBundle(files["ca.crt"]).map(fingerprint),
    x509Issuer: trusted.findIndex((ca) => leaf?.verify(ca.publicKey) === true),
    x509Trusts: trusted.length,
  };
}

async function allConfirm(nodes: RegisteredNode[]): Promise<void> {
  for (const node of nodes) await confirm(node);
}

/** Waits until the check-ins of these nodes are stored. */
async function seen(nodes: RegisteredNode[]): Promise<void> {
  const late = async (node: RegisteredNode) => {
    const row = await server.db.get("SELECT last_checkin_at AS at FROM sightings WHERE node_id = $1", [
      node.id,
    ]);
    return row?.["at"] !== server.clock.ms;
  };
  for (const node of nodes) while (await late(node)) await Bun.sleep(20);
}

/** Lets the wait of the rotation for tunnels pass, if there is one. Returns its length, ms. */
async function settle(): Promise<number> {
  await advance();
  const { next_step_at: at } = (await show()).rotation;
  if (at === null) return 0;
  const waitMs = Date.parse(at) - server.clock.ms;
  server.clock.ms += waitMs - 1;
  const before = await show();
  await advance();
  expect(await show()).toEqual(before);
  server.clock.ms += 1;
  await advance();
  return waitMs;
}

/** Completes a rotation with these nodes online. */
async function goThrough(nodes: RegisteredNode[]): Promise<void> {
  for (let round = 0; round < 12 && (await phase()) !== "none"; round++) {
    await settle();
    await allConfirm(nodes);
  }
  expect(await phase()).toBe("none");
}

describe("a rotation", () => {
  test("advances as the nodes confirm, and every certificate is trusted at all times", async () => {
    const nodes = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    const [a, b] = nodes as [RegisteredNode, RegisteredNode];
    await allConfirm(nodes);
    await seen(nodes);
    const old = await overlayCa("active");
    const begun = await steer("start");
    expect(begun.rotation).toEqual({
      phase: "trust",
      paused: false,
      rolling_back: false,
      waiting_for: [a.id, b.id],
      waiting_for_names: ["a", "b"],
      awaits_signers: false,
      next_step_at: null,
      auto: true,
    });
    expect(begun.cas.map(({ kind, state }) => `${kind} ${state}`).toSorted()).toEqual(
      ["overlay active", "overlay next", "x509 active", "x509 next"].toSorted(),
    );
    const fresh = await overlayCa("next");
    const both = { issuers: [old], trusts: [old, fresh], x509Issuer: 0, x509Trusts: 2, blocked: [] };
    expect(await has(a)).toEqual(both);

    await confirm(a);
    await advance();
    expect((await show()).rotation).toMatchObject({ phase: "trust", waiting_for: [b.id] });
    // It has the files, but its engine has not shown the reload.
    const { config_version } = checkinOf(await b.checkin());
    await b.checkin({ config_version, overlay_state: "running" });
    await advance();
    expect((await show()).rotation).toMatchObject({ phase: "trust", waiting_for: [b.id] });
    await confirm(b);
    await advance();
    expect(await phase()).toBe("issue");

    await advance();
    expect((await show()).rotation.waiting_for).toEqual([a.id, b.id]);
    expect(await has(a)).toEqual({ ...both, issuers: [fresh] });
    // A new node gets a certificate of the new CA at once.
    const c = await registerNode(server, org, "c");
    expect(await has(c)).toEqual({ ...both, issuers: [fresh] });
    await allConfirm([a, c]);
    await advance();
    expect((await show()).rotation).toMatchObject({ phase: "issue", waiting_for: [b.id] });
    await confirm(b);
    await advance();
    expect((await show()).rotation).toMatchObject({ phase: "issue", waiting_for: [] });
    expect(await settle()).toBe(60_000);
    expect(await phase()).toBe("retire");
    expect(await overlayCa("former")).toBe(old);

    expect(await has(b)).toEqual({
      issuers: [fresh],
      trusts: [fresh],
      x509Issuer: 0,
      x509Trusts: 1,
      blocked: [],
    });
    await goThrough([a, b, c]);
    expect((await show()).cas.filter(({ trusted }) => trusted).map(({ state }) => state)).toEqual([
      "active",
      "active",
    ]);
    const kept = await server.db.all(
      "SELECT state FROM authorities WHERE org_id = $1 AND private_key_sealed <> ''",
      [org.id],
    );
    expect(kept.map((row) => row["state"])).toEqual(["active", "active"]);
    // A second rotation: the first has left nothing behind.
    await steer("start");
    await goThrough([a, b, c]);
    expect((await has(c)).issuers).toEqual([await overlayCa("active")]);
  });

  test("wakes a poll when its node's new certificate is issued", async () => {
    const node = await registerNode(server, org, "held");
    await confirm(node);
    await steer("start");
    await confirm(node);
    await advance();
    const seen = checkinOf(await node.checkin()).config_version;
    const poll = node.checkin({ config_version: seen, confirmed_config_version: seen }, { wait: 20 });
    await advance();
    expect(checkinOf(await poll).config_changed).toBe(true);
  });

  test("can be paused and resumed, and refuses commands that do not fit", async () => {
    const node = await registerNode(server, org, "a");
    for (const action of ["pause", "resume", "rollback"] as const) {
      expect((await call("POST", "ca/rotate/", { action })).status).toBe(409);
    }
    await steer("start");
    expect((await call("POST", "ca/rotate/", { action: "start" })).status).toBe(409);
    expect((await call("POST", "ca/rotate/", { action: "resume" })).status).toBe(409);
    expect((await call("POST", "ca/rotate/", { action: "onward" })).status).toBe(400);
    expect((await steer("pause")).rotation.paused).toBe(true);
    await confirm(node);
    await advance();
    expect(await phase()).toBe("trust");
    expect((await steer("resume")).rotation.paused).toBe(false);
    await advance();
    expect(await phase()).toBe("issue");
  });

  test("leaves nodes that get their first IPv6 address to the rolling update", async () => {
    const node = await registerNode(server, org, "a");
    await confirm(node);
    await seen([node]);
    const old = await overlayCa("active");
    await steer("start");
    await confirm(node);
    // The rolling update waits for its confirmation: the rotation must issue nothing.
    await server.db.write(async (tx) => {
      await raiseOwnVersion(tx, org.id, node.id);
      await tx.run("UPDATE organizations SET move_open = 1, moving_node = $2 WHERE id = $1", [
        org.id,
        node.id,
      ]);
    });
    for (let round = 0; round < 3; round++) await advance();
    expect((await has(node)).issuers).toEqual([old]);
    expect((await show()).rotation).toMatchObject({ phase: "issue", waiting_for: [node.id] });
    await server.db.write((tx) => tx.run("UPDATE organizations SET move_open = 0 WHERE id = $1", [org.id]));
    await goThrough([node]);
    expect((await has(node)).issuers).toEqual([await overlayCa("active")]);
  });

  for (const until of ["trust", "issue", "retire"] as const) {
    test(`rolled back in phase ${until} ends with the former CA, by confirmed steps`, async () => {
      const nodes = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
      const [a, b] = nodes as [RegisteredNode, RegisteredNode];
      await allConfirm(nodes);
      const old = await overlayCa("active");
      await steer("start");
      for (let round = 0; round < 9 && (await phase()) !== until; round++) {
        await allConfirm(nodes);
        await settle();
      }
      if (until === "issue") {
        // Only one node has a certificate of the new CA in force.
        await advance();
        await confirm(a);
      }
      const back = await steer("rollback");
      const next: Record<typeof until, Authorities["rotation"]["phase"]> = {
        trust: "retire",
        issue: "issue",
        retire: "trust",
      };
      expect(back.rotation).toMatchObject({ phase: next[until], rolling_back: true });
      for (const node of nodes) await has(node);
      // A second rollback would lead to the new CA.
      for (let round = 0; (await phase()) !== "none"; round++) {
        const before = await steered();
        const again = await call("POST", "ca/rotate/", { action: "rollback" });
        expect([again.status, again.text]).toEqual([409, expect.stringContaining("rolled back already")]);
        expect(await steered()).toEqual(before);
        if (round > 12) break;
        await settle();
        await allConfirm(nodes);
      }
      expect((await show()).rotation).toMatchObject({ phase: "none", rolling_back: false });
      for (const node of nodes) expect(await has(node)).toMatchObject({ issuers: [old], trusts: [old] });
      expect((await has(b)).x509Trusts).toBe(1);
      // The limit applies to one rotation only.
      expect((await steer("start")).rotation.rolling_back).toBe(false);
      expect((await steer("rollback")).rotation.phase).toBe("retire");
    });
  }
});

describe("an offline node", () => {
  test("is not waited for, and catches up months later with its token alone", async () => {
    const [here, away] = [await registerNode(server, org, "here"), await registerNode(server, org, "away")];
    await allConfirm([here, away]);
    server.clock.ms += 10 * 60_000;
    await confirm(here);
    await seen([here]);
    await steer("start");
    expect((await show()).rotation.waiting_for).toEqual([here.id]);
    await goThrough([here]);
    const active = await overlayCa("active");
    server.clock.ms += 120 * day;
    await away.checkin();
    expect(await has(away)).toMatchObject({
      issuers: [active],
      trusts: [active],
      x509Trusts: 1,
      blocked: [],
    });
  });

  test("is waited for while the server sees no node at all", async () => {
    const node = await registerNode(server, org, "a");
    await confirm(node);
    server.clock.ms += 10 * 60_000;
    await steer("start");
    for (let round = 0; round < 3; round++) await advance();
    expect((await show()).rotation).toMatchObject({ phase: "trust", waiting_for: [node.id] });
    await confirm(node);
    await advance();
    expect(await phase()).toBe("issue");
  });

  test("is waited for after a server start, until every node could be seen", async () => {
    const [here, late] = [await registerNode(server, org, "here"), await registerNode(server, org, "late")];
    await allConfirm([here, late]);
    server.clock.ms += 10 * 60_000;
    await confirm(here);
    await seen([here]);
    await steer("start");
    await resetSilenceTimer(server.app.services);
    await confirm(here);
    await advance();
    expect((await show()).rotation).toMatchObject({ phase: "trust", waiting_for: [late.id] });
    for (let times = 0; times < 2; times++) {
      server.clock.ms += 100_000;
      await confirm(here);
      await seen([here]);
    }
    await advance();
    expect(await phase()).toBe("issue");
  });

  test("that is revoked gets nothing and is not waited for", async () => {
    const [node, peer] = [await registerNode(server, org, "lost"), await registerNode(server, org, "peer")];
    await allConfirm([node, peer]);
    await steer("start");
    expect((await call("DELETE", `nodes/${node.id}/`)).status).toBe(204);
    await goThrough([peer]);
    const issued = await server.db.get("SELECT count(*) AS n FROM certificates WHERE node_id = $1", [
      node.id,
    ]);
    expect(issued?.["n"]).toBe(2);
    expect((await node.download()).status).toBe(403);
    // The certificate of the old CA stays on the list: a node may still trust that CA.
    expect((await has(peer)).blocked).toHaveLength(1);
  });
});

describe("the server", () => {
  const expiring = async () =>
    (
      await server.db.all("SELECT after FROM events WHERE org_id = $1 AND type = 'ca.expiring' ORDER BY id", [
        org.id,
      ])
    ).map(
      (row) =>
        v.parse(v.object({ warned_at_days: v.number() }), JSON.parse(String(row["after"]))).warned_at_days,
    );
  /** The check of a server that has just started. */
  const look = () => makeRotations(store())();
  const leave = async (days: number) => {
    const end = server.clock.ms + days * day;
    await server.db.write((tx) =>
      tx.run("UPDATE authorities SET not_after = $2, created_at = 0 WHERE org_id = $1", [org.id, end]),
    );
    await look();
  };

  test("starts a rotation when less than two lifetimes of a node's certificate are left, and announces it once", async () => {
    await leave(181);
    expect([await phase(), await expiring()]).toEqual(["none", []]);
    await leave(179);
    // Without nodes every check advances it.
    expect(await phase()).not.toBe("none");
    expect(await expiring()).toEqual([180, 180]);
    // It does not restart a rolled back rotation at once.
    await steer("rollback");
    await goThrough([]);
    await look();
    expect([await phase(), await expiring()]).toEqual(["none", [180, 180]]);
  });

  test("only warns with ca_rotation_auto off, several times before the expiry", async () => {
    expect((await call("PATCH", "", { ca_rotation_auto: false })).status).toBe(200);
    for (const days of [179, 100, 89, 20, 6]) await leave(days);
    expect([await phase(), await expiring()]).toEqual(["none", [180, 180, 90, 90, 30, 30, 7, 7]]);
    expect((await show()).rotation.auto).toBe(false);
  });
});
