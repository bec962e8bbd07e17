// Examines one organization: runs all its checks. Here are those of files and their modes, access, blocklist, port, relay and
// route; the others have files of their own.

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { hasMode } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import { isLinux } from "../../platform/network/kernel.ts";
import { installNft, nftProgram } from "../../platform/nftables.ts";
import { blocklistLimit, blocklistWarning } from "../../protocol/download.ts";
import { organizationDeleted } from "../../protocol/orders.ts";
import type { System } from "../../base/system.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { overlayNetworks } from "../files/granted/networks.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import { foreignFiles } from "../files/own-files.ts";
import { leaveDeleted, readRevokedNote } from "../files/revoked-notes.ts";
import { findEngine } from "../engine/find-engine.ts";
import { examinePort, readEnginePorts } from "../engine/ports.ts";
import { organizationDeps, type OrganizationSettings } from "../contact/organization-deps.ts";
import { examineConfiguration, remedyOfRefusal } from "./configuration.ts";
import { examineControlPlane, isSilent } from "./control-plane.ts";
import { examineEngineInUse, examineOffloads } from "./engine.ts";
import { examineCertificate, examineKeys, examineNodeCertificate } from "./certificates.ts";
import { examinePortMapping } from "./port-mapping.ts";
import { howToRegisterAgain } from "./register-again.ts";
import { fail, runCheck, ok, skipped, warn, type Check, type Finding } from "./check.ts";
import { canMeet } from "./can-meet.ts";
import { examinePermissions } from "./machine-use.ts";
import { examineTraffic, type ShownStatus } from "./traffic.ts";
import { readText } from "../../base/open-file.ts";

const run = brand.executable;
const sync = `${run} sync-config`;
type Deps = {
  settings: OrganizationSettings;
  system: System;
  log: Log;
  /** What `status` says of the organization; undefined if this user may not see it. */
  status: ShownStatus | undefined;
  /** The last lines of the engine's log; undefined if this user may not see them. */
  engineLog(organization: Organization): Promise<readonly string[] | undefined>;
};

export async function examineOrganization(slug: string, deps: Deps): Promise<Check[]> {
  let organization: Organization;
  try {
    organization = openOrganization(deps.settings.configRoot, slug);
  } catch (error) {
    return [await runCheck({ id: "files", slug }, () => Promise.reject(error))];
  }
  const hasEngine = findEngine(deps.settings, deps.system) !== undefined;
  const registerAgain = howToRegisterAgain(organization);
  const now = deps.system.now();
  const controlPlane = examineControlPlane(organization, deps);
  const isPlaneSilent = isSilent(controlPlane);
  // These are several checks. They begin now, and are listed last.
  const traffic = examineTraffic(organization, deps.status, deps.system, { hasEngine, isPlaneSilent });
  const [ofTraffic, ...checks] = await Promise.all([
    traffic,
    runCheck({ id: "files", slug }, () => examineFiles(organization)),
    runCheck({ id: "access", slug }, () => examineAccess(organization)),
    runCheck({ id: "keys", slug }, () => examineKeys(organization), { cure: registerAgain }),
    runCheck({ id: "certificate", slug }, () => examineCertificate(organization, now), { cure: sync }),
    runCheck({ id: "node-certificate", slug }, () => examineNodeCertificate(organization, now), {
      cure: `${sync}, else ${registerAgain}`,
    }),
    runCheck({ id: "configuration", slug }, () => examineConfiguration(organization, deps), {
      cure: remedyOfRefusal(organization),
    }),
    runCheck({ id: "permissions", slug }, () => examinePermissions(organization, deps.system)),
    runCheck({ id: "engine", slug }, () => examineEngineInUse(organization, deps)),
    runCheck({ id: "offloads", slug }, () => examineOffloads(organization, deps)),
    runCheck({ id: "blocklist", slug }, () => examineBlocklist(organization)),
    runCheck({ id: "port", slug }, () => examineListenPort(organization, deps)),
    runCheck({ id: "port-mapping", slug }, () =>
      examinePortMapping(organization, deps.status?.state === "running", deps.system),
    ),
    runCheck({ id: "route", slug }, () => examineRoute(organization, deps)),
    runCheck({ id: "relay-traffic", slug }, () => examineRelayTraffic(organization, deps.system)),
    runCheck({ id: "meeting", slug }, async () =>
      canMeet(organization, await deps.engineLog(organization), now),
    ),
    runCheck({ id: "control-plane", slug }, () => controlPlane),
  ]);
  return [...checks, ...ofTraffic];
}

const expectedModes: Record<string, number> = {
  "host.key": 0o600,
  "node.key": 0o600,
  "credentials.json": 0o600,
  "config.yml": 0o644,
  "ca.crt": 0o644,
  "host.crt": 0o644,
  "node.crt": 0o644,
  "node-config.json": 0o644,
};

/** Only a registration makes them: no check-in brings them back. */
const madeAtRegistration = ["host.key", "node.key", "credentials.json"];

