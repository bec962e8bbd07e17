// The way to open one network behind a gateway to one group only, as the console and docs/access.md give it.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { downloadOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";
import { usePolicyFiles } from "../../support/policy-files.ts";
import { planText } from "../../../src/server/policy-files/plan-text.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
const { applied, plan } = usePolicyFiles((made) => ({ server, org } = made));

const offices = "192.168.20.0/24";
const lab = "192.168.30.0/24";
const Config = v.object({
  tun: v.object({ unsafe_routes: v.array(v.object({ route: v.string(), via: v.string() })) }),
  firewall: v.object({ inbound: v.array(v.looseObject({})) }),
});

async function configOf(node: RegisteredNode) {
  const { files } = downloadOf(await node.download());
  return v.parse(Config, Bun.YAML.parse(files["config.yml"]));
}

const policy = (gateway: string, others: string) => `groups:
  staff: {members: [node:web1]}
  site: {members: [node:web1, node:db1, node:gw-berlin]}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: icmp, peer: any, target: ${others}}
  - {protocol: tcp, ports: 443, peer: group:staff, target: node:${gateway}}
routes:
  - {network: ${offices}, via: node:gw-berlin}
  - {network: ${lab}, via: node:${gateway}}
`;

test("a rule opens all networks of a gateway; one network alone needs a gateway that no other rule reaches", async () => {
  const engine = { overlay_version: "1.12.0" };
  const berlin = await registerNode(server, org, "gw-berlin", engine);
  const own = await registerNode(server, org, "gw-lab", engine);
  // The rule that everybody may ping opens a new network, and the plan says so.
  const route = await plan(`routes: [{network: ${offices}, via: node:gw-berlin}]`);
  const gained = route.access.pairs.map(
    ({ from, to, gains }) => `${from.name} to ${to.name}: ${gains.join()}`,
  );
  expect(gained).toContain(`web1 to ${offices} behind gw-berlin: icmp`);
  expect(gained.some((each) => each.startsWith("gw-berlin to"))).toBe(false);
  expect(planText(route)).toContain(`web1 to ${offices} behind gw-berlin: gains icmp`);
  await applied(policy("gw-berlin", "any"));
  // What names the machine is for all that is behind it: ping from everyone, and staff to the offices, too.
  const ping = { proto: "icmp", host: "any", local_cidr: "any" };
  const staff = { proto: "tcp", port: "443", group: "staff", local_cidr: "any" };
  expect((await configOf(berlin)).firewall.inbound).toMatchObject([ping, staff]);

  // A gateway of its own is not enough while a rule to all machines is there.
  await applied(policy("gw-lab", "any"));
  expect((await configOf(own)).firewall.inbound).toMatchObject([ping, staff]);

  const narrowed = policy("gw-lab", "group:site");
  const { access } = await plan(narrowed);
  const lost = access.pairs.map(
    ({ from, to, gains, loses }) => `${from.name} ${to.name} +${gains.join()} -${loses.join()}`,
  );
  expect(new Set(lost)).toEqual(
    new Set(
      ["db1", "gw-berlin", "192.168.20.0/24 behind gw-berlin", "web1"].flatMap((from) => [
        `${from} gw-lab + -icmp`,
        `${from} ${lab} behind gw-lab + -icmp`,
      ]),
    ),
  );
  await applied(narrowed);
  const { firewall } = await configOf(own);
  expect(firewall.inbound).toMatchObject([staff]);
  expect(firewall.inbound).toHaveLength(1);
  expect((await configOf(berlin)).firewall.inbound).toMatchObject([ping]);
  // The others send packets for the network to its own gateway, and to no other.
  expect((await configOf(berlin)).tun.unsafe_routes).toEqual([{ route: lab, via: own.ip }]);
});
