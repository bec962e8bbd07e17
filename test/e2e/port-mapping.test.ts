// Two nodes behind NATs that have no direct path: the router of one maps a port to its engine, by miniupnpd, and they have one.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { agent, buildAgent, runAgent, startControlPlane } from "../support/agent.ts";
import { can } from "../../src/engine/features.ts";
import { command, untilStatus } from "../support/daemon.ts";
import { installMissing } from "../support/debian.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { joinMember, until, type Member } from "../support/members.ts";
import { lost, makeLan, startPing } from "../support/namespaces.ts";
import { inFull } from "../support/soak.ts";
import { putBehindNat } from "../support/nat.ts";
import { makeOrganization } from "../support/overlay.ts";
import { paths } from "../support/paths.ts";
import { publicPrefix, startPortMapper, type PortMapper } from "../support/port-mapper.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
installMissing(["/usr/sbin/miniupnpd"]);

const Checks = v.object({
  checks: v.array(v.object({ id: v.string(), verdict: v.string(), evidence: v.string() })),
});
const Links = v.array(v.object({ stats64: v.object({ rx: v.object({ packets: v.number() }) }) }));

async function sentenceOf({ places, host }: Member, words: string, id: string): Promise<string> {
  const argv = host.inside([agent, ...words.split(" "), "--json", ...places.flags]);
  const child = Bun.spawn(argv, { stdin: "ignore", stdout: "pipe", stderr: "ignore" });
  const { checks } = v.parse(Checks, await new Response(child.stdout).json());
  const found = checks.find((each) => each.id === id);
  return `${found?.verdict}: ${found?.evidence}`;
}

/** What a lease says: the port outside, and the machine's own address and port. */
const leaseOf = (router: PortMapper) => router.leases().map((each) => each.split(":").slice(0, 4).join(":"));

