// Requests of nodes: check-ins that are answered at once, downloads of their files, and renewals.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, test } from "bun:test";
import { paths } from "../../support/paths.ts";
import { findNode } from "../../../src/server/store/nodes.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";
import {
  certificateOf,
  checkinOf,
  confirm,
  countOf,
  downloadOf,
  registerNode,
  type RegisteredNode,
} from "../../support/nodes.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let count: number;

const { callNode, configVersion, showNode } = useNumbered((made) => ({ server, org, admin, count } = made));

const patch = (node: RegisteredNode, body: unknown) => callNode("PATCH", node, "", body);
/** The stored report of the node. */
const written = async (node: RegisteredNode) => ({
  ...(await server.db.get("SELECT * FROM sightings WHERE node_id = $1", [node.id])),
});

describe("a check-in", () => {
  test("tells the node its version, and is stored within a second", async () => {
    const node = await registerNode(server, org, "web");
    const answer = checkinOf(
      await node.checkin({ config_version: 1, overlay_state: "running", future: { more: 1 } }),
    );
    expect(answer).toMatchObject({ config_version: await configVersion(), config_changed: false });
    const certificate = certificateOf(node.answer.config, server.clock.ms);
    expect(Date.parse(answer.certificate_not_after)).toBe(certificate.notAfter * 1000);
    expect(await showNode(node)).toMatchObject({ online: true, state: "active" });
    await until(async () => (await written(node))["reported_version"] === "1.0.0", { ms: 10_000 });
    expect(await showNode(node)).toMatchObject({ agent_version: "1.0.0", applied_config_version: 1 });
    server.clock.ms += 151_000;
    expect(await showNode(node)).toMatchObject({ online: false });
  });

  test("says what is in force of offloads; former agents do not, and what cannot be read fails nothing", async () => {
    const node = await registerNode(server, org, "web");
    const plane = { tun_offloads: true, udp_offloads: false, buffer_bytes: 4_194_304, why: "segments" };
    const reported = [
      [{}, null],
      [{ data_plane: { ...plane, newer: 1 } }, plane],
      [{}, plane],
      [{ data_plane: { tun_offloads: "yes" } }, plane],
      [{ data_plane: { ...plane, why: "x".repeat(33) } }, plane],
      [
        { data_plane: { tun_offloads: false, udp_offloads: false } },
        { tun_offloads: false, udp_offloads: false },
      ],
    ] as const;
    for (const [more, shown] of reported) {
      checkinOf(await node.checkin({ config_version: 1, ...more }));
      expect((await showNode(node)).data_plane).toEqual(shown);
    }
    await server.app.services.reports.stop();
    expect(await showNode(node)).toMatchObject({ data_plane: { tun_offloads: false } });
    expect((await written(node))["data_plane"]).toBe('{"tun_offloads":false,"udp_offloads":false}');
  });

  test("is shown while it is being written", async () => {
    const node = await registerNode(server, org, "web");
    const { writeFor } = server.db;
    const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const slow: typeof writeFor = async (concern, work) => {
      if (concern === "rows") {
        begun.resolve();
        await released.promise;
      }
      return writeFor(concern, work);
    };
    Object.assign(server.db, { writeFor: slow });
    try {
      await node.checkin({ config_version: 1 });
      await begun.promise;
      expect(await showNode(node)).toMatchObject({
        agent_version: "1.0.0",
        applied_config_version: 1,
        online: true,
      });
    } finally {
      released.resolve();
      Object.assign(server.db, { writeFor });
    }
  });

  test("with a version that the organization has not reached confirms nothing", async () => {
    const node = await registerNode(server, org, "web");
    const stored = async () => ({
      ...(await server.db.get("SELECT confirmed_config_version AS n FROM nodes WHERE id = $1", [node.id])),
    });
    const last = await countOf(server, "SELECT last_version AS n FROM organizations WHERE id = $1", org.id);
    await node.checkin({ config_version: last, confirmed_config_version: last, overlay_state: "running" });
    expect(await stored()).toEqual({ n: last });
    for (const far of [last + 1, Number.MAX_SAFE_INTEGER]) {
      for (const overlay_state of ["running", "stopped"]) {
        const sent = { config_version: far, confirmed_config_version: far, overlay_state };
        expect(checkinOf(await node.checkin(sent))).toMatchObject({ config_changed: true });
        const { confirmed_config_version: _, ...older } = sent;
        await node.checkin(older);
      }
    }
    await server.app.services.reports.stop();
    expect(await stored()).toEqual({ n: last });
    expect(await showNode(node)).toMatchObject({ applied_config_version: last });
    // A version that the node did apply is still taken.
    await patch(node, { config_overrides: { tun: { mtu: 1400 } } });
    const newest = checkinOf(await node.checkin()).config_version;
    await node.checkin({
      config_version: newest,
      confirmed_config_version: newest,
      overlay_state: "running",
    });
    expect(await stored()).toEqual({ n: newest });
  });

  test("is answered at once again after a renewal that was not necessary", async () => {
    const node = await registerNode(server, org, "web");
    // A change of all nodes marks them so, and finds that this one has what it needs.
    await server.db.write((tx) => tx.run("UPDATE nodes SET renew_at = 0 WHERE id = $1", [node.id]));
    const request = { version: "1.0.0", uptime: 7 };
    for (let round = 0; round < 2; round++) expect((await node.checkin()).status).toBe(200);
    expect(server.app.services.checkins.atOnce(org, node.id, request)).toBeDefined();
  });

  test("is part of the node that admin commands show", async () => {
    const node = await registerNode(server, org, "web");
    await node.checkin({ config_version: 1 });
    await server.app.services.reports.stop();
    expect(await findNode(server.db, org.id, node.id)).toMatchObject({
      lastCheckinAt: server.clock.ms,
      agentVersion: "1.0.0",
      appliedConfigVersion: 1,
    });
  });

  test("a lower or a higher version is reported as a change", async () => {
    const node = await registerNode(server, org, "web");
    const now = await configVersion();
    for (const [config_version, config_changed] of [
      [now, false],
      [now + 5, true],
      [0, true],
    ] as const)
      expect(checkinOf(await node.checkin({ config_version }))).toMatchObject({
        config_changed,
        config_version: now,
      });
  });

  test("is allowed for administrators and the node itself", async () => {
    const node = await registerNode(server, org, "web");
    const other = await registerNode(server, org, "other");
    const body = { version: "1", uptime: 1 };
    const send = async (token: string) =>
      (await server.send("POST", paths.checkin(org.slug, node.id), { token, body })).status;
    expect(await send(admin)).toBe(200);
    expect(await send(other.token)).toBe(403);
    expect((await node.checkin({ uptime: -1 })).status).toBe(400);
  });

  test("is stored once with the last value of each field, even if the node changes before", async () => {
    const node = await registerNode(server, org, "web");
    const isWritten = async () => {
      while (Number((await written(node))["last_checkin_at"]) !== server.clock.ms) await Bun.sleep(20);
    };
    server.clock.ms += 1000;
    await node.checkin({ version: "1.0.1", uptime: 1, overlay_state: "running", config_version: 1 });
    expect((await patch(node, { name: "web-2" })).status).toBe(200);
    expect(await showNode(node)).toMatchObject({ agent_version: "1.0.1", applied_config_version: 1 });
    server.clock.ms += 1000;
    await node.checkin({ version: "1.0.2", uptime: 2 });
    await isWritten();
    const last = { reported_version: "1.0.2", overlay_state: "running" };
    expect(await written(node)).toMatchObject(last);
    expect(Number((await written(node))["uptime"])).toBe(2);
    expect(Number((await written(node))["applied_config_version"])).toBe(1);
    // A download reports only the applied version.
    const { headers } = await node.download();
    server.clock.ms += 1000;
    const same = await node.download(headers.get("etag") ?? "");
    expect(same.status).toBe(304);
    await isWritten();
    expect(await written(node)).toMatchObject(last);
    const { applied_config_version: applied } = await written(node);
    expect(String(applied)).toBe(same.headers.get("x-config-version") ?? "");
  });

  test("is stored whole if it is the first one, and time passes while its permission to update is stored", async () => {
    const node = await registerNode(server, org, "web");
    const { writeFor } = server.db;
    const slow: typeof writeFor = (concern, work) => {
      if (concern !== "rows") server.clock.ms += 1000;
      return writeFor(concern, work);
    };
    Object.assign(server.db, { writeFor: slow });
    const heardAt = server.clock.ms;
    try {
      const updates = { may: ["agent"], order: 0, zone: 0 };
      await node.checkin({ uptime: 7, overlay_state: "running", config_version: 1, updates });
      await server.app.services.reports.stop();
    } finally {
      Object.assign(server.db, { writeFor });
    }
    expect(server.clock.ms).toBeGreaterThan(heardAt);
    expect(await written(node)).toMatchObject({ overlay_state: "running", reported_version: "1.0.0" });
    expect(Number((await written(node))["last_checkin_at"])).toBe(heardAt);
    expect(await showNode(node)).toMatchObject({ applied_config_version: 1 });
  });

  test("is stored although the cache was cleared between two check-ins, and counts before it is stored", async () => {
    const node = await registerNode(server, org, "web");
    const version = await configVersion();
    server.clock.ms += 1000;
    await node.checkin({ uptime: 1, overlay_state: "running", config_version: version });
    // A change of this node alone before the report is stored: the node has the version that it reported, not the new one.
    await node.checkin({ overlay_version: "1.9.9" });
    const { config_version, config_changed } = checkinOf(await node.checkin({ overlay_version: "1.9.9" }));
    expect([config_version, config_changed]).toEqual([version + 1, true]);
    await server.db.write((tx) => tx.notify("auth", "organization 0"));
    await node.checkin({ uptime: 3, overlay_version: "1.9.9" });
    while (Number((await written(node))["uptime"]) !== 3) await Bun.sleep(20);
    expect(await written(node)).toMatchObject({ overlay_state: "running", reported_version: "1.0.0" });
    expect(Number((await written(node))["applied_config_version"])).toBe(version);
  });

  test("with a number beyond the database's range is refused: it would block all other reports", async () => {
    const node = await registerNode(server, org, "web");
    for (const field of ["uptime", "config_version", "confirmed_config_version"])
      expect([field, (await node.checkin({ [field]: 1e300 })).status]).toEqual([field, 400]);
    expect((await node.checkin({ uptime: Number.MAX_SAFE_INTEGER })).status).toBe(200);
  });
});

