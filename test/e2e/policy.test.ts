// Firewall rules and networks behind nodes with real packets through real engines: only packets that the control plane
// permits pass.

import { expect, test } from "bun:test";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { runSync } from "../support/debian.ts";
import { Plan } from "../../src/api/policy.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization, owner, startEngine, type Organization } from "../support/overlay.ts";
import { signInThrough, startIdentityProvider, type IdentityProvider } from "../support/oidc.ts";
import { end, paste, post, type Node } from "../support/policy-nodes.ts";
import { reaches, startEcho, type Protocol } from "../support/traffic.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/members.ts";

buildAgent();

/** The provider of identities listens there. */
const loopback = ["--webhook-allow", "127.0.0.0/8"];
const Made = v.looseObject({ id: v.number() });
const Verdict = v.object({ allowed: v.boolean(), rule_id: v.nullable(v.number()), reason: v.string() });

/** Staff reach each other on 443, and no node has port 53. */
const changed = `rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: icmp, peer: any, target: any}
  - {protocol: tcp, ports: 443, peer: group:staff, target: group:staff}
  - {protocol: tcp, ports: 8000-8010, peer: node:guest, target: node:database}
tests:
  - accept: {from: group:staff, to: group:staff, protocol: tcp, port: 443}
  - deny: {from: group:staff, to: group:db, protocol: udp}
`;
const [alice, bob] = ["alice@company.example", "bob@company.example"];
/** Alice may ask the database for names, and her nodes are operators. */
const ofUsers = `groups:
  ops: {members: ["user:${alice}"]}
  db: {}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: udp, ports: 53, peer: "user:${alice}", target: group:db}
  - {protocol: tcp, ports: 5432, peer: group:ops, target: group:db}
tests:
  - deny: {from: "user:${bob}", to: group:db, protocol: any}
`;

const onCall = "On call / DE";
const ofProvider = `rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: udp, ports: 53, peer: "idp:${onCall}", target: group:db}
`;

/** Carol signs in by the provider for the first time, with these groups there, and the node becomes hers. */
async function giveCarol({ plane, ...acme }: Organization, provider: IdentityProvider, node: Node) {
  const client = ["--client-id", provider.clientId, "--client-secret", provider.clientSecret];
  const people = ["--scopes", "openid email groups", "--users", "create", "--role", "vpn=acme:member"];
  const made = await plane.admin(["oidc", "create", "Company", provider.issuer, ...client, ...people]);
  expect([made.status, made.stderr]).toEqual([0, made.stderr]);
  const carol = { sub: "carol-1", email: "carol@company.example", email_verified: true };
  const signIn = async (...groups: string[]) => {
    provider.person = { ...carol, groups: ["vpn", ...groups] };
    expect(await signInThrough(plane.url)).toBe("/console/");
  };
  await signIn(onCall);
  await post({ plane, ...acme }, `nodes/${node.node_id}/transfer/`, { owner: carol.email });
  return signIn;
}

/** The first node becomes Alice's, the second one Bob's. Returns the number of Alice's membership. */
async function giveOwners(
  acme: Organization,
  { web, guest }: Record<"web" | "guest", Node>,
): Promise<number> {
  const made: number[] = [];
  for (const [email, node] of [
    [alice, web],
    [bob, guest],
  ] as const) {
    await acme.plane.admin(["user", "create", email, "--password-file", "-"], owner.password);
    made.push(v.parse(Made, await post(acme, "members/", { email, role: "member" })).id);
    await post(acme, `nodes/${node.node_id}/transfer/`, { owner: email });
  }
  return made[0] ?? 0;
}

/** A setting of every section that may be overridden. */
const overrides = {
  listen: { batch: 32, send_recv_error: "private" },
  tun: { mtu: 1350, tx_queue: 600, drop_multicast: true },
  punchy: { delay: "2s", respond_delay: "4s" },
  relay: { use_relays: true },
  lighthouse: { interval: 5, remote_allow_list: { "0.0.0.0/0": true } },
  static_map: { cadence: "20s", network: "ip4" },
  firewall: { inbound_action: "drop", conntrack: { tcp_timeout: "5m", udp_timeout: "2m" } },
  handshakes: { try_interval: "50ms", retries: 20 },
  tunnels: { drop_inactive: false, inactivity_timeout: "20m" },
  logging: { level: "debug" },
  stats: { type: "prometheus", interval: "10s", listen: "127.0.0.1:8625", path: "/metrics" },
  timers: { connection_alive_interval: 3 },
  preferred_ranges: ["192.0.2.0/24"],
  routines: 1,
};