asRoot("a router that maps ports", () => {
  describeEngines(
    "for a node",
    ({ nebula, version }) => {
      test("gives it direct paths without a lost packet, until it stops or may not", async () => {
        await using stack = new AsyncDisposableStack();
        const directory = stack.use(temporaryDirectory());
        const lan = stack.use(makeLan(["lh", "a", "b"], publicPrefix));
        const plane = stack.use(await startControlPlane(`${directory.path}/server`));
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "9", "--lighthouse"]);
        const join = async (name: string) => {
          const host = lan.host(name);
          if (name !== "lh") stack.use(putBehindNat(host, "random"));
          const hub = name === "lh" ? ["--is-lighthouse", "--public-ip", host.address] : [];
          return stack.use(await joinMember(acme, host, directory.path, nebula, token, hub));
        };
        const [lh, a, b] = [await join("lh"), await join("a"), await join("b")];
        // What the lighthouse receives in two seconds: it relays ten pings a second and their answers, or hears little.
        const received = () => {
          const [row] = v.parse(Links, JSON.parse(lh.host.run(["ip", "-s", "-j", "link", "show", "eth0"])));
          return row?.stats64.rx.packets ?? 0;
        };
        const isRelayed = async () => {
          const before = received();
          await Bun.sleep(2000);
          return received() - before > 30;
        };
        let ping = startPing(b.host, a.ip);
        stack.defer(() => ping.stop());
        await ping.reply(60_000);
        // Symmetric on both sides: it stays so.
        await until("a router was asked in vain", async () =>
          (await sentenceOf(a, "netcheck acme", "port_mapping")).includes("knows neither"),
        );
        expect(await isRelayed()).toBe(true);
        expect(await sentenceOf(lh, "netcheck acme", "port_mapping")).toContain(
          "A lighthouse asks no router",
        );

        // It keeps a mapping for half a minute, so each is renewed every 15 s.
        const settings = ["max_lifetime=30", "min_lifetime=20"];
        const router = stack.use(await startPortMapper(a.host, directory.path, settings));
        const permit = async (flag: string) =>
          expect(await command(a.places, ["sync-config", flag])).toMatchObject({ status: 0 });
        await permit("--no-port-mapping");
        await Bun.sleep(2500);
        await permit("--port-mapping");
        const mapped = async () =>
          (await untilStatus(a.places, "acme", (status) => status.port_mapping !== undefined)).port_mapping;
        const first = await mapped();
        expect(first?.by).toBe("PCP");
        const [, port] = /^45\.32\.9\.2:(\d+)$/.exec(first?.at ?? "") ?? [];
        expect(leaseOf(router)).toEqual([`UDP:${port}:10.200.2.2:${port}`]);
        // An engine without a control socket asks for addresses of a peer again when it makes a tunnel, and tries to leave a
        // relay after 1000 packets.
        if (!can(version, "local_api")) {
          expect(lost(ping)).toEqual([]);
          await ping.stop();
          expect(await command(b.places, ["restart", "acme"])).toMatchObject({ status: 0 });
          ping = startPing(b.host, a.ip, 20);
          await ping.reply(60_000);
        }
        await until("a direct path", async () => !(await isRelayed()), 90_000);
        expect(await sentenceOf(a, "netcheck acme", "port_mapping")).toStartWith(
          `ok: The router 10.200.2.1 maps ${first?.at} to this node, by PCP, since`,
        );
        expect(await sentenceOf(a, "doctor", "port-mapping")).toStartWith("ok: The router 10.200.2.1 maps");
        expect((await command(a.places, ["status"])).stdout).toContain(
          `the router maps ${first?.at} to this node`,
        );
        expect(lost(ping)).toEqual([]);

        // A router that has lost everything is asked again by the renewal.
        await router.restart({ forgets: true });
        expect(leaseOf(router)).toEqual([]);
        await until("the mapping again", () => leaseOf(router).length === 1, 40_000);
        expect(leaseOf(router)).toEqual([`UDP:${port}:10.200.2.2:${port}`]);
        expect(lost(ping)).toEqual([]);

        // Withdrawn, whoever ends it.
        const isWithdrawn = () => router.leases().length === 0 && !router.rules().includes("dnat");
        const setting = async (isOn: boolean) =>
          expect((await acme.api("PATCH", paths.organization("acme"), { port_mapping: isOn })).status).toBe(
            200,
          );
        await setting(false);
        await until("no mapping by policy", isWithdrawn);
        await until(
          "no address of it",
          async () => (await untilStatus(a.places, "acme", () => true)).port_mapping === undefined,
        );
        expect(await sentenceOf(a, "netcheck acme", "port_mapping")).toContain(
          "The organization does not want",
        );
        await setting(true);
        await mapped();
        expect(await command(a.places, ["stop", "acme"])).toMatchObject({ status: 0 });
        await until("no mapping of a stopped node", isWithdrawn);
        expect(await command(a.places, ["start", "acme"])).toMatchObject({ status: 0 });
        await mapped();

        // A policy of the router; then one that knows UPnP alone.
        const upnp = ["enable_natpmp=no"];
        await router.restart({ forgets: true, settings: [...upnp, "deny 0-65535 0.0.0.0/0 0-65535"] });
        await until(
          "refused",
          async () =>
            (await sentenceOf(a, "netcheck acme", "port_mapping")).includes(
              "maps no port to this node: it does not allow port mappings",
            ),
          60_000,
        );
        await untilStatus(a.places, "acme", (status) => status.port_mapping === undefined);
        await router.restart({ forgets: true, settings: upnp });
        await permit("--no-port-mapping");
        await Bun.sleep(2500);
        await permit("--port-mapping");
        expect((await mapped())?.by).toBe("UPnP");
        // The plan of the uninstaller names the request, and what it notes.
        const { stdout: plan } = await runAgent(["edge", "--undo", "--dry-run", ...a.places.flags], {
          inside: a.host.inside,
        });
        expect(plan).toMatch(/^request {2}POST http:\/\/10\.200\.2\.1:5000\/\S+$/m);
        expect(plan).toMatch(/^file {5}\S+\/run\/port-mapping\.json \(0644\) removed$/m);
        expect(router.leases()).toHaveLength(1);
        const left = Bun.spawn(
          a.host.inside([agent, "unregister", "--org-slug", "acme", ...a.places.flags]),
          {
            stdin: "ignore",
            stdout: "ignore",
            stderr: "inherit",
          },
        );
        expect(await left.exited).toBe(0);
        expect(isWithdrawn()).toBe(true);
      }, 240_000);
    },
    inFull ? ["debian", "1.12"] : ["1.12"],
  );
});
