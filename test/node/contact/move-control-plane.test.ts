// Nodes that pinned the control plane's own CA trust a public certificate only by a document of the order key.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { followOnce } from "../../../src/node/contact/follow-once.ts";
import { readCredentials, type Organization } from "../../../src/node/files/organizations.ts";
import { makeSigningKey, type SigningKey } from "../../../src/pki/tokens.ts";
import { signMove, signOrder } from "../../../src/pki/signed-messages.ts";
import type { FetchInit } from "../../../src/base/system.ts";
import { followDeps, makeControl, makeNodeWorld, type NodeWorld } from "../../support/node.ts";

const pinnedBase = "https://control.example:8420";
const publicBase = "https://control.example";
const pem = "-----BEGIN CERTIFICATE-----\nown CA\n-----END CERTIFICATE-----\n";

let world: NodeWorld;
let node: Organization;
/** Base and pinned CA of each request. */
let sent: string[];
/** Replaces the document of the control plane. */
let document: string | undefined;
let isPublicDown: boolean;

beforeEach(async () => {
  world = await makeNodeWorld();
  [sent, document, isPublicDown] = [[], undefined, false];
  const { app } = world.server;
  world.system.fetch = async (url, init: FetchInit = {}) => {
    const { origin } = new URL(url);
    sent.push(`${origin}${init.tls?.ca === undefined ? "" : " pinned"}`);
    if (origin === publicBase && isPublicDown) throw new Error("connection refused");
    const { method = "GET", headers = {}, body } = init;
    const request = new Request(url, { method, headers, ...(body === undefined ? {} : { body }) });
    const where = origin === pinnedBase ? ({ isOwnCa: true } as const) : {};
    const answer = await app.fetch(request, { addressOf: () => "192.0.2.1", ...where });
    if (document === undefined || !url.endsWith("/checkin/")) return answer;
    const told = Object(await answer.json());
    return Response.json({ ...told, move: document }, { status: answer.status });
  };
  node = await world.register({ apiBase: pinnedBase, apiCa: pem });
  sent.length = 0;
});
afterEach(() => world[Symbol.asyncDispose]());

const turn = async () => {
  const deps = followDeps(world, node, makeControl());
  return (await followOnce(node, deps, { waitS: 0 })).result;
};
const moves = () => (world.server.app.services.movesNodes = true);
const pin = () => existsSync(join(node.directory, "api-ca.crt"));
const base = () => readCredentials(node.directory).api_base;

test("without the operator's word, a node stays with the CA that it pinned", async () => {
  expect(await turn()).toBe("ok");
  expect([base(), pin()]).toEqual([pinnedBase, true]);
  expect(new Set(sent)).toEqual(new Set([`${pinnedBase} pinned`]));
});

test("told over the pinned connection, it asks the new address first, then uses it alone", async () => {
  moves();
  expect(await turn()).toBe("ok");
  expect([base(), pin()]).toEqual([publicBase, false]);
  expect(sent.filter((each) => each !== `${pinnedBase} pinned`)[0]).toBe(publicBase);
  sent.length = 0;
  expect(await turn()).toBe("ok");
  expect(new Set(sent)).toEqual(new Set([publicBase]));
});

test("killed before the file of the CA was removed, it uses the new address all the same", async () => {
  moves();
  await turn();
  writeFileSync(join(node.directory, "api-ca.crt"), pem);
  sent.length = 0;
  expect(await turn()).toBe("ok");
  expect(new Set(sent)).toEqual(new Set([publicBase]));
});

test("an address that does not answer this node is not used, and is tried again", async () => {
  moves();
  isPublicDown = true;
  expect(await turn()).toBe("ok");
  expect([base(), pin()]).toEqual([pinnedBase, true]);
  expect(world.logged.join("\n")).toContain("new address is not used yet");
  isPublicDown = false;
  await turn();
  expect(base()).toBe(publicBase);
});

test("only a move that the order key of this organization signed is obeyed", async () => {
  const other = await makeSigningKey("other");
  const key = node.config.order_key;
  if (key === undefined) throw new Error("The control plane sent no order key");
  const ours: SigningKey = { ...other, kid: key.kid };
  const seq = 1;
  const order = { org: "acme", node_id: node.config.node_id, action: "revoke", seq, iat: 1 } as const;
  for (const [name, jws] of [
    ["another key", await signMove({ org: "acme", api_base: publicBase, seq }, other)],
    ["another key with our id", await signMove({ org: "acme", api_base: publicBase, seq }, ours)],
    ["another kind of message", await signOrder({ ...order, reason: "x", jti: "x".repeat(20) }, ours)],
    ["no signature", JSON.stringify({ org: "acme", api_base: publicBase, seq })],
    ["too long", "x".repeat(10_000)],
  ] as const) {
    document = jws;
    expect([name, await turn(), base(), pin()]).toEqual([name, "ok", pinnedBase, true]);
  }
});

test("a valid move of another organization is refused", async () => {
  moves();
  await world.server.organization("beta", "10.78.0.0/16");
  const beta = await world.server.db.get("SELECT id FROM organizations WHERE slug = 'beta'");
  expect(beta).toBeDefined();
  const { makeMove } = await import("../../../src/server/nodes/contact/orders.ts");
  const acme = await world.server.db.get("SELECT id FROM organizations WHERE slug = 'acme'");
  const { services } = world.server.app;
  // Signed by our order key, and for a slug that is not ours.
  document = await makeMove(services, { id: Number(Object(acme).id), slug: "beta" }, publicBase);
  await turn();
  expect([base(), pin()]).toEqual([pinnedBase, true]);
});

test("a node that pins nothing ignores the document", async () => {
  const { services } = world.server.app;
  await world.agent(["unregister", "--org-slug", "acme"]);
  node = await world.register({ apiBase: publicBase, name: "free" });
  const acme = await world.server.db.get("SELECT id FROM organizations WHERE slug = 'acme'");
  const { makeMove } = await import("../../../src/server/nodes/contact/orders.ts");
  document = await makeMove(services, { id: Number(Object(acme).id), slug: "acme" }, "https://other.example");
  expect(await turn()).toBe("ok");
  expect(base()).toBe(publicBase);
});

test("a registration that comes while the new address answers keeps its token and address", async () => {
  moves();
  const through = world.system.fetch;
  const path = join(node.directory, "credentials.json");
  const newer = { ...readCredentials(node.directory), api_token: "of the newer registration" };
  world.system.fetch = async (url, init) => {
    if (new URL(url).origin === publicBase) writeFileSync(path, JSON.stringify(newer));
    return through(url, init);
  };
  await turn();
  expect([readCredentials(node.directory), pin()]).toEqual([newer, true]);
});
