// docs/engines.md, made from src/engine/features.ts. After a change there: GOLDEN=write bun test test/docs-engines.test.ts

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  advisoriesFor,
  can,
  firstVersions,
  isRefusedEngine,
  oldestEngine,
  parseEngineVersion,
  recommendedEngine,
  type EngineFeature,
} from "../src/engine/features.ts";
import { firstTunKernel, firstUdpKernel } from "../src/node/files/config/data-plane.ts";
import { sourceRoot } from "./support/imports.ts";
import { expectGolden } from "./support/golden.ts";

/** The engines in use, oldest first: the columns of the table. */
const engineSeries = ["1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12"];

const isFeature = (name: string): name is EngineFeature => Object.hasOwn(firstVersions, name);

/** The comment above each feature, as one line. */
function comments(): [EngineFeature, string][] {
  const source = readFileSync(join(sourceRoot, "engine/features.ts"), "utf8");
  const [, body = ""] = /firstVersions = \{\n([\s\S]*?)\n\} as const/.exec(source) ?? [];
  return [...body.matchAll(/\/\*\*([\s\S]*?)\*\/\s+(\w+): \[/g)].flatMap(([, text = "", name = ""]) =>
    isFeature(name) ? [[name, text.replace(/\s*\n\s*\* /g, " ").trim()]] : [],
  );
}

/** The newest release of a series decides: where a later patch brought the feature, its number stands in the cell. */
function cell(feature: EngineFeature, series: string): string {
  if (can(`${series}.0`, feature)) return "yes";
  return can(`${series}.999`, feature) ? `from ${firstVersions[feature].join(".")}` : "–";
}

const row = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
const releases = ["1.6.1", "1.7.2", "1.8.2", "1.9.3", "1.9.4", "1.9.7", "1.10.3", "1.11.1", "1.12.0"];
const known = releases.map((version) => {
  const found = advisoriesFor(version).map(
    ({ id, severity, fixed_in }) => `${id} (${severity}), fixed in ${fixed_in}`,
  );
  const verdict = isRefusedEngine(parseEngineVersion(version)) ? "refused" : "runs";
  return row([version, verdict, found.join("; ") || "none"]);
});

const document = () => `# Engines

<!-- Generated from src/engine/features.ts: GOLDEN=write bun test test/docs-engines.test.ts -->

Overlay Agent runs Nebula from ${oldestEngine.join(".")} on; ${recommendedEngine.join(".")} or later is recommended.
\`agent overlay check\` prints what this machine has, \`agent overlay update\` installs the newest one. Nodes with different
engines work together: the control plane writes each node's configuration for its engine.

## What each one can

${row(["feature", ...engineSeries])}
${row(["---", ...engineSeries.map(() => "---")])}
${comments()
  .map(([feature, text]) =>
    row([text.replaceAll("|", "\\|"), ...engineSeries.map((each) => cell(feature, each))]),
  )
  .join("\n")}

## Known vulnerabilities

${row(["engine", "verdict", "advisories"])}
${row(["---", "---", "---"])}
${known.join("\n")}

## Control socket

From 1.12 on each organization's engine serves a control socket: \`run/ctl.sock\` in the organization's directory, or a
named pipe on Windows. Only root (on Windows: administrators) may use it. The agent applies changes through it, so that a
change needs no signal, and on Windows no restart. A node in server mode that was installed by an earlier version gets the
right to create it with \`agent install-systemd\`; until then its changes are applied by signals.

## Dead tunnels

With engine 1.12 the agent heals tunnels by itself, in desktop mode and in server mode:

- A peer that answered probes in the last ten minutes and stops, while another node answers, has a dead tunnel. It is found
  within 15 seconds and closed on this side, so that the engines shake hands again. A peer that never answered probes (its
  rules may refuse ICMP) is left alone.
- If that does not help within 5 seconds, packets are lost in one direction. Where a relay exists, the peer's underlay
  address is denied for 5, then 10, 20 … 60 minutes, at most 20 addresses, never a lighthouse's. \`agent peers\` shows
  \`relayed by lh1: direct path loses packets\`.
- A peer is tried again after 1, 2 and 4 minutes, at most ten tunnels a minute. After three attempts without effect the
  agent stops until the peer answers.
- A relayed tunnel tries the direct path again, also if it carries nothing but probes.
- An engine whose socket does not answer for 30 seconds while no peer answers is restarted once an hour at most. Its last
  500 log lines, with its goroutines, stay beside its log as \`acme.log.hang\` (desktop mode).

Each step is a line with its evidence in the agent's log: \`journalctl -u overlay-agent\` or
\`journalctl -u overlay-agent-auth\`.

## Offloads and buffers

\`tun.use_offloads\` and \`listen.udp_offloads\` let kernel and engine exchange fewer, larger packets;
\`listen.read_buffer\` and \`write_buffer\` are how much the kernel holds while the engine is busy. Measured with one TCP
stream: the buffers alone carry 1.5 to 2 times as much, also with old engines; with the offloads it is 8 times as much, for a
tenth of the processor time. Each node decides for itself:

| setting | default |
| --- | --- |
| \`tun.use_offloads\` | on, with Linux ${firstTunKernel.join(".")} and engine ${firstVersions.offloads.join(".")} |
| \`listen.udp_offloads\` | on, with Linux ${firstUdpKernel.join(".")} and engine ${firstVersions.offloads.join(".")} |
| \`listen.read_buffer\`, \`write_buffer\` | 4 MiB on Linux; 1 MiB with less than 512 MiB of memory; the system's, if those are larger; in a container that may not enlarge them, \`net.core.rmem_max\` |

\`agent status --json\` says under \`data_plane\` what is in force and why not more, \`agent doctor\` under \`offloads\`; for
administrators it stands under "Packets" on the node's page of the console, and in \`agent admin node show acme NAME\`. Where the
kernel refuses large packets on the way out, as with IPsec, the engine sends them one by one by itself: that is told, too. An
engine reads the two switches only at its start. A node that is upgraded while its engine runs does not restart it for them:
they apply at the next start, and \`agent restart acme\` is one. The buffers apply at once. Another engine or kernel is decided
for anew; an engine gets no key that it does not know.

To turn them off: root of a machine in \`overrides.yml\`, which stands above all else; an administrator for one node with
\`node update acme NAME\`, or for an organization. That restarts the engines. The object replaces all overrides:
\`echo '{"tun":{"use_offloads":false},"listen":{"udp_offloads":false}}' | agent admin org update acme --config-overrides -\`

A driver, a filter or a machine in between may drop the large packets. So after each start of the engine, and twice a day, the
agent sends 32 packets of the full size to a lighthouse at once. If most of them are lost while packets one by one pass, it
restarts the engine without offloads. If they then pass, offloads stay off with this engine and this kernel, and status and
doctor say so; if not, they are on again. Where packets one by one are lost, too, it tries again after a minute, five times, and
then every hour.

\`bun run test/bench/offloads.ts\` prints the gain on your machine,
\`test/bench/offload-paths.ts\` tries many kinds of paths, and engines with and without them beside each other. What was learnt there: offloads at
the sender alone gain, at the receiver alone they change nothing; old engines and relays between work with them; IPv6, tunnels of
1280 to 8900 bytes, and paths that fragment carry more with them; no checksum was wrong and no file damaged. Where the network
card computes no checksums, or cannot segment, most of the gain is lost, and nothing else. The round trip of small packets does
not grow. \`test/bench/offload-kernels.ts\` does the same in an emulated machine with the kernels of Debian 11 and 12 (5.10 and
6.1), over Ethernet and a VLAN: files arrive whole with each setting.

## What an engine costs at rest

An engine looks ten times a second for handshakes that it should repeat (\`handshakes.try_interval\`, 100 ms by default), also where
there are none. That is three fifths of the processor time of an idle engine, and of its switches between threads; nothing else that
the agent writes into the configuration adds to it. Measured with 1.12: at 200 ms two thirds of the processor time are left, at 250 ms
half, at 500 ms a third.

The price is paid where the first attempts fail, such as with a peer that has just started: two nodes then met after 1.9 s at 100 ms,
2.3 s at 150 ms and 4.2 s at 250 ms (else after 0.01 s with each). So the default stays. Where batteries matter more:
\`echo '{"handshakes":{"try_interval":"250ms","retries":6}}' | agent admin org update acme --config-overrides -\`, with fewer attempts, so
that it gives up as soon as before. That restarts the engines.
`;

test("every feature has a comment for the table", () => {
  expect(comments().map(([feature]) => feature)).toEqual(Object.keys(firstVersions).filter(isFeature));
});

test("docs/engines.md is current", () => {
  expectGolden("../../docs/engines.md", document());
});
