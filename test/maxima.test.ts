// Every text, list and record that comes from another program or from a file has a maximum.

import { expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import * as messages from "../src/daemon/ipc/messages.ts";
import * as state from "../src/daemon/organization-record.ts";
import * as lock from "../src/node/files/lock.ts";
import * as orders from "../src/node/files/orders.ts";
import * as revokedNotes from "../src/node/files/revoked-notes.ts";
import * as syncState from "../src/node/files/config/sync-state.ts";
import * as marker from "../src/node/files/update-marker.ts";
import * as tokens from "../src/pki/tokens.ts";
import * as protocol from "./support/protocol.ts";
import * as manifest from "../src/release/manifest.ts";
import { schemasOf, withoutMaximum } from "./support/maxima.ts";

const modules = {
  lock,
  manifest,
  marker,
  messages,
  orders,
  protocol,
  syncState,
  revokedNotes,
  state,
  tokens,
};

/** Values of any kind: what holds them has a maximum in bytes (64 KiB for a line of the socket, 32 MiB for an answer). */
const anyKind = [
  "messages.Request request_ts: unknown",
  "protocol.CheckinAnswer addresses: unknown",
  "protocol.CheckinAnswer confirm: unknown",
  "protocol.CheckinAnswer move: unknown",
  "protocol.CheckinAnswer names: unknown",
  "protocol.CheckinAnswer relayed: unknown",
  "protocol.CheckinRequest flows: unknown",
  "protocol.CheckinRequest paths: unknown",
  "protocol.CheckinRequest relayed: unknown",
  "protocol.Node config_overrides{}: unknown",
  "protocol.DownloadAnswer seals: unknown",
  "protocol.DownloadAnswer node.config_overrides{}: unknown",
  "protocol.RegisterAnswer node.config_overrides{}: unknown",
  "protocol.RegisterAnswer config.seals: unknown",
  "protocol.RegisterAnswer config.node.config_overrides{}: unknown",
];

test("every text, list and record of the wire, the socket and the node's files has a maximum", () => {
  const found = Object.entries(modules).flatMap(([name, module]) => {
    const schemas = schemasOf(module);
    expect([name, schemas.length]).not.toEqual([name, 0]);
    return schemas.flatMap(([schema, value]) =>
      withoutMaximum(value).map((each) => `${name}.${schema} ${each}`),
    );
  });
  expect(found.sort()).toEqual(anyKind.sort());
});

test("all files of the protocol are looked at", async () => {
  const root = join(import.meta.dir, "..");
  const looked = await Bun.file(join(root, "test/support/protocol.ts")).text();
  const files = [...new Bun.Glob("*.ts").scanSync(join(root, "src/protocol"))];
  expect(files.filter((file) => !looked.includes(`/protocol/${file}"`))).toEqual([]);
});

test("a schema without a maximum is found wherever it is", () => {
  const bounded = v.pipe(v.string(), v.maxLength(9));
  const open = v.object({
    text: v.optional(v.nullable(v.string())),
    list: v.array(bounded),
    record: v.pipe(v.record(v.string(), bounded), v.maxEntries(3)),
    choice: v.union([v.number(), v.array(v.pipe(v.string(), v.trim()))]),
    json: v.pipe(bounded, v.parseJson(), v.array(v.number())),
    any: v.any(),
    fine: v.pipe(v.array(v.pipe(bounded, v.trim())), v.maxLength(2)),
  });
  expect(withoutMaximum(open)).toEqual([
    "text: string",
    "list: array",
    "record{key}: string",
    "choice: array",
    "choice[]: string",
    "json: array",
    "any: any",
  ]);
});

test("a node record with many groups, networks and overrides passes", () => {
  const many = (count: number, make: (index: number) => string) =>
    Array.from({ length: count }, (_, i) => make(i));
  const node: protocol.Node = {
    id: 1,
    name: "n".repeat(63),
    ip_address: "10.0.0.1",
    ip_address6: "fd00:1111:2222:3333:4444:5555:6666:7777",
    subnets: many(1000, (i) => `fd00:1111:2222:3333:4444:5555:${i.toString(16)}::/112`),
    state: "active",
    online: true,
    mode: "server",
    is_lighthouse: false,
    is_relay: false,
    public_ip: "a".repeat(253),
    external_port: 4242,
    groups: many(1000, (i) => `group-${i}`.padEnd(63, "x")),
    config_overrides: Object.fromEntries(many(500, (i) => `key_${i}`).map((key) => [key, { deep: [key] }])),
    certificate: null,
    config_version: 1,
    applied_config_version: 1,
    agent_version: "1".repeat(64),
    overlay_version: "1".repeat(64),
    platform: "p".repeat(64),
    last_checkin_at: "2026-11-22T00:00:00.000Z",
    created_at: "2026-11-22T00:00:00.000Z",
    revoked_at: null,
  };
  expect(v.parse(protocol.Node, node)).toEqual(node);
});
