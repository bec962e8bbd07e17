// Events of the audit log as sentences with the words of the pages.

import { expect, test } from "bun:test";
import type { Event as AuditEvent } from "../../../src/api/events.ts";
import {
  eventSentence,
  readableChanges,
  unnamed,
  type Known,
} from "../../../src/console/activity/event-words.ts";
import { ruleChangeOf } from "../../../src/console/activity/rule-change.ts";
import { eventKinds, eventTypes } from "../../../src/api/events.ts";

const engineering = `idp:4.${"0".repeat(32)}`;
const known: Known = {
  names: new Map([[7, "ada@example.org"]]),
  things: new Map([
    ["node/3", "db-1"],
    ["service_token/2", "terraform"],
  ]),
  words: new Map([[engineering, "idp:Engineering"]]),
};
const ada = { kind: "person", id: 7, ip: "192.0.2.1" };

const event = (type: string, subject: string, more: Partial<AuditEvent> = {}): AuditEvent => ({
  id: 1,
  at: "2026-11-01T12:00:00.000Z",
  type,
  actor: ada,
  subject,
  before: null,
  after: null,
  hash: "",
  ...more,
});
const say = (...of: Parameters<typeof event>) => {
  const { parts, by } = eventSentence(event(...of), known);
  return parts.join("") + (by === "" ? "" : ` / ${by}`);
};

test("an event is a sentence: who did what to which thing, by its name", () => {
  expect(say("node.revoked", "node/3")).toBe("ada@example.org revoked the node db-1");
  expect(say("node.updated", "node/3", { before: { name: "db" }, after: { name: "db-1" } })).toBe(
    "ada@example.org renamed the node db to db-1",
  );
  expect(say("node.updated", "node/9")).toBe("ada@example.org changed node 9");
  expect(say("rule.created", "rule/4")).toBe("ada@example.org created rule 4");
  expect(say("group.deleted", "group/web")).toBe("ada@example.org deleted the group web");
  expect(say("member.deleted", "member/7@example.org")).toBe("ada@example.org removed 7@example.org");
  expect(say("policy.confirmed", "policy").trim()).toBe("ada@example.org confirmed the policy");
  const server = { kind: "server", id: null, ip: null };
  expect(say("certificate.issued", "node/3", { actor: server })).toBe(
    "The control plane issued a certificate for db-1",
  );
  const token = { kind: "service", id: 2, ip: null };
  expect(say("node.restored", "node/3", { actor: token })).toBe("Token terraform restored the node db-1");
  // Who did it stands elsewhere if it is not the one whom the sentence is about.
  const nobody = { kind: "nobody", id: null, ip: "192.0.2.9" };
  expect(say("node.registered", "node/8", { actor: nobody, after: { name: "web-1" } })).toBe(
    "web-1 joined / Somebody",
  );
  expect(say("node.created", "node/8", { actor: { ...ada, id: 9 }, after: { name: "a#b" } })).toBe(
    "User 9 created the node a#b",
  );
});

test("events of users and of the control plane are sentences, and users have their addresses", () => {
  const server = { kind: "server", id: null, ip: null };
  const nobody = { kind: "nobody", id: null, ip: "192.0.2.9" };
  expect(say("user.disabled", "user/eve@example.org")).toBe(
    "ada@example.org disabled the user eve@example.org",
  );
  // Events of earlier releases have the id.
  expect(say("user.password_changed", "user/7")).toBe(
    "ada@example.org changed the password of ada@example.org",
  );
  expect(say("user.factor_removed", "user/eve@example.org")).toBe(
    "ada@example.org removed a second factor of eve@example.org",
  );
  expect(say("security.login_failed", "user/eve@example.org", { actor: nobody })).toBe(
    "Wrong password or code for eve@example.org / Somebody",
  );
  expect(say("server.updated", "server")).toBe("ada@example.org changed the control plane");
  expect(say("tls.certificate_issued", "tls/vpn.example.org", { actor: server })).toBe(
    "The control plane got a certificate for vpn.example.org",
  );
});

