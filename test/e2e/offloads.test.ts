// Offloads with real engines and daemons: on by default and said so, and turned off by the node itself where they lose
// packets.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { can } from "../../src/engine/features.ts";
import { command } from "../support/daemon.ts";
import { installMissing, runSync } from "../support/debian.ts";
import { meet, startEngines } from "../support/engine-pair.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import { until, type Member } from "../support/members.ts";
import type { Host, Lan } from "../support/namespaces.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const Seen = v.object({
  tun_offloads: v.boolean(),
  udp_offloads: v.boolean(),
  buffer_bytes: v.optional(v.number()),
  why: v.optional(v.string()),
  reason: v.optional(v.string()),
});
const Status = v.object({ teams: v.array(v.looseObject({ pid: v.optional(v.number()), data_plane: Seen })) });

async function statusOf({ places }: Member) {
  const { stdout } = await command(places, ["status", "--json"]);
  const [team] = v.parse(Status, JSON.parse(stdout)).teams;
  if (team === undefined) throw new Error("No organization");
  return team;
}

const trialOf = ({ places }: Member): unknown => {
  try {
    return JSON.parse(readFileSync(join(places.configRoot, "acme/run/offloads.json"), "utf8"));
  } catch {
    return undefined;
  }
};

/** A driver, or a filter, that drops what is larger than any packet of the path. */
const dropLarge = ({ host }: Member) =>
  host.run([
    "nft",
    "table inet driver { chain out { type filter hook output priority 0; meta l4proto udp meta length > 1600 drop; }; }",
  ]);

const log = (member: Member) => readFileSync(join(member.places.stateDb, "../logs/acme.log"), "utf8");

/**
 * What tcpdump says of the checksums of the packets that a host gets, from now until `end` of the result. They are written down
 * as they are: judged at once, a busy machine loses them.
 */
async function capture(host: Host, device: string, filter: string, file: string) {
  const argv = ["tcpdump", ..."-nn -U -Z root -B 16384 -s 2048 -Q in".split(" "), "-i", device, "-w", file];
  const child = Bun.spawn(host.inside([...argv, ...filter.split(" ")]), { stderr: "pipe" });
  let said = "";
  const heard = (async () => {
    for await (const bytes of child.stderr) said += new TextDecoder().decode(bytes);
  })();
  await until("tcpdump listens", async () => said.includes("listening"));
  return async () => {
    await until("all packets are written", async () => Bun.file(file).size > sentBytes, 20_000);
    child.kill("SIGINT");
    await Promise.all([child.exited, heard]);
    const lines = runSync(["tcpdump", "-nn", "-vv", "-r", file]);
    const count = (pattern: RegExp) => [...lines.matchAll(pattern)].length;
    return {
      right: count(/\(correct\)|\[udp sum ok\]/g),
      wrong: count(/incorrect|bad udp cksum|bad cksum/g),
    };
  };
}

const sentBytes = 4 * 1024 * 1024;

