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
  ["admin route create acme 192.168.5.0/24 web", "agent admin node update --help"],
  ["admin subnets", "agent admin node update --help"],
  ["admin lighthouse create acme", "agent admin token create --help"],
])("agent %s: did you mean %s", async (line, suggestion) => {
  const { status, err } = await agentHere(line.split(" "));
  expect(status).toBe(2);
  expect(err).toContain(`Did you mean \`${suggestion}\`?`);
});

test("a word for a machine's organization that is a verb of other tools leads to the admin command", async () => {
  const { status, err } = await agentHere(["peers", "add"]);
  expect([status, err]).toEqual([4, expect.stringContaining("Did you mean `agent admin token create`?")]);
});

test("the help of a suggested command is one word away: agent up --help prints help", async () => {
  expect(await agentHere(["up", "--help"])).toMatchObject({
    status: 0,
    out: expect.stringContaining("agent up"),
  });
});