test("every type of event has words, which name nothing but actor and subject", () => {
  expect(eventTypes.length).toBeGreaterThan(80);
  for (const type of eventTypes) {
    const { words, subjects } = eventKinds[type];
    expect([type, words, subjects.length > 0]).toEqual([type, expect.stringMatching(/^[@#&A-Z]/), true]);
    expect([type, words.match(/[^\w ,:@#&]/g)]).toEqual([type, null]);
    expect([type, (words.match(/[#&]/g) ?? []).length <= 1]).toEqual([type, true]);
  }
  // A page that is older than the control plane.
  expect(say("node.painted", "node/3")).toBe("node.painted: the node db-1 / ada@example.org");
});

test("names and actors are texts of others, and stand apart in every sentence", () => {
  const name = "na@me";
  for (const type of eventTypes) {
    const { parts } = eventSentence(event(type, `x/${name}`, { after: { name } }), known);
    const own = parts.filter((_, at) => at % 2 === 0).join("");
    expect([type, own.includes(name), own.includes("ada@")]).toEqual([type, false, false]);
    expect([type, parts.join("").length > 8]).toEqual([type, true]);
  }
});

test("what changed has names instead of numbers, and the words of the pages", () => {
  const changes = (...of: Parameters<typeof event>) => readableChanges(event(...of), known);
  expect(
    changes("node.updated", "node/3", { before: { subnets: [] }, after: { subnets: ["10.0.0.0/8"] } }),
  ).toEqual([{ field: "networks behind it", removed: [], added: ["10.0.0.0/8"] }]);
  expect(
    changes("node.transferred", "node/3", { before: { owner_id: 7 }, after: { owner_id: null } }),
  ).toEqual([{ field: "owner", removed: ["ada@example.org"], added: ["none"] }]);
  expect(changes("token.used", "registration_token/1", { after: { node_id: 3 } })).toEqual([
    { field: "node", removed: [], added: ["db-1"] },
  ]);
  expect(changes("registration.waiting", "registration/1", { after: { name: "a", owner_id: null } })).toEqual(
    [],
  );
  expect(changes("organization.updated", "organization/acme", { after: { node_approval: "all" } })).toEqual([
    { field: "node approval", removed: [], added: ["all"] },
  ]);
  expect(changes("name.created", "name/a", { after: { group: "none", node: null } })).toEqual([
    { field: "group", removed: [], added: ["none"] },
  ]);
  // What the sentence says already, and hashes, are left to the raw event.
  expect(changes("certificate.issued", "node/3", { after: { fingerprint: "ab" } })).toEqual([]);
  expect(changes("node.revoked", "node/3", { before: { name: "db-1" }, after: { reason: "lost" } })).toEqual([
    { field: "reason", removed: [], added: ["lost"] },
  ]);
  expect(changes("policy.applied", "policy", { after: { tests: 1 } })).toEqual([
    { field: "tests in all", removed: [], added: ["1"] },
  ]);
  expect(
    changes("policy.applied", "policy", {
      after: { nodes: [{ id: 3, name: "db-1", groups: { add: ["db"], remove: [] }, relay: null }] },
    }),
  ).toEqual([{ field: "nodes", removed: [], added: ["db-1: groups add db"] }]);
});

test("rules are the sentences of the page Access", () => {
  const rule = {
    id: 9,
    direction: "inbound",
    protocol: "tcp",
    ports: "22",
    peer: { group: engineering },
    target: { node: 3 },
    description: "for Ada",
  };
  const sentence = "9: nodes of users in Engineering may reach db-1 on tcp 22 (for Ada)";
  const told = (...of: Parameters<typeof event>) => readableChanges(event(...of), known);
  expect(told("rule.created", "rule/9", { after: rule })).toEqual([
    { field: "rules", removed: [], added: [sentence] },
  ]);
  const applied = event("policy.applied", "policy", {
    after: { counts: { rules_deleted: 1 }, rule_ids: [9], rules_deleted: [rule], version: 4 },
  });
  expect(readableChanges(applied, known)).toEqual([
    { field: "rules", removed: [sentence], added: [] },
    { field: "policy version", removed: [], added: ["4"] },
  ]);
  const unlisted = "items beyond the first 500, which the event does not list";
  for (const counts of [
    { rules_created: 501 },
    { rules_deleted: 501 },
    { rules_described: 501 },
    { nodes: 501 },
  ])
    expect(told("policy.applied", "policy", { after: { counts } })).toEqual([
      { field: "and more", removed: [], added: [unlisted] },
    ]);
  // A rule that was changed by its number: the event has no more than the difference.
  const changed = { before: { ports: "22" }, after: { ports: "443" } };
  expect(told("rule.updated", "rule/9", changed)).toEqual([
    { field: "ports", removed: ["22"], added: ["443"] },
  ]);
  expect(ruleChangeOf(event("rule.updated", "rule/9", changed))).toBeUndefined();
});

test("nodes that events name by number alone are found, each once", () => {
  const by = { kind: "node", id: 12, ip: null };
  const events = [
    event("node.updated", "node/3"),
    event("node.updated", "node/5"),
    event("node.healing", "node/12", { actor: by }),
    event("token.used", "registration_token/1", { after: { node_id: 6 } }),
    event("name.created", "name/intranet", { after: { node: 8 } }),
    event("name.created", "name/intranet", { after: { node: "x" } }),
    event("rule.deleted", "rule/1", {
      before: { direction: "inbound", protocol: "any", peer: { any: true }, target: { node: 7 } },
    }),
  ];
  expect(unnamed(events, known.things)).toEqual([5, 12, 6, 8, 7]);
});
