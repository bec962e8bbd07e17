// Examines one organization: files and their modes, keys and certificates, configuration, port, route, and whether the
// control plane answers and its time agrees with this machine's.

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { describeLeftOut, wholeConfiguration } from "../../engine/left-out.ts";
import { describeSeal } from "../../engine/seal-seen.ts";
import { formatTime } from "../../base/quantities.ts";
import { hasMode, readTextIfThere } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import { isLinux } from "../../platform/network/kernel.ts";
import { installNft, nftProgram } from "../../platform/nftables.ts";
import { isHostKey, publicOfHostKey } from "../../pki/keys.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { decodeCaBundle, verifyCertificate } from "../../pki/nebula.ts";
import { blocklistLimit, blocklistWarning } from "../../protocol/download.ts";
import { organizationDeleted } from "../../protocol/orders.ts";
import type { System } from "../../base/system.ts";
import { finishConfig, hasLocalApi } from "../files/config/config-file.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { testConfig } from "../engine/engine.ts";
import { unresolved } from "../files/granted/host-names.ts";
import { withoutNames } from "../files/granted/unresolved-names.ts";
import { overlayNetworks } from "../files/granted/networks.ts";
import { generationFile, readSyncState } from "../files/generations.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import { readSealSeen } from "../files/organization-facts.ts";
import { foreignFiles } from "../files/own-files.ts";
import { leaveDeleted, readRevokedNote } from "../files/revoked-notes.ts";
import { findEngine } from "../engine/overlay.ts";
import { setClock } from "../health/findings.ts";
import { examinePort, readEnginePorts } from "../engine/ports.ts";
import { readSent } from "../files/config/sent-config.ts";
import { organizationDeps, type OrganizationSettings } from "../contact/organization-deps.ts";
import { controlPlane, isSilent } from "./control-plane.ts";
import { engineInUse, offloads } from "./engine.ts";
import { portMapping } from "./port-mapping.ts";
import { fail, runCheck, ok, skipped, warn, type Check, type Finding } from "./check.ts";
import { meeting } from "./can-meet.ts";
import { controlPlaneOf, type KnownControlPlane } from "../files/granted/control-planes.ts";
import { leftOutFinding, permissions, placeOf } from "./machine-use.ts";
import { examineTraffic, type ShownStatus } from "./traffic.ts";
import { readText } from "../../base/open-file.ts";

const run = brand.executable;
const sync = `${run} sync-config`;
const askSigner =
  "Ask a signer of the organization whether that change is theirs: the next seal should have it, or the change should go";

const dayS = 86_400;

