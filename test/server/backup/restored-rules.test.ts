// What `agent admin restore --replace` does with firewall rules, rights of pending nodes, overrides, and seals.

import { expect, test } from "bun:test";
import {
  json,
  must,
  password,
  place,
  populate,
  signIn,
  post,
  stop,
  useControlPlane,
} from "../../support/restoring.ts";
import * as v from "valibot";
import { join } from "node:path";
import { publishNext } from "../../support/seals.ts";
import { makeSshKey } from "../../support/ssh-keys.ts";

useControlPlane();

test("rules and rights that ended after the backup do not come back; what is lost or back is named", async () => {
  const { url } = await populate();
  await must("rule create acme --protocol tcp --ports 22 --peer any --description deleted");
  await must("rule create acme --protocol tcp --ports 23-99 --peer any --description wide");
  await must("group create acme ops");
  await must("node create acme waiting --group web --group staff");
  await must("node create acme same --group web");
  await must(`backup ${place.backup}`);

  const access = await signIn(url);
  const patch = async (path: string, body: object) => {
    const headers = { Authorization: `Bearer ${access}`, "Content-Type": "application/json" };
    const init = { method: "PATCH", headers, body: JSON.stringify(body) };
    expect((await fetch(`${url}/api/org/acme/${path}`, init)).status).toBe(200);
  };
  await must("rule delete acme 3");
  await patch("firewall_rules/4/", { ports: "23", target: { group: "new" }, description: "narrow" });
  await must("rule create acme --protocol udp --ports 53 --peer any");
  const waiting = v.parse(v.object({ id: v.number() }), await json("node show acme waiting")).id;
  await patch(`nodes/${waiting}/`, { groups: ["web", "later"], config_overrides: { routines: 2 } });
  await patch("", { config_overrides: { tun: { mtu: 1400 } } });
  const before = v.parse(
    v.object({ rules: v.array(v.looseObject({ id: v.number(), protocol: v.string() })) }),
    await json("rule list acme"),
  ).rules;
  await stop();

  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({
    deleted_rules: 1,
    lost_rules: 1,
    overrides_back: ["acme", "acme/waiting"],
  });
  expect(await json("rule list acme")).toEqual({
    rules: before.filter(({ protocol }) => protocol !== "udp"),
  });
  expect(before).toContainEqual(expect.objectContaining({ id: 4, ports: "23", description: "narrow" }));
  expect(await json("node show acme waiting")).toMatchObject({ groups: ["web"], config_overrides: {} });
  expect(await json("node show acme same")).toMatchObject({ groups: ["web"] });
  expect(await json("group list acme")).toMatchObject({
    groups: expect.arrayContaining([expect.objectContaining({ name: "new" })]),
  });
}, 120_000);

test("a rule that was edited in the console after the backup stays in its newest form", async () => {
  const { url } = await populate();
  const Listed = v.object({ rules: v.array(v.looseObject({ id: v.number() })) });
  const ids = v.parse(Listed, await json("rule list acme")).rules.map(({ id }) => id);
  await must(`backup ${place.backup}`);
  const access = await signIn(url);
  // As the console sends an edit of the first rule.
  const edited = { protocol: "tcp", ports: 9443, peer: "any", target: "any" };
  const body = {
    policy: JSON.stringify({ rules: [edited] }),
    rule_ids: ids.slice(0, 1),
    prune: true,
    keep_file: true,
  };
  expect((await post(url, "/api/org/acme/policy/apply/", body, access)).status).toBe(200);
  const before = await json("rule list acme");
  expect(before).toMatchObject({ rules: [{ id: ids[0], ports: "9443" }] });
  await stop();
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({
    deleted_rules: ids.length - 1,
    lost_rules: 0,
  });
  expect(await json("rule list acme")).toEqual(before);
}, 120_000);

