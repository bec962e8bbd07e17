// Tunnels that the engine alone does not heal, on engine 1.12: a path that is lost in one direction, lost tunnel state, and
// an engine that hangs.

import { expect, test } from "bun:test";
import { closeSync, existsSync, openSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { command, enginesOf } from "../support/daemon.ts";
import { dropFrom, lastGapEnd, makeHealingScene, peerOf } from "../support/healing-scene.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { until } from "../support/members.ts";
import { makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

asRoot("an agent", () => {
  describeEngines(
    "heals",
    ({ nebula }) => {
      test.concurrent(
        "a path that is lost in one direction, by a relay",
        async () => {
          await using scene = await makeHealingScene(nebula);
          const { a, b } = scene;
          const pings = [startPing(a.host, b.ip), startPing(b.host, a.ip)];
          await Promise.all(pings.map((ping) => ping.reply(20_000)));
          await until("probes of the direct path", async () => {
            const [one, other] = await Promise.all([peerOf(a, "b"), peerOf(b, "a")]);
            return [one, other].every((each) => each?.path === "direct" && each.probe === "answers");
          });
          dropFrom(b.host, a.host.address);
          const from = performance.now();
          const note = "relayed by hub: direct path loses packets";
          // Both sides try; when one has denied the direct path, the other one has traffic again.
          await until(
            "the relay",
            async () => {
              const lists = await Promise.all([a, b].map((each) => command(each.places, ["peers"])));
              return lists.some(({ stdout }) => stdout.includes(note));
            },
            60_000,
          ).catch((error: unknown) => {
            throw new Error(`a:\n${a.daemon.log()}\nb:\n${b.daemon.log()}`, { cause: error });
          });
          await Bun.sleep(8000);
          await Promise.all(pings.map((ping) => ping.reply(2000)));
          await Promise.all(pings.map((ping) => ping.stop()));
          const seconds = Math.max(...pings.map(lastGapEnd)) / 1000 - from / 1000;
          process.stderr.write(`traffic passes again after ${seconds.toFixed(1)} s\n`);
          const log = a.daemon.log() + b.daemon.log();
          expect(log).toContain("A tunnel is dead: closing it");
          expect(log).toContain("Closing a dead tunnel did not help");
          expect(seconds).toBeLessThan(45);
        },
        180_000,
      );

      test.concurrent(
        "a quiet relayed tunnel, as soon as the direct path is open",
        async () => {
          await using scene = await makeHealingScene(nebula);
          const { a, b } = scene;
          const closed = [dropFrom(b.host, a.host.address), dropFrom(a.host, b.host.address)];
          const ping = startPing(a.host, b.ip);
          await until("the relay", async () => (await peerOf(a, "b"))?.path === "relayed", 30_000);
          await ping.reply(10_000);
          await Bun.sleep(2000);
          await ping.stop();
          await Bun.sleep(10_000);
          expect((await peerOf(a, "b"))?.path).toBe("relayed");
          for (const each of closed) each.repair();
          const from = performance.now();
          await until("the direct path", async () => (await peerOf(a, "b"))?.path === "direct", 90_000);
          process.stderr.write(`direct after ${((performance.now() - from) / 1000).toFixed(1)} s\n`);
        },
        180_000,
      );

      test.concurrent(
        "in server mode, by the run of check-auth that waits for changes",
        async () => {
          await using stack = new AsyncDisposableStack();
          const directory = stack.use(temporaryDirectory());
          const lan = stack.use(makeLan(["hub", "a", "b"]));
          const plane = stack.use(await startControlPlane(`${directory.path}/server`));
          const acme = await makeOrganization(plane);
          const token = await acme.makeToken(["--uses", "3", "--lighthouse"]);
          const nodes = new Map<string, { ip: string; host: Host }>();
          const agentOn = (name: string) => [
            "--config-root",
            join(directory.path, name),
            "--overlay-binary",
            nebula,
          ];
          for (const host of lan.hosts) {
            const root = join(directory.path, host.name);
            const hub =
              nodes.size === 0 ? ["--is-lighthouse", "--is-relay", "--public-ip", host.address] : [];
            const flags = ["--overlay-binary", nebula, ...hub];
            const node = await registerNode(acme, root, host.name, token, flags);
            stack.use(await bridgePort(host, root, Number(new URL(plane.url).port)));
            stack.use(await startEngine(host, nebula, node.directory));
            nodes.set(host.name, { ip: node.ip_address, host });
          }
          const [a, b] = [nodes.get("a"), nodes.get("b")];
          if (a === undefined || b === undefined) throw new Error("Three nodes");
          const log = join(directory.path, "check-auth.log");
          const fd = openSync(log, "a");
          stack.defer(() => closeSync(fd));
          for (const [name, { host }] of [...nodes].slice(1)) {
            const run = `while :; do "$@"; done`;
            const check = [agent, "check-auth", "--all", "--wait", "20", ...agentOn(name)];
            const loop = host.spawn(["sh", "-c", run, "sh", ...check], { stdout: fd });
            stack.defer(() => loop.kill("SIGKILL"));
          }
          const pings = [startPing(a.host, b.ip), startPing(b.host, a.ip)];
          await Promise.all(pings.map((ping) => ping.reply(20_000)));
          // Long enough for probes of a peer with traffic.
          await Bun.sleep(15_000);
          dropFrom(b.host, a.host.address);
          const from = performance.now();
          await Bun.sleep(1000);
          await until(
            "the relay",
            () =>
              /The peer answers through a relay|works again after it was closed/.test(
                readFileSync(log, "utf8"),
              ),
            90_000,
          );
          await Bun.sleep(8000);
          await Promise.all(pings.map((ping) => ping.reply(2000)));
          await Promise.all(pings.map((ping) => ping.stop()));
          const seconds = Math.max(...pings.map(lastGapEnd)) / 1000 - from / 1000;
          process.stderr.write(`server mode: traffic passes again after ${seconds.toFixed(1)} s\n`);
          expect(readFileSync(log, "utf8")).toContain("A tunnel is dead: closing it");
        },
        180_000,
      );

      test.concurrent(
        "an engine that hangs, by one restart that keeps its last lines",
        async () => {
          await using scene = await makeHealingScene(nebula);
          const { a, b } = scene;
          const ping = startPing(a.host, b.ip);
          await ping.reply(20_000);
          const [pid] = enginesOf(a.places);
          if (pid === undefined) throw new Error("No engine");
          process.kill(pid, "SIGSTOP");
          await Bun.sleep(1000);
          await ping.reply(90_000).catch(() => process.stderr.write(a.daemon.log()));
          await ping.stop();
          const logs = join(a.places.stateDb, "../logs");
          const kept = readdirSync(logs).find((name) => name.endsWith(".hang"));
          expect(readFileSync(join(logs, kept ?? ""), "utf8")).toContain("Nebula interface is active");
          expect(existsSync(`/proc/${pid}`)).toBe(false);
        },
        180_000,
      );
    },
    ["1.12"],
  );
});
