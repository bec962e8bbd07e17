// `agent netcheck` asks a lighthouse where it sees this node. The lighthouse then tells the engine that this node wants to be
// answered, and the engine calls itself: once, and not again and again.

import { expect, test } from "bun:test";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { joinMember, until } from "../support/members.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

/** A handshake that nobody answers ends in 5.5 s, and would be begun again before. */
const callMs = 6000;

asRoot("an engine that was asked about itself", () => {
  describeEngines(
    "ends its calls to itself",
    ({ nebula }) => {
      test("after one", async () => {
        await using stack = new AsyncDisposableStack();
        const directory = stack.use(temporaryDirectory());
        const lan = stack.use(makeLan(["lh", "a"]));
        const plane = stack.use(await startControlPlane(`${directory.path}/server`));
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "2", "--lighthouse"]);
        const [lighthouse, a] = lan.hosts;
        if (lighthouse === undefined || a === undefined) expect.unreachable();
        const hub = ["--is-lighthouse", "--public-ip", lighthouse.address];
        stack.use(await joinMember(acme, lighthouse, directory.path, nebula, token, hub));
        const member = stack.use(await joinMember(acme, a, directory.path, nebula, token));
        const argv = a.inside([agent, "netcheck", "acme", ...member.places.flags]);
        expect(Bun.spawnSync(argv, { stdout: "pipe", stderr: "pipe" }).stdout.toString()).toContain(
          "There is no NAT before the lighthouses",
        );
        const selfCalls = async () => {
          const { stdout } = await command(member.places, ["logs", "acme", "--lines", "10000"]);
          return stdout.split("handshake with myself").length - 1;
        };
        await until("a call", async () => (await selfCalls()) > 0, 15_000);
        // All answers to the questions of netcheck are one call.
        await Bun.sleep(2 * callMs);
        const called = await selfCalls();
        await Bun.sleep(callMs);
        expect(await selfCalls()).toBe(called);
      }, 120_000);
    },
    ["1.12"],
  );
});
