// `agent admin rule` with the nodes of a member, named by e-mail address.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { runAdmin } from "../support/admin.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
afterAll(() => directory[Symbol.dispose]());
const data = join(directory.path, "data");
const admin = (words: string, input = "") => runAdmin(data, words.split(" "), input);
const done = async (words: string, input = "") => {
  const { status, out, err } = await admin(words, input);
  expect([words, status, err]).toEqual([words, 0, expect.any(String)]);
  return out;
};
const create = "rule create acme --protocol tcp --ports 22";

beforeAll(async () => {
  await done("user create ada@example.org --password-file -", "correct horse battery");
  await done("org create acme --network 10.77.0.0/16");
  await done("member create acme ada@example.org --role member");
  await done("member create acme later@example.org --role member");
}, 60_000);

test("a rule names a member, and the list shows the address", async () => {
  await done(`${create} --peer user:ada@example.org --target group:web`);
  expect(await done("rule list acme")).toMatch(/tcp +22 +user:ada@example\.org +group:web/);
  expect(JSON.parse(await done("rule list acme --json")).rules).toContainEqual(
    expect.objectContaining({ peer: { group: expect.stringMatching(/^user:id\.\d+$/) } }),
  );
  // The group of a user exists without being created.
  expect(await done("group list acme")).not.toContain("user:");
});

test("a rule names the nodes with the same owner, as a peer alone", async () => {
  const made = JSON.parse(await done(`${create} --peer self --target any --json`));
  expect(made).toMatchObject({ peer: { group: "user:self" }, new_groups: [] });
  expect(await done("rule list acme")).toMatch(/tcp +22 +self +any/);
  const { status, err } = await admin(`${create} --peer any --target self`);
  expect([status, err]).toEqual([1, expect.stringContaining("self is a peer only")]);
});

test("a rule that opens the networks behind nodes says which, also its plan", async () => {
  for (const name of ["gw", "gw2", "plain"]) await done(`node create acme ${name}`);
  await done("node update acme gw --add-group lan --add-subnet 192.168.5.0/24 --add-subnet 192.168.6.0/24");
  await done("node update acme gw2 --add-subnet 192.168.7.0/24");
  await done("node update acme plain --add-group plain");
  const opened = "It also opens the networks behind these nodes:\n  gw: 192.168.5.0/24, 192.168.6.0/24\n";
  const icmp = "rule create acme --protocol icmp";
  const plan = await admin(`${icmp} --target group:lan --dry-run`);
  expect(plan.out + plan.err).toContain(opened);
  expect(await done(`${icmp} --target group:lan`)).toContain(
    `${opened}For one of these networks alone: --target network:192.168.5.0/24\n`,
  );
  expect(await done(`${icmp} --target node:gw`)).toContain(opened);
  const outbound = await done(`${icmp} --direction outbound --peer group:lan --target group:plain`);
  expect(outbound).toContain(`${opened}For one of these networks alone: --peer 192.168.5.0/24\n`);
  const both = ["gw: 192.168.5.0/24, 192.168.6.0/24", "gw2: 192.168.7.0/24"];
  expect(JSON.parse(await done(`${icmp} --target any --json`))).toMatchObject({ networks_behind: both });
  const { id, networks_behind } = JSON.parse(await done(`${icmp} --target group:plain --json`));
  expect(networks_behind).toEqual([]);
  expect(await done(`rule update acme ${id} --description ping`)).not.toContain("opens");
  expect(await done(`rule update acme ${id} --target group:lan`)).toContain(opened);
  expect(await done(`${icmp} --peer group:lan --target group:plain`)).not.toContain("opens");
});

test("the rule of a former member is listed with the number of the user", async () => {
  await done("member delete acme ada@example.org");
  expect(await done("rule list acme")).toMatch(/user:#\d+ /);
});

test.each([
  ["user:nobody@example.org", "nobody@example.org is not a member of acme"],
  ["user:later@example.org", "later@example.org has not accepted the invitation to acme yet"],
  ["user:ada", "--peer user:ada is neither a group, a node, a user nor a network"],
])("--peer %s is refused with a sentence", async (peer, sentence) => {
  const { status, err } = await admin(`${create} --peer ${peer} --target any`);
  expect(status).not.toBe(0);
  expect(err).toContain(sentence);
});
