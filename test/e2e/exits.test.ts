// Exits: the packets of a machine leave by another node. Captures on the machine's uplink say what leaves beside the
// tunnel, and its rules, routes and nftables are the same before and after, byte for byte.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, runAgent } from "../support/agent.ts";
import { nft } from "../support/block-udp.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import {
  approveExits,
  askerOf,
  internet,
  internet6,
  leaked,
  makeExitScene,
  makeTraffic,
  printer,
  type ExitScene,
} from "../support/exits.ts";
import type { Host } from "../support/namespaces.ts";
import { makeRandom } from "../support/random.ts";
import { inFull } from "../support/soak.ts";
import { until } from "../support/until.ts";

buildAgent();

const stateOf = async (scene: ExitScene) =>
  JSON.parse((await scene.exit("show", "--json")).stdout) as { state?: string; name?: string };
const becomes = (scene: ExitScene, state: string, ms: number, name?: string) =>
  until(
    async () => {
      const now = await stateOf(scene);
      return now.state === state && (name === undefined || now.name === name);
    },
    { what: `the exit to be ${state}`, ms, everyMs: 100 },
  );

/**
 * Another address of an exit is no way to its services, also not by a port that another program translates, and a machine that
 * cannot forward is no exit.
 */
async function giveOnlyTheInternet(scene: ExitScene): Promise<void> {
  const [{ host }] = scene.exits;
  const inner = "203.0.113.7";
  host.run(["ip", "addr", "add", `${inner}/32`, "dev", "lo"]);
  const serve = "Bun.serve({ port: 9200, hostname: '0.0.0.0', fetch: () => new Response('inside') })";
  const service = host.spawn([process.execPath, "-e", serve]);
  try {
    const get = (from: Host, port = 9200) =>
      Bun.spawnSync(from.inside(["curl", "-sm", "3", `http://${inner}:${port}/`])).stdout.toString();
    await until(() => get(host) === "inside", { what: "the service", ms: 10_000 });
    // As Docker publishes a port.
    const published = "fib daddr type local tcp dport 9201 dnat ip to 203.0.113.7:9200";
    nft(
      host,
      `table inet published {
         chain in { type nat hook prerouting priority -110; ${published}; }
         chain out { type nat hook output priority -110; ${published}; }
       }`,
    );
    expect(get(host, 9201)).toBe("inside");
    expect(await scene.exit("use", "one")).toMatchObject({ status: 0 });
    const { host: user } = scene.user;
    expect([scene.pings(internet), get(user), get(user, 9201)]).toEqual([3, "", ""]);
    host.run(["sysctl", "-qw", "net.ipv4.ip_forward=0"]);
    await becomes(scene, "beside", 15_000);
    expect(scene.pings(internet)).toBe(3);
    host.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    await becomes(scene, "used", 15_000);
    expect(await scene.exit("use", "off")).toMatchObject({ status: 0 });
  } finally {
    service.kill();
    await service.exited;
    nft(host, "table inet published\ndelete table inet published");
  }
}

