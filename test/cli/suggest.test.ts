// Words of other tools lead to the command that they mean.

import { expect, test } from "bun:test";
import { agentHere } from "../support/in-process.ts";

test.each([
  ["node list acme", "agent admin node list acme"],
  ["nodes", "agent admin node --help"],
  ["node lst acme", "agent admin node --help"],
  ["peers add acme", "agent admin token create acme"],
  ["devices add acme", "agent admin token create acme"],
  ["clients rm acme alpha", "agent admin node delete acme alpha"],
  ["machines ls", "agent admin node list"],
  ["admin nodes ls acme", "agent admin node list acme"],
  ["admin node remove acme alpha", "agent admin node delete acme alpha"],
  ["admin node add acme alpha", "agent admin node create acme alpha"],
  ["user add ada@example.org", "agent admin user create ada@example.org"],
  ["acl ls acme", "agent admin rule list acme"],
  ["apikeys new acme ci", "agent admin service-token create acme ci"],
  ["group ls $(reboot)", "agent admin group list '$(reboot)'"],
  ["join", "agent up"],
  ["leave --all", "agent unregister --all"],
  ["sign-in", "agent login"],
  ["diff acme web", "agent admin diff acme web"],
  ["admin node diff acme web", "agent admin diff acme web"],
  ["upgrade", "agent self-update"],
  ["admin rename acme web www", "agent admin node rename acme web www"],
  ["admin group add acme staff", "agent admin group create acme staff"],
  ["admin group add acme web staff", "agent admin node update acme web --add-group staff"],
  ["route list acme", "agent admin route list acme"],
  ["admin subnet add acme 192.168.5.0/24", "agent admin route create acme 192.168.5.0/24"],
  ["admin subnets", "agent admin route --help"],
  ["admin user delete ada@example.org", "agent admin user disable ada@example.org"],
  ["admin token delete acme 3", "agent admin token revoke acme 3"],
  ["admin token show acme 3", "agent admin token list acme"],
  ["admin user show ada@example.org", "agent admin user list"],
  ["admin member rm acme ada@example.org", "agent admin member delete acme ada@example.org"],
  ["revoke acme web", "agent admin node revoke acme web"],
  ["admin kick acme web", "agent admin node revoke acme web"],
  ["remove acme web", "agent admin node delete acme web"],
  ["admin list acme", "agent admin node list acme"],
  ["admin show acme web", "agent admin node show acme web"],
  ["list", "agent status"],
  ["ip", "agent status"],
  ["add web", "agent admin token create --help"],
  ["invite acme ada@example.org", "agent admin invitation create acme ada@example.org"],
  ["invite list acme", "agent admin invitation list acme"],
  ["approve acme web", "agent admin registration approve acme web"],
  ["policy get acme", "agent admin policy get acme"],
  ["admin why acme web db tcp/22", "agent admin policy test acme web db tcp/22"],
  ["admin audit acme", "agent admin events acme"],
  ["admin log acme", "agent admin events acme"],
  ["certs", "agent admin ca --help"],
  ["relays", "agent admin relay --help"],
  ["engine update", "agent overlay update"],
  ["settings acme", "agent admin org show acme"],
  ["password ada@example.org", "agent admin user password ada@example.org"],
  ["admin lighthouse create acme", "agent admin token create --help"],
])("agent %s: did you mean %s", async (line, suggestion) => {
  const { status, err } = await agentHere(line.split(" "));
  expect(status).toBe(2);
  expect(err).toContain(`Did you mean \`${suggestion}\`?`);
});

test.each([
  ["stauts", 'Did you mean "status"? See `agent --help`.'],
  ["admin node lst acme", 'Did you mean "admin node list"? See `agent admin node --help`.'],
  // No other verb: it would do the opposite, or something else.
  ["admin rule move acme 1", "\nSee `agent admin rule --help`."],
  ["admin ca delete acme", "\nSee `agent admin ca --help`."],
  ["show-me", "\nSee `agent --help`."],
])("agent %s: %s", async (line, hint) => {
  const { status, err } = await agentHere(line.split(" "));
  expect([status, err]).toEqual([2, expect.stringContaining(hint)]);
});

test("a word for a machine's organization that is a verb of other tools leads to the admin command", async () => {
  const { status, err } = await agentHere(["peers", "add"]);
  expect([status, err]).toEqual([4, expect.stringContaining("Did you mean `agent admin token create`?")]);
});

test("a command that refuses its flags is not taken for another one", async () => {
  for (const line of [
    "admin audit verify --api-base https://c.example",
    "admin org list --access-token x",
    "admin route create acme 10.9.0.0/24 --via gate --metric 5000",
    "admin route create acme 10.9.0.0/24",
  ]) {
    const { status, err } = await agentHere(line.split(" "));
    expect(status).toBe(2);
    expect(err).not.toContain("Did you mean");
  }
});

test("the help of a suggested command is one word away: agent up --help prints help", async () => {
  expect(await agentHere(["up", "--help"])).toMatchObject({
    status: 0,
    out: expect.stringContaining("agent up"),
  });
});
