// `agent exit use|list|show`: which exit the packets of this machine take to the internet.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { ExitState } from "../../node/files/granted/exit-state.ts";
import { switchFlag, valueFlag, wordArg } from "../values.ts";
import type { Context, Implementation } from "../command.ts";
import { daemonAddress, requestStep } from "./daemon-address.ts";

const run = brand.executable;
const orgFlag = {
  "org-slug": valueFlag("SLUG", "The organization (default: the only one with exits)"),
};

export const use: Implementation = {
  notes:
    "All packets for the internet take the tunnel to NODE, and leave there; auto: the nearest exit that answers. Private networks\n" +
    "that this machine is in stay reachable, and so do control planes, lighthouses and relays. If the exit does not answer,\n" +
    "packets go beside it until it does; with --strict they are dropped, also at a boot and if every program of this product is\n" +
    "killed, until `off`. Only this command gives packets a way to an exit: no control plane can. It needs root, or in desktop\n" +
    "mode the daemon's group. Exit status 1: the exit let no packet through within 20 seconds.",
  args: {
    NODE: wordArg("The name of an exit, auto, or off"),
    strict: switchFlag("Drop packets while the exit does not answer; needs root"),
    "no-lan": switchFlag("Reach no private network around this machine either"),
    ...orgFlag,
  },
  examples: [`sudo ${run} exit use auto`, `sudo ${run} exit use gate1 --strict`, `sudo ${run} exit use off`],
  run: useExit,
};

export const list: Implementation = {
  notes: "The control plane names the exits that the groups of this node may use.",
  args: orgFlag,
  examples: [`${run} exit list`],
  async run({ settings, values, output }) {
    const rows = (await readExits(settings.configRoot, values.text("org-slug"))).flatMap(
      ({ organization: { slug, config }, state }) =>
        (config.exits ?? []).map(({ name, ip_address, ip_address6 }) => ({
          organization: slug,
          name,
          address: ip_address,
          ipv6: ip_address6 !== null,
          in_use: state?.exit === ip_address && state.state === "used",
        })),
    );
    output.list(
      { exits: rows },
      {
        columns: ["ORGANIZATION", "NAME", "ADDRESS", "IPV6", "IN USE"],
        rows: rows.map(({ organization, name, address, ipv6, in_use }) => [
          organization,
          name,
          address,
          ipv6 ? "yes" : "no",
          in_use ? "yes" : "",
        ]),
        none: "No exits that this machine may use",
      },
    );
  },
};

export const show: Implementation = {
  notes: "Exit status 1: an exit is wanted, and packets do not take it.",
  args: orgFlag,
  examples: [`${run} exit show`],
  async run({ settings, values, output }) {
    const all = await readExits(settings.configRoot, values.text("org-slug"));
    const found = all.find(({ choice }) => choice !== undefined);
    if (found?.choice === undefined) {
      output.result({ use: "off" }, "Packets of this machine take no exit\n");
      return 0;
    }
    const { organization, choice, state } = found;
    output.facts({ team: organization.slug, ...choice, ...state }, [
      ["organization", organization.slug],
      ["wanted", choice.use],
      ["exit", state?.name ?? null],
      ["state", stateTexts[state?.state ?? "starting"]],
      ...(state?.why === undefined ? [] : [["reason", state.why] as const]),
      ["since", state === undefined ? null : new Date(state.since).toISOString()],
      ["strict", choice.strict ? "yes" : "no"],
      ["private networks", choice.lan ? "stay reachable" : "not reachable"],
    ]);
    return state?.state === "used" ? 0 : 1;
  },
};

const stateTexts: Readonly<Record<ExitState["state"], string>> = {
  starting: "looking for it",
  used: "packets take it",
  blocked: "it does not answer: packets are dropped",
  beside: "it does not answer: packets go beside it",
};

/** The organizations of this machine, each with root's choice of an exit and the exit's state, undefined without a choice. */
async function readExits(configRoot: string, slug: string | undefined) {
  const { chooseSlugs } = await import("../../daemon/asking/choose-slugs.ts");
  const { openOrganization } = await import("../../node/files/organizations.ts");
  const { permissionsOrNone } = await import("../../node/files/permissions.ts");
  const { presentExitState } = await import("../../node/files/granted/exit-state.ts");
  return chooseSlugs(configRoot, slug).map((each) => {
    const organization = openOrganization(configRoot, each);
    const choice = permissionsOrNone(organization.directory).exit;
    const state = choice === undefined ? undefined : presentExitState(organization.directory);
    return { organization, choice, state };
  });
}

/**
 * The organization of --org-slug, else the only one of this machine, else the only one with exits (for `off`: in which an exit was
 * chosen). Throws not_found if there is none, usage if there are several.
 */
