// `agent check-port`: whether UDP ports are free, which process holds them, and whether they are reachable from outside.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { EnginePort, PortState } from "../../node/engine/ports.ts";
import type { ProbeResult } from "../../node/contact/requests/probe-port.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Context, Implementation } from "../command.ts";
import { valueFlag, wordArg } from "../values.ts";

export const command: Implementation = {
  notes:
    "Without a port, it checks the ports of the registered organizations, or 4242 if there is none. A port that our own\n" +
    "engine holds counts as available. Exit status 1 if a port is not available or not reachable from outside.",
  args: {
    PORT: wordArg("A port, a list or a range: 4242 4300,4301 5000-5003", { required: false, many: true }),
    "api-base": valueFlag(
      "URL",
      "Let this control plane test the ports from outside; this machine must be registered with it",
    ),
  },
  examples: [
    `${brand.executable} check-port`,
    `${brand.executable} check-port 4242 5000-5003`,
    `${brand.executable} check-port 4242 --api-base https://control.example.com`,
  ],
  async run(context) {
    const { settings, words, values, output } = context;
    const { examinePort, parsePorts, readEnginePorts } = await import("../../node/engine/ports.ts");
    const engines = readEnginePorts(settings.configRoot);
    const ports = words.length > 0 ? parsePorts(words) : await portsOf(engines);
    const apiBase = values.text("api-base");
    if (settings.dryRun) {
      output.plan(apiBase === undefined ? [] : await planProbes(ports, apiBase, context));
      return 0;
    }
    const states: PortState[] = [];
    for (const port of ports) states.push(...(await examinePort(port, engines)));
    const probes = apiBase === undefined ? [] : await probePorts(ports, states, apiBase, context);
    output.result(
      { ports: states, ...(apiBase === undefined ? {} : { probes }) },
      [...states.map(renderState), ...probes.map(renderProbe)].join(""),
    );
    const isFine = states.every(({ available }) => available);
    return isFine && probes.every(({ reachable }) => reachable !== false) ? 0 : 1;
  },
};

/** The ports of the registered organizations; a port of 0 is chosen at the start of the engine. */
async function portsOf(engines: readonly EnginePort[]): Promise<number[]> {
  const { defaultOverlayPort } = await import("../../api/values.ts");
  const fixed = engines.map(({ port }) => port).filter((port) => port > 0);
  return fixed.length > 0 ? [...new Set(fixed)] : [defaultOverlayPort];
}

/** The organization of that control plane: only a check-in can ask for a probe. */
async function organizationAt(apiBase: string, { settings, output }: Context) {
  const { chooseOrganizations, readCredentials } = await import("../../node/files/organizations.ts");
  const { checkBase } = await import("../../node/contact/requests/client.ts");
  // `true`: http:// is allowed, because the URL is only compared.
  const base = checkBase(apiBase, true);
  const found = chooseOrganizations(settings.configRoot, undefined, output.say).find(
    ({ directory }) => checkBase(readCredentials(directory).api_base, true) === base,
  );
  if (found !== undefined) return found;
  throw new AppError("not_registered", `This machine is not registered with the control plane at ${base}`, {
    hint: "Only a registered machine can ask for a test from outside. Run `agent register` first.",
  });
}

async function planProbes(ports: readonly number[], apiBase: string, context: Context) {
  const { planCheckin } = await import("../../node/contact/follow-plan.ts");
  const step = planCheckin(await organizationAt(apiBase, context));
  return ports.map(() => step);
}

/** Lets the control plane test the ports that are free, or held by an engine of ours. */
async function probePorts(
  ports: readonly number[],
  states: readonly PortState[],
  apiBase: string,
  context: Context,
): Promise<ProbeResult[]> {
  const { maxProbes, probePort } = await import("../../node/contact/requests/probe-port.ts");
  if (ports.length > maxProbes) {
    throw new AppError(
      "usage",
      `Too many ports: --api-base tests at most ${maxProbes} at once, not ${ports.length}`,
    );
  }
  const organization = await organizationAt(apiBase, context);
  const ask = await makeAsk(organization, context);
  const results: ProbeResult[] = [];
  for (const port of ports) {
    const holders = states.filter((state) => state.port === port);
    if (holders.some(({ available }) => !available)) {
      results.push({ port, reachable: null, reason: "the port is not available" });
      continue;
    }
    // A port that a process holds counts as available only if the process is our engine.
    const isHeldByEngine = holders.some(({ process }) => process !== undefined);
    results.push(await probePort({ port, isHeldByEngine }, ask, context.system));
  }
  return results;
}

/** Lets the control plane test a port that the engine of this organization holds. */
export async function probeForOrganization(
  organization: Organization,
  port: number,
  context: Context,
): Promise<ProbeResult> {
  const { probePort } = await import("../../node/contact/requests/probe-port.ts");
  const ask = await makeAsk(organization, context);
  return probePort({ port, isHeldByEngine: true }, ask, context.system);
}

/** How a check-in asks the control plane for a test. */
async function makeAsk(organization: Organization, context: Context) {
  const { checkIn, reportOf } = await import("../../node/contact/checkin.ts");
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const deps = organizationDeps(organization, `${brand.executable} check-port`, context);
  const report = reportOf(await deps.engine());
  return (question: { port: number; nonce: string }) =>
    deps.withClient((client) => checkIn(organization, client, report, { probe: question }));
}

function renderState({ port, family, available, reason }: PortState): string {
  const verdict = available ? "available" : "not available";
  return `UDP ${port} ${family === "ipv4" ? "IPv4" : "IPv6"}: ${verdict}${reason === undefined ? "" : `, ${reason}`}\n`;
}

function renderProbe({ port, reachable, reason }: ProbeResult): string {
  if (reachable === true) return `UDP ${port}: reachable from the control plane\n`;
  if (reachable === null) return `UDP ${port}: unknown whether it is reachable, ${reason ?? ""}\n`;
  return `UDP ${port}: NOT reachable, ${reason ?? ""}. Open the port in the firewall, or forward it in the router.\n`;
}