type Deps = {
  settings: OrganizationSettings;
  system: System;
  log: Log;
  /** What `status` says of the organization; undefined if this user may not see it. */
  seen: ShownStatus | undefined;
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
  const howToRegister = registerAgain(organization);
  const planeCheck = controlPlane(organization, deps);
  const isPlaneSilent = isSilent(planeCheck);
  const traffic = examineTraffic(organization, deps.seen, deps.system, { hasEngine, isPlaneSilent });
  const checks = await Promise.all([
    runCheck({ id: "files", slug }, () => files(organization)),
    runCheck({ id: "access", slug }, () => access(organization)),
    runCheck({ id: "keys", slug }, () => keys(organization), { cure: howToRegister }),
    runCheck({ id: "certificate", slug }, () => certificate(organization, deps.system.now()), { cure: sync }),
    runCheck({ id: "node-certificate", slug }, () => nodeCertificate(organization, deps.system.now()), {
      cure: `${sync}, else ${howToRegister}`,
    }),
    runCheck({ id: "configuration", slug }, () => configuration(organization, deps), {
      cure: remedyOfRefusal(organization),
    }),
    runCheck({ id: "permissions", slug }, () => permissions(organization, deps.system)),
    runCheck({ id: "engine", slug }, () => engineInUse(organization, deps)),
    runCheck({ id: "offloads", slug }, () => offloads(organization, deps)),
    runCheck({ id: "blocklist", slug }, () => blocklist(organization)),
    runCheck({ id: "port", slug }, () => port(organization, deps)),
    runCheck({ id: "port-mapping", slug }, () => portMapping(organization)),
    runCheck({ id: "route", slug }, () => route(organization, deps)),
    runCheck({ id: "relay-traffic", slug }, () => relayTraffic(organization, deps.system)),
    runCheck({ id: "meeting", slug }, async () =>
      meeting(organization, await deps.engineLog(organization), deps.system.now()),
    ),
    runCheck({ id: "control-plane", slug }, () => planeCheck),
  ]);
  return [...checks, ...(await traffic)];
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

/** Made once, on this machine: no check-in brings them. */
const madeAtRegistration = ["host.key", "node.key", "credentials.json"];

export function files(organization: Organization): Finding {
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
  // A registration writes all files anew.
  const remedies = isKeyLost ? [registerAgain(organization)] : wrong.map(({ remedy }) => remedy);
  return fail(wrong.map(({ text }) => text).join("; "), [...new Set(remedies)].join(" && "));
}

function access({ directory, slug }: Organization): Finding {
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

function keys(organization: Organization): Finding {
  const { directory } = organization;
  const pem = text(directory, "host.key");
  if (pem.trim() === "") return fail("host.key is empty", registerAgain(organization));
  const key = publicOfHostKey(pem);
  const matches = decodeBundle(text(directory, "host.crt")).every(({ publicKey }) =>
    Buffer.from(publicKey).equals(key),
  );
  return matches
    ? ok("host.key belongs to host.crt")
    : fail("host.key does not belong to host.crt", registerAgain(organization));
}

/** The control plane signs certificates that are valid at once, so only the clock can be wrong. */
function isClockBehind(directory: string, now: number): boolean {
  const all = [...decodeCaBundle(text(directory, "ca.crt")), ...decodeBundle(text(directory, "host.crt"))];
  return all.some(({ notBefore }) => notBefore > now / 1000);
}

function certificate({ directory, config }: Organization, now: number): Finding {
  const cas = decodeCaBundle(text(directory, "ca.crt"));
  const hosts = decodeBundle(text(directory, "host.crt"));
  if (isClockBehind(directory, now))
    return fail(
      `not valid yet, as this machine's clock says ${formatTime(now)}: the clock is wrong`,
      setClock,
    );
  for (const host of hosts) verifyCertificate(host, cas, Math.floor(now / 1000));
  const end = Math.min(...hosts.map(({ notAfter }) => notAfter));
  const days = Math.floor((end - now / 1000) / dayS);
  const evidence = `valid until ${formatTime(end * 1000)}, ${days} days left`;
  return days >= 14 || (config.ephemeral === true && days >= 0) ? ok(evidence) : warn(evidence, sync);
}

async function nodeCertificate({ directory, config, slug }: Organization, now: number): Promise<Finding> {
  const pem = readTextIfThere(join(directory, "node.crt"));
  if (pem === undefined) return skipped("there is no node.crt");
  if (isClockBehind(directory, now)) return skipped("not examined: the clock of this machine is wrong");
  const { verifyNodeX509 } = await import("../../pki/x509.ts");
  const privateKeyPem = readText(join(directory, "node.key"));
  const { name, ip_address: address } = config;
  verifyNodeX509({ pem, privateKeyPem, name, organization: slug, address, now });
  return ok("node.crt belongs to node.key and is valid");
}

/**
 * The order matters, because each finding explains the later ones: refused as a whole, then not applied yet, then settings
 * left out, then the seal, then names, then the engine's own test.
 */
async function configuration(
  { directory, slug }: Organization,
  { settings, system }: Deps,
): Promise<Finding> {
  const path = join(directory, "config.yml");
  const source = readTextIfThere(generationFile(directory, "server.yml"));
  const state = readSyncState(directory);
  const names = state?.host_names;
  if (source !== undefined) {
    const place = await placeOf({ directory, slug }, system);
    const sent = readSent(source, place);
    const { config, leftOut: nameless } = withoutNames(sent.config, state?.unresolved);
    const leftOut = [...sent.leftOut, ...nameless];
    const whole = state?.left_out?.find(({ key }) => key === wholeConfiguration);
    if (whole !== undefined) {
      const own = join(directory, "overrides.yml");
      const isOwn = whole.reason.includes(own);
      return warn(describeLeftOut([whole]), isOwn ? `Correct ${own}, then run: ${sync}` : sync);
    }
    const present = text(directory, "config.yml");
    const localApi = hasLocalApi(present, directory);
    if (finishConfig(config, directory, { names, localApi, dataPlane: state?.data_plane }) !== present)
      return warn("overrides.yml or the permissions were changed but are not applied yet", sync);
    if (leftOut.length > 0) return leftOutFinding({ directory, slug }, leftOut, place);
    const seal = readSealSeen(directory, state);
    if (seal !== undefined && seal.objections.length > 0) return warn(describeSeal(seal), askSigner);
  }
  const unknown = unresolved(names);
  if (unknown.length > 0) {
    const remedy = `Correct this machine's name server or the public address of that node, then run: ${sync}`;
    return warn(`cannot resolve ${unknown.join(", ")}: config.yml does not contain the address`, remedy);
  }
  const engine = findEngine(settings, system);
  if (engine === undefined) return skipped("no engine is installed to test it");
  // A damaged key fails the engine's test of any configuration, and has its own check.
  if (!isHostKey(text(directory, "host.key"))) return skipped("not tested: host.key is damaged");
  await testConfig(engine.path, path, system);
  return ok(`the engine accepts ${path}`);
}

function remedyOfRefusal({ directory }: Organization): string {
  const own = join(directory, "overrides.yml");
  return existsSync(own) ? `Correct ${own}, then run: ${sync}` : sync;
}

/** The same node again, with new keys: an administrator revokes those that it has. */
function registerAgain({ slug, directory, config }: Organization): string {
  const { apiBase = "URL", caFingerprint } = knownControlPlane(directory);
  const pin = caFingerprint === undefined ? "" : ` --ca-fingerprint ${caFingerprint}`;
  const plain = apiBase.startsWith("http:") ? " --allow-plain-http" : "";
  const node = `${quoteWord(slug)} ${quoteWord(config.name)}`;
  const where = `--api-base ${quoteWord(apiBase)}${pin}${plain} --org-slug ${quoteWord(slug)}`;
  return `${run} register --force ${where} --registration-token-file FILE, with a token that an administrator makes: ${run} admin node revoke ${node} && ${run} admin token create ${quoteWord(slug)} --node ${quoteWord(config.name)}`;
}

/** Empty if its files cannot be read: another check reports that. */
function knownControlPlane(directory: string): Partial<KnownControlPlane> {
  try {
    return controlPlaneOf(directory) ?? {};
  } catch {
    return {};
  }
}

/** If the list becomes too long for the engine, later revocations do not reach this node. */
export function blocklist(organization: Pick<Organization, "directory" | "slug">): Finding {
  const entries = readSettings(organization).pki?.blocklist?.length ?? 0;
  const evidence = `${entries} of at most ${blocklistLimit} entries`;
  if (entries < blocklistWarning) return ok(evidence);
  const remedy = `Ask the organization's administrator to rotate the CA, which empties the list: ${run} admin ca rotate ${organization.slug}`;
  return warn(evidence, remedy);
}

async function port({ slug, directory }: Organization, { settings }: Deps): Promise<Finding> {
  const engines = readEnginePorts(settings.configRoot);
  const number = engines.find((each) => each.slug === slug)?.port ?? 0;
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

/** Without a count, the control plane cannot pause the relay at its monthly limit. */
function relayTraffic({ config }: Organization, system: System): Finding {
  if (!config.is_relay) return ok("this node is no relay");
  const nft = nftProgram(system);
  if (nft !== undefined) return ok(`${nft} counts what this relay forwards for other nodes`);
  const evidence = "what this relay forwards is not counted, so a monthly limit does not pause it";
  return isLinux(system)
    ? warn(`${evidence}: there is no program nft`, installNft)
    : skipped(`${evidence}: only Linux counts`);
}

/** Another VPN or a second engine can take the network's route, and all traffic with it. */
async function route(organization: Organization, deps: Deps): Promise<Finding> {
  if (!isLinux(deps.system)) return skipped("checked only on Linux");
  const network = overlayNetworks(organization.directory).find((each) => each.includes("."));
  if (network === undefined) return skipped("the organization has no IPv4 network");
  const device = readSettings(organization).tun?.dev ?? "";
  const { routes } = await deps.system.machineState();
  const found = routes.filter((each) => each.network === network).map((each) => each.device);
  const foreign = found.find((name) => name !== device);
  if (foreign !== undefined)
    return fail(
      `${network} is routed through ${foreign}`,
      `Disable ${foreign}, then run: ${run} restart ${organization.slug}`,
    );
  if (found.length > 0) return ok(`${network} is routed through ${device}`);
  return (await isRunning(organization, deps))
    ? fail(`the engine runs, but ${network} has no route`, `${run} restart ${organization.slug}`)
    : ok(`no other interface has a route to ${network}`);
}

function isRunning(organization: Organization, { settings, system, log }: Deps): Promise<boolean> {
  return organizationDeps(organization, settings, { system, log, command: "" }).control.running();
}

/** The keys of config.yml that are compared with the machine. */
const Settings = v.object({
  tun: v.optional(v.object({ dev: v.optional(v.string()) })),
  pki: v.optional(v.object({ blocklist: v.optional(v.array(v.unknown())) })),
});

function readSettings({ directory }: Pick<Organization, "directory">): v.InferOutput<typeof Settings> {
  return v.parse(Settings, readOwnYaml(text(directory, "config.yml"), "config.yml"));
}

function text(directory: string, name: string): string {
  return readText(join(directory, name));
}
