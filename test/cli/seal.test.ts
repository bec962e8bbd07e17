// `agent admin seal …` as a signer uses it, with the real ssh-keygen.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { openSeal } from "../../src/pki/seal.ts";
import { SealedRule, sealNamespace, type SealedState } from "../../src/protocol/seals/seal.ts";
import { withHeldSealing, differencesOf, shownText } from "../../src/server/config/next-seal.ts";
import { adminJson, runAdmin } from "../support/admin.ts";
import { sealOf } from "../support/seals.ts";
import { makeSshKey, sshSign } from "../support/ssh-keys.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
const at = (name: string) => join(directory.path, name);
const data = at("data");
afterAll(() => directory[Symbol.dispose]());
const [ann, bob] = ["ann", "bob"].map((name) => makeSshKey(at(name)));
if (ann === undefined || bob === undefined) throw new Error("no keys");

const Published = v.object({ number: v.number(), hash: v.string() });
async function publish(text: string, keys: readonly { file: string }[], flags: string[] = []) {
  writeFileSync(at("acme.seal"), text);
  const files = keys.map(({ file }) => {
    writeFileSync(`${file}.sig`, sshSign(file, Buffer.from(text), sealNamespace));
    return ["--signature", `${file}.sig`];
  });
  return runAdmin(data, ["seal", "publish", "acme", at("acme.seal"), ...files.flat(), "--json", ...flags]);
}
const hashOf = ({ out }: { out: string }) => v.parse(Published, JSON.parse(out)).hash;
let firstHash = "";
const permit = (ports: string, peer = "any") =>
  runAdmin(data, ["rule", "create", "acme", "--protocol", "tcp", "--ports", ports, "--peer", peer]);

beforeAll(async () => {
  await runAdmin(
    data,
    ["user", "create", "o@c.example", "--password-file", "-"],
    "correct horse battery staple",
  );
  await adminJson(data, ["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", "o@c.example"]);
});

test("an organization is sealed, reviewed by its difference, and sealed again", async () => {
  expect((await runAdmin(data, ["seal", "show", "acme"])).out).toBe("acme is not sealed.\n");
  const first = await runAdmin(data, ["seal", "init", "acme", "--observe", "--signer", `${ann.file}.pub`]);
  expect([first.status, first.err]).toEqual([
    0,
    expect.stringContaining("+ rule outbound: any/any from ANY node to ANY node"),
  ]);
  expect(first.err).toContain(`new signer test, SHA256:`);
  const published = await publish(first.out, [ann]);
  expect([published.status, published.err]).toEqual([0, expect.any(String)]);
  const known = hashOf(published);
  firstHash = known;

  const same = await runAdmin(data, ["seal", "review", "acme", "--known", known]);
  expect([same.out, same.err]).toEqual(["", expect.stringContaining("Nothing waits for a signature")]);
  expect((await permit("22")).status).toBe(0);
  expect((await runAdmin(data, ["seal", "show", "acme"])).out).toContain(
    "waits for a signature: + rule inbound: tcp/22 from ANY node to ANY node",
  );
  const next = await runAdmin(data, ["seal", "review", "acme", "--known", known.slice(0, 16)]);
  expect(next.err).toContain("Seal 2 of acme: 1 gained, 0 lost, 0 signers changed");
  expect(next.err).toContain("+ rule inbound: tcp/22 from ANY node to ANY node");
  const second = await publish(next.out, [ann]);
  expect(v.parse(Published, JSON.parse(second.out)).number).toBe(2);
  const shown = await adminJson(data, ["seal", "show", "acme"]);
  expect(shown).toMatchObject({
    sealed: true,
    number: 2,
    hash: hashOf(second),
    waits: { gained: [], lost: [] },
  });
});