async function chooseOrganization(
  { settings, values }: Context,
  { isOff }: { isOff: boolean },
): Promise<Organization> {
  const all = await readExits(settings.configRoot, values.text("org-slug"));
  const candidates = all.filter(
    ({ choice, organization: { config } }) => (isOff ? choice : config.exits) !== undefined,
  );
  const [only, second] = all.length === 1 ? all : candidates;
  if (only !== undefined && second === undefined) return only.organization;
  if (only === undefined)
    throw new AppError(
      "not_found",
      isOff ? "Packets of this machine take no exit" : "No organization of this machine has an exit for it",
    );
  throw new AppError("usage", "Several organizations have exits: name one with --org-slug");
}

const usedWithinMs = 20_000;

async function useExit(context: Context): Promise<number> {
  const {
    settings,
    system,
    values,
    output,
    words: [word = ""],
  } = context;
  const isOff = word === "off";
  if (isOff && (values.on("strict") || values.on("no-lan")))
    throw new AppError("usage", "--strict and --no-lan do not go with off");
  const organization = await chooseOrganization(context, { isOff });
  const wanted = isOff ? undefined : { use: word, strict: values.on("strict"), lan: !values.on("no-lan") };
  // The daemon takes the choice of members of its group, who may not write the files.
  const isByDaemon = !system.isRoot && organization.config.mode === "desktop";
  if (settings.dryRun) {
    const { planPermissions } = await import("../../node/files/permissions.ts");
    const step = requestStep(`exit ${organization.slug} ${word}`, settings);
    output.plan(
      isByDaemon
        ? [step]
        : [
            ...planPermissions(organization.directory, { exit: wanted }),
            ...(await planUnits(wanted, organization, context)),
          ],
    );
    return 0;
  }
  if (isByDaemon) await askTheDaemon(wanted, organization, context);
  else await changeExit(wanted, organization, context);
  if (isOff) {
    output.result({ team: organization.slug, use: "off" }, "Packets of this machine take no exit\n");
    return 0;
  }
  return untilUsed(organization, context);
}

/** Undefined: no exit. `lan`: private networks around the machine stay reachable. */
type Wanted = { use: string; strict: boolean; lan: boolean } | undefined;

async function askTheDaemon(
  wanted: Wanted,
  { slug }: Organization,
  { settings, system }: Context,
): Promise<void> {
  const { askDaemon } = await import("../../daemon/ipc/client.ts");
  const exit = wanted ?? { use: "off", strict: false, lan: true };
  await askDaemon(daemonAddress(settings), system, { action: "exit", team: slug, exit }, { patient: true });
}

async function changeExit(wanted: Wanted, organization: Organization, context: Context): Promise<void> {
  const { system } = context;
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  requireRoot(system);
  const { useFromNow, useNone } = await import("../../node/exit/set-exit.ts");
  const { applyChanges } = await import("../../platform/machine-changes.ts");
  if (wanted !== undefined) {
    await useFromNow(organization, wanted, system);
    return applyChanges(await unitChanges(wanted, organization, context), system);
  }
  const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
  const command = `${brand.executable} exit use off`;
  const { control } = organizationDeps(organization, command, context);
  await useNone(organization, { command, control, system });
  await applyChanges(await unitChanges(undefined, organization, context), system);
}

/** With `strict`, a unit blocks the network from the first moment of a boot. */
async function unitChanges(wanted: Wanted, { directory }: Organization, { settings, system }: Context) {
  const { exitBlockChanges } = await import("../../node/enroll/optional-services.ts");
  return exitBlockChanges(wanted?.strict === true ? directory : undefined, settings, system);
}

async function planUnits(wanted: Wanted, organization: Organization, context: Context) {
  const { planChanges } = await import("../../platform/machine-changes.ts");
  return planChanges(await unitChanges(wanted, organization, context));
}

/** Waits until packets take the exit, or the time is over. Returns the exit status. */
async function untilUsed({ directory, slug }: Organization, { system, output }: Context): Promise<number> {
  const { presentExitState } = await import("../../node/files/granted/exit-state.ts");
  const until = system.monotonic() + usedWithinMs;
  let state = presentExitState(directory);
  while (state?.state !== "used" && system.monotonic() < until) {
    await system.sleep(200);
    state = presentExitState(directory);
  }
  output.result({ team: slug, ...state }, `${outcomeText(slug, state)}\n`);
  return state?.state === "used" ? 0 : 1;
}

function outcomeText(slug: string, state: ExitState | undefined): string {
  if (state === undefined)
    return `It takes effect when the overlay of ${slug} runs: \`${run} start ${slug}\``;
  const { name = "" } = state;
  if (state.state === "used") return `Packets for the internet take the exit ${name}`;
  const exit = name === "" ? "The exit" : name;
  const next =
    state.state === "beside" || state.state === "blocked"
      ? `. What is wrong, \`${run} doctor\` on its machine says`
      : "";
  return `${exit}: ${stateTexts[state.state]}${next}`;
}