test("rules about users and owners of nodes are not another user's after a restore", async () => {
  const { url } = await populate();
  await must("node create acme laptop");
  await must("rule create acme --protocol tcp --ports 24 --peer any");
  await must(`backup ${place.backup}`);
  await must("user create carl@example.org --password-file -", place.data, password);
  await must("member create acme carl@example.org --role member");
  await must("node transfer acme laptop --to carl@example.org");
  const access = await signIn(url);
  const listed = v.parse(
    v.looseObject({ rules: v.array(v.looseObject({ id: v.number(), ports: v.string() })) }),
    await json("rule list acme"),
  );
  const id = listed.rules.find(({ ports }) => ports === "24")?.id;
  const owner = v.parse(
    v.looseObject({ owner_id: v.number() }),
    await json("node show acme laptop"),
  ).owner_id;
  const changed = await fetch(`${url}/api/org/acme/firewall_rules/${id}/`, {
    method: "PATCH",
    headers: { Authorization: `Bearer ${access}`, "Content-Type": "application/json" },
    body: JSON.stringify({ peer: { group: `user:id.${owner}` } }),
  });
  expect(changed.status).toBe(200);
  await stop();
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({ deleted_rules: 1 });
  const after = v.parse(
    v.looseObject({ rules: v.array(v.looseObject({ ports: v.string() })) }),
    await json("rule list acme"),
  );
  expect(after.rules.map(({ ports }) => ports)).not.toContain("24");
  expect(await json("node show acme laptop")).toMatchObject({ owner_id: null });
}, 120_000);

test("a user whom a file took out of a group after the backup stays out of it", async () => {
  await populate();
  await must("node create acme laptop");
  await must("node transfer acme laptop --to ada@example.org");
  const policy = (members: string) =>
    `groups:\n  ops: {members: [${members}]}\n  web: {members: [node:laptop]}\n`;
  const apply = (members: string) => must("policy apply acme - --prune", place.data, policy(members));
  await apply('"user:ada@example.org"');
  expect(await json("node show acme laptop")).toMatchObject({ owner_groups: ["ops"] });
  await must(`backup ${place.backup}`);
  await stop();
  await json(`restore ${place.backup} --replace`);
  expect(await json("node show acme laptop")).toMatchObject({ groups: ["web"], owner_groups: ["ops"] });
  await apply("");
  await json(`restore ${place.backup} --replace`);
  expect(await json("node show acme laptop")).toMatchObject({ groups: ["web"], owner_groups: [] });
}, 120_000);

test("an application that was unconfirmed at the backup stays: rules deleted since do not come back with it", async () => {
  await populate();
  await must("rule create acme --protocol tcp --ports 22 --peer any --description deleted");
  const policy = "rules:\n  - {direction: outbound, peer: any, target: any}\n";
  await must("policy apply acme - --prune --confirm 1h", place.data, policy);
  await must(`backup ${place.backup}`);
  await must("policy confirm acme");
  await stop();
  await json(`restore ${place.backup} --replace`);
  const shown = v.looseObject({ unconfirmed: v.null(), policy: v.string(), version: v.number() });
  // Higher than any plan of either database.
  expect(v.parse(shown, await json("policy get acme"))).toMatchObject({ policy, version: 3 });
}, 120_000);

test("a seal that was published after the backup stays, and an older one does not take its place", async () => {
  const { url } = await populate();
  const access = await signIn(url);
  const api = async (method: string, path: string, body?: unknown) => {
    const headers = { Authorization: `Bearer ${access}`, "Content-Type": "application/json" };
    const answer = await fetch(url + path, { method, headers, body: JSON.stringify(body) });
    expect(answer.status).toBeLessThan(300);
    return answer.json();
  };
  const key = makeSshKey(join(place.path, "signer"));
  await publishNext(api, [key]);
  await must(`backup ${place.backup}`);
  await publishNext(api, [key]);
  await publishNext(api, [key]);
  const before = await json("seal show acme");
  await stop();
  const { set_aside } = v.parse(
    v.looseObject({ seals_kept: v.tuple([v.literal("acme")]), set_aside: v.string() }),
    await json(`restore ${place.backup} --replace`),
  );
  expect(await json("seal show acme")).toEqual(before);
  expect(await json(`restore ${place.backup} --replace`)).toMatchObject({ seals_kept: ["acme"] });
  expect(await json(`restore ${set_aside} --replace --unauthenticated`)).toMatchObject({ seals_kept: [] });
  expect(await json("seal show acme")).toEqual(before);
}, 120_000);
