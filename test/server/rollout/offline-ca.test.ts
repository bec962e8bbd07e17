// An offline CA beside the CA of the control plane: what nodes get of it, and that the control plane replaces nothing of it.

import { join } from "node:path";
import { expect, setDefaultTimeout, test } from "bun:test";
import { decodeBundle, encodePem } from "../../../src/pki/bundle.ts";
import { readHostPublicKey } from "../../../src/pki/keys.ts";
import { decodeCaBundle, fingerprint, makeCa, signCertificate } from "../../../src/pki/nebula.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { openAuthorities } from "../../../src/server/certificates/authorities.ts";
import { advanceRotations } from "../../../src/server/rollout/rotation-phases.ts";
import { authorities } from "../../../src/server/store/tables/certificates.ts";
import { memberships } from "../../../src/server/store/tables/organizations.ts";
import { policies } from "../../../src/server/store/tables/policies.ts";
import { canonicalJson } from "../../../src/protocol/seals/seal.ts";
import { sealOf } from "../../support/seals.ts";
import { makeSshKey } from "../../support/ssh-keys.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { makeClock } from "../../support/clock.ts";
import { blocklistOf, confirm, downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

setDefaultTimeout(60_000);
let server: TestServer;
let org: Organization;
const { call, callNode } = useNumbered((made) => ({ server, org } = made), {
  network: { sleep: makeClock().sleep },
});

const nowS = () => Math.floor(server.clock.ms / 1000);
const year = 365 * 86_400;
const makeOffline = () =>
  makeCa({ version: 1, name: "offline", notBefore: nowS() - 600, notAfter: nowS() + 10 * year });
type Ca = ReturnType<typeof makeOffline>;

const pemOf = (ca: Ca, node: RegisteredNode, more: { groups?: string[]; unsafeNetworks?: string[] } = {}) =>
  encodePem(
    signCertificate(
      {
        version: 1,
        name: node.name,
        networks: [`${node.ip}/${org.network.split("/")[1]}`],
        unsafeNetworks: [],
        groups: [],
        ...more,
        notBefore: nowS() - 300,
        notAfter: nowS() + year,
        publicKey: readHostPublicKey(node.keys.host_public_key),
      },
      ca,
    ),
  );
const owners = new Map<string, string>();
/** Only an owner may: whoever has the key gives rights that no removal from the organization ends. */
const addCa = async (ca: Ca) => {
  const body = { certificate: encodePem(ca.certificate) };
  expect((await call("POST", "seals/ca/", body)).status).toBe(403);
  let owner = owners.get(org.slug);
  if (owner === undefined) {
    const email = `owner@${org.slug}.example`;
    owner = await server.person(email);
    await server.join(org, email, "owner");
    owners.set(org.slug, owner);
  }
  return server.send("POST", `/api/org/${org.slug}/seals/ca/`, { token: owner, body });
};
const upload = (pem: string) => call("POST", "seals/certificates/", { certificates: pem });
const read = async (node: RegisteredNode) => {
  const answer = downloadOf(await node.download());
  const [own] = decodeBundle(answer.files["host.crt"]);
  return {
    own,
    trusts: decodeCaBundle(answer.files["ca.crt"]).map(fingerprint),
    blocked: blocklistOf(answer),
  };
};

test("a node gets the certificate of the offline CA, and no renewal replaces it before it ends", async () => {
  const node = await registerNode(server, org, "db");
  const ca = makeOffline();
  const print = fingerprint(ca.certificate);
  expect((await upload(pemOf(ca, node))).status).toBe(409);
  for (let times = 0; times < 2; times++) expect((await addCa(ca)).status).toBe(201);
  expect((await read(node)).trusts).toContain(print);
  expect((await read(node)).own?.issuer).not.toBe(print);
  const pem = pemOf(ca, node);
  expect((await upload(pem)).json).toEqual({ nodes: ["db"] });
  expect((await upload(pem)).json).toEqual({ nodes: [] });
  expect((await read(node)).own?.issuer).toBe(print);
  expect((await callNode("POST", node, "renew_cert/")).status).toBe(200);
  // A group that it gains waits for signers.
  expect((await callNode("PATCH", node, "", { groups: ["web"] })).status).toBe(200);
  await node.checkin();
  expect((await read(node)).own).toMatchObject({ issuer: print, groups: [] });
  expect((await upload(pemOf(ca, node))).status).toBe(409);
  expect((await upload(pemOf(ca, node, { groups: ["web"] }))).status).toBe(201);
  expect((await read(node)).own).toMatchObject({ issuer: print, groups: ["web"] });
  // A group that it loses ends it, and its peers drop the former one.
  const former = fingerprint((await read(node)).own ?? ca.certificate);
  expect((await callNode("PATCH", node, "", { groups: [] })).status).toBe(200);
  expect((await read(node)).own?.issuer).not.toBe(print);
  await confirm(node);
  const other = await registerNode(server, org, "other");
  expect((await read(other)).blocked).toContain(former);
});

test("an owner who is removed while the request waits adds no offline CA", async () => {
  await addCa(makeOffline());
  const { clock } = server.app.services;
  const { requireBelieved } = clock;
  let removal: Promise<unknown> = Promise.resolve();
  // Called after the request was admitted, and before its transaction.
  clock.requireBelieved = () => {
    // Under the lock that the request waits for, so that it comes before on PostgreSQL, too.
    removal = server.db.write((tx) => memberships.delete(tx, { orgId: org.id, role: "owner" }));
  };
  try {
    const body = { certificate: encodePem(makeOffline().certificate) };
    const token = owners.get(org.slug) ?? "";
    const answer = await server.send("POST", `/api/org/${org.slug}/seals/ca/`, { token, body });
    expect(answer.json).toMatchObject({ code: "permission_denied" });
  } finally {
    clock.requireBelieved = requireBelieved;
    await removal;
  }
});

test("a CA of the control plane or of another organization is refused", async () => {
  const other = await server.organization("other", "10.99.0.0/16");
  const caOf = async (orgId: number) => {
    const found = await authorities.find(server.db, { orgId, kind: "overlay", state: "active" });
    return { certificate: found?.certificate ?? "" };
  };
  await addCa(makeOffline());
  const token = owners.get(org.slug) ?? "";
  const own = { token, body: await caOf(org.id) };
  const ownAnswer = await server.send("POST", `/api/org/${org.slug}/seals/ca/`, own);
  expect([ownAnswer.status, ownAnswer.text]).toEqual([409, expect.stringContaining("is not offline")]);
  const body = await caOf(other.id);
  const answer = await server.send("POST", `/api/org/${org.slug}/seals/ca/`, { token, body });
  expect([answer.status, answer.text]).toEqual([
    409,
    expect.stringContaining("belongs to another organization"),
  ]);
});

test("a CA that signers have ended is not added again", async () => {
  const ca = makeOffline();
  await addCa(ca);
  const fingerprintOf = { orgId: org.id, fingerprint: fingerprint(ca.certificate) };
  await server.db.writeFor({ org: org.id }, (tx) =>
    authorities.update(tx, fingerprintOf, { retiredAt: server.clock.ms }),
  );
  const answer = await addCa(ca);
  expect([answer.status, answer.text]).toEqual([409, expect.stringContaining("Signers have ended the CA")]);
});

test("a rotation waits until signers have signed the new CA, where nodes enforce a seal", async () => {
  const node = await registerNode(server, org, "sealed");
  await confirm(node);
  using directory = temporaryDirectory();
  const signers = [{ name: "ann", key: makeSshKey(join(directory.path, "ann")).line }];
  const first = sealOf({ signers, nodes: 0 });
  const offline = "a".repeat(64);
  const store = { ...server.app.services, authorities: openAuthorities(server.app.services) };
  expect((await call("POST", "ca/rotate/", { action: "start" })).status).toBe(200);
  const [next] = await authorities.all(server.db, { orgId: org.id, kind: "overlay", state: "next" });
  const sealWith = async (more: readonly string[]) => {
    const sealing = { offline: [offline], privileged: [], revoked: [] };
    const state = { ...first.state, nodes: [], authorities: [offline, ...more].sort(), sealing };
    const text = canonicalJson({ ...first, mode: "enforce", state });
    await server.db.write(async (tx) => {
      await policies.upsert(tx, { orgId: org.id, createdAt: 1 }, "ON CONFLICT (org_id) DO NOTHING");
      await policies.update(tx, { orgId: org.id }, { seals: [{ text, signatures: ["s"] }] });
    });
  };
  const advanced = async () => {
    for (let steps = 0; steps < 3; steps++) {
      await confirm(node);
      await advanceRotations(store);
      server.clock.ms += 1000;
    }
    return (await call("GET", "ca/")).json;
  };
  await sealWith([]);
  expect(await advanced()).toMatchObject({
    rotation: { phase: "trust", awaits_signers: true, waiting_for: [] },
  });
  await sealWith([next?.fingerprint ?? ""]);
  expect(await advanced()).toMatchObject({ rotation: { phase: "issue", awaits_signers: false } });
});

test("its end makes the node unprivileged, not unreachable", async () => {
  const node = await registerNode(server, org, "late");
  const ca = makeOffline();
  await addCa(ca);
  await upload(pemOf(ca, node));
  server.clock.ms += (year + 60) * 1000;
  await node.checkin();
  expect((await read(node)).own?.issuer).not.toBe(fingerprint(ca.certificate));
  server.clock.ms -= (year + 60) * 1000;
});

test("a limited CA follows once routers have offline certificates, and a rotation leaves these alone", async () => {
  const router = await registerNode(server, org, "router");
  const plain = await registerNode(server, org, "plain");
  expect((await callNode("PATCH", router, "", { subnets: ["192.168.5.0/24"] })).status).toBe(200);
  const limited = () => call("POST", "ca/rotate/", { action: "start", limited: true });
  expect((await limited()).text).toContain("has no offline CA");
  const ca = makeOffline();
  const print = fingerprint(ca.certificate);
  await addCa(ca);
  expect((await limited()).text).toContain(
    "Routers and exits need certificates of the offline CA first: router",
  );
  await upload(pemOf(ca, router, { unsafeNetworks: ["192.168.5.0/24"] }));
  expect((await limited()).status).toBe(200);
  const store = { ...server.app.services, authorities: openAuthorities(server.app.services) };
  const phase = async () =>
    (await server.db.get("SELECT rotation_phase AS p FROM organizations WHERE id = $1", [org.id]))?.["p"];
  for (let steps = 0; steps < 40 && (await phase()) !== "none"; steps++) {
    await confirm(router);
    await confirm(plain);
    await advanceRotations(store);
    server.clock.ms += 30_000;
  }
  expect(await phase()).toBe("none");
  const { own, trusts } = await read(router);
  expect(own).toMatchObject({ issuer: print, unsafeNetworks: ["192.168.5.0/24"] });
  expect(trusts).toHaveLength(2);
  const [online] = decodeCaBundle(downloadOf(await plain.download()).files["ca.crt"]).filter(
    (each) => fingerprint(each) !== print,
  );
  expect(online).toMatchObject({ networks: [org.network], unsafeNetworks: ["0.0.0.0/32"] });
  // A new router waits for signers: the limited CA leaves its network out.
  expect((await callNode("PATCH", plain, "", { subnets: ["192.168.6.0/24"] })).status).toBe(200);
  expect((await read(plain)).own?.unsafeNetworks).toEqual([]);
});
