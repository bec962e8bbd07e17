// `agent names`: switches names for programs on and off. names-shown.ts has `agent names [NAME]`.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Context, Implementation } from "../command.ts";
import { switchFlag, valueFlag, wordArg } from "../values.ts";

const run = brand.executable;

export const command: Implementation = {
  notes:
    "Names are off until --on: it installs a service that answers systemd-resolved, for these names alone. On a machine\n" +
    "whose programs do not ask systemd-resolved, it keeps the names in a marked block of /etc/hosts, at most 1,000.\n" +
    "On Windows and macOS, the daemon answers, and tells the system to ask it.\n" +
    "Exit status 1 with NAME: programs do not get the address of this name.",
  args: {
    NAME: wordArg(
      "A node's name, a full name or an overlay address (default: list all); or allow, disallow",
      {
        required: false,
      },
    ),
    SUFFIX: wordArg("After allow or disallow: the domain that names may end in beside .internal", {
      required: false,
    }),
    "org-slug": valueFlag(
      "SLUG",
      "With allow and disallow: the organization (default: the only one, or the one that sends it)",
    ),
    on: switchFlag("Let programs of this machine find the names: install and start the service"),
    search: switchFlag("With --on: also short names, such as beta. Without it, --on ends them"),
    peers: switchFlag(
      "With --on: answer other nodes on port 53, if the organization makes this node a name server",
    ),
    off: switchFlag("Stop and remove the service, and remove the names everywhere"),
    run: switchFlag("Serve the names until the end (used by the systemd unit)"),
    "peers-in": valueFlag(
      "CIDR,…",
      "With --run: the networks whose nodes may be answered (used by the systemd unit)",
    ),
    prepare: valueFlag("FILE", "Write the names to a file that is quick to read (used by the systemd unit)"),
    clear: switchFlag("Remove the names from systemd-resolved and /etc/hosts (used by the systemd unit)"),
  },
  examples: [
    `${run} names`,
    `${run} names beta`,
    `sudo ${run} names --on`,
    `sudo ${run} names --on --search`,
    `sudo ${run} names --on --peers`,
    `sudo ${run} names --off`,
    `sudo ${run} names allow corp.example`,
  ],
  async run(context) {
    const { values, words } = context;
    const file = values.text("prepare");
    const actions = (["on", "off", "run", "clear"] as const).filter((each) => values.on(each));
    const [action] = actions;
    const [nameOrVerb, suffix] = words;
    if (suffix !== undefined && action === undefined && file === undefined) {
      if (nameOrVerb !== "allow" && nameOrVerb !== "disallow")
        throw new AppError("usage", "Give one NAME; or allow or disallow, and a SUFFIX");
      const { changeSuffix } = await import("./names-suffix.ts");
      return changeSuffix(nameOrVerb, suffix, context);
    }
    if (actions.length + words.length + (file === undefined ? 0 : 1) > 1)
      throw new AppError("usage", "Give NAME, or one of --on, --off, --run, --prepare and --clear");
    refuseMisplaced(values, action);
    if (file !== undefined) {
      const { prepareNames } = await import("../../node/names/names-reader.ts");
      return prepareNames(file, context.settings.configRoot);
    }
    if (action === undefined) {
      const { listNames, showName } = await import("./names-shown.ts");
      return nameOrVerb === undefined ? listNames(context) : showName(nameOrVerb, context);
    }
    const { isLinux } = await import("../../platform/network/kernel.ts");
    if (!isLinux(context.system) && (action === "run" || values.on("search") || values.on("peers"))) {
      throw new AppError("failed", "--run, --search and --peers exist on Linux only", {
        hint: `\`${run} names --on\` lets the daemon serve full names to the programs of this machine.`,
      });
    }
    return { on: switchOn, off: switchOff, run: serveNames, clear: removeNames }[action](context);
  },
};

/** Throws usage for a flag that has no effect without another one. Not called with `allow` and `disallow`, which take --org-slug alone. */
function refuseMisplaced(
  values: Context["values"],
  action: "on" | "off" | "run" | "clear" | undefined,
): void {
  if (values.text("org-slug") !== undefined)
    throw new AppError("usage", "--org-slug belongs to allow and disallow");
  if (values.on("search") && action !== "on" && action !== "run")
    throw new AppError("usage", "--search belongs to --on");
  if (values.on("peers") && action !== "on") throw new AppError("usage", "--peers belongs to --on");
  if (values.text("peers-in") !== undefined && action !== "run")
    throw new AppError("usage", "--peers-in belongs to --run");
}

