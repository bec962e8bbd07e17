// Ephemeral nodes: short certificates, the end by leaving, what is held afterwards, and how they come back.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { RegisterAnswer } from "../../../../src/protocol/registration.ts";
import { runDueUpkeep } from "../../../../src/server/nodes/lifecycle/upkeep.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { deleteEnded } from "../../../../src/server/retention/ended-records.ts";
import { hour, minute, useEphemeral } from "../../../support/ephemeral.ts";
import {
  blocklistOf,
  certificateOf,
  checkinOf,
  codeOf,
  confirm,
  downloadOf,
  makeKeys,
  nodeOf,
  registerNode,
  registrationToken,
  sendRegistration,
} from "../../../support/nodes.ts";
import { addCertificates } from "../../../support/many-certificates.ts";
import type { TestServer } from "../../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
const { configVersion, ephemeralToken, job, rowOf, isLive, eventsOf, pass } = useEphemeral(
  (made) => ({ server, org, admin } = made),
);

test("both certificates live for an hour, and are renewed in time", async () => {
  const node = await job("job");
  const first = certificateOf(node.answer.config, server.clock.ms);
  expect(first.notAfter * 1000 - server.clock.ms).toBe(hour);
  const { not_after: x509 } = (await server.db.get(
    "SELECT not_after FROM certificates WHERE node_id = $1 AND kind = 'x509'",
    [node.id],
  )) ?? { not_after: 0 };
  expect(Number(x509) - server.clock.ms).toBe(hour);
  server.clock.ms += 50 * minute;
  const answer = checkinOf(await node.checkin({ overlay_state: "running" }));
  expect(Date.parse(answer.certificate_not_after) - server.clock.ms).toBe(hour);
  expect(answer.config_changed).toBe(true);
  expect(JSON.parse(downloadOf(await node.download()).files["node-config.json"])).toMatchObject({
    ephemeral: true,
  });
});

test("a lasting node keeps its lifetimes, and its files do not change", async () => {
  const node = await registerNode(server, org, "lasting");
  const certificate = certificateOf(node.answer.config, server.clock.ms);
  expect(certificate.notAfter * 1000 - server.clock.ms).toBe(90 * 24 * hour);
  expect(node.answer.config.files["node-config.json"]).not.toContain("ephemeral");
});

test("a node that leaves ends: nothing is blocked, and no version is raised for others", async () => {
  const peer = await registerNode(server, org, "peer");
  await confirm(peer);
  const before = await configVersion();
  const node = await job("job");
  expect(checkinOf(await node.checkin({ leaving: true })).left).toBe(true);
  expect(await rowOf(node)).toMatchObject({ state: "revoked", revoke_reason: "left" });
  expect(await configVersion()).toBe(before);
  expect(checkinOf(await peer.checkin({ config_version: before })).config_changed).toBe(false);
  expect(blocklistOf(downloadOf(await peer.download()))).toEqual([]);
  expect(await eventsOf(node)).toEqual(["node.registered", "certificate.issued", "node.ended"]);
  for (const query of ["", "?revoked=true"]) {
    const listed = await server.send("GET", `/api/org/${org.slug}/nodes/${query}`, { token: admin });
    expect(listed.text).not.toContain('"job"');
  }
  const revocations = await server.send("GET", `/api/org/${org.slug}/revocations/`, { token: admin });
  expect(revocations.json).toEqual([]);
});

test("its name and address are held until its certificates end, then the name is free", async () => {
  await registerNode(server, org, "peer");
  const node = await job("job");
  await node.checkin({ leaving: true });
  const again = async () => {
    const body = { name: "job", ...(await makeKeys()), registration_token: await ephemeralToken() };
    return sendRegistration(server, org.slug, body);
  };
  expect(codeOf(await again())).toEqual([409, "name_held"]);
  server.clock.ms += hour - minute;
  expect(codeOf(await again())).toEqual([409, "name_held"]);
  server.clock.ms += 2 * minute;
  const answer = v.parse(RegisterAnswer, (await again()).json);
  // The address waits on: peers may know open flows by it.
  expect(answer.node.ip_address).not.toBe(node.ip);
});

