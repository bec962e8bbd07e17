// Policies of Tailscale and headscale as policy files: what becomes of each part, and what is named because it has no equal.

import { describe, expect, test } from "bun:test";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { plainJson } from "../../../src/server/policy-files/hujson.ts";
import { importPolicy } from "../../../src/server/policy-files/import-policy.ts";
import { parsePolicy } from "../../../src/server/policy/read-policy.ts";

const imported = (text: string, options: { networks?: readonly string[] | undefined } = {}) => {
  const { policy, notes } = atOnce(importPolicy(text, options.networks));
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
    {"src": ["tag:dev"], "dst": ["tag:web"], "ip": ["*"], "via": ["tag:gate"]},
  ],
  "ssh": [{"action": "accept", "src": ["group:dev"], "dst": ["tag:web"], "users": ["root"]}],
  "tests": [
    {"src": "group:dev", "accept": ["tag:web:22"], "deny": ["tag:web:23"]},
    {"src": "carl@example.org", "accept": ["tag:web:22"]},
  ],
}
`;

test("rules, groups and tests have their equals; every other line is named", () => {
  expect(imported(example, { networks: ["10.77.0.0/16"] })).toEqual({
    groups: { dev: {}, web: {}, "tag-dev": {} },
    rules: [
      "group:dev group:web tcp/22",
      "group:dev group:web tcp/8000-8010",
      "group:dev group:web udp/22",
      "group:dev group:web udp/8000-8010",
      "group:dev group:web icmp/any",
      "192.0.2.0/24 group:web udp/53",
      "group:web any tcp/any",
      "group:web any udp/any",
      "group:web any icmp/any",
      "any group:web tcp/80",
      "any group:web udp/80",
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
      "11 nas: 100.64.0.0/10 is an address space of Tailscale, and nodes have other addresses here: name a group",
      "12 carl@example.org: users are not imported: put their nodes into a group, or write user:EMAIL once they are members",
      "13 office:443: a destination is a group or a node: packets to a network behind a node pass by the rules of that node",
      "16 sctp:1: the engine has no rules for the protocol sctp",
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
    ['{"acls": [{"action": "accept", "src": ["*"], "dst": ["*:a-9"]}]}', "its ports are not"],
    ['{"acls": [], "defaultSrcPosture": ["posture:x"]}', "device posture is not known here"],
  ])("%s", (text, reason) => {
    const { rules, notes } = imported(text);
    expect(rules).toEqual([]);
    expect(notes.join("\n")).toContain(reason);
  });
});

test.each(["groups", "hosts", "tagOwners"])("a list in place of %s is no policy", (key) => {
  for (const list of [[], [["a"]], ["a"]])
    expect(() => imported(JSON.stringify({ [key]: list, acls: [] }))).toThrow("this is no policy");
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
  expect(imported(`{"acls": [${rule}], "defaultSrcPosture": []}`).rules).toHaveLength(3);
});

test("a policy without rules permits everything, one with an empty list nothing", () => {
  const { rules, notes } = imported("{}");
  expect(rules).toEqual(["any any tcp/any", "any any udp/any", "any any icmp/any"]);
  expect(notes).toEqual(["1 all traffic is permitted: without acls and grants the original permits it, too"]);
  expect(imported('{"acls": []}').notes).toEqual([]);
  expect(imported('{"ACLs": []}').rules).toEqual([]);
});

describe("a test that expects what a part without an equal permits is left out, and named", () => {
  const reason = "it expects what a part without an equal permits, which is named here, too";
  test.each<[string, object]>([
    [
      "a rule",
      { acls: [{ action: "accept", src: ["tag:a"], dst: ["tag:b:22"], srcPosture: ["posture:x"] }] },
    ],
    ["a destination", { acls: [{ action: "accept", src: ["tag:a"], dst: ["tag:b:22-9"] }] }],
    ["a source", { acls: [{ action: "accept", src: ["ann@example.org"], dst: ["tag:b:22"] }] }],
    ["a grant", { grants: [{ src: ["tag:a"], dst: ["tag:b"], ip: ["22"], via: ["tag:c"] }] }],
  ])("of %s", (_, rules) => {
    const text = JSON.stringify(
      {
        tagOwners: { "tag:a": [], "tag:b": [], "tag:c": [] },
        ...rules,
        tests: [
          { src: "tag:b", deny: ["tag:a:22"] },
          { src: "tag:a", accept: ["tag:b:22"], deny: ["tag:b:23"] },
        ],
      },
      undefined,
      1,
    );
    const { tests, notes } = imported(text);
    expect(tests).toEqual([
      { deny: { from: "group:b", to: "group:a", protocol: "tcp", port: 22 } },
      { deny: { from: "group:a", to: "group:b", protocol: "tcp", port: 23 } },
    ]);
    const line = text.split("\n").findLastIndex((each) => each.includes('"tag:b:22"')) + 1;
    expect(notes).toContainEqual(`${line} tag:b:22: ${reason}`);
  });

  test("of who is in a group; a test of what must not pass stays, and refuses", () => {
    const policy = {
      groups: { "group:dev": ["ann@example.org"], "group:ops": [] },
      acls: [{ action: "accept", src: ["group:dev"], dst: ["group:ops:22"] }],
    };
    const accept = [{ src: "group:ops", accept: ["group:dev:22"] }];
    expect(imported(JSON.stringify({ ...policy, tests: accept })).notes.join("\n")).toContain(reason);
    const deny = [{ src: "group:dev", deny: ["group:ops:22"] }];
    expect(() => atOnce(importPolicy(JSON.stringify({ ...policy, tests: deny })))).toThrow(
      "imported tests fail",
    );
  });
});

test("a test that fails on the import, of which nothing was left out, refuses it", () => {
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

const nodes = '"tagOwners": {"tag:a": [], "tag:b": [], "tag:router": []}';
const acl = (rule: string, rest = "") => `{${nodes}${rest}, "acls": [{"action": "accept", ${rule}}]}`;

describe("packets", () => {
  test.each([
    ['"src": ["tag:a"], "dst": ["tag:b:*"]', ["tcp/any", "udp/any", "icmp/any"]],
    ['"src": ["tag:a"], "dst": ["tag:b:22"]', ["tcp/22", "udp/22", "icmp/any"]],
    ['"proto": "tcp", "src": ["tag:a"], "dst": ["tag:b:0-65535"]', ["tcp/any"]],
    ['"proto": 17, "src": ["tag:a"], "dst": ["tag:b:0-99"]', ["udp/1-99"]],
  ])("%s", (rule, packets) => {
    expect(imported(acl(rule))).toMatchObject({
      rules: packets.map((each) => `group:a group:b ${each}`),
    });
  });

  test("only tcp, udp and icmp pass where the original says no protocol: GRE and SCTP do not", () => {
    for (const text of [
      "{}",
      acl('"src": ["*"], "dst": ["*:*"]'),
      '{"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}]}',
    ])
      expect(imported(text).rules).toEqual(["any any tcp/any", "any any udp/any", "any any icmp/any"]);
  });
});

describe("what is not understood is named, and the rest is imported", () => {
  test.each([
    ['"src": "tag:a", "dst": ["tag:b:22"]', "src is a text: write a list"],
    ['"src": ["tag:a"], "dst": "tag:b:22"', "dst is a text: write a list"],
    ['"src": ["tag:a", 7], "dst": ["tag:b:22"]', "src holds something else than texts"],
    ['"dst": ["tag:b:22"]', "it has no src"],
    ['"src": ["tag:a"], "SRC": ["*"], "dst": ["tag:b:22"]', "src is there twice"],
    ['"src": ["tag:a"], "users": ["*"], "dst": ["tag:b:22"]', "users has no equal"],
    ['"proto": ["tcp"], "src": ["tag:a"], "dst": ["tag:b:22"]', "proto is neither a text nor a number"],
    ['"src": ["tag:a"], "dst": ["tag:b:9000-8000"]', "the range 9000-8000 ends before it begins"],
    ['"src": ["tag:a"], "dst": ["tag:b:0"]', "port 0 means every port to the engine"],
    ['"src": ["tag:a"], "dst": ["tag:b:70000"]', "its ports are not *, numbers or ranges"],
    ['"src": ["tag:a"], "dst": ["tag:b"]', "its ports are not *, numbers or ranges"],
    ['"src": ["10.1.2.3/8"], "dst": ["tag:b:22"]', "10.1.2.3/8 has bits behind its prefix"],
    ['"proto": "icmp", "src": ["tag:a"], "dst": ["tag:b:22"]', "ICMP has no ports"],
  ])("%s", (rule, reason) => {
    const text = `{${nodes}, "acls": [\n{"action": "accept", ${rule}},\n{"action": "accept", "proto": "tcp", "src": ["tag:b"], "dst": ["tag:a:1"]}]}`;
    const { rules, notes } = imported(text);
    expect(rules).toEqual(["group:b group:a tcp/1"]);
    expect(notes.filter((each) => each.startsWith("2 "))).toEqual([expect.stringContaining(reason)]);
  });

  test.each([
    ['"ip": "tcp:443"', "ip is a text: write a list"],
    ['"ip": [443]', "ip holds something else than texts"],
    ['"ip": ["tcp:9000-8000"]', "ends before it begins"],
    ['"ip": ["icmp:7"]', "ICMP has no ports"],
    ['"ip": [":80"]', "begins with its protocol"],
    ['"ip": ["gre:*"]', "the engine has no rules for the protocol gre"],
    ['"description": "x"', "description has no equal"],
    ['"app": {}', "capabilities of applications"],
    ['"ip": []', "it has neither ip nor app"],
  ])("grant with %s", (rest, reason) => {
    const { rules, notes } = imported(
      `{${nodes}, "grants": [\n{"src": ["tag:a"], "dst": ["tag:b"], ${rest}}]}`,
    );
    expect(rules).toEqual([]);
    expect(notes.filter((each) => each.startsWith("2 "))).toEqual([expect.stringContaining(reason)]);
  });

  test("keys that differ in case alone are refused: one of them would be lost", () => {
    expect(() =>
      imported('{"acls": [],\n"ACLs": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]}'),
    ).toThrow("Line 2, column 1: ACLs");
  });

  test("a default posture that is no list is refused, too", () => {
    const rule = '{"action": "accept", "src": ["*"], "dst": ["*:*"]}';
    expect(() => imported(`{"acls": [${rule}], "defaultSrcPosture": "posture:x"}`)).toThrow("device posture");
  });

  test("what is too much for a policy is told about the original", () => {
    const many = Array.from({ length: 6000 }, (_, at) => `"tag:b:${at + 1}"`).join();
    expect(() => imported(acl(`"src": ["tag:a"], "dst": [${many}]`))).toThrow(
      "The import would have 12002 rules, 3 groups and 0 tests",
    );
  });
});

describe("networks as sources", () => {
  const sources = (networks: string[] | undefined, ...words: string[]) => {
    const list = words.map((each) => JSON.stringify(each)).join();
    return imported(acl(`"proto": "tcp", "src": [${list}], "dst": ["tag:b:22"]`), { networks });
  };
  const overlay = ["10.77.0.0/16", "fd77::/64"];

  test("one that overlaps the overlay is left out and named", () => {
    for (const word of ["10.0.0.0/8", "10.77.3.0/24", "10.77.0.9", "0.0.0.0/0", "::/0", "fd00::/8"]) {
      const { rules, notes } = sources(overlay, word);
      expect(rules).toEqual([]);
      expect(notes.join("\n")).toMatch(/overlaps the overlay|is an address space of Tailscale/);
    }
  });

  test("addresses of Tailscale name nodes that have others here", () => {
    for (const network of [
      "100.64.0.9",
      "100.64.0.0/10",
      "100.0.0.0/8",
      "fd7a:115c:a1e0::1",
      "fd7a:115c:a1e0::/48",
    ]) {
      const { rules, notes } = sources(["100.64.0.0/10"], network);
      expect(rules).toEqual([]);
      expect(notes.join("\n")).toContain("is an address space of Tailscale");
    }
  });

  test("others are kept", () => {
    expect(sources(overlay, "192.168.5.0/24", "192.0.2.7", "2001:db8::/32").rules).toEqual([
      "192.168.5.0/24 group:b tcp/22",
      "192.0.2.7/32 group:b tcp/22",
      "2001:db8::/32 group:b tcp/22",
    ]);
  });

  test("without the organization's networks none is imported, and the note says how", () => {
    const { rules, notes } = sources(undefined, "192.168.5.0/24");
    expect(rules).toEqual([]);
    expect(notes.join("\n")).toContain("--org-slug");
  });
});

describe("routers", () => {
  const approvers =
    ', "groups": {"group:net": ["ann@example.org"], "group:dev": ["ann@example.org", "ben@example.org"]}';
  const approved = (words: string) =>
    `${approvers}, "autoApprovers": {"routes": {"192.168.5.0/24": [${words}]}}`;
  const rule = (src: string, dst: string) => `"proto": "tcp", "src": ["${src}"], "dst": ["${dst}:22"]`;

  test.each([
    ['"tag:router"', "tag:a", "tag:router"],
    ['"tag:router"', "tag:router", "tag:a"],
    ['"group:net"', "tag:a", "group:net"],
    ['"group:net"', "tag:a", "group:dev"],
    ['"ann@example.org"', "group:dev", "tag:a"],
    ['"autogroup:tagged"', "tag:a", "tag:b"],
    ['"autogroup:member"', "tag:a", "group:dev"],
    ['"ann@example.org"', "*", "autogroup:self"],
  ])(
    "approvers %s: the rule from %s to %s is left out, as it would open the networks behind",
    (words, src, dst) => {
      const { rules, notes } = imported(acl(rule(src, dst), approved(words)));
      expect(rules).toEqual([]);
      expect(notes.join("\n")).toMatch(/the networks behind/);
    },
  );

  test("rules that reach all networks anyway, and nodes that are no routers, stay", () => {
    expect(imported(acl(rule("*", "*"), approved('"tag:router"'))).rules).toEqual(["any any tcp/22"]);
    expect(imported(acl(rule("tag:a", "tag:b"), approved('"tag:router"'))).rules).toEqual([
      "group:a group:b tcp/22",
    ]);
    expect(imported(acl(rule("tag:a", "group:dev"), approved('"autogroup:tagged"'))).rules).toEqual([]);
  });

  test("the router of a grant is one, too", () => {
    const { rules } = imported(
      `{${nodes}, "grants": [{"src": ["*"], "dst": ["192.168.5.0/24"], "ip": ["*"], "via": ["tag:router"]}, {"src": ["*"], "dst": ["tag:router"], "ip": ["tcp:22"]}]}`,
    );
    expect(rules).toEqual([]);
  });
});
