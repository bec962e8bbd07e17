// Policies of Tailscale and headscale as policy files: what becomes of each part, and what is named because it has no equal.

import { describe, expect, test } from "bun:test";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { plainJson } from "../../../src/server/policy-files/hujson.ts";
import { importPolicy } from "../../../src/server/policy-files/import-policy.ts";
import { parsePolicy } from "../../../src/server/policy/policy-file.ts";

const imported = (text: string) => {
  const { policy, notes } = atOnce(importPolicy(text));
  const { rules = [], ...file } = atOnce(parsePolicy(policy)).file;
  return {
    ...file,
    rules: rules
      .slice(1)
      .map(({ protocol, ports, peer, target }) => `${peer} ${target} ${protocol}/${ports}`),
    notes: notes.map(({ line, what, reason }) => `${line} ${what}: ${reason}`),
  };
};

const example = `// The company's policy.
{
  "groups": {
    "group:dev": ["anna@example.org", "ben@example.org",],
  },
  "tagOwners": {"tag:web": ["group:dev"], "tag:dev": ["group:dev"]}, /* owners
  of tags */
  "hosts": {"office": "192.0.2.0/24", "nas": "100.64.0.9"},
  "acls": [
    {"action": "accept", "src": ["group:dev"], "dst": ["tag:web:22,8000-8010"]},
    {"action": "accept", "proto": "udp", "src": ["office", "nas"], "dst": ["tag:web:53"]},
    {"action": "accept", "src": ["carl@example.org", "tag:web"], "dst": ["*:*"]},
    {"action": "accept", "src": ["*"], "dst": ["office:443", "tag:web:80"]},
  ],
  "grants": [
    {"src": ["tag:dev"], "dst": ["tag:web"], "ip": ["tcp:443", "icmp:*", "sctp:1"]},
    {"src": ["tag:dev"], "dst": ["tag:web"], "ip": ["*"], "via": ["tag:web"]},
  ],
  "ssh": [{"action": "accept", "src": ["group:dev"], "dst": ["tag:web"], "users": ["root"]}],
  "tests": [
    {"src": "group:dev", "accept": ["tag:web:22"], "deny": ["tag:web:23"]},
    {"src": "carl@example.org", "accept": ["tag:web:22"]},
  ],
}
`;

test("rules, groups and tests have their equals; every other line is named", () => {
  expect(imported(example)).toEqual({
    groups: { dev: {}, web: {}, "tag-dev": {} },
    rules: [
      "group:dev group:web any/22",
      "group:dev group:web any/8000-8010",
      "group:dev group:web icmp/any",
      "192.0.2.0/24 group:web udp/53",
      "100.64.0.9/32 group:web udp/53",
      "group:web any any/any",
      "any group:web any/80",
      "any group:web icmp/any",
      "group:tag-dev group:web tcp/443",
      "group:tag-dev group:web icmp/any",
    ],
    tests: [
      { accept: { from: "group:dev", to: "group:web", protocol: "tcp", port: 22 } },
      { deny: { from: "group:dev", to: "group:web", protocol: "tcp", port: 23 } },
    ],
    notes: [
      "4 2 members of group:dev: write user:EMAIL below its `members` once they are members here, or give the group to their nodes",
      "6 the owners of tag:web: registration tokens give groups",
      "6 the owners of tag:dev: registration tokens give groups",
      "12 carl@example.org: users are not imported: put their nodes into a group, or write user:EMAIL once they are members",
      "13 office:443: a destination is a group or a node: packets to a network behind a node pass by the rules of that node",
      "16 sctp:1: the engine has no rules for it",
      "17 the grant: via has no equal",
      "19 ssh: SSH of the overlay has no equal: permit port 22, and use the machine's own SSH server",
      "22 the test of carl@example.org: users are not imported: put their nodes into a group, or write user:EMAIL once they are members",
    ],
  });
});