test("a new signer signs too, and a seal by a stranger is refused", async () => {
  const { hash } = v.parse(v.object({ hash: v.string() }), await adminJson(data, ["seal", "show", "acme"]));
  const flags = ["--signer", `${bob.file}.pub`];
  const next = await runAdmin(data, ["seal", "review", "acme", "--known", hash, ...flags]);
  expect(next.err).toContain("NO LONGER a signer: test, SHA256:");
  expect(next.err).toContain("2 signers changed");
  const planned = await publish(next.out, [bob], ["--dry-run"]);
  expect([planned.status, planned.err + planned.out]).toEqual([
    1,
    expect.stringContaining("no signer of the seal before"),
  ]);
  const alone = await publish(next.out, [bob]);
  expect([alone.status, alone.err + alone.out]).toEqual([
    1,
    expect.stringContaining("no signer of the seal before"),
  ]);
  const both = await publish(next.out, [bob, ann]);
  expect(v.parse(Published, JSON.parse(both.out)).number).toBe(3);
  const seal = {
    text: next.out,
    signatures: [bob, ann].map(({ file }) => sshSign(file, Buffer.from(next.out), sealNamespace)),
  };
  expect(openSeal(seal, undefined, Date.now()).hash).toBe(hashOf(both));
});

test("review compares with the seal that the signer knows, though others have signed since", async () => {
  const flags = ["--known", firstHash];
  const waiting = async (words: string[]) => (await runAdmin(data, ["seal", "review", "acme", ...words])).err;
  const nothing = await waiting(flags);
  expect(nothing).toContain(
    "Seal 3 of acme, compared with seal 1 that you know: 1 gained, 0 lost, 2 signers changed",
  );
  expect(nothing).toContain("NO LONGER a signer: test, SHA256:");
  expect(nothing).toContain("Nothing waits for a signature");
  await permit("80");
  const { hash } = v.parse(v.object({ hash: v.string() }), await adminJson(data, ["seal", "show", "acme"]));
  const fourth = await runAdmin(data, ["seal", "review", "acme", ...flags]);
  expect(fourth.err).toContain(
    "Seal 4 of acme, compared with seal 1 that you know: 2 gained, 0 lost, 2 signers",
  );
  writeFileSync(at("fourth"), fourth.out);
  expect((await publish(fourth.out, [bob])).status).toBe(0);
  await permit("81");
  const fifth = await runAdmin(data, ["seal", "review", "acme", "--known", at("fourth")]);
  expect(fifth.err).toContain("Seal 5 of acme: 1 gained, 0 lost, 0 signers changed");
  const published = await publish(fifth.out, [bob]);
  await permit("82");
  // Seals between, by the same signers, are kept by the signers alone.
  const sixth = await runAdmin(data, ["seal", "review", "acme", "--known", hashOf(published)]);
  await publish(sixth.out, [bob]);
  const gone = await runAdmin(data, ["seal", "review", "acme", "--known", hashOf(published)]);
  expect([gone.status, gone.err]).toEqual([1, expect.stringContaining("Give the file of your seal")]);
  expect(await waiting(["--known", at("fourth")])).toContain(
    "Seal 6 of acme, compared with seal 4 that you know: 2 gained",
  );
  expect(hash).not.toBe(firstHash);
});

test("mistakes are told", async () => {
  writeFileSync(at("unsigned"), "{}");
  const twice = ["--signer", `${ann.file}.pub`, "--signer", `${ann.file}.pub`];
  const wrong: [string[], string][] = [
    [["init", "acme", "--signer", `${ann.file}.pub`], "Give --observe"],
    [["init", "acme", "--observe"], "Give the public key of a signer"],
    [["init", "acme", "--observe", "--signer", ann.file], "not the public half"],
    [["init", "acme", "--observe", "--signer", `${ann.file}.pub`], "sealed already"],
    [["review", "acme", "--known", "abc"], "16 to 64 hexadecimal digits"],
    [["review", "acme", "--known", "0".repeat(16)], "does not send the seal"],
    [["review", "acme"], "--known"],
    [["publish", "acme", at("nothing")], "nothing"],
    [["publish", "acme", at("unsigned")], "ssh-keygen -Y sign"],
    [["init", "acme", "--observe", ...twice], "twice with the same key"],
    [["init", "acme", "--observe", "--signer", "/dev/null"], "Name a regular file"],
  ];
  for (const [words, message] of wrong) {
    const { status, err } = await runAdmin(data, ["seal", ...words]);
    expect([words, status === 0, err]).toEqual([words, false, expect.stringContaining(message)]);
  }
});