asRoot("exits", () => {
  describeEngines(
    "with two of them",
    ({ nebula }) => {
      test("need a word on the machine, keep the local network, and leave no trace", async () => {
        await using scene = await makeExitScene(nebula);
        const before = scene.machine();
        expect((await scene.exit("use", "one")).stderr).toContain("has no exit that this node may use");
        await approveExits(scene);
        // The control plane alone gives no way to an exit.
        const config = () =>
          readFileSync(join(scene.user.places.configRoot, scene.plane.slug, "config.yml"), "utf8");
        expect(config()).not.toContain("0.0.0.0/0");
        expect(scene.machine()).toBe(before);
        expect((await scene.exit("use", "three")).stderr).toContain("There are: one, two.");
        expect(await scene.exit("use", "one")).toMatchObject({ status: 0 });
        const capture = scene.capture();
        await until(() => scene.pings(internet, 1) === 1, { what: "an answer through the exit" });
        expect([scene.pings(internet), scene.pings(printer)]).toEqual([3, 3]);
        // The exit asks its own name server, and tells its address.
        expect([undefined, scene.exits[0].host.address]).toContain(await askerOf(scene));
        const sent = await capture.stop();
        expect(sent.filter((line) => line.includes(`> ${internet}`) || line.includes(".53: "))).toEqual([]);
        expect(sent.filter((line) => line.includes(`> ${printer}: ICMP`))).toHaveLength(3);
        expect((await scene.exit("list")).stdout).toMatch(/one .* yes\n/);
        expect(await scene.exit("use", "off")).toMatchObject({ status: 0 });
        expect(scene.machine()).toBe(before);
        expect(config()).not.toContain("0.0.0.0/0");
        const open = scene.capture();
        expect(scene.pings(internet)).toBe(3);
        expect(leaked(await open.stop(), scene)).toHaveLength(3);
        // Who leaves takes the exit along, a strict one too.
        await scene.exit("use", "one", "--strict");
        expect(scene.machine()).toContain("lookup 7783");
        const { host, places } = scene.user;
        // The plan of the uninstaller is the whole truth: its commands, run by hand, leave nothing.
        scene.user.daemon.signal("SIGKILL");
        await killAll(scene);
        expect(await stateOf(scene)).toMatchObject({ state: "blocked" });
        const left = before.replace(/^.*ov-acme.*\n/gm, "");
        const undo = () =>
          runAgent(["edge", "--undo", "--dry-run", ...places.flags], { inside: host.inside });
        const full = scene.machine();
        const { stdout: plan } = await undo();
        expect(plan).toContain("rule del");
        expect(scene.machine()).toBe(full);
        host.run(["sh", "-ec", plan.match(/(?<=^run +)\S.*/gm)?.join("\n") ?? "false"]);
        expect(scene.machine()).toBe(left);
        expect((await undo()).stdout).not.toContain("run ");
        await scene.user.restart();
        await until(() => scene.machine().includes("lookup 7783"), { what: "the exit again", ms: 10_000 });
        await runAgent(["unregister", "--org-slug", scene.plane.slug, ...places.flags], {
          inside: host.inside,
        });
        await until(() => scene.machine() === left, { what: "the machine as before", ms: 5000 });
      }, 60_000);

      test("carry IPv6 with certificates of version 2", async () => {
        const version2 = ["--network6", "fd77:1::/64", "--certificate-version", "2"];
        await using scene = await makeExitScene(nebula, version2);
        await approveExits(scene);
        const before = scene.machine();
        for (const more of [[], ["--strict", "--no-lan"]]) {
          expect(await scene.exit("use", "one", ...more)).toMatchObject({ status: 0 });
          await becomes(scene, "used", 8000);
          const capture = scene.capture();
          expect(scene.pings(internet)).toBe(3);
          // That the exit is used is proved by IPv4.
          await until(() => scene.pings(internet6) === 3, { what: "the way of IPv6" });
          expect((await capture.stop()).filter((line) => /ICMP6?, echo/.test(line))).toEqual([]);
          expect(await scene.exit("use", "off")).toMatchObject({ status: 0 });
          expect(scene.machine()).toBe(before);
        }
        expect(scene.pings(internet6)).toBe(3);
        await giveOnlyTheInternet(scene);
      }, 90_000);

      test("that do not answer are left within seconds, and used again", async () => {
        await using scene = await makeExitScene(nebula);
        await approveExits(scene);
        const before = scene.machine();
        const [one, two] = scene.exits;
        expect(await scene.exit("use", "auto")).toMatchObject({ status: 0 });
        const used = (await stateOf(scene)).name;
        const [first, second] = used === "one" ? [one, two] : [two, one];
        first.host.link("down");
        await becomes(scene, "used", 8000, second.host.name);
        await until(() => scene.pings(internet, 1) === 1, { what: "an answer by the other exit", ms: 5000 });
        second.host.link("down");
        await becomes(scene, "beside", 8000);
        await until(() => scene.machine() === before, { what: "the machine as before", ms: 5000 });
        expect(scene.pings(internet)).toBe(3);
        second.host.link("up");
        second.host.run(["ip", "route", "replace", "default", "via", scene.net.address]);
        await becomes(scene, "used", 30_000);
        // Everything of ours dies; the agent returns.
        scene.user.daemon.signal("SIGKILL");
        await killAll(scene);
        expect(scene.pings(internet, 2)).toBeGreaterThan(0);
        second.host.link("down");
        await scene.user.restart();
        const back = performance.now();
        await becomes(scene, "beside", 10_000);
        expect(performance.now() - back).toBeLessThan(5000);
        await until(() => withoutTunnel(scene.machine()) === withoutTunnel(before), {
          what: "the machine as before",
          ms: 5000,
        });
      }, 90_000);

      test(
        "strict: nothing leaves beside the tunnel, whatever happens",
        async () => {
          await using scene = await makeExitScene(nebula);
          await approveExits(scene);
          const before = scene.machine();
          expect(await scene.exit("use", "auto", "--strict", "--no-lan")).toMatchObject({ status: 0 });
          const capture = scene.capture();
          using _ = makeTraffic(scene);
          const random = makeRandom(41);
          const happened: string[] = [];
          for (let at = 0; at < (inFull ? 100 : 10); at++) {
            const [name, happen] = events[Math.floor(random() * events.length)] ?? events[0];
            happened.push(name);
            await happen(scene);
            await Bun.sleep(inFull ? 3000 * random() : 1500 * random());
          }
          await heal(scene);
          await becomes(scene, "used", 60_000);
          await until(() => scene.pings(internet, 1) === 1, {
            what: "an answer through the exit",
            ms: 20_000,
          });
          expect(scene.pings(internet6, 2)).toBe(0);
          const sent = await capture.stop();
          process.stderr.write(`${happened.join(", ")}: ${sent.length} packets\n`);
          expect(sent.length).toBeGreaterThan(100);
          expect(leaked(sent, scene).slice(0, 20)).toEqual([]);
          // Damage opens nothing.
          for (const name of ["permissions.json", "config.yml"]) {
            const path = join(scene.user.places.configRoot, scene.plane.slug, name);
            const text = readFileSync(path);
            writeFileSync(path, "");
            await Bun.sleep(3000);
            expect([name, scene.machine()]).toEqual([name, expect.stringContaining("unreachable default")]);
            expect(scene.machine()).toContain("table inet overlay-agent-exit-acme");
            writeFileSync(path, text);
          }
          // Everything dead: the block stays, until root says off.
          scene.user.daemon.signal("SIGKILL");
          await killAll(scene);
          const dead = scene.capture();
          expect([scene.pings(internet), scene.pings(internet6, 1), scene.pings(printer, 1)]).toEqual([
            0, 0, 0,
          ]);
          expect(leaked(await dead.stop(), scene)).toEqual([]);
          expect(await scene.exit("use", "off")).toMatchObject({ status: 0 });
          expect(scene.machine()).toBe(before.replace(/^.*ov-acme.*\n/gm, ""));
          expect([scene.pings(internet), scene.pings(printer)]).toEqual([3, 3]);
        },
        inFull ? 900_000 : 120_000,
      );
    },
    ["1.12"],
  );
});