export function examineFiles(organization: Organization): Finding {
  const { directory } = organization;
  const foreign = foreignFiles(directory).map(({ why, remedy }) => ({ text: why, remedy }));
  const modes = Object.entries(expectedModes).flatMap(([name, mode]) => {
    const stat = statSync(join(directory, name), { throwIfNoEntry: false });
    if (stat === undefined) return [{ text: `${name} is missing`, remedy: sync }];
    if (hasMode(join(directory, name), mode)) return [];
    const found = stat.mode & 0o777;
    const remedy = `chmod ${mode.toString(8)} ${quoteWord(join(directory, name))}`;
    return [{ text: `${name} has mode 0${found.toString(8)}, not 0${mode.toString(8)}`, remedy }];
  });
  const wrong = [...foreign, ...modes];
  if (wrong.length === 0) return ok(`all files are in ${directory}`);
  const isKeyLost = madeAtRegistration.some((name) => !existsSync(join(directory, name)));
  // A registration writes all files again.
  const remedies = isKeyLost ? [howToRegisterAgain(organization)] : wrong.map(({ remedy }) => remedy);
  return fail(wrong.map(({ text }) => text).join("; "), [...new Set(remedies)].join(" && "));
}

function examineAccess({ directory, slug }: Organization): Finding {
  const note = readRevokedNote(directory);
  return note === undefined
    ? ok("access was not revoked")
    : fail(
        `revoked at ${note.revoked_at}: ${note.reason}`,
        note.reason === organizationDeleted
          ? leaveDeleted(slug)
          : "Ask the organization's administrator to restore this node",
      );
}

/** Whether the blocklist stays short enough for the engine: else later revocations would not reach this node. */
export function examineBlocklist(organization: Pick<Organization, "directory" | "slug">): Finding {
  const entries = readSettings(organization).pki?.blocklist?.length ?? 0;
  const evidence = `${entries} of at most ${blocklistLimit} entries`;
  if (entries < blocklistWarning) return ok(evidence);
  const remedy = `Ask the organization's administrator to rotate the CA, which empties the list: ${run} admin ca rotate ${organization.slug}`;
  return warn(evidence, remedy);
}

async function examineListenPort({ slug, directory }: Organization, { settings }: Deps): Promise<Finding> {
  const engines = readEnginePorts(settings.configRoot);
  const number = engines.find((engine) => engine.slug === slug)?.port ?? 0;
  if (number === 0) return ok("the engine uses any free UDP port");
  const states = await examinePort(number, engines);
  const taken = states.find(({ available }) => !available);
  if (taken !== undefined) {
    const remedy = `Stop that program, or set listen.port in ${join(directory, "overrides.yml")} and run: ${run} sync-config`;
    return fail(`UDP ${number} (${taken.family}): ${taken.reason ?? "it is not available"}`, remedy);
  }
  return ok(
    states.some(({ process }) => process !== undefined)
      ? `our own engine uses UDP ${number}`
      : `UDP ${number} is free`,
  );
}

/** Whether this relay counts what it forwards, so that the control plane can pause it at its monthly limit. */
function examineRelayTraffic({ config }: Organization, system: System): Finding {
  if (!config.is_relay) return ok("this node is no relay");
  const nft = nftProgram(system);
  if (nft !== undefined) return ok(`${nft} counts what this relay forwards for other nodes`);
  const evidence = "what this relay forwards is not counted, so a monthly limit does not pause it";
  return isLinux(system)
    ? warn(`${evidence}: there is no program nft`, installNft)
    : skipped(`${evidence}: only Linux counts`);
}

/** Whether the overlay's network is routed through its own interface: another VPN or engine could take the route over. */
async function examineRoute(organization: Organization, deps: Deps): Promise<Finding> {
  if (!isLinux(deps.system)) return skipped("checked only on Linux");
  const network = overlayNetworks(organization.directory).find((overlay) => overlay.includes("."));
  if (network === undefined) return skipped("the organization has no IPv4 network");
  const device = readSettings(organization).tun?.dev ?? "";
  const { routes } = await deps.system.machineState();
  const devices = routes.filter((found) => found.network === network).map((found) => found.device);
  const foreign = devices.find((name) => name !== device);
  if (foreign !== undefined)
    return fail(
      `${network} is routed through ${foreign}`,
      `Disable ${foreign}, then run: ${run} restart ${organization.slug}`,
    );
  if (devices.length > 0) return ok(`${network} is routed through ${device}`);
  return (await isRunning(organization, deps))
    ? fail(`the engine runs, but ${network} has no route`, `${run} restart ${organization.slug}`)
    : ok(`no other interface has a route to ${network}`);
}

function isRunning(organization: Organization, { settings, system, log }: Deps): Promise<boolean> {
  return organizationDeps(organization, "", { settings, system, log }).control.running();
}

/** The keys of config.yml that are compared with the machine. */
const Settings = v.object({
  tun: v.optional(v.object({ dev: v.optional(v.string()) })),
  pki: v.optional(v.object({ blocklist: v.optional(v.array(v.unknown())) })),
});

function readSettings({ directory }: Pick<Organization, "directory">): v.InferOutput<typeof Settings> {
  return v.parse(Settings, readOwnYaml(readText(join(directory, "config.yml")), "config.yml"));
}