async function switchOn({ settings, system, output, values }: Context): Promise<void> {
  const { planNames } = await import("../../node/enroll/optional-services.ts");
  const { refuseUnsafe, requireRoot, requireSystemd } = await import("../../node/enroll/service-checks.ts");
  const { applyChanges, planChanges } = await import("../../platform/machine-changes.ts");
  const { isLinux } = await import("../../platform/network/kernel.ts");
  if (!isLinux(system)) {
    const planned = planNames(settings, system, { search: false, peers: [] });
    if (settings.dryRun) return output.plan(planChanges(planned));
    requireRoot(system);
    await applyChanges(planned, system);
    return output.result({ names: "on" }, "Names are on: the daemon serves them while it runs\n");
  }
  if (!settings.dryRun) {
    requireSystemd(system);
    refuseUnsafe(system.executable, "executable", system);
  }
  const peers = values.on("peers") ? await overlayNetworks(settings.configRoot) : [];
  const changes = planNames(settings, system, { search: values.on("search"), peers });
  if (settings.dryRun) return output.plan(planChanges(changes));
  const { hostsFile, refuseForeignHosts } = await import("../../node/names/keep-names.ts");
  const { asksResolved } = await import("../../platform/systemd/resolved.ts");
  const isAsked = asksResolved();
  // Check first: do not install a service that cannot work.
  if (!isAsked) refuseForeignHosts(hostsFile);
  await applyChanges(changes, system);
  const where = isAsked ? "systemd-resolved finds them" : `${hostsFile} gets them`;
  output.result({ names: "on" }, `Names are on: ${where} within two seconds\n`);
}

/** The networks of this machine's organizations. */
async function overlayNetworks(configRoot: string): Promise<string[]> {
  const { readNameRecords } = await import("../../node/names/name-records.ts");
  const { maskNetwork } = await import("../../base/ip.ts");
  const { zones } = await readNameRecords(configRoot);
  const networks = zones.flatMap(({ addresses }) => addresses.flatMap((each) => maskNetwork(each) ?? []));
  if (networks.length > 0) return [...new Set(networks)].sort();
  throw new AppError("failed", "This machine has no overlay network yet, so there are no nodes to answer", {
    hint: `Join an organization first: ${run} up URL. Then repeat the command.`,
  });
}

async function switchOff(context: Context): Promise<void> {
  const { settings, system, output } = context;
  const { planNamesRemoval } = await import("../../node/enroll/optional-services.ts");
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  const { applyChanges, planChanges } = await import("../../platform/machine-changes.ts");
  const changes = planNamesRemoval(settings, system);
  if (settings.dryRun) return output.plan(planChanges(changes));
  requireRoot(system);
  await applyChanges(changes, system);
  // The service removed its names as it stopped. Do it again: if they cannot be removed, this says why.
  await removeNames(context);
}

async function serveNames({ settings, system, log, values }: Context): Promise<void> {
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  const { hostsFile, keepNames } = await import("../../node/names/keep-names.ts");
  requireRoot(system);
  // The usual policy of the compiler: the executable compiles code late, because most commands are short (build.ts).
  Bun.unsafe.setJITPolicy(1);
  const { configRoot } = settings;
  const peers = values.text("peers-in")?.split(",");
  await keepNames({ configRoot, path: hostsFile, search: values.on("search"), peers }, { system, log });
}

async function removeNames({ settings, system, output, log }: Context): Promise<void> {
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  const { clearNames, hostsFile } = await import("../../node/names/keep-names.ts");
  const { namesPlaces } = await import("../../platform/names-places.ts");
  requireRoot(system);
  const { way } = namesPlaces(system, settings.stateDb);
  if ((await clearNames(way, system, log)) === "later") {
    throw new AppError(
      "failed",
      `Another program changes ${hostsFile} all the time: its names could not be removed`,
      {
        hint: `Run \`${run} names --clear\` again later.`,
      },
    );
  }
  output.result(
    { names: "off" },
    way === "resolved"
      ? `Names are off: ${hostsFile} holds none, and systemd-resolved does not ask for them\n`
      : "Names are off: programs of this machine do not find them\n",
  );
}
