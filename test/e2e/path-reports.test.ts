// How a node reaches its peers, from the real engine to the control plane's list.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { joinMember, until, type Member } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { paths } from "../support/paths.ts";

buildAgent();

const Path = v.array(
  v.looseObject({
    node_name: v.string(),
    peer_name: v.nullable(v.string()),
    path: v.string(),
    relays: v.array(v.string()),
    probe: v.string(),
    rtt_ms: v.nullable(v.number()),
  }),
);

const Listed = v.object({ paths: Path });

asRoot("a control plane", () => {
  describeEngines(
    "shows the paths of its nodes",
    ({ nebula }) => {
      test("as they are, direct and relayed", async () => {
        await using stack = new AsyncDisposableStack();
        const directory = stack.use(temporaryDirectory());
        const lan = stack.use(makeLan(["hub", "a", "b"]));
        const plane = stack.use(await startControlPlane(`${directory.path}/server`));
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "3", "--lighthouse"]);
        const members: Member[] = [];
        for (const host of lan.hosts) {
          const hub = members.length === 0 ? ["--is-lighthouse", "--public-ip", host.address] : [];
          members.push(stack.use(await joinMember(acme, host, directory.path, nebula, token, hub)));
        }
        const [hub, a, b] = members;
        if (hub === undefined || a === undefined || b === undefined) throw new Error("Three members");
        for (const [from, to] of [
          [a, b],
          [b, a],
        ] as const)
          from.host.run(["ip", "route", "add", "blackhole", to.host.address]);
        const ping = startPing(a.host, b.ip);
        stack.defer(() => ping.stop());
        await ping.reply(30_000);
        // Probed, so that there is a round trip to report.
        await until(
          "the relay",
          async () => (await command(a.places, ["peers"])).stdout.includes("relayed by hub"),
          30_000,
        );
        const list = async (...words: string[]) => {
          const listed = await plane.admin(["path", "list", "acme", "--json", ...words]);
          return v.parse(Listed, JSON.parse(listed.stdout)).paths;
        };
        const ofA = (all: v.InferOutput<typeof Path>) => all.filter(({ node_name }) => node_name === "a");
        for (let news = 1; ofA(await list()).length < 2 && news < 20; news++) {
          // News ends the poll, and the next check-in has the report.
          const config_overrides = { punchy: { delay: `${news}s` } };
          expect((await acme.api("PATCH", paths.node("acme", a.id), { config_overrides })).status).toBe(200);
          for (let tries = 0; ofA(await list()).length < 2 && tries < 6; tries++) await Bun.sleep(500);
        }
        const reported = ofA(await list());
        expect(reported.find(({ peer_name }) => peer_name === "hub")).toMatchObject({
          path: "direct",
          probe: "answers",
          rtt_ms: expect.any(Number),
        });
        expect(reported.find(({ peer_name }) => peer_name === "b")).toMatchObject({
          path: "relayed",
          relays: ["hub"],
        });
        expect(ofA(await list("--path", "relayed")).map(({ peer_name }) => peer_name)).toEqual(["b"]);
      }, 240_000);
    },
    ["1.12"],
  );
});
