// Nodes of an organization: their tokens, downloads, revocation. Also a known fault of other systems: revocations that never
// arrive.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { fingerprint } from "../../../src/pki/nebula.ts";
import { verifyOrder } from "../../../src/pki/signed-messages.ts";
import { CheckinAnswer } from "../../../src/protocol/checkin.ts";
import { DownloadAnswer } from "../../../src/protocol/download.ts";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { codeOf, useAcme } from "../../support/acme.ts";
import { makeKeys } from "../../support/nodes.ts";

const acme = useAcme();
const { post, get, register } = acme;

const checkinBody = (config_version?: number) => ({
  version: "1.0.0",
  uptime: 5,
  ...(config_version === undefined ? {} : { config_version }),
});

describe("a node's token", () => {
  test("opens its own two endpoints and gets 403 at every other, for every method", async () => {
    const alpha = await register("alpha");
    const beta = await register("beta");
    const token = alpha.api_token;
    expect((await get(`nodes/${alpha.node.id}/download_config/`, token)).status).toBe(200);
    const closed = [
      ["GET", `nodes/${alpha.node.id}/`],
      ["PATCH", `nodes/${alpha.node.id}/`],
      ["DELETE", `nodes/${alpha.node.id}/`],
      ["GET", `nodes/${alpha.node.id}/checkin/`],
      ["POST", `nodes/${alpha.node.id}/download_config/`],
      ["POST", `nodes/${alpha.node.id}/renew_cert/`],
      ["POST", `nodes/${beta.node.id}/checkin/`],
      ["GET", `nodes/${beta.node.id}/download_config/`],
      ["GET", "nodes/"],
    ];
    for (const [method = "", path = ""] of closed) {
      const answer = await acme.server.send(method, `/api/org/acme/${path}`, {
        token,
        ...(method === "GET" ? {} : { body: {} }),
      });
      expect([method, path, answer.status, codeOf(answer)]).toEqual([method, path, 403, "node_token_scope"]);
    }
  });

  test("is stored as a hash and never shown again", async () => {
    const { api_token, node } = await register("alpha");
    const rows = await acme.server.db.all("SELECT * FROM nodes");
    expect(JSON.stringify(rows)).not.toContain(api_token);
    expect((await get(`nodes/${node.id}/`, acme.admin)).text).not.toContain(api_token);
    expect(acme.server.log.join("")).not.toContain(api_token);
  });
});

describe("download_config", () => {
  test("is 304 for an unaffected node, with the version that it then reports", async () => {
    const { node, api_token } = await register("alpha");
    const path = `nodes/${node.id}/download_config/`;
    const first = await get(path, api_token);
    const etag = first.headers.get("ETag") ?? "";
    expect((await get(path, api_token, { "If-None-Match": etag })).status).toBe(304);
    // A lighthouse affects every node; a rule affects those that it is for; groups of a node affect that node alone.
    const change = (method: string, where: string, body: object) =>
      acme.server.send(method, `/api/org/acme/${where}`, { token: acme.admin, body });
    const version = async () => {
      const unconcerned = await get(path, api_token, { "If-None-Match": etag });
      expect(unconcerned.status).toBe(304);
      return Number(unconcerned.headers.get("X-Config-Version"));
    };
    const { node: beta } = await register("beta");
    await change("PATCH", `nodes/${beta.id}/`, { groups: ["x"] });
    const before = await version();
    expect(before).toBe(Number(first.headers.get("X-Config-Version")));
    const rule = {
      direction: "inbound",
      protocol: "tcp",
      ports: "22",
      peer: { any: true },
      target: { group: "x" },
    };
    expect((await change("POST", "firewall_rules/", rule)).status).toBe(201);
    expect(await version()).toBeGreaterThan(before);
    await register("hub", { is_lighthouse: true, public_ip: "192.0.2.7" });
    const concerned = await get(path, api_token, { "If-None-Match": etag });
    expect(concerned.status).toBe(200);
    expect(v.parse(DownloadAnswer, concerned.json).files["config.yml"]).toContain('"192.0.2.7:4242"');
  });

  test("config/ is 304 too, and both see a change at once in every format", async () => {
    const { node, api_token } = await register("alpha");
    const files = `nodes/${node.id}/download_config/`;
    const config = `nodes/${node.id}/config/`;
    const first = await get(config, acme.admin);
    const etag = first.headers.get("ETag") ?? "";
    expect(etag).toBe((await get(files, api_token)).headers.get("ETag") ?? "none");
    expect((await get(config, acme.admin, { "If-None-Match": etag })).status).toBe(304);
    await get(`${files}?format=tar`, api_token);
    const body = { config_overrides: { listen: { port: 4343 } } };
    await acme.server.send("PATCH", `/api/org/acme/nodes/${node.id}/`, { token: acme.admin, body });
    const changed = await get(config, acme.admin, { "If-None-Match": etag });
    expect(changed.status).toBe(200);
    expect(changed.text).toContain("port: 4343");
    expect((await get(files, api_token)).text).toContain("port: 4343");
    const tar = await acme.server.app.fetch(
      new Request(`https://control.example/api/org/acme/${files}?format=tar`, {
        headers: { Authorization: `Bearer ${api_token}` },
      }),
      { addressOf: () => "192.0.2.1" },
    );
    const packed = await new Bun.Archive(await tar.bytes()).files();
    expect(await packed.get("config.yml")?.text()).toContain("port: 4343");
  });
});

