// `agent doctor` on a machine whose overlay carries no traffic: it names each fault and the line to type. Each test makes one
// fault, and repairs it again.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, copyFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { command, startDaemon } from "../support/daemon.ts";
import { runSync } from "../support/debian.ts";
import { asRoot, describeTogether } from "../support/engines.ts";
import { makeMembers, until, type Member } from "../support/members.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const Doctor = v.object({
  checks: v.array(
    v.looseObject({
      id: v.string(),
      verdict: v.string(),
      evidence: v.string(),
      remedy: v.optional(v.string()),
    }),
  ),
});

async function doctorOn({ host, places }: Member, user: readonly string[] = [], word = "doctor") {
  const argv = host.inside([...user, agent, word, "--json", ...places.flags]);
  // Not synchronously: this process passes the requests to the control plane on.
  const env = { PATH: process.env["PATH"] ?? "", LC_ALL: "C" };
  const child = Bun.spawn(argv, { env, stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const { checks } = v.parse(Doctor, JSON.parse(await child.stdout.text()));
  const exitCode = await child.exited;
  return {
    status: exitCode,
    checks,
    failed: checks.filter(({ verdict }) => verdict === "fail").map(({ id }) => id),
    of: (id: string) => {
      const {
        verdict,
        evidence,
        remedy = "",
      } = checks.find((each) => each.id === id) ?? expect.unreachable();
      return `${verdict}: ${evidence} → ${remedy}`;
    },
  };
}

asRoot("the doctor", () => {
  describeTogether(
    "finds",
    ([older, newer]) => {
      const stack = new AsyncDisposableStack();
      let acme: Organization;
      let hub: Member;
      let a: Member;
      let engine = "";
      let port = "";
      beforeAll(async () => {
        const directory = stack.use(temporaryDirectory()).path;
        chmodSync(directory, 0o755);
        engine = join(directory, "nebula");
        copyFileSync(newer?.nebula ?? "", engine);
        const lan = stack.use(makeLan(["hub", "a"]));
        const plane = stack.use(await startControlPlane(join(directory, "server")));
        ({ port } = new URL(plane.url));
        acme = await makeOrganization(plane);
        const { members } = stack.use(await makeMembers(acme, lan, directory, engine));
        [hub, a] = [members[0] ?? expect.unreachable(), members[1] ?? expect.unreachable()];
      }, 60_000);
      afterAll(() => stack.disposeAsync());

      /** Repairs also after a failure, so that the next fault is alone. */
      async function during(fault: () => unknown, repair: () => unknown, look: () => Promise<void>) {
        await fault();
        try {
          await look();
        } finally {
          await repair();
        }
        await healthy();
      }

      const healthy = () =>
        until(
          "a healthy node",
          async () => (await command(a.places, ["status", "--check"])).status === 0,
          40_000,
        );

      test("nothing on a healthy node", async () => {
        await healthy();
        const doctor = await doctorOn(a);
        expect(doctor.failed).toEqual([]);
        expect(doctor.of("traffic")).toStartWith("ok: 1 of 1 lighthouses answer");
        expect(doctor.of("daemon")).toStartWith("ok: it answers");
      }, 60_000);

      test("as another user nothing that this user cannot see", async () => {
        const doctor = await doctorOn(a, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        expect(doctor.of("daemon")).toStartWith("skipped: this user may not ask it");
        expect(doctor.of("traffic")).toStartWith("skipped: cannot see it without root");
      });

      test("a lighthouse whose engine is stopped", async () => {
        const tell = (verb: string) => command(hub.places, [verb, "acme"]);
        await during(
          () => tell("stop"),
          () => tell("start"),
          async () => {
            const { of, status } = await doctorOn(a);
            expect(of("traffic")).toBe(
              `fail: The lighthouse hub does not answer: UDP ${hub.host.address}:4242 of hub is closed, no engine listens there → On the lighthouse: agent start acme`,
            );
            expect(status).toBe(1);
          },
        );
      }, 60_000);

      test("a firewall before the lighthouse", async () => {
        // The lighthouse hears, and its answers go nowhere.
        const route = (verb: string) =>
          hub.host.run(["ip", "route", verb, "blackhole", `${a.host.address}/32`]);
        await during(
          () => route("add"),
          () => route("del"),
          async () => {
            expect((await doctorOn(a)).of("traffic")).toMatch(
              /^fail: The lighthouse hub does not answer: nothing comes back from UDP \S+:4242 of hub: a firewall drops it, or the machine is off → Permit UDP 4242/,
            );
          },
        );
      }, 60_000);

      test("a machine with no way out, where neither lighthouse nor control plane answers", async () => {
        const nft = (...words: string[]) => a.host.run(["nft", ...words]);
        const cutOff = () => {
          hub.host.run(["ip", "route", "add", "blackhole", `${a.host.address}/32`]);
          nft("add", "table", "inet", "cut");
          nft("add", "chain", "inet", "cut", "out", "{ type filter hook output priority 0; }");
          nft("add", "rule", "inet", "cut", "out", "tcp", "dport", port, "drop");
        };
        const mend = () => {
          hub.host.run(["ip", "route", "del", "blackhole", `${a.host.address}/32`]);
          nft("delete", "table", "inet", "cut");
        };
        await during(cutOff, mend, async () => {
          const both = /and the control plane does not answer either: .* → Check this machine's way out/;
          const [doctor, netcheck] = await Promise.all([doctorOn(a), doctorOn(a, [], "netcheck")]);
          expect([doctor.of("traffic"), netcheck.of("traffic"), netcheck.of("udp")]).toEqual(
            Array.from({ length: 3 }, () => expect.stringMatching(both)),
          );
        });
      }, 200_000);

      test("no route to the lighthouse", async () => {
        const route = (verb: string) =>
          a.host.run(["ip", "route", verb, "unreachable", `${hub.host.address}/32`]);
        await during(
          () => route("add"),
          () => route("del"),
          async () => {
            expect((await doctorOn(a)).of("traffic")).toMatch(
              /^fail: The lighthouse hub does not answer: no route to UDP \S+:4242 of hub: .* → Connect this machine/,
            );
          },
        );
      }, 60_000);

      test("a lighthouse that refuses the handshake", async () => {
        const ca = join(hub.places.configRoot, "acme", "ca.crt");
        const before = readFileSync(ca);
        const made = join(hub.places.configRoot, "..", "other");
        const flags = [
          "-version",
          "1",
          "-name",
          "other",
          "-out-crt",
          `${made}.crt`,
          "-out-key",
          `${made}.key`,
        ];
        runSync([newer?.nebulaCert ?? "", "ca", ...flags]);
        const reload = async (text: Uint8Array) => {
          writeFileSync(ca, text);
          await command(hub.places, ["restart", "acme"]);
        };
        await during(
          () => reload(readFileSync(`${made}.crt`)),
          () => reload(before),
          async () => {
            expect((await doctorOn(a)).of("traffic")).toMatch(
              /^fail: The lighthouse hub does not answer: an engine listens at UDP \S+:4242 of hub, but makes no tunnel with this node: .* → agent sync-config/,
            );
          },
        );
      }, 60_000);

      test("a local network inside the overlay", async () => {
        a.host.run(["ip", "link", "add", "lan1", "type", "veth", "peer", "name", "lan2"]);
        for (const each of ["lan1", "lan2"]) a.host.run(["ip", "link", "set", each, "up"]);
        a.host.run(["ip", "addr", "add", "10.77.200.4/24", "dev", "lan1"]);
        expect((await doctorOn(a)).of("interfaces")).toStartWith(
          "fail: the overlay 10.77.0.0/16 takes over 10.77.200.0/24, a network of this machine's interface lan1 → Ask",
        );
        a.host.run(["ip", "link", "del", "lan1"]);
        expect((await doctorOn(a)).failed).toEqual([]);
      }, 20_000);

      test("a route that is not in effect, and a router that does not forward", async () => {
        const subnet = "10.99.1.0/24";
        const { status } = await acme.api("PATCH", paths.node("acme", hub.id), { subnets: [subnet] });
        expect(status).toBe(200);
        await until("the route", () => a.host.run(["ip", "route"]).includes(subnet), 30_000);
        hub.host.run(["sysctl", "-qw", "net.ipv4.ip_forward=0"]);
        await until(
          "the router's certificate",
          async () => (await doctorOn(hub)).failed.includes("forwarding"),
          20_000,
        );
        expect((await doctorOn(hub)).of("forwarding")).toStartWith(
          `fail: this node is the router of ${subnet}, but net.ipv4.ip_forward is 0 → sysctl -w net.ipv4.ip_forward=1`,
        );
        hub.host.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
        expect((await doctorOn(hub)).of("forwarding")).toStartWith("ok: ");
        a.host.run(["ip", "route", "del", subnet]);
        expect((await doctorOn(a)).of("routes")).toBe(
          `fail: the engine runs, but there is no route to ${subnet} → agent restart acme`,
        );
        await command(a.places, ["restart", "acme"]);
        await healthy();
        expect((await doctorOn(a)).of("routes")).toStartWith("ok: 1 route through other nodes is in effect");
        // The kernel has the route, and its router is off.
        await during(
          () => command(hub.places, ["stop", "acme"]),
          () => command(hub.places, ["start", "acme"]),
          async () => {
            const silent = `${subnet} cannot be reached: no answer from the router hub`;
            expect((await doctorOn(a)).of("routes")).toBe(`fail: ${silent} → On hub: agent doctor`);
            expect(a.host.run(["ip", "route"])).toContain(subnet);
            expect((await command(a.places, ["status"])).stdout).toContain(`acme: ${silent}`);
          },
        );
        expect((await doctorOn(a)).of("routes")).toStartWith("ok: 1 route through other nodes is in effect");
      }, 90_000);

      test("a relay that cannot count what it forwards", async () => {
        expect((await doctorOn(hub)).of("relay-traffic")).toMatch(
          /^ok: \S+nft counts what this relay forwards/,
        );
        expect((await doctorOn(a)).of("relay-traffic")).toStartWith("ok: this node is no relay");
        // In a mount namespace of its own, the machine has no such program.
        const script = `mount -t tmpfs none /mnt && mkdir /mnt/up /mnt/work
          mount -t overlay -o lowerdir=/usr/sbin,upperdir=/mnt/up,workdir=/mnt/work none /usr/sbin
          rm /usr/sbin/nft; exec "$@"`;
        const without = ["unshare", "--mount", "sh", "-ec", script, "sh"];
        expect((await doctorOn(hub, without)).of("relay-traffic")).toBe(
          "warn: what this relay forwards is not counted, so a monthly limit does not pause it: there is no program nft → apt-get install nftables # other systems: the package nftables",
        );
      }, 20_000);

      test("an engine that is not the installed one", async () => {
        copyFileSync(older?.nebula ?? "", `${engine}.new`);
        renameSync(`${engine}.new`, engine);
        const { checks } = await doctorOn(a);
        expect(
          checks.find(({ id, remedy }) => id === "engine" && remedy === "agent restart acme"),
        ).toMatchObject({
          verdict: "fail",
          evidence: `acme still runs ${newer?.version}, not the installed ${older?.version}`,
        });
        copyFileSync(newer?.nebula ?? "", `${engine}.new`);
        renameSync(`${engine}.new`, engine);
      }, 30_000);

      test("a daemon that does not run", async () => {
        a.daemon.signal("SIGKILL");
        await a.daemon.exited;
        expect((await doctorOn(a)).of("daemon")).toStartWith(
          "fail: the daemon does not run, but acme should be up → Start it: ",
        );
        a.daemon = await startDaemon(a.host, a.places);
        await healthy();
      }, 60_000);

      test("that a daemon may not send ICMP, and the line that it prints ends that", async () => {
        const started = async (inside: Member["host"]["inside"], nebula: string) => {
          await command(a.places, ["stop", "acme"]);
          a.daemon.signal("SIGTERM");
          await a.daemon.exited;
          copyFileSync(nebula, `${engine}.next`);
          renameSync(`${engine}.next`, engine);
          a.daemon = await startDaemon({ inside }, a.places);
          await command(a.places, ["start", "acme"]);
        };
        // An engine that reports no tunnels, in a container that may not send raw packets.
        const mayNot = (argv: readonly string[]) =>
          a.host.inside(["setpriv", "--bounding-set=-net_raw", ...argv]);
        await started(mayNot, older?.nebula ?? "");
        const denied = "This process may not send ICMP";
        await until(
          "the finding",
          async () => (await command(a.places, ["status"])).stdout.includes(denied),
          40_000,
        );
        const found = (await doctorOn(a)).checks.find(({ evidence }) => evidence.startsWith(denied));
        expect(found).toMatchObject({ id: "traffic", verdict: "warn" });
        a.host.run(["sh", "-c", found?.remedy ?? "false"]);
        await healthy();
        expect((await command(a.places, ["status"])).stdout).not.toContain(denied);
        await started(a.host.inside, newer?.nebula ?? "");
        await healthy();
      }, 120_000);

      test("that there is no lighthouse", async () => {
        expect((await acme.api("PATCH", paths.node("acme", hub.id), { is_lighthouse: false })).status).toBe(
          200,
        );
        await until(
          "degraded",
          async () => (await command(a.places, ["status"])).stdout.includes("degraded"),
          40_000,
        );
        expect((await doctorOn(a)).of("traffic")).toMatch(
          /^fail: There is no lighthouse: this node cannot find other nodes, nor they this one → Ask the organization's administrator to make a node/,
        );
      }, 60_000);
    },
    ["sid", "1.12"],
  );
});
