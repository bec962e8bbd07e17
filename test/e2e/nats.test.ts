// Real NATs: what two nodes behind them reach each other by, and what `agent netcheck` says of them.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { paths } from "../support/paths.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { joinMember, nodesOf, until, type Member } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { putBehindNat, type Nat } from "../support/nat.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const Checks = v.object({
  ok: v.boolean(),
  checks: v.array(v.object({ id: v.string(), verdict: v.string(), evidence: v.string() })),
});

async function netcheckOf({ places, host }: Member) {
  const argv = host.inside([agent, "netcheck", "acme", "--json", ...places.flags]);
  const child = Bun.spawn(argv, { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const { ok, checks } = v.parse(Checks, await new Response(child.stdout).json());
  expect(await child.exited).toBe(ok ? 0 : 1);
  return Object.fromEntries(checks.map(({ id, verdict, evidence }) => [id, `${verdict}: ${evidence}`]));
}

const nats: Record<string, Nat> = { a: "masquerade", b: "masquerade", c: "random", d: "random" };

asRoot("nodes behind NATs", () => {
  describeEngines(
    "reach each other",
    ({ nebula }) => {
      test("directly where the NATs permit it, else by a relay; and are told when UDP is blocked", async () => {
        await using stack = new AsyncDisposableStack();
        const directory = stack.use(temporaryDirectory());
        const lan = stack.use(makeLan(["lh1", "lh2", ...Object.keys(nats)]));
        const plane = stack.use(await startControlPlane(`${directory.path}/server`));
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "9", "--lighthouse"]);
        const routers = new Map<string, ReturnType<typeof putBehindNat>>();
        const members = new Map<string, Member>();
        for (const host of lan.hosts) {
          const kind = nats[host.name];
          if (kind !== undefined) routers.set(host.name, stack.use(putBehindNat(host, kind)));
          const hub = kind === undefined ? ["--is-lighthouse", "--public-ip", host.address] : [];
          members.set(host.name, stack.use(await joinMember(acme, host, directory.path, nebula, token, hub)));
        }
        const member = (name: string) => members.get(name) ?? expect.unreachable();
        const pathTo = async (from: string, to: string) => {
          const { stdout } = await command(member(from).places, ["ping", to, "--count", "1", "--json"]);
          return v.parse(v.object({ probes: v.array(v.object({ path: v.string() })) }), JSON.parse(stdout))
            .probes[0]?.path;
        };
        const pings = [
          ["a", "b"],
          ["c", "d"],
        ].map(([from = "", to = ""]) => startPing(member(from).host, member(to).ip));
        stack.defer(async () => void (await Promise.all(pings.map((ping) => ping.stop()))));
        await Promise.all(pings.map((ping) => ping.reply(30_000)));
        await until(
          "a direct path",
          async () => (await pathTo("a", "b"))?.startsWith("direct") === true,
          60_000,
        );
        expect(await pathTo("c", "d")).toMatch(/^relayed by lh[12]/);

        const [same, other] = [await netcheckOf(member("a")), await netcheckOf(member("c"))];
        expect(same).toMatchObject({
          udp: "ok: UDP passes out and back: 2 of 2 lighthouses and relays answer",
          mapping: expect.stringMatching(/^ok: The NAT maps this node to the same port .*192\.0\.2\.3:\d+/),
          round_trips: expect.stringMatching(/lighthouse and relay lh[12] [\d.]+ ms/),
          mtu: expect.stringMatching(
            /^ok: Packets of the overlay's full size \(1300 bytes\) pass on all \d measured paths$/,
          ),
          control_plane: expect.stringMatching(/answers; this clock is -?\d s off$/),
        });
        expect(other["mapping"]).toMatch(/^warn: The NAT maps this node to another port .*192\.0\.2\.5:\d+/);

        routers.get("d")?.change("blocked");
        await until(
          "degraded",
          async () => (await command(member("d").places, ["status"])).stdout.startsWith("acme is degraded"),
          30_000,
        );
        const blocked = await netcheckOf(member("d"));
        expect(blocked["udp"]).toMatch(/^fail: UDP does not pass: nothing comes back from UDP 192/);

        // While d is away: a tunnel that is relayed when the relays end may go on for a while.
        for (const name of ["lh1", "lh2"]) {
          const node = paths.node("acme", member(name).id);
          expect((await acme.api("PATCH", node, { is_relay: false })).status).toBe(200);
        }
        await until(
          "all nodes without a relay",
          async () =>
            (await nodesOf(acme)).every((each) => each.config_version === each.applied_config_version),
          30_000,
        );
        routers.get("d")?.change("random");
        await until(
          "the doctor's sentence",
          async () => {
            const argv = member("c").host.inside([agent, "doctor", "--json", ...member("c").places.flags]);
            const child = Bun.spawn(argv, { stdin: "ignore", stdout: "pipe", stderr: "ignore" });
            const { checks } = v.parse(Checks, await new Response(child.stdout).json());
            const { verdict, evidence } = checks.find(({ id }) => id === "meeting") ?? expect.unreachable();
            return verdict === "warn" && /no handshake between c and d: .* and no relay$/.test(evidence);
          },
          60_000,
        );
      }, 180_000);
    },
    ["1.12"],
  );
});
