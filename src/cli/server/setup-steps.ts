// Carries out `agent setup`: the service first, then the administrator, the organization, the lighthouse on this machine,
// and join keys. Each step looks first and changes only what is missing, so that the command can be run again.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import { secondLighthouse } from "../../protocol/second-lighthouse.ts";
import type { Installer } from "../../api/releases.ts";
import type { Admin } from "../../server/admin.ts";
import type { HubAtName } from "../../server/setup.ts";
import { sayProgress, type Context } from "../command.ts";
import type { Joined } from "../join/examine-joined.ts";
import { lighthouseStep, makeLighthouse, planLighthouse, publicHost } from "./setup-lighthouse.ts";
import { installerLines, planRelease, provideRelease, readInstaller } from "./setup-release.ts";
import type { SetupRequest } from "./setup-request.ts";
import { install, installationChanges, requireServiceManager, requireUsable } from "./setup-service.ts";

/** The plan of setUp. */
export async function planSetup(request: SetupRequest, context: Context): Promise<Step[]> {
  const { system } = context;
  // No plan for a run that fails. Root alone can carry it out, but everybody may read it.
  await requireServiceManager(system);
  const { planData } = await import("../../server/store/data-directory.ts");
  const { planChanges } = await import("../../platform/machine-changes.ts");
  const { org, dataDirectory, administrator, machines } = request;
  const lighthouse = await lighthouseStep(request, context);
  const isWritten = administrator !== undefined || machines > 0 || lighthouse === "join";
  const data = isWritten ? planData({ dataDirectory }, system) : [];
  return [
    ...planChanges(await installationChanges(request, context)),
    ...(await planRelease(request, context)),
    ...data,
    ...(org === undefined || lighthouse === undefined
      ? []
      : await planLighthouse(lighthouse, request, org.slug, context)),
  ];
}

/** Returns the exit status, 0. Each step throws what stops it; the next run goes on there. */
export async function setUp(request: SetupRequest, context: Context): Promise<number> {
  const { output, system } = context;
  await requireUsable(request, context);
  const onData = <T>(work: (admin: Admin) => Promise<T>) => withData(request, context, work);
  const { hubsAt, makeAdministrator, makeJoinKey, makeOrganization, readSetup } =
    await import("../../server/setup.ts");
  const slug = request.org?.slug;
  const { administrator, email } = request;
  // First: a server without users prints a link that makes one into its journal.
  if (administrator !== undefined) {
    const password = administrator.password ?? Buffer.from(system.random(32)).toString("base64url");
    await onData((admin) => makeAdministrator(admin, { email: administrator.email, password }));
  }
  sayProgress("Installing the service", context);
  await install(request, context);
  await provideRelease(request, context);
  const { organization, caFingerprint } = await onData(async (admin) => {
    const { org } = await readSetup(admin, slug);
    const wanted = request.org;
    const organization = org ?? (wanted && (await makeOrganization(admin, { ...wanted, email })));
    return { organization, caFingerprint: admin.caFingerprint };
  });
  const joined = await makeLighthouse(request, context, organization, (org) =>
    onData((admin) => makeJoinKey(admin, org, "lighthouse")),
  );
  const makeKeys = async (admin: Admin, org: { id: number; slug: string }) => {
    const keys: string[] = [];
    while (keys.length < request.machines) keys.push(await makeJoinKey(admin, org, "node"));
    return keys;
  };
  const keys = organization === undefined ? [] : await onData((admin) => makeKeys(admin, organization));
  const installer = keys.length === 0 ? undefined : await readInstaller(request, caFingerprint, context);
  const host = publicHost(request);
  await warnOfHubs(await onData((admin) => hubsAt(admin, host)), host, context);
  const { controlUnit } = await import("../../platform/systemd/control-unit.ts");
  output.result(
    {
      url: request.publicUrl,
      ...given({ ca_fingerprint: caFingerprint }),
      unit: controlUnit,
      org_slug: slug ?? null,
      lighthouse: joined?.object ?? null,
      install_command: installer?.command ?? null,
      join_keys: keys,
    },
    summary(request, { unit: controlUnit, joined, keys, caFingerprint, installer }),
  );
  return 0;
}

/** After a move of the control plane, nodes that start again look here for lighthouses that stayed where they were. */
async function warnOfHubs(
  hubs: readonly HubAtName[],
  host: string,
  { settings, log }: Pick<Context, "settings" | "log">,
): Promise<void> {
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  for (const { id, name, slug } of hubs) {
    if (salvageOrganization(settings.configRoot, slug).nodeId === id) continue;
    const line = `${brand.executable} admin node update ${quoteWord(slug)} ${quoteWord(name)} --public-ip ADDRESS`;
    log.warn(
      `Nodes of ${slug} look for ${name} at ${host}, the name of this control plane, and this machine is not ${name}`,
      {
        hint: `Unless ${host} forwards its UDP port to ${name}, give it the address of its own machine: \`${line}\`.`,
      },
    );
  }
}

/**
 * The next steps for the administrator. `newcomer`: an administrator who exists, and has not signed in yet. `counted`: the nodes and
 * lighthouses that the organization has.
 */
export function summary(
  request: Pick<SetupRequest, "publicUrl" | "administrator" | "newcomer" | "org" | "counted">,
  {
    unit,
    joined,
    keys,
    caFingerprint,
    installer,
  }: {
    unit: string;
    joined: Joined | undefined;
    keys: readonly string[];
    caFingerprint: string | undefined;
    installer?: Installer | undefined;
  },
): string {
  const { publicUrl, administrator, newcomer, org, counted } = request;
  const run = brand.executable;
  const lines = [`The control plane runs at ${publicUrl}, as ${unit}`];
  const email = administrator?.email ?? newcomer;
  if (email !== undefined) lines.push(administratorLine(email, administrator?.password !== undefined));
  if (joined !== undefined) lines.push(joined.text.trimEnd());
  if (keys.length > 0) {
    lines.push("", ...installerLines(installer));
    lines.push("Run one of these lines on each machine. Each works once, within an hour:");
    lines.push(...keys.map((key) => `  ${run} up ${key}`));
  }
  if (org !== undefined) lines.push(`More keys: ${run} admin token create ${quoteWord(org.slug)}`);
  const advice = org === undefined ? undefined : secondLighthouse(org.slug, counted);
  if (advice !== undefined) {
    const [here, there] = advice.lines;
    lines.push("", `${advice.why}. Type here, and then there with the key that it prints:`);
    lines.push(`  ${here}`, `  ${there}`, "");
  }
  lines.push(...placesLines(publicUrl, caFingerprint));
  return `${lines.join("\n")}\n`;
}

function administratorLine(email: string, hasPassword: boolean): string {
  const line = `${brand.executable} admin user password ${quoteWord(email)}`;
  return `The administrator is ${email}${hasPassword ? "" : `. Set a password: ${line}`}`;
}

/** Where the control plane can be used from now on. */
function placesLines(publicUrl: string, caFingerprint: string | undefined): string[] {
  const pin = caFingerprint === undefined ? "" : ` --ca-fingerprint ${caFingerprint}`;
  return [
    `The console: ${publicUrl}/console/`,
    `To administer from another machine, type there: ${brand.executable} login --api-base ${publicUrl}${pin}`,
    `API documentation, for staff users: ${publicUrl}/api/docs/`,
  ];
}

async function withData<T>(
  { dataDirectory }: SetupRequest,
  { system }: Context,
  work: (admin: Admin) => Promise<T>,
): Promise<T> {
  const { withAdmin } = await import("../../server/admin.ts");
  return withAdmin({ dataDirectory }, system, work);
}
