// Migrations between certificate versions, as nodes and administrators see them: refused steps, the files for each
// engine, and the rolling update to IPv6 addresses.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { decodeBundle, encodePem } from "../../../src/pki/bundle.ts";
import { readHostPublicKey } from "../../../src/pki/keys.ts";
import { makeCa, signCertificate } from "../../../src/pki/nebula.ts";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { Node } from "../../../src/protocol/node.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { openAuthorities } from "../../../src/server/certificates/authorities.ts";
import { onlineMs } from "../../../src/api/values.ts";
import { issueFirstIpv6 } from "../../../src/server/rollout/first-ipv6.ts";
import { checkinOf, confirm, downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { makeTestServer, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner: string;

beforeEach(async () => {
  server = await makeTestServer();
  acme = await server.organization("acme", "10.77.0.0/24");
  owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
});
afterEach(() => server[Symbol.asyncDispose]());

const patch = (body: unknown) => server.send("PATCH", "/api/org/acme/", { token: owner, body });
const refusal = (answer: Answer) => {
  const { code, detail, errors } = v.parse(ErrorBody, answer.json);
  return `${answer.status} ${code} ${detail} ${JSON.stringify(errors ?? {})}`;
};
const modern = (name: string, more: object = {}) =>
  registerNode(server, acme, name, { overlay_version: "1.11.0", ...more });
/** Checks in, and stores the report. */
const seen = async (node: RegisteredNode) => {
  await node.checkin();
  await server.app.services.reports.stop();
};
const certificates = async (node: RegisteredNode) =>
  decodeBundle(downloadOf(await node.download()).files["host.crt"]).map(
    ({ version, networks }) => `${version} ${networks.join(" ")}`,
  );
const nodes = async () =>
  v.parse(v.array(Node), (await server.send("GET", "/api/org/acme/nodes/", { token: owner })).json);
const addresses6 = async () => (await nodes()).map((node) => node.ip_address6);

describe("a step", () => {
  test("goes from 1 to both to 2 and back, never directly", async () => {
    const node = await modern("one");
    expect(refusal(await patch({ certificate_version: 2 }))).toContain("409 conflict");
    expect((await patch({ certificate_version: "both" })).json).toMatchObject({
      certificate_version: "both",
    });
    expect(await certificates(node)).toEqual(["1 10.77.0.1/24", "2 10.77.0.1/24"]);
    await confirm(node);
    expect((await patch({ certificate_version: 2 })).status).toBe(200);
    expect(await certificates(node)).toEqual(["2 10.77.0.1/24"]);
    expect(refusal(await patch({ certificate_version: 1 }))).toContain("409 conflict");
    await confirm(node);
    expect((await patch({ certificate_version: "both" })).status).toBe(200);
    await confirm(node);
    await certificates(node);
    await confirm(node);
    expect((await patch({ certificate_version: 1 })).status).toBe(200);
    expect(await certificates(node)).toEqual(["1 10.77.0.1/24"]);
  });

  test("wakes the nodes, and signs nothing twice", async () => {
    const node = await modern("one");
    const version = await confirm(node);
    const poll = node.checkin({ config_version: version }, { wait: 20 });
    await patch({ certificate_version: "both" });
    expect(checkinOf(await poll)).toMatchObject({ config_changed: true });
    const first = downloadOf(await node.download());
    expect(first.files["config.yml"]).toContain("initiating_version: 1");
    expect(downloadOf(await node.download()).files["host.crt"]).toBe(first.files["host.crt"]);
    // The same value again is not a change.
    const again = (await patch({ certificate_version: "both" })).json;
    expect(again).toMatchObject({ config_version: first.config_version });
  });

  test("is refused while an engine is too old, and names its node", async () => {
    await modern("new");
    const old = await registerNode(server, acme, "old", { overlay_version: "1.9.3" });
    expect(refusal(await patch({ certificate_version: "both" }))).toMatch(/^409 conflict .*old \(1\.9\.3\)/);
    await old.checkin({ overlay_version: "1.10.3" });
    expect((await patch({ certificate_version: "both" })).status).toBe(200);
  });

  test("to 2 is refused while an engine is unknown or an online node has not confirmed both", async () => {
    const silent = await registerNode(server, acme, "silent");
    await seen(silent);
    expect((await patch({ certificate_version: "both" })).status).toBe(200);
    expect(refusal(await patch({ certificate_version: 2 }))).toContain("silent (unknown engine)");
    await silent.checkin({ overlay_version: "1.11.0" });
    expect(refusal(await patch({ certificate_version: 2 }))).toMatch(/^409 .* not in force yet on silent/);
    await silent.download();
    await confirm(silent);
    expect((await patch({ certificate_version: 2 })).status).toBe(200);
  });

  test("does not wait for offline nodes: they get the right files when they return", async () => {
    const away = await modern("away");
    await seen(away);
    server.clock.ms += 200_000;
    owner = await server.app.services.sessions.start(1).then(({ access }) => access);
    await patch({ certificate_version: "both" });
    expect((await patch({ certificate_version: 2 })).status).toBe(200);
    expect(await certificates(away)).toEqual(["2 10.77.0.1/24"]);
  });
});

test("an old engine that registers at both gets files that it can read; at 2 it is refused", async () => {
  await patch({ certificate_version: "both" });
  const old = await registerNode(server, acme, "old", { overlay_version: "1.6.1" });
  expect(await certificates(old)).toEqual(["1 10.77.0.1/24"]);
  await old.checkin({ overlay_version: "1.11.0" });
  expect(await certificates(old)).toEqual(["1 10.77.0.1/24", "2 10.77.0.1/24"]);
  await confirm(old);
  expect((await patch({ certificate_version: 2 })).status).toBe(200);
  const late = registerNode(server, acme, "late", { overlay_version: "1.6.1" });
  expect(String(await late.catch((error: unknown) => error))).toMatch(/400 .*overlay_version.*1\.10/);
});

describe("an IPv6 network", () => {
  test.each([
    ["fd77::/121", "room for as many nodes"],
    ["10.8.0.0/16", "IPv6"],
    ["fd77::1/64", "host bits"],
  ])("%s is refused", async (network6, why) => {
    expect(refusal(await patch({ network6 }))).toMatch(new RegExp(`^400 validation_failed .*${why}`));
  });

  test("can be set once, and nodes get addresses with certificates that hold them", async () => {
    await modern("one");
    expect((await patch({ network6: "fd77::/64" })).json).toMatchObject({ network6: "fd77::/64" });
    expect(refusal(await patch({ network6: "fd78::/64" }))).toContain("cannot be changed");
    expect(await addresses6()).toEqual([null]);
    await patch({ certificate_version: "both" });
    // New nodes need no restart.
    const two = await modern("two");
    expect(await certificates(two)).toEqual(["1 10.77.0.2/24", "2 10.77.0.2/24 fd77::2/64"]);
    expect(refusal(await patch({ certificate_version: 1 }))).toContain("IPv6 addresses");
  });

  test("is rolled out to one node after the other, lighthouses last; offline nodes are skipped", async () => {
    const hub = await modern("hub", { is_lighthouse: true, public_ip: "192.0.2.1" });
    const one = await modern("one");
    const two = await modern("two");
    const away = await modern("away");
    // Nodes that have just registered count as online.
    server.clock.ms += onlineMs;
    await patch({ network6: "fd77::/64" });
    await patch({ certificate_version: "both" });
    const present = [hub, one, two];
    /** The certificates that each online node has now. */
    const moved = async () => {
      const lists = await Promise.all(present.map(certificates));
      return lists.map((list) => list.length === 2);
    };
    for (const node of present) await confirm(node);
    await server.app.services.reports.stop();
    // A confirmation advances the rolling update.
    const look = () => one.checkin({ config_version: 1, confirmed_config_version: 2 });
    await look();
    expect(await moved()).toEqual([false, true, false]);
    // It has its files but has not confirmed: no other node is updated.
    await confirm(two);
    await confirm(hub);
    expect(await moved()).toEqual([false, true, false]);
    await confirm(one);
    expect(await moved()).toEqual([false, true, true]);
    await confirm(one);
    expect(await moved()).toEqual([false, true, true]);
    // A restarted lighthouse forgets the nodes' addresses: it restarts some time after them.
    await confirm(two);
    server.clock.ms += 9_999;
    await look();
    expect(await moved()).toEqual([false, true, true]);
    server.clock.ms += 1;
    await confirm(one);
    expect(await moved()).toEqual([true, true, true]);
    await confirm(hub);
    expect(await addresses6()).toEqual(["fd77::1", "fd77::2", "fd77::3", null]);
    const { files } = downloadOf(await one.download());
    expect(files["node-config.json"]).toContain('"ip_address6": "fd77::2"');
    await seen(away);
    await confirm(away);
    expect(await certificates(away)).toEqual(["1 10.77.0.4/24", "2 10.77.0.4/24 fd77::4/64"]);
  });

  test("takes a node that has just registered before a lighthouse, although its first check-in is not stored yet", async () => {
    const hub = await modern("hub", { is_lighthouse: true, public_ip: "192.0.2.1" });
    const one = await modern("one");
    await patch({ network6: "fd77::/64" });
    await patch({ certificate_version: "both" });
    for (const node of [hub, one]) await confirm(node);
    await server.app.services.reports.stop();
    await server.db.write((tx) => tx.run("DELETE FROM sightings WHERE node_id = $1", [one.id]));
    await issueFirstIpv6({
      ...server.app.services,
      authorities: openAuthorities(server.app.services),
    });
    const row = await server.db.get("SELECT moving_node FROM organizations WHERE id = $1", [acme.id]);
    expect(row?.["moving_node"]).toBe(one.id);
  });

  test("waits before a lighthouse since the last node restarted, although another turn looked before", async () => {
    const hub = await modern("hub", { is_lighthouse: true, public_ip: "192.0.2.1" });
    const one = await modern("one");
    const two = await modern("two");
    server.clock.ms += onlineMs;
    await patch({ network6: "fd77::/64" });
    await patch({ certificate_version: "both" });
    for (const node of [hub, one, two]) await confirm(node);
    await server.app.services.reports.stop();
    const { services } = server.app;
    const advance = (db = services.db) =>
      issueFirstIpv6({ ...services, db, authorities: openAuthorities(services) });
    await advance();
    const { config_version } = checkinOf(await one.checkin());
    // Without a turn of the server itself.
    await server.db.write((tx) =>
      tx.run("UPDATE nodes SET confirmed_config_version = $1 WHERE id = $2", [config_version, one.id]),
    );
    // A turn that has read the update as it was before another turn takes the next node.
    let isLate = true;
    const late = new Proxy(services.db, {
      get(db, key) {
        const value: unknown = Reflect.get(db, key);
        if (typeof value !== "function") return value;
        return async (...words: unknown[]) => {
          const read: unknown = await value.apply(db, words);
          if (isLate && key === "all") {
            isLate = false;
            await advance();
          }
          return read;
        };
      },
    });
    await advance(late);
    expect(await certificates(two)).toHaveLength(2);
    // The node restarts only now.
    server.clock.ms += 20_000;
    await confirm(two);
    await advance();
    expect(await certificates(hub)).toHaveLength(1);
    server.clock.ms += 10_000;
    await advance();
    expect(await certificates(hub)).toHaveLength(2);
  });

  test("passes over a node whose certificate of an offline CA stays, and renews its node.crt", async () => {
    const signed = await modern("signed");
    const other = await modern("other");
    const now = Math.floor(server.clock.ms / 1000);
    const ca = makeCa({ version: 1, name: "offline", notBefore: now - 600, notAfter: now + 900_000 });
    const body = { certificate: encodePem(ca.certificate) };
    const post = (path: string, more: object) =>
      server.send("POST", `/api/org/acme/seals/${path}/`, { token: owner, body: more });
    expect((await post("ca", body)).status).toBe(201);
    const template = {
      version: 1,
      name: "signed",
      networks: [`${signed.ip}/24`],
      unsafeNetworks: [],
      groups: [],
      notBefore: now - 300,
      notAfter: now + 800_000,
      publicKey: readHostPublicKey(signed.keys.host_public_key),
    } as const;
    const certificates1 = encodePem(signCertificate(template, ca));
    expect((await post("certificates", { certificates: certificates1 })).status).toBe(201);
    await patch({ network6: "fd77::/64" });
    await patch({ certificate_version: "both" });
    const { services } = server.app;
    const advance = () => issueFirstIpv6({ ...services, authorities: openAuthorities(services) });
    for (let turns = 0; turns < 3; turns++) {
      await confirm(signed);
      await confirm(other);
      await services.reports.stop();
      await advance();
    }
    expect(await certificates(signed)).toEqual(["1 10.77.0.1/24"]);
    expect(await certificates(other)).toEqual(["1 10.77.0.2/24", "2 10.77.0.2/24 fd77::2/64"]);
    await signed.checkin();
    const { X509Certificate } = await import("node:crypto");
    const crt = new X509Certificate(downloadOf(await signed.download()).files["node.crt"] ?? "");
    expect(crt.subjectAltName).toContain("IP Address:FD77:0:0:0:0:0:0:1");
  });

  test("is in node.crt too", async () => {
    await patch({ network6: "fd77::/64" });
    await patch({ certificate_version: "both" });
    const { answer } = await modern("one");
    const { X509Certificate } = await import("node:crypto");
    const crt = new X509Certificate(answer.config.files["node.crt"] ?? "");
    expect(crt.subjectAltName).toContain("IP Address:FD77:0:0:0:0:0:0:1");
  });
});