describe("what would permit more is left out", () => {
  test.each([
    ['{"acls": [{"action": "deny", "src": ["*"], "dst": ["*:*"]}]}', 'its action is not "accept"'],
    [
      '{"acls": [{"action": "accept", "srcPosture": ["posture:x"], "src": ["*"], "dst": ["*:*"]}]}',
      "srcposture has no equal",
    ],
    [
      '{"acls": [{"action": "accept", "proto": "gre", "src": ["*"], "dst": ["*:*"]}]}',
      "no rules for the protocol gre",
    ],
    ['{"acls": [{"action": "accept", "src": ["tag:none"], "dst": ["*:*"]}]}', "tag:none is not defined"],
    [
      '{"tagOwners": {"tag:x": []}, "acls": [{"action": "accept", "src": ["tag:x"], "dst": ["autogroup:self:*"]}]}',
      "self is a destination for users",
    ],
    ['{"acls": [{"action": "accept", "src": ["*"], "dst": ["*:0-9"]}]}', "its ports are not"],
    ['{"acls": [], "defaultSrcPosture": ["posture:x"]}', "device posture is not known here"],
  ])("%s", (text, reason) => {
    const { rules, notes } = imported(text);
    expect(rules).toEqual([]);
    expect(notes.join("\n")).toContain(reason);
  });
});

test("tags and groups whose names differ here in nothing stay apart", () => {
  const long = "a".repeat(70);
  const { groups, rules } = imported(
    JSON.stringify({
      groups: { "group:web": [], [`group:${long}1`]: [], [`group:${long}2`]: [] },
      tagOwners: {
        "tag:web": [],
        "tag:tag-web": [],
        "tag:a/b": [],
        "tag:a-b": [],
        "tag:any": [],
        "tag:xany": [],
      },
      acls: [
        { action: "accept", proto: "tcp", src: ["tag:web"], dst: ["tag:a/b:22"] },
        { action: "accept", proto: "tcp", src: ["tag:tag-web"], dst: ["tag:a-b:443"] },
        { action: "accept", proto: "tcp", src: [`group:${long}2`], dst: ["tag:xany:80"] },
      ],
    }),
  );
  const short = "a".repeat(58);
  expect(Object.keys(groups ?? {}).toSorted()).toEqual(
    ["web", short, `${short}-2`, "tag-web", "tag-tag-web", "a-b", "tag-a-b", "xany", "tag-xany"].toSorted(),
  );
  expect(rules).toEqual([
    "group:tag-web group:a-b tcp/22",
    "group:tag-tag-web group:tag-a-b tcp/443",
    `group:${short}-2 group:tag-xany tcp/80`,
  ]);
});

test("a default posture is refused: each rule would permit more than the original", () => {
  const rule = '{"action": "accept", "src": ["*"], "dst": ["*:*"]}';
  const text = `{"acls": [${rule}],\n "defaultSrcPosture": ["posture:x"]}`;
  expect(() => atOnce(importPolicy(text))).toThrow("Line 2, column 2: defaultSrcPosture: device posture");
  expect(imported(`{"acls": [${rule}], "defaultSrcPosture": []}`).rules).toHaveLength(1);
});

test("a policy without rules permits everything, one with an empty list nothing", () => {
  expect(imported("{}").rules).toEqual(["any any any/any"]);
  expect(imported('{"ACLs": []}').rules).toEqual([]);
});

test("a test that fails on the import refuses it", () => {
  const text = `{"tagOwners": {"tag:a": []}, "acls": [], "tests": [{"src": "tag:a", "accept": ["tag:a:22"]}]}`;
  expect(() => atOnce(importPolicy(text))).toThrow("1 of the 1 imported tests fail");
});

test.each([["["], ["[]"], ['"x"'], ['{"acl": []}'], ['{"acls": {}}'], ['{"acls": [], "acls": []}']])(
  "%j is no policy",
  (text) => expect(() => atOnce(importPolicy(text))).toThrow(),
);

test("HuJSON keeps its lines and columns as JSON", () => {
  const text = '{ // a\n\t"a": "// no, /* no */ ,]", /* b\n */ "b": [1, 2 ,\n],\n}';
  const plain = plainJson(text);
  expect(JSON.parse(plain)).toEqual({ a: "// no, /* no */ ,]", b: [1, 2] });
  expect([plain.length, plain.split("\n").length]).toEqual([text.length, text.split("\n").length]);
});
