// The first seal names the signers of an organization: only an owner publishes it, with an event, and it needs somebody until a
// second one follows.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { Event } from "../../../src/api/events.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { sealHash } from "../../../src/pki/seal.ts";
import { makeSigner, signedByMade } from "../../support/made-signers.ts";
import { useNumbered } from "../../support/numbered.ts";
import { nextSeal } from "../../../src/server/config/next-seal.ts";
import { SealedState } from "../../../src/protocol/seals/seal.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
const { call } = useNumbered((made) => ({ server, org } = made));
const signer = makeSigner("ann");
const Shown = v.object({ seals: v.array(v.object({ text: v.string() })), state: SealedState });

/** The next seal, which `ports` makes another one than before. */
async function signed(ports: string) {
  const { seals, state } = v.parse(Shown, (await call("GET", "seals/")).json);
  const newest = seals.at(-1);
  const held =
    newest === undefined ? undefined : { seal: JSON.parse(newest.text), hash: sealHash(newest.text) };
  const rule = {
    direction: "inbound" as const,
    protocol: "tcp" as const,
    ports,
    peer: { any: true as const },
    target: { any: true as const },
  };
  const { name, key } = signer;
  const next = nextSeal(held, { ...state, rules: [rule] }, [{ name, key }], server.clock.ms);
  if (next === undefined) throw new Error("nothing changes");
  return { hash: next.hash, body: signedByMade(JSON.parse(next.text), [signer]) };
}

const member = async (role: "admin" | "owner") => {
  const email = `${role}@${org.slug}.example`;
  const token = await server.person(email);
  await server.join(org, email, role);
  return token;
};
const firstSeal = async () =>
  v.parse(v.object({ first_seal: v.unknown() }), (await call("GET", "nodes/attention/")).json).first_seal;

test("an administrator cannot publish the first seal, an owner can; then administrators publish what its signers sign", async () => {
  const path = `/api/org/${org.slug}/seals/`;
  const first = await signed("1");
  expect(await firstSeal()).toBeNull();
  const refused = await call("POST", "seals/", first.body);
  expect([refused.status, refused.text]).toEqual([
    403,
    expect.stringContaining("Only an owner can publish the first seal"),
  ]);
  const service = await call("POST", "service_tokens/", { name: "ci", role: "admin", scopes: ["policy"] });
  const { token } = v.parse(v.object({ token: v.string() }), service.json);
  expect((await server.send("POST", path, { token, body: first.body })).status).toBe(403);
  expect(await firstSeal()).toBeNull();

  const owner = await member("owner");
  expect((await server.send("POST", path, { token: owner, body: first.body })).status).toBe(201);
  expect(await firstSeal()).toMatchObject({ hash: first.hash });
  const events = v.parse(v.array(Event), (await call("GET", "events/")).json);
  const told = events.filter(({ type }) => type === "policy.sealed");
  expect(told.map(({ after }) => after)).toEqual([{ number: 1, hash: first.hash, signers: ["ann"] }]);

  const second = await signed("2");
  expect((await call("POST", "seals/", second.body)).status).toBe(201);
  expect(await firstSeal()).toBeNull();
});

test("an owner makes the control plane forget the seals: the next one is a first seal", async () => {
  const path = `/api/org/${org.slug}/seals/`;
  const owner = await member("owner");
  expect((await server.send("DELETE", path, { token: owner })).status).toBe(409);
  const first = await signed("1");
  expect((await server.send("POST", path, { token: owner, body: first.body })).status).toBe(201);
  expect((await call("DELETE", "seals/")).status).toBe(403);
  expect((await server.send("DELETE", path, { token: owner })).status).toBe(204);
  expect((await call("GET", "seals/")).json).toMatchObject({ seals: [] });
  const events = v.parse(v.array(Event), (await call("GET", "events/")).json);
  expect(events.find(({ type }) => type === "policy.seals_forgotten")?.before).toEqual({
    number: 1,
    hash: first.hash,
  });
  const again = await signed("2");
  expect((await call("POST", "seals/", again.body)).status).toBe(403);
  expect((await server.send("POST", path, { token: owner, body: again.body })).status).toBe(201);
});
