// The bar of a revocation, whole: the peers have reloaded within 1 s of the API's answer, and the last ping passes within
// 3.5 s, twenty times of twenty on each engine. A tenth of it, without the clock, runs in test/e2e/revocation.test.ts.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeMembers } from "../support/members.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { figures, revokeOnce, type Trial } from "../support/revocation.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const rounds = Number(process.env["REVOCATIONS"] ?? 20);

asRoot("revocation", () => {
  describeEngines(`${rounds} times`, ({ nebula, version }) => {
    test("reload within 1 s, last ping within 3.5 s", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "peer", "victim"]);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      await using scene = await makeMembers(acme, lan, directory.path, nebula);
      const [lighthouse, peer, victim] = scene.members;
      if (lighthouse === undefined || peer === undefined || victim === undefined)
        throw new Error("No members");
      const trials: Trial[] = [];
      for (let round = 0; round < rounds; round++)
        trials.push(await revokeOnce(acme, victim, [lighthouse, peer]));
      process.stderr.write(`engine ${version}: ${figures(trials)}\n`);
      for (const each of trials) {
        expect(each.reloadMs).toBeLessThan(1000);
        expect(each.lastPingMs).toBeLessThan(3500);
      }
    }, 900_000);
  });
});
