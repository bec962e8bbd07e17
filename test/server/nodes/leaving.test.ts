// A node that leaves by itself: its last check-in revokes it like a deletion by an administrator.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { expect, test } from "bun:test";
import type { Organization } from "../../../src/api/organizations.ts";
import {
  blocklistOf,
  checkinOf,
  codeOf,
  downloadOf,
  makeKeys,
  registerNode,
  registrationToken,
  sendRegistration,
} from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
useNumbered((made) => ({ server, org, admin } = made));

test("a node that leaves is revoked, blocked on the others, and named as the one who did it", async () => {
  const peer = await registerNode(server, org, "peer");
  const node = await registerNode(server, org, "leaver");
  const answer = checkinOf(await node.checkin({ leaving: true }));
  expect(answer.left).toBe(true);
  expect(codeOf(await node.checkin())).toEqual([403, "node_revoked"]);
  const shown = node.answer.node.certificate?.fingerprint ?? "none";
  expect(blocklistOf(downloadOf(await peer.download()))).toContain(shown);
  const row = await server.db.get("SELECT revoked_by, revoke_reason FROM nodes WHERE id = $1", [node.id]);
  expect(row).toEqual({ revoked_by: `node/${node.id}`, revoke_reason: "left the organization" });
});

test("its name and address stay held as after a deletion", async () => {
  await registerNode(server, org, "peer");
  const node = await registerNode(server, org, "leaver");
  await node.checkin({ leaving: true });
  const body = { name: "leaver", ...(await makeKeys()) };
  const registration_token = await registrationToken(server, org);
  const again = await sendRegistration(server, org.slug, { ...body, registration_token });
  expect(codeOf(again)).toEqual([409, "name_held"]);
  const other = await registerNode(server, org, "next");
  expect(other.ip).not.toBe(node.ip);
});

test("only the node itself can leave: an administrator's check-in for it changes nothing", async () => {
  const node = await registerNode(server, org, "stayer");
  const path = `/api/org/${org.slug}/nodes/${node.id}/checkin/`;
  const body = { version: "1.0.0", uptime: 1, leaving: true };
  const answer = await server.send("POST", path, { token: admin, body });
  expect(checkinOf(answer).left).toBeUndefined();
  expect((await node.checkin({ leaving: false })).status).toBe(200);
});

test("a node that left cannot leave twice", async () => {
  const node = await registerNode(server, org, "leaver");
  await node.checkin({ leaving: true });
  expect(codeOf(await node.checkin({ leaving: true }))).toEqual([403, "node_revoked"]);
});