describe("download_config", () => {
  test("is 304 for an unchanged node, with the current version", async () => {
    const node = await registerNode(server, org, "web");
    const first = await node.download();
    const etag = first.headers.get("etag") ?? "";
    const { config_version } = downloadOf(first);
    // A rule about another node raises the version for all.
    const other = await registerNode(server, org, "other");
    await server.db.write(async (tx) => {
      await tx.run(
        `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, created_at)
         VALUES ($1, 'inbound', 'tcp', '22', '{"any":true}', $2, 0)`,
        [org.id, JSON.stringify({ node: other.id })],
      );
      const { raiseConfigVersion } = await import("../../../src/server/store/versions.ts");
      await raiseConfigVersion(tx, org.id);
    });
    for (const tag of [etag, `W/${etag}`, `"x", ${etag}`]) {
      const same = await node.download(tag);
      expect([same.status, same.text]).toEqual([304, ""]);
      expect(same.headers.get("x-config-version")).toBe(String(config_version + 1));
    }
    expect((await other.download(etag)).status).toBe(200);
    expect(downloadOf(await other.download()).files["config.yml"]).toContain('port: "22"');
  });

  test("an archive contains the same files", async () => {
    const node = await registerNode(server, org, "web");
    const request = new Request(
      `https://control.example${paths.downloadConfig(org.slug, node.id)}?format=tar`,
      {
        headers: { Authorization: `Bearer ${node.token}` },
      },
    );
    const response = await server.app.fetch(request, { addressOf: () => "192.0.2.1" });
    const archive = new Bun.Archive(await response.bytes());
    const files = await archive.files();
    const { files: expected } = downloadOf(await node.download());
    const names = ["ca.crt", "config.yml", "host.crt", "node-config.json", "node.crt"];
    expect([...files.keys()].toSorted()).toEqual(names);
    expect(Object.keys(expected).toSorted()).toEqual(names);
    expect(await files.get("config.yml")?.text()).toBe(expected["config.yml"]);
  });

  test("a new engine gets other keys, and only its node is notified", async () => {
    const [node, other] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    const config_version = await configVersion();
    expect(checkinOf(await node.checkin({ config_version, overlay_version: "1.6.1" })).config_changed).toBe(
      false,
    );
    expect(checkinOf(await node.checkin({ config_version, overlay_version: "1.11.0" })).config_changed).toBe(
      true,
    );
    expect(downloadOf(await node.download()).files["config.yml"]).toContain("inbound_action:");
    expect(checkinOf(await other.checkin({ config_version })).config_changed).toBe(false);
    expect(downloadOf(await other.download()).files["config.yml"]).not.toContain("inbound_action:");
  });
});

