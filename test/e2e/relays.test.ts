// Nodes that reach each other only through relays: each uses two, and the loss of one is over within seconds.

import { expect, test } from "bun:test";
import { buildAgent } from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { until } from "../support/members.ts";
import { inFull } from "../support/soak.ts";
import { loseRelay, makeRelayedScene, relaysIn } from "../support/relayed.ts";

buildAgent();

asRoot("an agent", () => {
  describeEngines(
    "with three relays",
    ({ nebula }) => {
      test(
        "uses two, and leaves one that is lost within 10 s",
        async () => {
          await using scene = await makeRelayedScene(nebula, inFull ? 25 : 2);
          // The start of a hundred processes would be measured otherwise.
          if (inFull) await Bun.sleep(45_000);
          const { gaps, lost } = await loseRelay(scene, 12_000);
          process.stderr.write(
            `without answers after the loss: ${gaps.map((each) => each.toFixed(1)).join(", ")} s\n`,
          );
          // A pair used it: its loss was felt.
          expect(Math.max(...gaps)).toBeGreaterThan(0);
          expect(Math.max(...gaps)).toBeLessThan(10);
          await until(
            "other relays",
            () =>
              scene.nodes.every((node) => relaysIn(node).length === 2 && !relaysIn(node).includes(lost.ip)),
            30_000,
          );
        },
        inFull ? 1_200_000 : 400_000,
      );
    },
    ["1.12"],
  );
});
