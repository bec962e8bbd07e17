// `agent doctor`: finds problems on this machine, with evidence and remedy. It changes nothing without --fix.

import { brand, rootServerDirectory } from "../../brand.ts";
import { daemonAddress } from "./daemon-address.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Check } from "../../node/doctor/check.ts";
import type { Context, Implementation } from "../command.ts";
import { switchFlag, valueFlag } from "../values.ts";

const logLines = 500;
/** Wait until services that --fix started are running. */
const startsWithinMs = 15_000;

export const command: Implementation = {
  notes:
    "Exit status 1 if a check fails. It changes nothing without --fix, and only asks the control planes for the time, and whether they are ready.",
  args: {
    fix: switchFlag(
      "First bring back a missing engine and the services of the organizations that should run",
    ),
    bundle: valueFlag("FILE", "Write a report without secrets to this .tar.gz file"),
  },
  examples: [
    `${brand.executable} doctor`,
    `${brand.executable} doctor --fix`,
    `${brand.executable} doctor --bundle report.tar.gz`,
  ],
  async run(context) {
    const { settings, values, output } = context;
    const { recordRequests } = await import("../../base/plan/plan-requests.ts");
    // The checks run with --dry-run, too: the plan of --bundle then names the requests that they have sent.
    const { system, requests } = recordRequests(context.system);
    const bundle = values.text("bundle");
    if (bundle !== undefined) {
      const { requireFreePlace } = await import("../../base/files.ts");
      requireFreePlace(bundle, "file");
    }
    const { listOrganizations } = await import("../../node/files/list-organizations.ts");
    const { renderChecks } = await import("../../node/doctor/check.ts");
    if (values.on("fix")) {
      if (settings.dryRun) return planFix(context);
      await fix(context);
    }
    const slugs = listOrganizations(settings.configRoot);
    const checks = await examine(slugs, { ...context, system });
    const isOk = checks.every(({ verdict }) => verdict !== "fail");
    if (bundle !== undefined && settings.dryRun) {
      const { planReplaced } = await import("../../base/plan/plan-file.ts");
      output.plan([...requests(), planReplaced(bundle, 0o600)]);
      return 0;
    }
    if (bundle !== undefined) await pack(bundle, checks, slugs, context);
    output.result({ ok: isOk, checks }, renderChecks(checks));
    return isOk ? 0 : 1;
  },
};

/** All checks: of the machine, of the daemon, of each organization, and of what organizations share. */
async function examine(slugs: readonly string[], context: Context) {
  const { settings, system, log } = context;
  const { examineMachine } = await import("../../node/doctor/machine.ts");
  const { examineOrganization } = await import("../../node/doctor/organization.ts");
  const { observe, examineDaemon } = await import("../../daemon/asking/doctor-checks.ts");
  const places = { ...settings, address: daemonAddress(settings) };
  const report = slugs.length === 0 ? undefined : await observe(places, system);
  const { followLog } = await import("../../daemon/asking/read-logs.ts");
  const engineLog = async ({ slug, directory, config: { mode } }: Organization) => {
    const lines: string[] = [];
    const request = { slug, directory, mode, lines: logLines, follow: false };
    return followLog(request, places.address, system, (line) => lines.push(line)).then(
      () => lines,
      () => undefined,
    );
  };
  // In the daemon's answers, an organization is a "team".
  const statusOf = (slug: string) => report?.teams.find(({ team }) => team === slug);
  const groups = await Promise.all([
    examineMachine(settings, await controlPlaneData(), system),
    examineDaemon(slugs, report, system),
    ...slugs.map((slug) =>
      examineOrganization(slug, { settings, system, log, engineLog, status: statusOf(slug) }),
    ),
    examineCollisions(slugs, context),
  ]);
  return groups.flat();
}

/** Where a control plane of this machine has its data, by the settings of its service. */
async function controlPlaneData(): Promise<string> {
  const { controlSettingsPath } = await import("../../platform/systemd/control-unit.ts");
  const { readTextIfThere } = await import("../../base/files.ts");
  const { parseSettings } = await import("../settings-file.ts");
  try {
    const named = parseSettings(readTextIfThere(controlSettingsPath) ?? "", controlSettingsPath)["data-dir"];
    return typeof named === "string" ? named : rootServerDirectory;
  } catch {
    // The service itself says what is wrong with its settings.
    return rootServerDirectory;
  }
}

/** Harmless repairs only: each service is installed as at the registration, and a stopped one stays stopped. */
async function fix({ settings, system, log }: Context): Promise<void> {
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  const { readModes } = await import("../../node/enroll/services.ts");
  const { provideEngine } = await import("../../node/enroll/provide-engine.ts");
  const { bringServices } = await import("../../node/enroll/provision-services.ts");
  const organizations = readModes(settings.configRoot);
  if (organizations.length === 0) return;
  requireRoot(system);
  await provideEngine(settings, { system, log });
  await bringServices(organizations, settings, system);
  const { observe } = await import("../../daemon/asking/doctor-checks.ts");
  const places = { ...settings, address: daemonAddress(settings) };
  const end = system.monotonic() + startsWithinMs;
  for (;;) {
    const report = await observe(places, system);
    if (report?.teams.some(({ state }) => state === "starting") !== true || system.monotonic() > end) return;
    await system.sleep(300);
  }
}

async function planFix({ settings, system, output }: Context): Promise<number> {
  const { readModes } = await import("../../node/enroll/services.ts");
  const { planBringing } = await import("../../node/enroll/provision-services.ts");
  const { planProvision } = await import("../../node/enroll/provide-engine.ts");
  const organizations = readModes(settings.configRoot);
  const engine = organizations.length === 0 ? [] : await planProvision(settings, system);
  output.plan([...engine, ...planBringing(organizations, settings, system)]);
  return 0;
}

/** Two organizations that use the same interface, port or network cannot run at the same time. */
async function examineCollisions(slugs: readonly string[], { settings }: Context): Promise<Check[]> {
  const { runCheck, ok } = await import("../../node/doctor/check.ts");
  const { readClaim, refuseCollision } = await import("../../daemon/collisions.ts");
  const { overlayNetworks } = await import("../../node/files/granted/networks.ts");
  const { readTextIfThere } = await import("../../base/files.ts");
  const { join } = await import("node:path");
  const examined = await runCheck({ id: "collisions" }, () => {
    const claims = slugs.flatMap((slug) => {
      const directory = join(settings.configRoot, slug);
      try {
        const text = readTextIfThere(join(directory, "config.yml"));
        return text === undefined ? [] : [readClaim(slug, text, overlayNetworks(directory))];
      } catch {
        // The checks of that organization say what is damaged.
        return [];
      }
    });
    // Throws for the first two that collide.
    claims.forEach((claim, at) => refuseCollision(claim, claims.slice(0, at)));
    return ok(
      slugs.length < 2 ? "fewer than two organizations" : "all organizations can run at the same time",
    );
  });
  return [examined];
}

/** Writes the bundle, and says what is in it. */
async function pack(
  path: string,
  checks: readonly Check[],
  slugs: readonly string[],
  { settings, output }: Context,
): Promise<void> {
  const { writeBundle } = await import("../../node/doctor/bundle.ts");
  const { logPath } = await import("../../daemon/engine-logs.ts");
  const { dirname } = await import("node:path");
  const logOf = (slug: string) => logPath(dirname(settings.stateDb), slug);
  const names = await writeBundle(path, checks, slugs, { configRoot: settings.configRoot, logOf });
  output.say(`${path} holds ${names.join(", ")}. Check it before you send it.`);
}