asRoot("offloads", () => {
  describeEngines(
    "on the wire and behind it",
    (engine) => {
      const missing = installMissing(["/usr/bin/tcpdump", "/usr/sbin/ethtool"]);
      test.skipIf(missing !== undefined)(
        "each captured packet has a right checksum",
        async () => {
          using directory = temporaryDirectory();
          const offloads = (at: number) => at === 1;
          const settings = (at: number) => ({
            tun: { dev: `sums${at}`, mtu: 1300, use_offloads: offloads(at) },
            listen: { host: "0.0.0.0", port: 4242, udp_offloads: offloads(at) },
          });
          // The kernel computes the checksums before they can be captured, and the receiver takes packets one by one: else a
          // capture shows what a card would complete.
          const prepare = ({ hosts }: Lan) => {
            for (const host of hosts)
              host.run(["ethtool", "-K", "eth0", "tx", "off", "gso", "off", "tx-udp-segmentation", "off"]);
          };
          await using network = await startEngines(engine, directory.path, ["hub", "from", "to"], settings, {
            prepare,
          });
          const [, from, to] = network.nodes;
          if (from === undefined || to === undefined) throw new Error("Three nodes");
          await meet(from, to, 30_000);
          const file = (name: string) => join(directory.path, name);
          const outer = await capture(to.host, "eth0", "udp port 4242", file("outer"));
          const inner = await capture(to.host, "sums2", "tcp", file("inner"));
          const serve = `Bun.serve({ hostname: "${from.address}", port: 8080, fetch: () => new Response(new Uint8Array(${sentBytes})) })`;
          from.host.spawn([process.execPath, "-e", serve]);
          await until("it listens", () => from.host.run(["ss", "-Hltn", "sport = 8080"]) !== "");
          to.host.run(["curl", "-sSf", "-o", file("received"), `http://${from.address}:8080/`]);
          const [wire, overlay] = [await outer(), await inner()];
          expect([wire.wrong, overlay.wrong]).toEqual([0, 0]);
          expect(Math.min(wire.right, overlay.right)).toBeGreaterThan(sentBytes / 1400);
        },
        60_000,
      );
    },
    ["1.12"],
  );

  describeEngines(
    "by default",
    ({ version, nebula }) => {
      test("the running engine has them, status and doctor say so, and a node that loses packets turns them off", async () => {
        await using scene = await makeHealingScene(nebula);
        const { a } = scene;
        expect((await statusOf(a)).data_plane).toEqual({
          tun_offloads: true,
          udp_offloads: true,
          buffer_bytes: 4 * 1024 * 1024,
        });
        const started = log(a);
        for (const line of ["udp: GSO enabled", "udp: GRO enabled", "listen.read_buffer was set"])
          expect(started).toContain(line);
        expect((await command(a.places, ["status"])).stdout).toContain("offloads on");
        const shown = async () => (await scene.plane.admin(["node", "show", "acme", a.name])).stdout;
        await until("the control plane says so", async () =>
          (await shown()).includes("offloads on, buffers of 4096 KiB"),
        );
        await until("the first measurement", () =>
          v.is(v.object({ state: v.literal("passed") }), trialOf(a)),
        );

        dropLarge(a);
        await command(a.places, ["restart", "acme"]);
        const restarted = (await statusOf(a)).pid;
        await until(
          "offloads off for good",
          () => v.is(v.object({ state: v.literal("off") }), trialOf(a)),
          // A burst that says nothing, on a busy machine, is repeated after a minute.
          240_000,
        );
        const { data_plane: seen, pid } = await statusOf(a);
        expect(seen).toMatchObject({ tun_offloads: false, udp_offloads: false, why: "traffic" });
        expect(seen.reason).toContain(`engine ${version}`);
        expect(pid).not.toBe(restarted);
        expect((await command(a.places, ["status"])).stdout).toContain(
          "packets sent together to hub were lost",
        );
        const doctor = await command(a.places, ["doctor", "--json"]);
        expect(doctor.stdout).toContain("packets sent together to hub were lost");
        // A restart does not forget it, and no measurement restarts the engine again.
        await command(a.places, ["restart", "acme"]);
        const last = await statusOf(a);
        expect(last.data_plane).toMatchObject({ tun_offloads: false, why: "traffic" });
        await until(
          "the paths are measured",
          async () => (await command(a.places, ["status", "--check"])).status === 0,
        );
        expect((await statusOf(a)).pid).toBe(last.pid);
        await until("the control plane tells it", async () =>
          (await shown()).includes("offloads off, buffers of 4096 KiB: packets were lost with offloads"),
        );
      }, 400_000);

      test("losses without offloads, too, are not blamed on them", async () => {
        await using scene = await makeHealingScene(nebula);
        const { a } = scene;
        // More than a few packets in a moment are too many for this path.
        a.host.run([
          "tc",
          "qdisc",
          "add",
          "dev",
          "eth0",
          "root",
          "tbf",
          "rate",
          "20mbit",
          "burst",
          "1600",
          "limit",
          "1600",
        ]);
        await command(a.places, ["restart", "acme"]);
        await until(
          "the end of the trial",
          () => v.is(v.object({ state: v.literal("cleared") }), trialOf(a)),
          240_000,
        );
        await until("offloads on again", async () => {
          const { tun_offloads: tun, udp_offloads: udp } = (await statusOf(a)).data_plane;
          return tun && udp;
        });
      }, 400_000);
    },
    ["1.12"],
  );

  describeEngines(
    "an engine without them",
    ({ version, nebula }) => {
      test("gets larger buffers and no key that it does not know", async () => {
        expect(can(version, "offloads")).toBe(false);
        await using scene = await makeHealingScene(nebula);
        const { data_plane: seen } = await statusOf(scene.a);
        expect(seen).toMatchObject({ tun_offloads: false, buffer_bytes: 4 * 1024 * 1024, why: "engine" });
        const config = readFileSync(join(scene.a.places.configRoot, "acme/config.yml"), "utf8");
        expect(config).not.toContain("offloads");
        expect(log(scene.a)).toContain("listen.read_buffer was set");
      }, 120_000);
    },
    ["debian"],
  );
});