test("the address is not used again before engines have checked open flows, and only for another reason", async () => {
  const peer = await registerNode(server, org, "peer");
  await confirm(peer);
  const node = await job("job");
  await node.checkin({ leaving: true });
  const before = await configVersion();
  server.clock.ms += 3 * hour;
  await runDueUpkeep(server.app.services, org.id);
  await runDueUpkeep(server.app.services, org.id);
  server.clock.ms += 3 * hour;
  await runDueUpkeep(server.app.services, org.id);
  expect(await configVersion()).toBe(before);
  expect((await registerNode(server, org, "other")).ip).not.toBe(node.ip);
  // A lasting node gives its address up, for which the engines check their flows.
  const leaver = await registerNode(server, org, "leaver");
  await leaver.checkin({ leaving: true });
  const everyone = await server.db.all("SELECT id FROM nodes WHERE org_id = $1 AND state = 'active'", [
    org.id,
  ]);
  const confirmAll = () =>
    server.db.write((tx) =>
      tx.run(
        "UPDATE nodes SET confirmed_config_version = (SELECT last_version FROM organizations WHERE id = $1) WHERE org_id = $1",
        [org.id],
      ),
    );
  expect(everyone.length).toBe(2);
  await confirmAll();
  await runDueUpkeep(server.app.services, org.id);
  server.clock.ms += hour;
  await runDueUpkeep(server.app.services, org.id);
  await confirmAll();
  await runDueUpkeep(server.app.services, org.id);
  expect((await registerNode(server, org, "third")).ip).toBe(node.ip);
});

test("engines check their flows for ephemeral addresses alone when few are left", async () => {
  const small = await server.organization(`small-${org.id}`, "10.99.0.0/28");
  const registration_token = await registrationToken(server, small, { ephemeral: true });
  const jobs = [];
  for (let n = 0; n < 13; n++)
    jobs.push(await registerNode(server, small, `job-${n}`, { registration_token }));
  for (const each of jobs) await each.checkin({ leaving: true });
  server.clock.ms += 90 * minute;
  for (let turn = 0; turn < 2; turn++) {
    await runDueUpkeep(server.app.services, small.id);
    server.clock.ms += 90 * minute;
  }
  await runDueUpkeep(server.app.services, small.id);
  await runDueUpkeep(server.app.services, small.id);
  const addresses = new Set(jobs.map(({ ip }) => ip));
  const later = await registrationToken(server, small, { ephemeral: true, expires_in: "1h" });
  const next = [];
  for (let n = 0; n < 4; n++)
    next.push(await registerNode(server, small, `late-${n}`, { registration_token: later }));
  expect(next.some(({ ip }) => addresses.has(ip))).toBe(true);
});

test("a long poll that waits when its node leaves does not bring it back", async () => {
  const node = await job("job");
  const { config_version } = checkinOf(await node.checkin());
  const held = node.checkin({ config_version, overlay_state: "running" }, { wait: 1 });
  await Bun.sleep(100);
  await node.checkin({ leaving: true });
  expect(checkinOf(await held).config_changed).toBe(false);
  expect(await isLive(node)).toBe(false);
});

test("a restarted job with the same keys gets its node back, and uses the token once", async () => {
  const registration_token = await ephemeralToken({ uses: 1 });
  const node = await registerNode(server, org, "job", { registration_token });
  await node.checkin({ leaving: true });
  server.clock.ms += 3 * hour;
  const again = await sendRegistration(server, org.slug, { name: "job", ...node.keys, registration_token });
  expect(again.status).toBe(201);
  const back = nodeOf(server, org, node.keys, v.parse(RegisterAnswer, again.json));
  expect([back.id, back.ip]).toEqual([node.id, node.ip]);
  expect(certificateOf(back.answer.config, server.clock.ms).notAfter * 1000).toBe(server.clock.ms + hour);
  expect((await back.checkin({ overlay_state: "running" })).status).toBe(200);
  expect(codeOf(await node.checkin())).toEqual([401, "token_not_valid"]);
});

test("a node whose name another has meanwhile is told so, and the other keeps it", async () => {
  const node = await job("job");
  await node.checkin({ leaving: true });
  const made = await server.send("POST", `/api/org/${org.slug}/nodes/`, {
    token: admin,
    body: { name: "job" },
  });
  expect(made.status).toBe(201);
  expect(codeOf(await node.checkin({ overlay_state: "running" }))).toEqual([409, "conflict"]);
  expect(await isLive(node)).toBe(false);
});

