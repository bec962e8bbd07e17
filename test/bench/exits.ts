// `bun test/bench/exits.ts [ROUNDS] [SECONDS]`: TCP throughput of iperf3 to a server on the internet through an exit, beside that
// to the exit itself through the same tunnel. Needs root.

import * as v from "valibot";
import { buildAgent } from "../support/agent.ts";
import { installMissing } from "../support/debian.ts";
import { engineNamed } from "../support/engines.ts";
import { approveExits, internet, makeExitScene } from "../support/exits.ts";
import { until } from "../support/until.ts";
import { figure } from "./measure.ts";

const [rounds = 5, seconds = 4] = process.argv.slice(2).map(Number);
const missing = installMissing(["/usr/bin/iperf3"]);
if (missing !== undefined) throw new Error(missing);
buildAgent();

const Report = v.object({ end: v.object({ sum_received: v.object({ bits_per_second: v.number() }) }) });

await using scene = await makeExitScene(engineNamed("1.12").nebula);
const { plane, user, exits, net } = scene;
await plane.api("POST", `/api/org/${plane.slug}/firewall_rules/`, {
  direction: "inbound",
  protocol: "tcp",
  ports: "5201",
  peer: { any: true },
  target: { any: true },
});
await approveExits(scene);
await scene.exit("use", "one");
await until(() => scene.pings(internet, 1) === 1, { what: "an answer through the exit" });
const measure = (to: string) => {
  const argv = ["iperf3", "--json", "--time", String(seconds), "--client", to];
  return v.parse(Report, JSON.parse(user.host.run(argv))).end.sum_received.bits_per_second / 1e6;
};
net.spawn(["iperf3", "--server"]);
exits[0].host.spawn(["iperf3", "--server"]);
await Bun.sleep(500);
const [plain, through]: [number[], number[]] = [[], []];
for (let round = 0; round < rounds; round++) {
  plain.push(measure(exits[0].ip));
  through.push(measure(internet));
}
figure("to the exit itself", plain, { unit: "Mbit/s", digits: 0 });
figure("through it", through, { unit: "Mbit/s", digits: 0 });
figure(
  "ratio, round by round",
  through.map((each, at) => each / (plain[at] ?? Infinity)),
  { digits: 2, least: 0.9 },
);
