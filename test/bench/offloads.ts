// `bun test/bench/offloads.ts [ROUNDS] [SECONDS]`: TCP throughput of iperf3 through a tunnel between two namespaces, with and
// without the offloads of engine 1.12, and the processor time of both engines for each gigabyte. Needs root.

import { readFileSync } from "node:fs";
import * as v from "valibot";
import { installMissing } from "../support/debian.ts";
import { engineNamed } from "../support/engines.ts";
import { meet, startEngines } from "../support/engine-pair.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const [rounds = 5, seconds = 5] = process.argv.slice(2).map(Number);
const missing = installMissing(["/usr/bin/iperf3"]);
if (missing !== undefined) throw new Error(missing);

const Report = v.object({
  end: v.object({ sum_received: v.object({ bytes: v.number(), bits_per_second: v.number() }) }),
});
type Trial = { gbits: number; cpuPerGb: number };

/** Processor seconds of a process, user and kernel. */
function processorSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

async function measure(offloads: boolean): Promise<Trial> {
  using directory = temporaryDirectory();
  await using network = await startEngines(
    engineNamed("1.12"),
    directory.path,
    ["server", "client"],
    (at) => ({
      tun: { dev: `pair${at}`, mtu: 1300, use_offloads: offloads },
      listen: { host: "0.0.0.0", port: 4242, udp_offloads: offloads },
    }),
  );
  const [server, client] = network.nodes;
  if (server === undefined || client === undefined) throw new Error("No nodes");
  const used = () => network.nodes.reduce((sum, { engine }) => sum + processorSeconds(engine.pid), 0);
  server.host.spawn(["iperf3", "--server", "--one-off"]);
  await meet(client, server);
  const before = used();
  const printed = client.host.run([
    "iperf3",
    "--json",
    "--time",
    String(seconds),
    "--client",
    server.address,
  ]);
  const { bytes, bits_per_second: rate } = v.parse(Report, JSON.parse(printed)).end.sum_received;
  return { gbits: rate / 1e9, cpuPerGb: (used() - before) / (bytes / 1e9) };
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
const show = (trials: Trial[]) => {
  const rates = trials.map(({ gbits }) => gbits);
  const [least, most] = [Math.min(...rates), Math.max(...rates)];
  const cpu = median(trials.map(({ cpuPerGb }) => cpuPerGb));
  return `${median(rates).toFixed(2)} Gbit/s (${least.toFixed(2)} … ${most.toFixed(2)}), ${cpu.toFixed(2)} s of processor for each GB`;
};

const [off, on]: [Trial[], Trial[]] = [[], []];
// By turns, so that a busy moment of the machine concerns both.
for (let round = 0; round < rounds; round++) {
  off.push(await measure(false));
  on.push(await measure(true));
}
const ratio = (of: (trial: Trial) => number) => median(on.map(of)) / median(off.map(of));
process.stdout.write(
  `without offloads: ${show(off)}\nwith offloads:    ${show(on)}\n` +
    `throughput × ${ratio(({ gbits }) => gbits).toFixed(2)}, processor time for each GB × ${ratio(({ cpuPerGb }) => cpuPerGb).toFixed(2)}\n`,
);
