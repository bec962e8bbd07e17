// Which keys a synchronization accepts: certificates for the node's own key, and a signed order key.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { currentGeneration } from "../../../src/node/files/generations.ts";
import { openOrganization, type Organization } from "../../../src/node/files/organizations.ts";
import { makeHostKey } from "../../../src/pki/keys.ts";
import { openSecret } from "../../../src/pki/secrets.ts";
import { makeSigningKey, publicHalf, SigningKey } from "../../../src/pki/tokens.ts";
import { signOrderKey } from "../../../src/pki/signed-messages.ts";
import { OrderKey } from "../../../src/protocol/values.ts";
import { orderKeyContext } from "../../../src/server/organizations/organizations.ts";
import { raiseConfigVersion } from "../../../src/server/store/versions.ts";
import { rejection } from "../../pki/thrown.ts";
import { makeNodeWorld, nodePath, syncNow, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
let organization: Organization;

beforeEach(async () => {
  world = await makeNodeWorld();
  organization = await world.register();
});

afterEach(() => world[Symbol.asyncDispose]());

const sync = () => syncNow(world, organization);

/** Something to synchronize: the node gets a new group. */
async function changeNode(): Promise<void> {
  await world.api("POST", "/api/org/acme/groups/", { name: "a" });
  await world.api("PATCH", nodePath(organization), { groups: ["a"] });
}

test("certificates for another key are refused without any change", async () => {
  await changeNode();
  const key = join(organization.directory, "host.key");
  writeFileSync(key, makeHostKey().privatePem);
  const error = await rejection(sync());
  expect(error.code).toBe("untrusted_answer");
  expect(error.message).toContain("another key");
  expect(currentGeneration(organization.directory)).toBe("1");
});

test("a damaged host.crt is replaced when a user asks", async () => {
  const path = join(organization.directory, "host.crt");
  const whole = readFileSync(path, "utf8");
  writeFileSync(path, "damaged");
  expect(await world.agent(["sync-config", "--org-slug", "acme"])).toMatchObject({ status: 0 });
  expect(readFileSync(path, "utf8")).toBe(whole);
});

test("an order key without a signature of the pinned one is ignored", async () => {
  const pinned = openOrganization(world.root, "acme").config.order_key;
  await changeNode();
  const through = world.system.fetch;
  world.system.fetch = async (url, init) => {
    const answer = await through(url, init);
    const text = (await answer.text()).replaceAll(pinned?.x ?? "", "B".repeat(43));
    return new Response(text, { status: answer.status, headers: answer.headers });
  };
  await sync();
  expect(openOrganization(world.root, "acme").config.order_key).toEqual(pinned);
});

test("a new order key is accepted only with a signature of the pinned one", async () => {
  const { services } = world.server.app;
  const pinned = () => openOrganization(world.root, "acme").config.order_key?.kid;
  const row = await world.server.db.get(
    "SELECT order_key_sealed, order_public FROM organizations WHERE slug = 'acme'",
  );
  const { kid } = v.parse(OrderKey, JSON.parse(String(row?.["order_public"])));
  const opened = openSecret(services.secretKey, String(row?.["order_key_sealed"]), orderKeyContext(kid));
  const former = v.parse(SigningKey, JSON.parse(opened));
  const [next, stranger] = [await makeSigningKey("next"), await makeSigningKey("stranger")];
  const offer = async (proof: string) => {
    await world.server.db.write(async (tx) => {
      const offered = JSON.stringify(publicHalf(next));
      await tx.run("UPDATE organizations SET order_public = $1, order_key_proof = $2", [offered, proof]);
      await raiseConfigVersion(tx, 1);
    });
    await sync();
  };
  expect(pinned()).toBe(kid);
  const refused = await rejection(offer(await signOrderKey(publicHalf(next), stranger)));
  expect(refused.code).toBe("untrusted_answer");
  expect(pinned()).toBe(kid);
  await offer(await signOrderKey(publicHalf(next), former));
  expect(pinned()).toBe("next");
});