describe("revocation", () => {
  test("wakes the peers' polls at once, and adds the certificate to their blocklist", async () => {
    const alpha = await register("alpha");
    const beta = await register("beta");
    const [certificate] = decodeBundle(beta.config.files["host.crt"]);
    if (certificate === undefined) throw new Error("There is no host.crt");
    const poll = post(
      `nodes/${alpha.node.id}/checkin/`,
      checkinBody(alpha.config.config_version),
      alpha.api_token,
      { Prefer: "wait=50" },
    );
    await Bun.sleep(20);
    expect(
      (await acme.server.send("DELETE", `/api/org/acme/nodes/${beta.node.id}/`, { token: acme.admin }))
        .status,
    ).toBe(204);
    expect(v.parse(CheckinAnswer, (await poll).json).config_changed).toBe(true);
    const files = v.parse(
      DownloadAnswer,
      (await get(`nodes/${alpha.node.id}/download_config/`, alpha.api_token)).json,
    ).files;
    expect(files["config.yml"]).toContain(fingerprint(certificate));
    expect((await get(`nodes/${beta.node.id}/`, acme.admin)).json).toMatchObject({ state: "revoked" });
    expect((await get("revocations/", acme.admin)).json).toMatchObject([{ node_id: beta.node.id, total: 1 }]);
  });

  test("sends the node a signed order, and only a restore brings it back", async () => {
    const { node, api_token, config, keys } = await register("alpha");
    await register("silent");
    await acme.server.send("DELETE", `/api/org/acme/nodes/${node.id}/`, { token: acme.admin });
    const told = await post(`nodes/${node.id}/checkin/`, checkinBody(), api_token);
    const { code, order = "" } = v.parse(ErrorBody, told.json);
    expect([told.status, code]).toEqual([403, "node_revoked"]);
    expect(await verifyOrder(order, config.order_key)).toMatchObject({
      org: "acme",
      node_id: node.id,
      action: "revoke",
    });
    expect((await get(`nodes/${node.id}/download_config/`, api_token)).status).toBe(403);
    // The same keys cannot register again under any name, and no certificate is renewed.
    for (const name of ["alpha", "gamma"]) {
      expect(codeOf(await post("nodes/register/", { name, ...keys }, acme.admin))).toBe("node_revoked");
    }
    expect(codeOf(await post(`nodes/${node.id}/renew_cert/`, {}, acme.admin))).toBe("node_revoked");
    expect(
      (await acme.server.send("DELETE", `/api/org/acme/nodes/${node.id}/`, { token: acme.admin })).status,
    ).toBe(404);
    // Its name is free, its address is held: its certificate has not expired.
    expect((await register("alpha")).node.ip_address).not.toBe(node.ip_address);
  });

  test("can be undone by a restore: new certificate, signed order, the old certificate stays blocked", async () => {
    const { node, api_token, config } = await register("alpha");
    const peer = await register("beta");
    const [old] = decodeBundle(config.files["host.crt"]);
    if (old === undefined) throw new Error("There is no host.crt");
    await acme.server.send("DELETE", `/api/org/acme/nodes/${node.id}/`, { token: acme.admin });
    acme.server.clock.ms += 1000;
    expect((await post(`nodes/${node.id}/restore/`, {}, acme.admin)).json).toMatchObject({
      state: "active",
      ip_address: node.ip_address,
    });
    const answer = v.parse(
      CheckinAnswer,
      (await post(`nodes/${node.id}/checkin/`, checkinBody(), api_token)).json,
    );
    expect(await verifyOrder(answer.order ?? "", config.order_key)).toMatchObject({ action: "restore" });
    const files = v.parse(
      DownloadAnswer,
      (await get(`nodes/${peer.node.id}/download_config/`, peer.api_token)).json,
    ).files;
    expect(files["config.yml"]).toContain(fingerprint(old));
    const own = v.parse(
      DownloadAnswer,
      (await get(`nodes/${node.id}/download_config/`, api_token)).json,
    ).files;
    const [fresh] = decodeBundle(own["host.crt"]);
    expect(fresh === undefined ? "" : fingerprint(fresh)).not.toBe(fingerprint(old));
  });
});

