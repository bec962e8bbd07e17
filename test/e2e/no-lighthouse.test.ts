// The only lighthouse is dead: nodes find each other by the addresses that they keep. One scene for all cases, because its
// preparation takes most of the time.

import { expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { readTextIfThere } from "../../src/base/files.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { command, enginesOf, startDaemon, statusOf, untilStatus } from "../support/daemon.ts";
import { asRoot, describeTogether } from "../support/engines.ts";
import { joinMember, until, type Member } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { putBehindNat } from "../support/nat.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { paths } from "../support/paths.ts";

buildAgent();

const Listed = v.object({ paths: v.array(v.looseObject({ node_name: v.string() })) });
const PeerMap = v.record(v.string(), v.array(v.string()));
/** From the first packet on. */
const meetMs = 5000;

asRoot("without a lighthouse", () => {
  describeTogether(
    "nodes meet",
    ([old, current]) => {
      test("by the addresses that they keep, and say which peers they do not find", async () => {
        if (old === undefined || current === undefined) throw new Error("Two engines");
        await using stack = new AsyncDisposableStack();
        const directory = stack.use(temporaryDirectory());
        // Two behind NATs, an old engine, one that is revoked, and three others with reachable addresses.
        const lan = stack.use(makeLan(["lh", "nat1", "nat2", "c", "d", "old", "gone"]));
        const plane = stack.use(await startControlPlane(`${directory.path}/server`));
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "9", "--lighthouse"]);
        const members = new Map<string, Member>();
        for (const host of lan.hosts) {
          const { name } = host;
          if (name.startsWith("nat")) stack.use(putBehindNat(host, "masquerade"));
          const hub = name === "lh" ? ["--is-lighthouse", "--public-ip", host.address] : [];
          const { nebula } = name === "old" ? old : current;
          members.set(name, stack.use(await joinMember(acme, host, directory.path, nebula, token, hub)));
        }
        const member = (name: string) => members.get(name) ?? expect.unreachable();
        const mapOf = (name: string) => {
          const text = readTextIfThere(join(member(name).places.configRoot, "acme/run/peer-map.json"));
          return v.parse(PeerMap, JSON.parse(text ?? "{}"));
        };
        /** ms until the first answer. */
        const meet = async (from: string, to: string): Promise<number> => {
          const began = performance.now();
          const ping = startPing(member(from).host, member(to).ip);
          try {
            return (await ping.reply(meetMs)).at - began;
          } finally {
            await ping.stop();
          }
        };
        const said: string[] = [];
        const meetAll = async (pairs: readonly (readonly [from: string, to: string])[]) => {
          for (const [from, to] of pairs)
            said.push(`${from} to ${to} ${(await meet(from, to)).toFixed(0)} ms`);
        };

        await meetAll([
          ["nat1", "c"],
          ["old", "c"],
        ]);
        const reported = async () => {
          const { stdout } = await plane.admin(["path", "list", "acme", "--json"]);
          return v.parse(Listed, JSON.parse(stdout)).paths.filter(({ node_name }) => node_name === "lh")
            .length;
        };
        for (let news = 1; (await reported()) < 6 && news < 30; news++) {
          // News ends the lighthouse's poll, and its next check-in has the report.
          const config_overrides = { punchy: { delay: `${news}s` } };
          const changed = await acme.api("PATCH", paths.node("acme", member("lh").id), { config_overrides });
          expect(changed.status).toBe(200);
          for (let tries = 0; (await reported()) < 6 && tries < 6; tries++) await Bun.sleep(500);
        }
        const lighthouse = member("lh");
        lighthouse.daemon.signal("SIGKILL");
        await lighthouse.daemon.exited;
        for (const pid of enginesOf(lighthouse.places)) process.kill(pid, "SIGKILL");

        // The status tells it, and which peers are found anyway: four of them were never met.
        const living = ["nat1", "nat2", "c", "d", "old"];
        for (const name of living)
          await untilStatus(
            member(name).places,
            "acme",
            ({ health }) =>
              health?.reason?.includes("The lighthouse lh does not answer; 5 peers are found") === true,
            120_000,
          );
        await meetAll([
          ["nat1", "d"],
          ["d", "nat2"],
          ["nat2", "old"],
          ["old", "d"],
          ["d", "c"],
        ]);

        // No map and no engine has the revoked peer.
        const { ip } = member("gone");
        expect(living.map((name) => ip in mapOf(name))).toEqual(living.map(() => true));
        expect((await acme.api("DELETE", paths.node("acme", member("gone").id))).status).toBe(204);
        const configOf = (name: string) =>
          readTextIfThere(join(member(name).places.configRoot, "acme/config.yml")) ?? "";
        await until(
          "no map with the revoked node",
          () => living.every((name) => !(ip in mapOf(name))),
          30_000,
        );
        expect(living.filter((name) => configOf(name).includes(`${ip}:`))).toEqual([]);

        // Both ends are restarted, without a control plane: an engine gets the port that it had.
        await plane.stop();
        for (const name of ["nat1", "c", "old"]) {
          const one = member(name);
          one.daemon.signal("SIGTERM");
          await one.daemon.exited;
          one.daemon = await startDaemon(one.host, one.places);
        }
        for (const name of ["nat1", "c", "old"])
          await until(
            "its engine",
            async () => (await statusOf(member(name).places, "acme")).state === "running",
          );
        await meetAll([
          ["nat1", "c"],
          ["c", "old"],
          ["old", "nat1"],
        ]);

        // A peer whose address changes is not found, which is said, until it calls.
        const moved = member("d");
        moved.host.run(["ip", "addr", "del", `${moved.host.address}/24`, "dev", "eth0"]);
        moved.host.run(["ip", "addr", "add", "192.0.2.99/24", "dev", "eth0"]);
        expect((await command(moved.places, ["restart", "acme"])).status).toBe(0);
        await meetAll([["d", "c"]]);
        await until(
          "the new address",
          () => mapOf("c")[moved.ip]?.[0]?.startsWith("192.0.2.99:") === true,
          30_000,
        );

        // Two behind NATs, which filter: told, unless they called each other at the same moment.
        const ping = startPing(member("nat1").host, member("nat2").ip);
        stack.defer(() => ping.stop());
        const isMet = () => ping.replies.length > 0;
        await until(
          "the sentence, or a tunnel",
          async () =>
            isMet() ||
            (await statusOf(member("nat1").places, "acme")).health?.reason?.includes(
              "no handshake with nat2",
            ) === true,
          60_000,
        );
        process.stderr.write(`${said.join(", ")}; two NATs ${isMet() ? "met" : "were told"}\n`);
      }, 300_000);
    },
    ["debian", "1.12"],
  );
});