test("nothing that a seal holds changes without a word about it", () => {
  const { state } = sealOf({ signers: [] });
  const [rule] = state.rules;
  const [hub] = state.nodes;
  if (rule === undefined || hub === undefined) throw new Error("no rule");
  const next: [string, Partial<SealedState>][] = [
    ["another name", { organization: "other" }],
    ["another network", { networks: ["10.78.0.0/16"] }],
    ["another CA", { authorities: [...state.authorities, "b".repeat(64)] }],
    ["another order key", { order_key: { ...state.order_key, x: "B".repeat(43) } }],
    ...Object.entries({
      direction: "outbound",
      protocol: "udp",
      ports: "any",
      peer: { any: true },
      target: { node: "db" },
    }).map(([field, value]): [string, Partial<SealedState>] => [
      `a rule with another ${field}`,
      { rules: [v.parse(SealedRule, { ...rule, [field]: value }), ...state.rules.slice(1)] },
    ]),
    ...Object.entries({
      name: "thief",
      addresses: ["10.77.0.66"],
      lighthouse: false,
      relay: false,
      routes: ["192.168.5.0/24"],
      exit: ["any"],
    }).map(([field, value]): [string, Partial<SealedState>] => [
      `a node with another ${field}`,
      { nodes: [{ ...hub, [field]: value }, ...state.nodes.slice(1)] },
    ]),
  ];
  for (const [what, change] of next) {
    const { gained, lost } = differencesOf(state, { ...state, ...change });
    expect([what, [...gained, ...lost]]).not.toEqual([what, []]);
  }
  expect(differencesOf(state, structuredClone(state))).toEqual({ gained: [], lost: [] });
});

test("letters that look alike are shown by their code points, and names cannot forge a line", () => {
  const { state } = sealOf({ signers: [] });
  const peer = { group: '\u0430dmins" to ANY node\n+ harmless' };
  const rules = [{ ...state.rules[0], peer } as SealedRule];
  const [line = ""] = differencesOf({ ...state, rules: [] }, { ...state, rules }).gained;
  expect(shownText(line)).toStartWith(
    'rule inbound: tcp/1 from group "<U+0430>dmins\\" to ANY node\\n+ harmless" to group',
  );
});

test("what signers alone decide is never taken from the control plane's proposal", () => {
  const { state } = sealOf({ signers: [{ name: "ann", key: ann.line }] });
  const identity = { kind: "open" as const, key: "e".repeat(64), groups: ["db"] };
  const sealing = { offline: ["a".repeat(64)], privileged: [], revoked: [], suffix: "thief.example" };
  const proposed = { ...state, sealing, nodes: state.nodes.map((node) => ({ ...node, identity })) };
  expect(withHeldSealing(proposed, undefined)).toEqual(state);
  expect(withHeldSealing(proposed, state)).toEqual(state);
  const own = { ...sealing, suffix: "acme.example" };
  const [hub, ...others] = state.nodes;
  if (hub === undefined) throw new Error("no node");
  const held = {
    ...state,
    sealing: own,
    nodes: [{ ...hub, identity: { ...identity, key: "f".repeat(64) } }],
  };
  expect(withHeldSealing(proposed, held)).toEqual({
    ...state,
    sealing: own,
    nodes: [...held.nodes, ...others],
  });
  expect(differencesOf(held, { ...held, sealing }).gained).toEqual(["names end with thief.example"]);
});
