// `agent names [NAME]`: what a name is, and where programs get its address from.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { NamesState } from "../../node/names/find-names.ts";
import type { Context } from "../command.ts";

const run = brand.executable;

async function readState({ settings, system }: Context) {
  const { readNamesState } = await import("../../node/names/find-names.ts");
  const { hostsFile } = await import("../../node/names/keep-names.ts");
  const { readServiceState } = await import("../../node/names/service-state.ts");
  const { namesPlaces } = await import("../../platform/names-places.ts");
  const { statePath } = namesPlaces(system, settings.stateDb);
  return readNamesState(settings.configRoot, hostsFile, readServiceState(statePath));
}

/** `agent names`: the names that this node may see, and whether programs find them. */
export async function listNames(context: Context): Promise<void> {
  const { settings, system, output } = context;
  const state = await readState(context);
  const { areNamesOn } = await import("../../node/enroll/optional-services.ts");
  const isOn = areNamesOn(settings, system);
  const suffixes = state.zones.flatMap(({ slug, suffix }) =>
    suffix === undefined ? [] : [{ slug, ...suffix }],
  );
  output.list(
    { on: isOn, ...listedNames(state, suffixes) },
    {
      columns: ["NAME", "ADDRESS", "KIND", "NODE", "ORGANIZATION"],
      rows: state.names.map(({ names, addresses, slug, node, kind }) => [
        names.join(", "),
        addresses.join(", "),
        kind,
        node,
        slug,
      ]),
      none: "This machine knows no names",
    },
  );
  for (const { slug, reason } of state.without) output.say(`No names of ${slug}: ${reason}`);
  const { describeServing, describeSuffix } = await import("../../node/names/describe-serving.ts");
  const lines = state.service === undefined ? suffixes.map(describeSuffix) : describeServing(state.service);
  for (const line of lines) output.say(line);
  // Only name servers have `peers`: the table of what other nodes may ask.
  const nameServer =
    // Without the service, nothing answers other nodes yet.
    state.service === undefined ? state.zones.find(({ peers }) => peers !== undefined) : undefined;
  if (nameServer !== undefined)
    output.say(`${nameServer.slug} made this node a name server: sudo ${run} names --on --peers`);
  if (state.fault !== undefined) output.say(`/etc/hosts: ${state.fault}`);
  if (!isOn) output.say(`Programs do not find these names. To change that: sudo ${run} names --on`);
}

/**
 * The names as --json prints them: there, as in the protocol of the daemon, an organization is a `team`. `suffixes`: without `reason`,
 * names also end in the suffix; else it says why they do not.
 */
function listedNames(
  { block, leftOut, service, names, without }: NamesState,
  suffixes: readonly { slug: string; name: string; reason?: string | undefined }[],
) {
  return {
    in_hosts_file: block?.length ?? 0,
    left_out: leftOut,
    serving: service?.serving ?? null,
    fault: service?.fault ?? null,
    peers: (service?.peers ?? []).map(({ slug, address, state, reason = null }) => ({
      team: slug,
      address,
      state,
      reason,
    })),
    names: names.map(({ slug, node, kind, names: all, addresses }) => ({
      team: slug,
      node,
      kind,
      names: all,
      addresses,
    })),
    without: without.map(({ slug, reason }) => ({ team: slug, reason })),
    suffixes: suffixes.map(({ slug, name, reason = null }) => ({
      team: slug,
      suffix: name,
      served: reason === null,
      reason,
    })),
  };
}

const sources = {
  resolver: `systemd-resolved, which asks the resolver of ${brand.id}`,
  block: `/etc/hosts, the block of ${brand.id}`,
  hosts: "/etc/hosts, a line outside the block",
  dns: "a name server, or another source of /etc/nsswitch.conf",
  none: "none: programs do not find this name",
};

/** `agent names NAME`: what programs get for a name, and from where. Status 1: they get another address, or none. */
export async function showName(text: string, context: Context): Promise<number> {
  const { system, output } = context;
  const { agrees, askSystem, findNames } = await import("../../node/names/find-names.ts");
  const state = await readState(context);
  const found = findNames(state.names, text);
  if (found.length === 0) {
    throw new AppError("not_found", `No organization of this machine has the name "${text}"`, {
      hint: `\`${run} names\` lists the names that this node may see.`,
    });
  }
  const lookups = [];
  for (const entry of found) {
    const name = entry.names[0] ?? "";
    const answer = await askSystem({ name, slug: entry.slug }, state, system);
    lookups.push({ entry, name, answer, isOk: agrees(entry, answer) });
  }
  const { wayText } = await import("../../node/names/describe-serving.ts");
  const serving = state.service?.serving;
  const isByResolved = serving === undefined || serving.way === "resolved";
  const resolver = isByResolved ? sources.resolver : `the resolver of ${brand.id}, by ${wayText(serving)}`;
  const facts = lookups.map(({ entry, name, answer }): [string, string][] => [
    ["name", [name, ...entry.names.slice(1)].join(", ")],
    ["organization", entry.slug],
    [entry.kind === "alias" ? "alias of" : entry.kind, entry.node],
    ["address", entry.addresses.join(", ")],
    ["programs get", answer.answers.join(", ") || "nothing"],
    ["from", answer.source === "resolver" ? resolver : sources[answer.source]],
  ]);
  output.result(
    {
      names: lookups.map(({ entry, answer, isOk }) => ({
        team: entry.slug,
        node: entry.node,
        kind: entry.kind,
        names: entry.names,
        addresses: entry.addresses,
        answers: answer.answers,
        source: answer.source,
        ok: isOk,
      })),
    },
    facts.map((part) => part.map(([key, value]) => `${key.padEnd(14)}${value}\n`).join("")).join("\n"),
  );
  return lookups.every(({ isOk }) => isOk) ? 0 : 1;
}