asRoot("policy", () => {
  describeEngines("real packets", ({ nebula, version }) => {
    const sync = (node: Node) => {
      const root = dirname(node.directory);
      return agentJson(["sync-config", "--config-root", root, "--overlay-binary", nebula]);
    };
    const start = (nodes: Node[]) =>
      Promise.all(nodes.map(({ host, directory }) => startEngine(host, nebula, directory)));

    test("rules permit exactly what the API reports", async () => {
      using directory = temporaryDirectory();
      await using plane = await startControlPlane(join(directory.path, "server"), loopback);
      const acme = await makeOrganization(plane);
      using lan = makeLan(["lighthouse", "web", "guest", "database"]);
      const enrol = (name: string, groups: string[], flags: string[] = []) =>
        paste(acme, { root: directory.path, host: lan.host(name), engine: nebula }, groups, flags);
      const hub = ["--public-ip", lan.host("lighthouse").address];
      const lighthouse = await enrol("lighthouse", [], hub);
      const [web, guest, database] = [
        await enrol("web", ["web", "staff"]),
        await enrol("guest", ["staff"]),
        await enrol("database", ["db"]),
      ];
      const rule = (protocol: string, ports: string, peer: unknown, target: unknown) =>
        post(acme, "firewall_rules/", { direction: "inbound", protocol, ports, peer, target });
      const forWeb = v.parse(Made, await rule("tcp", "5432", { group: "web" }, { group: "db" }));
      await rule("tcp", "8000-8010", { node: guest.node_id }, { node: database.node_id });
      await rule("udp", "53", { cidr: `${web.ip_address}/32` }, { any: true });
      const nodes = [lighthouse, web, guest, database];
      for (const node of nodes) await sync(node);
      const engines = await start(nodes);
      await Promise.all(
        [web, guest, database].map(({ host }) => startEcho(host, [53, 443, 5432, 8000, 8010, 8011])),
      );

      const cases: [Node, Node, Protocol, number, boolean][] = [
        [web, database, "tcp", 5432, true],
        [guest, database, "tcp", 8000, true],
        [guest, database, "tcp", 8010, true],
        [web, database, "udp", 53, true],
        [web, guest, "udp", 53, true],
        [guest, database, "tcp", 5432, false],
        [web, database, "udp", 5432, false],
        [web, database, "tcp", 8000, false],
        [guest, database, "tcp", 8011, false],
        [guest, database, "udp", 8000, false],
        [guest, database, "udp", 53, false],
        [web, database, "tcp", 53, false],
        [web, guest, "tcp", 5432, false],
        [database, web, "tcp", 5432, false],
        [web, database, "tcp", 443, false],
      ];
      type Case = (typeof cases)[number];
      const what = ([from, to, protocol, port]: Case) => `${from.name} to ${to.name} ${protocol}/${port}`;
      const explained = async (each: Case) => {
        const [from, to, protocol, port, allowed] = each;
        const asked = { from: from.node_id, to: to.node_id, protocol, port };
        const verdict = v.parse(Verdict, await post(acme, "firewall_rules/test/", asked));
        expect(`${what(each)}: ${verdict.allowed}`).toBe(`${what(each)}: ${allowed}`);
      };
      const sent = async (each: Case) => {
        const [from, to, protocol, port, allowed] = each;
        const isReached = () => reaches(from.host, protocol, to.ip_address, port);
        if (allowed) await until(what(each), isReached);
        else expect(`${what(each)}: ${await isReached()}`).toBe(`${what(each)}: false`);
      };
      const check = async (each: Case) => {
        await explained(each);
        await sent(each);
      };
      // One after the other: the server refuses more than eight such questions at once.
      for (const each of cases) await explained(each);
      // Permitted packets first: then the tunnels exist, and a missing answer means a refusal.
      for (const each of cases.filter(([, , , , allowed]) => allowed)) await sent(each);
      await Promise.all(cases.filter(([, , , , allowed]) => !allowed).map(sent));

      const checkOwners = async () => {
        const member = await giveOwners(acme, { web, guest });
        const reload = async () => {
          for (const node of nodes) await sync(node);
          for (const engine of engines) engine.hangUp();
        };
        await post(acme, "policy/apply/", { policy: ofUsers, prune: true });
        await reload();
        await check([web, database, "udp", 53, true]);
        await check([web, database, "tcp", 5432, true]);
        await check([guest, database, "udp", 53, false]);
        await check([guest, database, "tcp", 5432, false]);
        const ends = (each: Case) =>
          until(`${what(each)} ends`, async () => {
            await reload();
            const [from, to, protocol, port] = each;
            return !(await reaches(from.host, protocol, to.ip_address, port));
          });
        // The group ends with the membership, what the owner may with the ownership.
        await acme.api("DELETE", `/api/org/acme/members/${member}/`);
        await ends([web, database, "tcp", 5432, false]);
        await check([web, database, "udp", 53, true]);
        await post(acme, `nodes/${web.node_id}/transfer/`, { owner: bob });
        await ends([web, database, "udp", 53, false]);
        await check([guest, database, "udp", 53, false]);

        await using provider = await startIdentityProvider([`${plane.url}/api/session/oidc/1/callback/`]);
        const signIn = await giveCarol(acme, provider, guest);
        await post(acme, "policy/apply/", { policy: ofProvider, prune: true });
        await reload();
        await check([guest, database, "udp", 53, true]);
        await check([web, database, "udp", 53, false]);
        // The claim goes away.
        await signIn();
        await ends([guest, database, "udp", 53, false]);
      };

      await acme.api("DELETE", `/api/org/acme/firewall_rules/${forWeb.id}/`);
      await sync(database);
      engines[3]?.hangUp();
      await until(
        "the rule is gone",
        async () => !(await reaches(web.host, "tcp", database.ip_address, 5432)),
      );
      await check([web, database, "udp", 53, true]);

      const planned = v.parse(Plan, await post(acme, "policy/plan/", { policy: changed, prune: true }));
      expect(planned.access.pairs_changed).toBe(planned.access.pairs.length);
      const moved = planned.access.pairs.map(
        (each) => `${each.from.name} > ${each.to.name} +${each.gains.join()} -${each.loses.join()}`,
      );
      expect(moved).toContain("guest > web +tcp/443 -");
      expect(moved).toContain("web > guest +tcp/443 -udp/53");
      await post(acme, "policy/apply/", { policy: changed, prune: true });
      for (const node of nodes) await sync(node);
      for (const engine of engines) engine.hangUp();
      await check([guest, web, "tcp", 443, true]);
      await check([web, guest, "tcp", 443, true]);
      await check([guest, database, "tcp", 8000, true]);
      await until("udp/53 is gone", async () => !(await reaches(web.host, "udp", guest.ip_address, 53)));
      await check([guest, database, "tcp", 443, false]);

      if (inFull || version.startsWith("1.12.")) await checkOwners();
      end(engines);
    }, 240_000);

    test("a machine behind a node is reached by its own address and reaches others by the rules; overrides apply", async () => {
      using directory = temporaryDirectory();
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      using lan = makeLan(["router", "web", "guest"]);
      using site = makeLan(["printer"]);
      const [router, printer] = [lan.host("router"), site.host("printer")];
      connect(router, printer);
      const hub = ["--public-ip", router.address];
      const at = (name: string) => ({ root: directory.path, host: lan.host(name), engine: nebula });
      const gate = await paste(acme, at("router"), [], hub);
      const web = await paste(acme, at("web"), ["web"]);
      const guest = await paste(acme, at("guest"), []);
      const patched = await acme.api("PATCH", `/api/org/acme/nodes/${gate.node_id}/`, {
        subnets: ["10.99.0.0/24"],
      });
      expect(patched.status).toBe(200);
      const patch = (path: string, config_overrides: object) =>
        acme.api("PATCH", `/api/org/acme/${path}`, { config_overrides });
      expect((await patch("", { ...overrides, pki: { ca: "/tmp/ca.crt" } })).status).toBe(400);
      expect((await patch("", overrides)).status).toBe(200);
      expect((await patch(`nodes/${web.node_id}/`, { tun: { mtu: 1400 } })).status).toBe(200);
      const way = { direction: "inbound", protocol: "tcp", peer: { group: "web" } };
      await post(acme, "firewall_rules/", { ...way, ports: "9100", target: { node: gate.node_id } });
      const nodes = [gate, web, guest];
      for (const node of nodes) await sync(node);
      const engines = await start(nodes);
      await startEcho(printer, [9100, 9101]);
      const mtu = ({ host }: Node) => /: ov-\w+: .* mtu (\d+)/.exec(host.run(["ip", "-o", "link"]))?.[1];
      expect([mtu(guest), mtu(web)]).toEqual(["1350", "1400"]);

      await until("web reaches the printer", () => reaches(web.host, "tcp", "10.99.0.10", 9100));
      // In the other direction all may ping all.
      const ping = startPing(printer, guest.ip_address);
      await ping.reply(30_000);
      await ping.stop();
      expect(await reaches(guest.host, "tcp", "10.99.0.10", 9100)).toBe(false);
      expect(await reaches(web.host, "tcp", "10.99.0.10", 9101)).toBe(false);
      end(engines);
    }, 240_000);
  });
});

/** A separate link between a node and a machine without an engine. */
function connect(router: Host, printer: Host): void {
  const ip = (host: Host, ...words: string[]) => host.run(["ip", ...words]);
  ip(printer, "link", "set", "eth0", "down");
  ip(router, ..."link add site type veth peer name site netns".split(" "), printer.namespace);
  ip(router, ..."addr add 10.99.0.1/24 dev site".split(" "));
  ip(printer, ..."addr add 10.99.0.10/24 dev site".split(" "));
  for (const host of [router, printer]) ip(host, "link", "set", "site", "up");
  ip(printer, ..."route add default via 10.99.0.1".split(" "));
  runSync(router.inside(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]));
}
