// A laptop that sleeps and wakes, again and again: its daemon and its engine are frozen, and what happens meanwhile is known
// within moments of its waking. With SOAK=1 for two hours; ASLEEP_MINUTES chooses another time.

import { expect, test } from "bun:test";
import { env } from "node:process";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { buildAgent } from "../support/agent.ts";
import { command, enginesOf, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import { nodesOf, until, type Member } from "../support/members.ts";
import { startPing } from "../support/namespaces.ts";
import { inFull, shuffled } from "../support/soak.ts";

buildAgent();

const minutes = Number(env["ASLEEP_MINUTES"] ?? (inFull ? 120 : 1));
/** How long it sleeps, in seconds: below and above the limits of polls, probes, tunnels and their memory. */
const naps = shuffled([3, 8, 12, 20, 35, 70, 100, 150, 300, 660]).filter(
  (each) => minutes > 20 || each <= 20,
);
/** From the waking on. */
const wellMs = 15_000;

type Scene = Awaited<ReturnType<typeof makeHealingScene>>;

async function asleep<T>({ daemon, places }: Member, ms: number, meanwhile: () => Promise<T>): Promise<T> {
  const all = [daemon.pid, ...enginesOf(places)];
  for (const pid of all) process.kill(pid, "SIGSTOP");
  try {
    const [result] = await Promise.all([meanwhile(), Bun.sleep(ms)]);
    return result;
  } finally {
    for (const pid of all) process.kill(pid, "SIGCONT");
  }
}

const isWell = async ({ places }: Member) => (await command(places, ["status", "--check"])).status === 0;

/** What happens while node a sleeps. The result: what must hold after its waking, beside its light and its traffic to b. */
const meanwhile: readonly {
  name: string;
  make(scene: Scene, round: number): Promise<void | (() => Promise<void>)>;
}[] = [
  { name: "nothing", make: async () => {} },
  {
    name: "it is carried to another network",
    make: async ({ a }, round) => {
      const next = `192.0.2.${100 + (round % 100)}/24`;
      a.host.run(["ip", "addr", "flush", "dev", "eth0"]);
      a.host.run(["ip", "addr", "add", next, "dev", "eth0"]);
    },
  },
  {
    name: "b is revoked, and restored after the waking",
    make: async ({ a, b, organization }) => {
      await organization.api("DELETE", paths.node("acme", b.id));
      return async () => {
        await until(
          "no answer of the revoked node",
          () => Bun.spawnSync(a.host.inside(["ping", "-c", "1", "-W", "1", b.ip])).exitCode !== 0,
          wellMs,
        );
        await until("a light that knows of no missing peer", () => isWell(a), wellMs);
        await organization.api("POST", `${paths.node("acme", b.id)}restore/`, {});
        await untilStatus(b.places, "acme", ({ state }) => state === "running", 30_000);
      };
    },
  },
  {
    name: "the engine of the lighthouse is started again",
    make: async ({ hub }) => {
      for (const pid of enginesOf(hub.places)) process.kill(pid, "SIGKILL");
    },
  },
];

const Events = v.array(v.looseObject({ type: v.string() }));

asRoot("a laptop", () => {
  describeEngines(
    "sleeps and wakes",
    ({ nebula }) => {
      test(
        `for ${minutes} minutes, and each time is well within ${wellMs / 1000} s`,
        async () => {
          await using scene = await makeHealingScene(nebula);
          const { a, b, organization } = scene;
          const end = performance.now() + minutes * 60_000;
          const longest = { traffic: 0, light: 0 };
          let rounds = 0;
          for (; rounds < meanwhile.length || performance.now() < end; rounds++) {
            const nap = (naps[rounds % naps.length] ?? 3) * 1000;
            const happening = meanwhile[rounds % meanwhile.length];
            const what = `${happening?.name}, after ${nap / 1000} s`;
            // Traffic goes on at the other end, whose engine tries in vain.
            const ping = startPing(b.host, a.ip, 500);
            const check = await asleep(a, nap, async () => happening?.make(scene, rounds));
            const woke = performance.now();
            await check?.();
            const at = performance.now();
            const own = startPing(a.host, b.ip, 200);
            longest.traffic = Math.max(longest.traffic, (await own.reply(wellMs)).at - at);
            await until(`a light of the laptop: ${what}`, () => isWell(a), wellMs);
            longest.light = Math.max(longest.light, performance.now() - at);
            await until(
              `the control plane's word: ${what}`,
              async () => {
                const node = (await nodesOf(organization)).find(({ id }) => id === a.id);
                return node?.online === true && node.finding == null;
              },
              wellMs,
            );
            // It stays so: nothing late takes it back.
            await Bun.sleep(Math.max(0, woke + (inFull ? wellMs : 6000) - performance.now()));
            expect([what, await isWell(a), await isWell(b)]).toEqual([what, true, true]);
            await Promise.all([ping, own].map((each) => each.stop()));
          }
          const events = v.parse(
            Events,
            await (await organization.api("GET", "/api/org/acme/events/?limit=1000")).json(),
          );
          // A copy of the machine, or a wrong clock, was never seen.
          expect(events.filter(({ type }) => /cloned|clock/.test(type))).toEqual([]);
          process.stderr.write(
            `${rounds} naps; traffic after at most ${longest.traffic.toFixed(0)} ms, the light after ${longest.light.toFixed(0)} ms\n`,
          );
          // The last one: its own revocation.
          await asleep(a, 3000, () => organization.api("DELETE", paths.node("acme", a.id)));
          await untilStatus(a.places, "acme", ({ state }) => state === "revoked", wellMs);
        },
        (minutes + 15) * 60_000,
      );
    },
    ["1.12"],
  );
});