test("an administrator revokes an ephemeral node for good, also one that has ended", async () => {
  const peer = await registerNode(server, org, "peer");
  const [live, ended] = [await job("live"), await job("ended")];
  await ended.checkin({ leaving: true });
  for (const { id } of [live, ended]) {
    const gone = await server.send("DELETE", `/api/org/${org.slug}/nodes/${id}/`, { token: admin });
    expect(gone.status).toBe(204);
  }
  expect(blocklistOf(downloadOf(await peer.download())).length).toBe(2);
  for (const each of [live, ended]) {
    expect(codeOf(await each.checkin({ overlay_state: "running" }))).toEqual([403, "node_revoked"]);
  }
});

test("an ended node cannot be restored by hand: its machine brings it back", async () => {
  const node = await job("job");
  await node.checkin({ leaving: true });
  const path = `/api/org/${org.slug}/nodes/${node.id}/restore/`;
  expect(codeOf(await server.send("POST", path, { token: admin, body: {} }))).toEqual([409, "conflict"]);
});

test("a node that comes back brings its group back, which was deleted meanwhile", async () => {
  const node = await job("job", { groups: ["ci"], uses: 1 });
  await node.checkin({ leaving: true });
  const groups = (method: string, name = "") =>
    server.send(method, `/api/org/${org.slug}/groups/${name}`, { token: admin });
  expect((await groups("DELETE", "ci/")).status).toBe(204);
  await node.checkin({ overlay_state: "running" });
  expect(await isLive(node)).toBe(true);
  expect((await groups("GET")).json).toMatchObject([{ name: "ci" }]);
});

test("revoking the token with its nodes revokes those that ended, too", async () => {
  const registration_token = await ephemeralToken();
  const node = await registerNode(server, org, "job", { registration_token });
  await node.checkin({ leaving: true });
  const { id } = (await server.db.get("SELECT max(id) AS id FROM registration_tokens")) ?? { id: 0 };
  const path = `/api/org/${org.slug}/registration_tokens/${Number(id)}/?revoke_nodes=true`;
  expect((await server.send("DELETE", path, { token: admin })).status).toBe(204);
  expect(codeOf(await node.checkin({ overlay_state: "running" }))).toEqual([403, "node_revoked"]);
});

test("no rule and no alias names an ephemeral node, and it is no lighthouse, relay or router", async () => {
  const node = await job("job", { groups: ["ci"] });
  const post = (path: string, body: object) =>
    server.send("POST", `/api/org/${org.slug}/${path}/`, { token: admin, body });
  const rule = { direction: "inbound", protocol: "tcp", ports: "22" };
  const byName = { ...rule, peer: { node: node.id }, target: { any: true } };
  expect(codeOf(await post("firewall_rules", byName))).toEqual([400, "validation_failed"]);
  const byGroup = { ...rule, peer: { group: "ci" }, target: { any: true } };
  expect((await post("firewall_rules", byGroup)).status).toBe(201);
  expect(codeOf(await post("names", { name: "runner", node: node.id }))[0]).toBe(400);
  const patch = (body: object) =>
    server.send("PATCH", `/api/org/${org.slug}/nodes/${node.id}/`, { token: admin, body });
  for (const body of [
    { is_relay: true },
    { subnets: ["192.0.2.0/24"] },
    { is_lighthouse: true, public_ip: "192.0.2.1" },
  ])
    expect(codeOf(await patch(body))).toEqual([400, "validation_failed"]);
  expect((await patch({ groups: ["ci", "web"] })).status).toBe(200);
  for (const fields of [{ is_lighthouse: true }, { node_name: "web" }])
    expect(codeOf(await post("registration_tokens", { ephemeral: true, ...fields }))[0]).toBe(400);
  for (const fields of [{ silence: "10m" }, { names: true }, { ephemeral: true, silence: "59s" }])
    expect(codeOf(await post("registration_tokens", fields))[0]).toBe(400);
  // A form shows the refusal beside the field that it is about.
  const refused = (await post("registration_tokens", { names: true })).text;
  expect(refused).toContain('"names":');
  expect(refused).not.toContain('"silence":');
});