test("the list is paged, counted and searched", async () => {
  for (const name of ["alpha", "beta", "gamma"]) await post("nodes/", { name }, acme.admin);
  const page = await get("nodes/?page=2&page_size=2", acme.admin);
  expect(page.json).toMatchObject([{ name: "gamma" }]);
  expect(page.headers.get("X-Total-Count")).toBe("3");
  expect(page.headers.get("Link")).toContain('rel="prev"');
  expect((await get("nodes/?search=ET", acme.admin)).json).toMatchObject([{ name: "beta" }]);
});

test("the list has only the nodes that are asked for by id, and is empty for those of others", async () => {
  for (const name of ["one", "two", "three"]) await post("nodes/", { name }, acme.admin);
  const ids = v
    .parse(v.array(v.object({ id: v.number() })), (await get("nodes/", acme.admin)).json)
    .map(({ id }) => id);
  const [one, , three] = ids;
  const found = await get(`nodes/?ids=${three},${one},999999`, acme.admin);
  expect(found.json).toMatchObject([{ name: "one" }, { name: "three" }]);
  expect(found.headers.get("X-Total-Count")).toBe("2");
  expect((await get(`nodes/?ids=${one}&search=hre`, acme.admin)).json).toEqual([]);
  expect((await get(`nodes/?ids=${one}&revoked=true`, acme.admin)).json).toEqual([]);
  for (const wrong of ["", "0", "1,", "-1", "1 OR 1=1", Array(201).fill(1).join(",")])
    expect((await get(`nodes/?ids=${encodeURIComponent(wrong)}`, acme.admin)).status).toBe(400);
});

test.each([
  ["10.77.0.30", "is in the overlay"],
  ["127.0.0.1", "leads each machine to itself"],
  ["169.254.169.254", "leads each machine to itself"],
])("%s as public address is refused with its field in every way to give it", async (public_ip, why) => {
  const lighthouse = { is_lighthouse: true, public_ip };
  const { node } = await register("hub", { is_lighthouse: true, public_ip: "192.0.2.1" });
  const answers = [
    await post("nodes/register/", { name: "evil", ...(await makeKeys("any")), ...lighthouse }, acme.admin),
    await post("nodes/", { name: "evil", ...lighthouse }, acme.admin),
    await acme.server.send("PATCH", `/api/org/acme/nodes/${node.id}/`, {
      token: acme.admin,
      body: lighthouse,
    }),
  ];
  for (const answer of answers) {
    expect([answer.status, codeOf(answer)]).toEqual([400, "validation_failed"]);
    expect(answer.text).toContain(`"public_ip":["${public_ip} ${why}`);
  }
});