describe("renewal", () => {
  const days = (n: number) => n * 86_400_000;

  test("happens automatically at two thirds of the lifetime, and blocks nothing", async () => {
    const node = await registerNode(server, org, "web");
    const before = certificateOf(node.answer.config, server.clock.ms);
    let version = await confirm(node);
    server.clock.ms += days(57);
    // node.crt is valid for a week: it is renewed, the overlay certificate is not.
    version = checkinOf(await node.checkin({ config_version: version })).config_version;
    expect(certificateOf(downloadOf(await node.download()), server.clock.ms).notAfter).toBe(before.notAfter);
    server.clock.ms += days(6);
    expect(checkinOf(await node.checkin({ config_version: version })).config_changed).toBe(true);
    const after = certificateOf(downloadOf(await node.download()), server.clock.ms);
    expect(after.notAfter).toBeGreaterThan(before.notAfter);
    expect(after.publicKey).toEqual(before.publicKey);
    const blocked = await server.db.all(
      "SELECT id FROM certificates WHERE org_id = $1 AND state = 'blocked'",
      [org.id],
    );
    expect(blocked).toEqual([]);
  });

  test("a node whose certificate has expired gets a new one with its token alone", async () => {
    const node = await registerNode(server, org, "web");
    server.clock.ms += days(200);
    const fresh = certificateOf(downloadOf(await node.download()), server.clock.ms);
    expect(fresh.notAfter * 1000).toBeGreaterThan(server.clock.ms + days(80));
    const late = await registerNode(server, org, "late");
    server.clock.ms += days(100);
    const answer = checkinOf(await late.checkin({ config_version: 1 }));
    expect(Date.parse(answer.certificate_not_after)).toBeGreaterThan(server.clock.ms + days(80));
  });

  test("no certificate outlives its CA", async () => {
    server.clock.ms += days(600);
    const fresh = await server.organization(`fresh-${count}`);
    server.clock.ms += days(700);
    const node = await registerNode(server, fresh, "web");
    const ca = await server.db.get("SELECT max(not_after) AS n FROM authorities WHERE org_id = $1", [
      fresh.id,
    ]);
    expect(certificateOf(node.answer.config, server.clock.ms).notAfter * 1000).toBe(Number(ca?.["n"]));
  });

  test("two concurrent check-ins cause one renewal", async () => {
    const node = await registerNode(server, org, "web");
    server.clock.ms += days(80);
    await Promise.all([node.download(), node.download(), node.checkin(), node.checkin()]);
    const row = await server.db.get(
      "SELECT count(*) AS n FROM certificates WHERE node_id = $1 AND kind = 'overlay'",
      [node.id],
    );
    expect(Number(row?.["n"])).toBe(2);
  });
});

test("a probe to an unreachable address does not delay the check-in's answer", async () => {
  const node = await registerNode(server, org, "web");
  const probe = { port: 4242, nonce: "nonce" };
  expect((await node.checkin({ probe }, { address: "255.255.255.255" })).status).toBe(200);
});

test("a probe is one datagram to the request's address, at most six per minute", async () => {
  const got: string[] = [];
  const socket = await Bun.udpSocket({
    hostname: "127.0.0.1",
    socket: { data: (_socket, data) => void got.push(data.toString()) },
  });
  const node = await registerNode(server, org, "web");
  for (let at = 0; at < 9; at++) {
    const probe = { port: socket.port, nonce: `nonce-${at}` };
    expect((await node.checkin({ probe }, { address: "127.0.0.1" })).status).toBe(200);
  }
  const tooLong = { port: socket.port, nonce: "x".repeat(33) };
  expect((await node.checkin({ probe: tooLong }, { address: "127.0.0.1" })).status).toBe(400);
  await Bun.sleep(50);
  socket.close();
  expect(got).toEqual(Array.from({ length: 6 }, (_, at) => `nonce-${at}`));
});