test("peers get its name only if the token says so", async () => {
  const peer = await registerNode(server, org, "peer");
  const namesOf = async () => {
    const answer = checkinOf(await peer.checkin({ names: { version: 0, view: "none" } }));
    const { nodes } = v.parse(
      v.object({ nodes: v.array(v.object({ name: v.string() })) }),
      answer.names ?? { nodes: [] },
    );
    return nodes.map(({ name }) => name).sort();
  };
  const position = async () =>
    (await server.db.get("SELECT names_version FROM organizations WHERE id = $1", [org.id]))?.[
      "names_version"
    ];
  expect(await namesOf()).toEqual(["peer"]);
  const before = await position();
  const hidden = await job("hidden");
  await hidden.checkin({ leaving: true });
  expect(await position()).toBe(before);
  const shown = await job("shown", { names: true });
  expect(await namesOf()).toEqual(["peer", "shown"]);
  await shown.checkin({ leaving: true });
  expect(await namesOf()).toEqual(["peer"]);
});

test("nothing is left of a job a day after its end, once its address is free", async () => {
  const node = await job("job");
  await node.checkin({ leaving: true });
  server.clock.ms += 26 * hour;
  await runDueUpkeep(server.app.services, org.id);
  const remove = () => deleteEnded(server.app.services, hour, () => false);
  await remove();
  // Its address is held until engines check open flows.
  expect(await rowOf(node)).toBeDefined();
  await server.db.write((tx) =>
    tx.run("UPDATE addresses SET node_id = NULL, held_until = NULL, free_at = NULL WHERE node_id = $1", [
      node.id,
    ]),
  );
  const given = [org.id, node.id];
  const insert = (sql: string) => server.db.write((tx) => tx.run(sql, given));
  await insert("INSERT INTO relay_traffic (org_id, node_id) VALUES ($1, $2)");
  await insert(`INSERT INTO rollouts (org_id, groups, hours, watch_s, state, ring, rings, since, created_at, ended_at)
    VALUES ($1, '[]', '[]', 60, 'passed', 1, 1, 1, $2, 1)`);
  await insert(`INSERT INTO rollout_nodes (rollout_id, node_id, ring, state, at)
    SELECT id, $2, 1, 'passed', 1 FROM rollouts WHERE org_id = $1`);
  await insert(`INSERT INTO registration_tokens (org_id, node_id, token_hash, uses, expires_at, created_at)
    VALUES ($1, $2, 'of the job', 1, ${server.clock.ms + 1}, 1)`);
  await remove();
  // A token could bring it back until it ends.
  expect(await rowOf(node)).toBeDefined();
  server.clock.ms += 2 * hour;
  await remove();
  expect(await rowOf(node)).toBeUndefined();
  expect(codeOf(await node.checkin())).toEqual([401, "token_not_valid"]);
});

test("no certificate of a job is announced as expiring", async () => {
  const { announceExpiring } = await import("../../../../src/server/nodes/lifecycle/expiring.ts");
  const node = await job("job");
  await announceExpiring(server.app.services);
  expect(await eventsOf(node)).not.toContain("certificate.expiring");
});

test("a node that leaves and returns without a pause gets no more certificates than others, and can be revoked", async () => {
  const node = await job("restless");
  const statuses = new Set<number>();
  // It has returned 180 times before.
  await addCertificates(server, node, 180, "former", server.clock.ms + hour);
  for (let at = 0; at < 25; at++) {
    await node.checkin({ leaving: true });
    statuses.add((await node.checkin({ overlay_state: "running" })).status);
  }
  expect([...statuses]).toEqual([200, 409]);
  const count = "SELECT count(*) AS n FROM certificates WHERE node_id = $1 AND kind = 'overlay'";
  expect((await server.db.get(count, [node.id]))?.["n"]).toBe(200);
  const revoked = await server.send("DELETE", `/api/org/${org.slug}/nodes/${node.id}/`, { token: admin });
  expect(revoked.status).toBe(204);
  await pass(hour + minute);
  expect(codeOf(await node.checkin({ overlay_state: "running" }))).toEqual([403, "node_revoked"]);
});
