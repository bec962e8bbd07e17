// What `agent status`, `agent status --check` and `agent peers` say while traffic passes, and while it does not.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeMembers, until, type Member } from "../support/members.ts";
import { makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const Peers = v.object({
  teams: v.array(
    v.object({ peers: v.array(v.looseObject({ name: v.string(), path: v.string(), probe: v.string() })) }),
  ),
});

const agentOn = (member: Member, ...words: string[]) => command(member.places, words);

async function peersOf(member: Member) {
  const { stdout } = await agentOn(member, "peers", "--json");
  return v.parse(Peers, JSON.parse(stdout)).teams[0]?.peers ?? [];
}

/** A client of the socket that is told of each change. */
async function subscribe({ socketPath }: Member["places"]) {
  const lines: string[] = [];
  const connection = await Bun.connect({
    unix: socketPath,
    socket: { data: (_, bytes) => void lines.push(Buffer.from(bytes).toString()) },
  });
  connection.write(`${JSON.stringify({ id: 1, action: "subscribe" })}\n`);
  return { lines, [Symbol.asyncDispose]: async () => void connection.end() };
}

asRoot("a node", () => {
  describeEngines(
    "says whether traffic passes",
    ({ version, nebula }) => {
      const reports = version.startsWith("1.12");
      test.concurrent(
        "while the lighthouse answers, and when its port is closed and open again",
        async () => {
          using directory = temporaryDirectory();
          using lan = makeLan(["hub", "a", "b"]);
          await using plane = await startControlPlane(`${directory.path}/server`);
          const acme = await makeOrganization(plane);
          await using made = await makeMembers(acme, lan, directory.path, nebula);
          const [hub, a, b] = made.members;
          if (hub === undefined || a === undefined || b === undefined) throw new Error("Three members");
          const ping = startPing(a.host, b.ip);
          await ping.reply(20_000);
          await ping.stop();
          const check = await agentOn(a, "status", "--check");
          expect([check.stdout.split("\n")[0], check.status]).toEqual([`acme is running as ${a.ip}`, 0]);
          expect(check.stdout).toContain(`acme: engine ${version}; the lighthouse answers; `);
          expect(check.stdout).toMatch(/works \d+ more days without the control plane/);
          const peers = await peersOf(a);
          process.stderr.write((await agentOn(a, "peers")).stdout + check.stdout);
          expect(peers[0]).toMatchObject({ lighthouse: true, probe: "answers" });
          if (reports) expect(peers[1]).toMatchObject({ name: "b", path: "direct", probe: "answers" });

          const pinged = await agentOn(a, "ping", reports ? "b" : b.ip, "--count", "2");
          const path = reports
            ? /^b \(10\.77\.0\.3\): [\d.]+ ms, direct 192\.0\.2\.3:\d+$/m
            : // The engine reports no tunnels. The name, if known, is that of hosts.json.
              /^(b|10\.77\.0\.3) \(10\.77\.0\.3\): [\d.]+ ms, unknown$/m;
          expect(pinged.stdout).toMatch(path);
          expect(pinged.stdout).toContain("2 of 2 probes answered");
          expect((await agentOn(a, "ping", "nobody")).status).toBe(1);
          const whois = await agentOn(a, "whois", b.ip, "--json");
          expect(JSON.parse(whois.stdout)).toMatchObject({
            team: "acme",
            address: b.ip,
            ...(reports ? { name: "b", groups: [] } : {}),
          });
          expect((await agentOn(a, "logs", "-n", "50")).stdout).toMatch(
            /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d info /m,
          );
          expect((await agentOn(a, "logs", "-n", "50", "--raw")).stdout).toMatch(/^\{.*"level":"info"/im);

          await using notices = await subscribe(a.places);
          hub.host.link("down");
          const from = performance.now();
          await until(
            "degraded",
            async () => (await agentOn(a, "status")).stdout.startsWith("acme is degraded"),
            30_000,
          );
          process.stderr.write(
            `engine ${version}: degraded after ${((performance.now() - from) / 1000).toFixed(1)} s\n`,
          );
          const degraded = await agentOn(a, "status", "--check");
          expect(degraded.status).toBe(1);
          expect(degraded.stdout).toMatch(/acme: The lighthouse \S+ does not answer/);
          process.stderr.write(degraded.stdout);
          expect(notices.lines.join("")).toContain('"verdict":"degraded"');

          hub.host.link("up");
          await until(
            "running again",
            async () => (await agentOn(a, "status", "--check")).status === 0,
            30_000,
          );
        },
        240_000,
      );

      test.concurrent(
        "in server mode too, from the last run of check-auth, or by its own probes",
        async () => {
          using directory = temporaryDirectory();
          using lan = makeLan(["hub", "c", "d"]);
          await using plane = await startControlPlane(`${directory.path}/server`);
          const acme = await makeOrganization(plane);
          await using stack = new AsyncDisposableStack();
          const token = await acme.makeToken(["--uses", "3", "--lighthouse"]);
          const [hub, c, d] = lan.hosts;
          if (hub === undefined || c === undefined || d === undefined) throw new Error("Three hosts");
          const join = async (host: Host, ...flags: string[]) => {
            const root = `${directory.path}/${host.name}`;
            const node = await registerNode(acme, root, host.name, token, [
              "--overlay-binary",
              nebula,
              ...flags,
            ]);
            stack.use(await bridgePort(host, root, Number(new URL(acme.plane.url).port)));
            return stack.use(await startEngine(host, nebula, node.directory));
          };
          await join(hub, "--is-lighthouse", "--public-ip", hub.address);
          await join(c);
          await join(d);
          const flags = ["--config-root", `${directory.path}/c`, "--overlay-binary", nebula];
          const run = (...words: string[]) => {
            const env = { PATH: process.env["PATH"] ?? "", LC_ALL: "C" };
            const { exitCode, stdout } = Bun.spawnSync(c.inside([agent, ...words, ...flags]), { env });
            return { status: exitCode, stdout: stdout.toString() };
          };
          const unknown = run("status");
          // Nothing has looked yet: that is not green.
          expect(unknown.stdout).toStartWith("acme is running, not probed");
          expect(unknown.stdout).not.toContain("lighthouse");
          expect(run("status", "--check")).toMatchObject({
            status: 0,
            stdout: expect.stringContaining("the lighthouse answers"),
          });
          expect(run("peers").stdout).toContain("(lighthouse)");
          await until("an answer", () => run("ping", "10.77.0.3", "--count", "1").status === 0, 30_000);
          const check = c.spawn([agent, "check-auth", "--all", "--wait", "50", ...flags]);
          stack.defer(() => check.kill());
          await until(
            "a saved health",
            () => run("status").stdout.includes("the lighthouse answers"),
            20_000,
          );
          await until("a check-in", () => / \d+s ago$/m.test(run("status").stdout), 20_000);
          // Where the engine does not report its tunnels, too: check-auth goes on with a peer that was named.
          expect(run("peers").stdout).toContain("10.77.0.3");
          hub.link("down");
          await until("degraded", () => run("status").stdout.startsWith("acme is degraded"), 30_000);
          expect(run("status", "--check").status).toBe(1);
        },
        240_000,
      );
    },
    ["debian", "sid", "1.12"],
  );
});
