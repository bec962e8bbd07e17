// Changes of a node's subnets and of relays, on each engine, with tunnels in use: they take effect without a command, and
// an engine is restarted only if its version cannot apply the change by a reload.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { ask, statusOf } from "../support/daemon.ts";
import { allEngines, asRoot, describeEngines } from "../support/engines.ts";
import { makeMembers, nodesOf, until, type Member } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const names = ["lighthouse", "alpha", "beta", "gamma"];

/** All engines apply these by a reload, or do not know them. */
const reloadable = {
  logging: { level: "debug" },
  punchy: { respond: false, delay: "2s", respond_delay: "6s", target_all_remotes: true },
  lighthouse: { remote_allow_list: { "192.0.2.0/24": true }, advertise_addrs: ["192.0.2.2:4999"] },
  listen: { read_buffer: 1_000_000, write_buffer: 1_000_000, send_recv_error: "private" },
  static_map: { cadence: "40s" },
  firewall: { conntrack: { udp_timeout: "4m" } },
  tunnels: { drop_inactive: false, inactivity_timeout: "20m" },
};

type Scene = AsyncDisposable & { acme: Organization; members: Record<string, Member> };

async function makeScene(nebula: string): Promise<Scene> {
  const stack = new AsyncDisposableStack();
  const directory = stack.use(temporaryDirectory());
  const lan = stack.use(makeLan(names));
  const plane = stack.use(await startControlPlane(join(directory.path, "server")));
  const acme = await makeOrganization(plane);
  const { members } = stack.use(await makeMembers(acme, lan, directory.path, nebula));
  return {
    acme,
    members: Object.fromEntries(members.map((each) => [each.name, each])),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

function member({ members }: Scene, name: string): Member {
  const found = members[name];
  if (found === undefined) throw new Error(`No ${name}`);
  return found;
}

/** Resolves when this node has applied the change. */
async function change({ acme, members }: Scene, name: string, body: object): Promise<void> {
  const answer = await acme.api("PATCH", paths.node("acme", members[name]?.id ?? 0), body);
  if (answer.status !== 200) throw new Error(`PATCH: ${answer.status} ${await answer.text()}`);
  await until(
    "the change",
    async () =>
      (await nodesOf(acme)).some(
        (node) => node.name === name && node.applied_config_version === node.config_version,
      ),
    30_000,
  );
}

const pids = async (scene: Scene) =>
  Object.fromEntries(
    await Promise.all(
      names.map(async (name) => [name, (await statusOf(member(scene, name).places, "acme")).pid] as const),
    ),
  );

/** The members whose engines were restarted meanwhile. */
async function restarted(scene: Scene, before: Record<string, number | undefined>): Promise<string[]> {
  const now = await pids(scene);
  return names.filter((name) => now[name] !== before[name]);
}

const answers = (from: Member, address: string) =>
  Bun.spawnSync(from.host.inside(["ping", "-n", "-c", "1", "-W", "1", address]), { stdout: "ignore" })
    .exitCode === 0;

asRoot("changes of a node", () => {
  describeEngines(
    "take effect",
    ({ nebula, version }) => {
      const isBefore = (first: string) => Bun.semver.order(version, first) < 0;

      // The tests of an engine share one network, and depend on their order.
      let scene: Scene;
      beforeAll(async () => {
        scene = await makeScene(nebula);
      }, 240_000);
      afterAll(() => scene[Symbol.asyncDispose]());

      test("subnets are reached, more of them too, and no longer after their removal", async () => {
        const [alpha, gamma] = [member(scene, "alpha"), member(scene, "gamma")];
        for (const subnet of ["10.99.1.1/24", "10.99.2.1/24"])
          gamma.host.run(["ip", "addr", "add", subnet, "dev", "lo"]);
        // The tunnel exists before the change, and stays in use.
        const busy = startPing(alpha.host, gamma.ip);
        await busy.reply(20_000);
        for (const subnets of [["10.99.1.0/24"], ["10.99.1.0/24", "10.99.2.0/24"]]) {
          const before = await pids(scene);
          await change(scene, "gamma", { subnets });
          const target = subnets.at(-1)?.replace("0/24", "1") ?? "";
          await until(target, () => answers(alpha, target), 30_000);
          // From 1.10 on the first subnet changes the rules of the firewall too.
          const isByReload = !isBefore("1.11.0") || (!isBefore("1.10.0") && subnets.length === 1);
          const peers = isBefore("1.9.0") ? ["lighthouse", "alpha", "beta"] : [];
          const expected = isByReload ? peers : [...peers, "gamma"];
          const all = async () => (await restarted(scene, before)).length >= expected.length;
          await until("the restarts", all, 30_000);
          expect(await restarted(scene, before)).toEqual(expected);
          await busy.reply(20_000);
        }
        const before = await pids(scene);
        await scene.acme.api("POST", "/api/org/acme/groups/", { name: "web" });
        await change(scene, "gamma", { groups: ["web"] });
        await change(scene, "alpha", { config_overrides: reloadable });
        expect(await restarted(scene, before)).toEqual([]);
        // Below 1.8 its reload would never end, and later changes would not arrive.
        const { lighthouse } = reloadable;
        const config_overrides = { ...reloadable, lighthouse: { ...lighthouse, interval: 20 } };
        await change(scene, "alpha", { config_overrides });
        expect(await restarted(scene, before)).toEqual(isBefore("1.8.0") ? ["alpha"] : []);
        await change(scene, "alpha", { config_overrides: reloadable });
        await until("the tunnel", () => answers(alpha, gamma.ip), 20_000);
        await change(scene, "gamma", { subnets: ["10.99.1.0/24"] });
        await until("the end of 10.99.2.1", () => !answers(alpha, "10.99.2.1"), 30_000);
        await until("10.99.1.1", () => answers(alpha, "10.99.1.1"), 30_000);
        await busy.stop();
      }, 240_000);

      test("a relay is used, and a node that was a relay uses another one", async () => {
        const [lighthouse, alpha] = [member(scene, "lighthouse"), member(scene, "alpha")];
        const beta = member(scene, "beta");
        alpha.host.run(["ip", "route", "add", "blackhole", beta.host.address]);
        beta.host.run(["ip", "route", "add", "blackhole", alpha.host.address]);
        await change(scene, "lighthouse", { is_relay: false });
        await ask(lighthouse.places, { action: "restart", team: "acme" });
        // With a fixed port, the listener does not change with the role.
        await change(scene, "alpha", { config_overrides: { listen: { port: 4300 } }, is_relay: true });
        await ask(alpha.places, { action: "restart", team: "acme" });
        await until(
          "the lighthouse",
          () => answers(alpha, lighthouse.ip) && answers(beta, lighthouse.ip),
          30_000,
        );
        expect(answers(alpha, beta.ip)).toBe(false);
        const before = await pids(scene);
        await change(scene, "alpha", { is_relay: false });
        await change(scene, "lighthouse", { is_relay: true });
        await until("a relayed ping", () => answers(alpha, beta.ip), 60_000);
        expect(await restarted(scene, before)).toEqual(isBefore("1.11.0") ? ["alpha"] : []);
      }, 240_000);
    },
    allEngines,
  );
});
