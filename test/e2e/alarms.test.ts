// Alarms of the real program: killed between sending and recording, and with SOAK=1 about a lighthouse whose engine is killed.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { enginesOf, startDaemon } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { joinMember, until, type Member } from "../support/members.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const Body = v.object({ type: v.string(), after: v.object({ name: v.string(), text: v.string() }) });
type Received = { id: string; type: string; name: string; text: string };

/** A receiver of an administrator. `answer`: waits before it answers. */
function receive(answer: (count: number) => Promise<void> = async () => undefined) {
  const received: Received[] = [];
  const listener = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const { type, after } = v.parse(Body, await request.json());
      received.push({ id: request.headers.get("webhook-id") ?? "", type, ...after });
      await answer(received.length);
      return new Response("ok");
    },
  });
  const [url, args] = [`http://127.0.0.1:${listener.port}/`, ["--event", "alarm.*"]];
  return { received, url, args, [Symbol.asyncDispose]: () => listener.stop(true) };
}

const flags = ["--webhook-allow", "127.0.0.0/8"];

test("killed between sending and recording, it sends the alarm again with its id, and then no more", async () => {
  await using stack = new AsyncDisposableStack();
  const directory = stack.use(temporaryDirectory());
  const data = `${directory.path}/server`;
  const arrived = Promise.withResolvers<void>();
  // The first request is never answered.
  const sink = stack.use(
    receive(async (count) => {
      if (count > 1) return;
      arrived.resolve();
      await new Promise(() => undefined);
    }),
  );
  const first = await startControlPlane(data, flags);
  await makeOrganization(first);
  expect((await first.admin(["webhook", "create", "acme", sink.url, ...sink.args])).status).toBe(0);
  const told = await first.admin(["alarm", "test", "acme"]);
  expect(told.stdout).toContain("goes to 1 webhook of acme");
  await arrived.promise;
  process.kill(first.pid, "SIGKILL");
  await first.stop();
  const second = stack.use(await startControlPlane(data, flags));
  await until("the second one", () => sink.received.length >= 2, 60_000);
  expect(new Set(sink.received.map(({ id }) => id)).size).toBe(1);
  const delivered = async () => (await second.admin(["webhook", "deliveries", "acme", "1"])).stdout;
  await until("its record", async () => (await delivered()).includes("delivered"));
  expect((await second.admin(["alarm", "test", "acme"])).status).toBe(0);
  await until("the next test", () => sink.received.length >= 3);
  expect(new Set(sink.received.map(({ id }) => id)).size).toBe(2);
}, 120_000);

if (inFull)
  asRoot("a lighthouse", () => {
    describeEngines("of a real engine", ({ nebula }) => {
      test("that is killed is one alarm, which says who lost it, and it is told when it is back", async () => {
        await using stack = new AsyncDisposableStack();
        const directory = stack.use(temporaryDirectory());
        const lan = stack.use(makeLan(["lh", "a", "b"]));
        const plane = stack.use(await startControlPlane(`${directory.path}/server`, flags));
        const acme = await makeOrganization(plane);
        const sink = stack.use(receive());
        expect((await plane.admin(["webhook", "create", "acme", sink.url, ...sink.args])).status).toBe(0);
        expect((await plane.admin(["org", "update", "acme", "--alarm", "lighthouse=2"])).status).toBe(0);
        const token = await acme.makeToken(["--uses", "3", "--lighthouse"]);
        const members: Member[] = [];
        for (const host of lan.hosts) {
          const hub = members.length === 0 ? ["--is-lighthouse", "--public-ip", host.address] : [];
          members.push(stack.use(await joinMember(acme, host, directory.path, nebula, token, hub)));
        }
        const [lighthouse] = members;
        if (lighthouse === undefined) throw new Error("A lighthouse");
        lighthouse.daemon.signal("SIGKILL");
        await lighthouse.daemon.exited;
        for (const pid of enginesOf(lighthouse.places)) process.kill(pid, "SIGKILL");
        await until("the alarm", () => sink.received.length > 0, 240_000);
        expect(sink.received[0]).toMatchObject({ type: "alarm.raised", name: "The lighthouse lh is away" });
        expect(sink.received[0]?.text).toMatch(/Not reached by (a|b)/);
        lighthouse.daemon = await startDaemon(lighthouse.host, lighthouse.places);
        await until("its end", () => sink.received.length > 1, 60_000);
        expect(sink.received.map(({ type }) => type)).toEqual(["alarm.raised", "alarm.ended"]);
        const { stdout } = await plane.admin(["alarm", "list", "acme", "--json"]);
        expect(JSON.parse(stdout)).toMatchObject({ alarms: [] });
      }, 600_000);
    });
  });
