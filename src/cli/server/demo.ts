// `agent demo`: a control plane and three nodes with their overlay on this machine, for at most two minutes.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { renderPlan } from "../../base/plan/plan.ts";
import type { Context, Implementation } from "../command.ts";
import { switchFlag } from "../values.ts";

export const command: Implementation = {
  notes: [
    "Runs in its own network namespaces and a temporary directory, and removes both at the end, also after Ctrl-C",
    "(exit status 130; 143 after SIGTERM).",
    "Needs root, or a kernel that lets users create namespaces. Lists missing programs (overlay engine, ip, ping);",
    "--yes installs them, and the newest engine of the signed list of releases in place of an old one of the system's package.",
  ].join("\n"),
  args: { yes: switchFlag("Install missing programs", { alias: "y" }) },
  examples: [`${brand.executable} demo`, `sudo ${brand.executable} demo --yes --json`],
  run: runDemo,
};

async function runDemo({ system, settings, values, output, log }: Context): Promise<number> {
  const demo = await import("../../node/demo/demo.ts");
  const say = (text: string) => output.say(text);
  const deps = { system, log, say };
  // This command starts itself again in the namespaces, with a directory there.
  const directory = demo.insideDirectory(system);
  if (directory !== undefined) {
    showTimeline(await demo.playInside(directory, settings, deps), output);
    return 0;
  }
  // Root with --yes also gets the newest engine in place of an old one.
  const isRenewed = values.on("yes") && system.isRoot;
  const missing = await demo.planMissing(settings, isRenewed, system);
  const flags = [...(settings.json ? ["--json"] : []), ...(settings.verbose ? ["--verbose"] : [])];
  if (settings.dryRun) {
    output.plan([...missing, demo.planDemo(settings, flags, system)]);
    return 0;
  }
  if (missing.length > 0 || isRenewed) {
    if (!values.on("yes")) {
      output.say(`The demo needs more programs. With --yes it first does this:\n`);
      output.say(renderPlan(missing));
      throw new AppError("engine_missing", "The demo needs programs that are not installed", {
        hint: `Install them: ${brand.executable} demo --yes`,
      });
    }
    await demo.installMissing(settings, deps);
  } else {
    const { costOfEngine } = await import("../../node/enroll/provide-engine.ts");
    const cost = await costOfEngine(settings, system);
    if (cost !== undefined) log.warn(cost);
  }
  return demo.enterNamespaces(settings, flags, deps);
}

/** Durations in ms. */
type Timeline = {
  engineVersion: string;
  nodes: { name: string; address: string; registerMs: number }[];
  firstHandshakeMs: number;
  firstPingMs: number;
  revocationToLastPingMs: number;
};

function showTimeline(timeline: Timeline, output: Context["output"]): void {
  const { engineVersion, nodes, firstHandshakeMs, firstPingMs, revocationToLastPingMs } = timeline;
  output.result(
    {
      register_ms: Math.max(...nodes.map((node) => node.registerMs)),
      first_handshake_ms: firstHandshakeMs,
      first_ping_ms: firstPingMs,
      revocation_to_last_ping_ms: revocationToLastPingMs,
      engine_version: engineVersion,
      nodes: nodes.map(({ name, address, registerMs }) => ({
        name,
        ip_address: address,
        register_ms: registerMs,
      })),
    },
    timelineText(timeline),
  );
}

function timelineText(timeline: Timeline): string {
  const ms = (value: number) => `${String(value).padStart(6)} ms`;
  return [
    "",
    `${brand.title}, three nodes with engine ${timeline.engineVersion}`,
    ...timeline.nodes.map(
      (node) => `  register ${node.name.padEnd(26)}${ms(node.registerMs)}  ${node.address}`,
    ),
    `  engine start to first handshake    ${ms(timeline.firstHandshakeMs)}`,
    `  engine start to first ping         ${ms(timeline.firstPingMs)}`,
    `  revocation to last ping            ${ms(timeline.revocationToLastPingMs)}`,
    "The demo has removed everything that it created.",
    "",
  ].join("\n");
}