const withoutTunnel = (listing: string) => listing.replace(/^.*ov-acme.*$/gm, "");

type Event = (scene: ExitScene) => Promise<void>;
/** What the machine and its exits go through. Each leaves it to later ones, or to `heal`, to repair. */
const events: [[string, Event], ...[string, Event][]] = [
  ["the agent is killed", async ({ user }) => user.daemon.signal("SIGKILL")],
  [
    "the agent returns",
    async ({ user }) => {
      user.daemon.signal("SIGKILL");
      await user.daemon.exited;
      await user.restart();
    },
  ],
  ["the engine is killed", killAll],
  [
    "all is killed",
    async (scene) => {
      scene.user.daemon.signal("SIGKILL");
      await killAll(scene);
    },
  ],
  ["an exit is lost", async ({ exits }) => exits[0].host.link("down")],
  ["the other exit is lost", async ({ exits }) => exits[1].host.link("down")],
  ["the exits return", async (scene) => bringExits(scene)],
  [
    "the network goes and comes",
    async ({ user: { host }, net }) => {
      host.link("down");
      await Bun.sleep(300);
      host.link("up");
      host.run(["ip", "route", "replace", "default", "via", net.address, "dev", "eth0"]);
      host.run(["ip", "addr", "replace", "2001:db8::5/64", "dev", "eth0", "nodad"]);
      host.run(["ip", "-6", "route", "replace", "default", "via", "2001:db8::2", "dev", "eth0"]);
    },
  ],
  [
    "another address",
    async (scene) => {
      const isFirst = scene.user.host.run(["ip", "addr"]).includes(`${scene.user.host.address}/`);
      moveTo(scene, isFirst ? "192.0.2.77" : scene.user.host.address);
    },
  ],
  [
    "a program removes foreign rules",
    async ({ user: { host } }) => {
      for (const priority of ["7704", "7705"])
        Bun.spawnSync(host.inside(["ip", "rule", "del", "priority", priority]), { stderr: "ignore" });
    },
  ],
  // CVE-2024-3661.
  [
    "a DHCP server sends routes",
    async ({ user: { host }, net }) =>
      void host.run(["ip", "route", "replace", `${internet}/32`, "via", net.address, "dev", "eth0"]),
  ],
  ["another exit is chosen", async (scene) => void (await scene.exit("use", "two", "--strict", "--no-lan"))],
  ["any exit is chosen", async (scene) => void (await scene.exit("use", "auto", "--strict", "--no-lan"))],
];

function moveTo({ user: { host }, net }: ExitScene, address: string): void {
  for (const each of [host.address, "192.0.2.77"])
    if (each !== address)
      Bun.spawnSync(host.inside(["ip", "addr", "del", `${each}/24`, "dev", "eth0"]), { stderr: "ignore" });
  host.run(["ip", "addr", "replace", `${address}/24`, "dev", "eth0"]);
  // With its interface, as programs that set up networks do: by its rules, the gateway is behind the exit at this moment.
  host.run(["ip", "route", "replace", "default", "via", net.address, "dev", "eth0"]);
}

function bringExits({ exits, net }: ExitScene): void {
  for (const { host } of exits) {
    host.link("up");
    host.run(["ip", "route", "replace", "default", "via", net.address]);
  }
}

async function heal(scene: ExitScene): Promise<void> {
  bringExits(scene);
  const { user } = scene;
  moveTo(scene, user.host.address);
  Bun.spawnSync(user.host.inside(["ip", "route", "del", `${internet}/32`]), { stderr: "ignore" });
  user.daemon.signal("SIGKILL");
  await user.daemon.exited;
  await user.restart();
}

/** The engine of the user's machine, which outlives its daemon. */
async function killAll({ user }: ExitScene): Promise<void> {
  const found = Bun.spawnSync(["pgrep", "-f", join(user.places.configRoot, ".*config.yml")]);
  for (const pid of found.stdout.toString().split("\n").filter(Boolean)) process.kill(Number(pid), "SIGKILL");
}
