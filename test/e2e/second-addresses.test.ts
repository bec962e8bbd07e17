// A lighthouse whose engine made the first contact with a node by one of its two addresses answers no questions for the other
// one, as long as that tunnel lasts. Programs on the lighthouse, and its own probes, must not hide nodes from their peers. Without a
// lighthouse, nodes keep underlay addresses for both.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { command, enginesOf } from "../support/daemon.ts";
import { asRoot, describeEngines, type Engine } from "../support/engines.ts";
import { joinMember, nodesOf, until } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

asRoot("second addresses", () => {
  const tests = ({ nebula }: Engine) => {
    for (const isBusy of [true, false])
      test.concurrent(
        `are found after a restart of the lighthouse ${isBusy ? "whose programs use the first ones" : "with its probes alone"}`,
        async () => {
          await using stack = new AsyncDisposableStack();
          const directory = stack.use(temporaryDirectory());
          const lan = stack.use(makeLan(["hub", "beta", "alpha"]));
          const plane = stack.use(await startControlPlane(join(directory.path, "server")));
          const two = ["--network6", "fd77::/64", "--certificate-version", "2"];
          const acme = await makeOrganization(plane, "acme", "10.77.0.0/16", two);
          const token = await acme.makeToken(["--uses", "3", "--lighthouse"]);
          const joined = async (name: string, flags: readonly string[] = []) =>
            stack.use(await joinMember(acme, lan.host(name), directory.path, nebula, token, flags));
          const hub = await joined("hub", ["--is-lighthouse", "--public-ip", lan.host("hub").address]);
          const beta = await joined("beta");
          const first = startPing(hub.host, beta.ip, 730);
          await first.reply(20_000);
          if (!isBusy) {
            // So that the hub probes it.
            await Bun.sleep(15_000);
            await first.stop();
          }

          const before = enginesOf(hub.places);
          for (const pid of before) process.kill(pid, "SIGKILL");
          await until(
            "another engine",
            () => enginesOf(hub.places).some((pid) => !before.includes(pid)),
            30_000,
          );
          const again = startPing(hub.host, beta.ip, 730);
          if (isBusy) await again.reply(30_000);
          else await again.stop();
          // The engine reports its addresses to the lighthouse every 10 s, and the daemon looks at tunnels as often. A packet of the
          // program in the tenth of a second without a tunnel spoils an attempt; the next one follows.
          await Bun.sleep(isBusy ? 60_000 : 25_000);

          // It has never had a tunnel with beta.
          const alpha = await joined("alpha");
          const address = (await nodesOf(acme, "beta"))[0]?.ip_address6 ?? "";
          expect(address).toStartWith("fd77::");
          const ping = startPing(alpha.host, address);
          await ping.reply(20_000);
          await Promise.all([ping, again, first].map((each) => each.stop()));
          if (isBusy) return;

          // Nor without a lighthouse: alpha keeps the underlay address of beta, for both.
          hub.daemon.signal("SIGKILL");
          await hub.daemon.exited;
          for (const pid of enginesOf(hub.places)) process.kill(pid, "SIGKILL");
          const config = join(alpha.places.configRoot, "acme/config.yml");
          await until(
            "both addresses",
            () => readFileSync(config, "utf8").includes(`"${address}":`),
            120_000,
          );
          expect((await command(alpha.places, ["restart", "acme"])).status).toBe(0);
          const alone = startPing(alpha.host, address);
          await alone.reply(20_000);
          await alone.stop();
        },
        240_000,
      );
  };
  describeEngines("of nodes with two", tests, ["1.12"]);
});
