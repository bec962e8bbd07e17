// Repeated registrations with the same keys: resumed, limited, refused.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import {
  codeOf,
  countNodes,
  countOf,
  makeKeys,
  nodeOf,
  registerNode,
  registrationToken,
  sendRegistration,
} from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { Answer, TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;

useNumbered((made) => ({ server, org, admin } = made));

const registered = (answer: Answer) => v.parse(RegisterAnswer, answer.json);
const count1 = (sql: string, id: number) => countOf(server, sql, id);
const nodesOf = (id: number) => countNodes(server, id);

describe("a repeated registration with the same keys", () => {
  test("returns the same node with a new token, and consumes no second use", async () => {
    const token = await registrationToken(server, org, { uses: 1 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const body = { name: "web", ...node.keys, registration_token: token };
    const again = nodeOf(server, org, node.keys, registered(await sendRegistration(server, org.slug, body)));
    expect(again.id).toBe(node.id);
    expect(again.ip).toBe(node.ip);
    expect(again.token).not.toBe(node.token);
    expect((await node.checkin()).status).toBe(401);
    expect((await again.checkin()).status).toBe(200);
    expect(await nodesOf(org.id)).toBe(1);
    expect(await count1("SELECT used AS n FROM registration_tokens WHERE org_id = $1", org.id)).toBe(1);
  });

  test("continues after a crash between the two transactions", async () => {
    const token = await registrationToken(server, org, { uses: 1 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    await server.db.write(async (tx) => {
      await tx.run("DELETE FROM certificates WHERE node_id = $1", [node.id]);
      await tx.run(
        "UPDATE nodes SET state = 'pending', token_hash = NULL, registered_at = NULL WHERE id = $1",
        [node.id],
      );
    });
    const body = { name: "web", ...node.keys, registration_token: token };
    const again = registered(await sendRegistration(server, org.slug, body));
    expect(again.node).toMatchObject({ id: node.id, state: "active" });
  });

  test("returns the first certificates until a renewal is due", async () => {
    const token = await registrationToken(server, org, { uses: 1, expires_in: "90d" });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const again = async () =>
      registered(
        await sendRegistration(server, org.slug, { name: "web", ...node.keys, registration_token: token }),
      ).config.files;
    const { "host.crt": host, "node.crt": x509 } = node.answer.config.files;
    for (let round = 0; round < 5; round++) {
      expect(await again()).toMatchObject({ "host.crt": host, "node.crt": x509 });
    }
    const signed = "SELECT count(*) AS n FROM certificates WHERE org_id = $1";
    expect(await count1(signed, org.id)).toBe(2);
    // The X.509 certificate is valid for a week, the overlay certificate for 90 days.
    server.clock.ms += 6 * 86_400_000;
    const later = await again();
    expect(later["host.crt"]).toBe(host);
    expect(later["node.crt"]).not.toBe(x509);
    server.clock.ms += 59 * 86_400_000;
    expect((await again())["host.crt"]).not.toBe(host);
    await again();
    expect(await count1(signed, org.id)).toBe(5);
  });

  test("gets new certificates if the first attempt was not completed", async () => {
    const token = await registrationToken(server, org, { uses: 1 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    // Like a node of an imported network that was just claimed with another key.
    await server.db.write((tx) => tx.run("UPDATE nodes SET registered_at = NULL WHERE id = $1", [node.id]));
    const body = { name: "web", ...node.keys, registration_token: token };
    const again = registered(await sendRegistration(server, org.slug, body));
    expect(again.config.files["host.crt"]).not.toBe(node.answer.config.files["host.crt"]);
  });

  test("is refused ten minutes after the token has expired", async () => {
    const token = await registrationToken(server, org, { uses: 1, expires_in: "1h" });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const body = { name: "web", ...node.keys, registration_token: token };
    server.clock.ms += 69 * 60_000;
    const again = nodeOf(server, org, node.keys, registered(await sendRegistration(server, org.slug, body)));
    server.clock.ms += 60_000;
    const late = await sendRegistration(server, org.slug, body);
    expect(codeOf(late)).toEqual([401, "token_not_valid"]);
    expect(late.text).toContain("The registration token is expired.");
    // The refusal changed nothing: the node's last token still works.
    expect((await again.checkin()).status).toBe(200);
    expect(await count1("SELECT count(*) AS n FROM certificates WHERE org_id = $1", org.id)).toBe(2);
    // A new registration is refused as soon as the token expires.
    const other = { name: "other", ...(await makeKeys()), registration_token: token };
    expect((await sendRegistration(server, org.slug, other)).status).toBe(401);
  });

  test("is limited to ten per hour and node, which other callers cannot exhaust", async () => {
    const token = await registrationToken(server, org, { uses: 2 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const other = await registerNode(server, org, "other", { registration_token: token });
    const body = { name: "web", ...node.keys, registration_token: token };
    const stranger = { ...body, node_csr: (await makeKeys()).node_csr };
    for (let round = 0; round < 12; round++) await sendRegistration(server, org.slug, stranger);
    for (let round = 0; round < 10; round++) {
      expect((await sendRegistration(server, org.slug, body)).status).toBe(201);
    }
    const refused = await sendRegistration(server, org.slug, body);
    expect(codeOf(refused)).toEqual([429, "throttled"]);
    expect(refused.headers.get("Retry-After")).toBe("3600");
    expect(refused.text).toContain("This node resumed its registration too often.");
    const others = { name: "other", ...other.keys, registration_token: token };
    expect((await sendRegistration(server, org.slug, others)).status).toBe(201);
    server.clock.ms += 3_600_000;
    expect((await sendRegistration(server, org.slug, body)).status).toBe(201);
  });

  test("is refused with the public key alone, which every peer sees", async () => {
    const node = await registerNode(server, org, "web");
    const token = await registrationToken(server, org);
    const thief = { ...(await makeKeys()), host_public_key: node.keys.host_public_key };
    for (const body of [thief, { host_public_key: node.keys.host_public_key }]) {
      const answer = await sendRegistration(server, org.slug, {
        name: "thief",
        ...body,
        registration_token: token,
      });
      expect(answer.status).toBe(409);
    }
    expect((await node.checkin()).status).toBe(200);
  });

  test("can move the node to the other mode, and keeps the mode if it names none", async () => {
    const node = await registerNode(server, org, "web", { mode: "server" });
    const modes: string[] = [];
    for (const mode of ["desktop", undefined, "server"]) {
      const body = { name: "web", ...node.keys, ...(mode === undefined ? {} : { mode }) };
      const answer = registered(await sendRegistration(server, org.slug, body, { token: admin }));
      expect(JSON.parse(answer.config.files["node-config.json"])).toMatchObject({ mode: answer.node.mode });
      modes.push(answer.node.mode ?? "");
    }
    expect(modes).toEqual(["desktop", "desktop", "server"]);
  });

  test("is refused with the token of another registration", async () => {
    const node = await registerNode(server, org, "web");
    const spent = await registrationToken(server, org, { uses: 1 });
    await registerNode(server, org, "other", { registration_token: spent });
    const body = { name: "web", ...node.keys, registration_token: spent };
    expect((await sendRegistration(server, org.slug, body)).status).toBe(401);
  });

  test("does not restore a revoked node", async () => {
    const node = await registerNode(server, org, "web");
    await server.send("DELETE", `/api/org/${org.slug}/nodes/${node.id}/`, { token: admin });
    const token = await registrationToken(server, org);
    const body = { name: "web", ...node.keys };
    expect(codeOf(await sendRegistration(server, org.slug, body, { token: admin }))).toEqual([
      403,
      "node_revoked",
    ]);
    const byToken = await sendRegistration(server, org.slug, { ...body, registration_token: token });
    expect(codeOf(byToken)).toEqual([403, "node_revoked"]);
  });
});
