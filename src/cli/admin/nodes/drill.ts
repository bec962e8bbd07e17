// `agent admin drill …`: a lighthouse, a relay or the control plane is away for a while, and nodes report whom they lost.

import type * as v from "valibot";
import { drillsApi, type Drill } from "../../../api/drills/drills.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { countOf } from "../../../base/quantities.ts";
import type { drillKinds } from "../../../protocol/updates/drill.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read, write } from "../api.ts";
import { checked, isNumber, nodeByName } from "../lookup.ts";
import { valueFlag, wordArg } from "../../values.ts";

type Kind = (typeof drillKinds)[number];
type Shown = v.InferInput<typeof Drill>;

const commands = `${brand.executable} admin drill`;
const pollMs = 1000;
const seconds = (value: number) => `${value.toFixed(1)} s`;

const effectOf: Record<Kind, string> = {
  "lighthouse-away":
    "The lighthouse's engine neither sends nor receives for that time: its UDP port is closed by nftables, for this organization\n" +
    "alone. The kernel opens it again, even if agent and engine are killed. Its machine needs Linux and nft.",
  "relay-away":
    "The relay's engine neither sends nor receives for that time: its UDP port is closed by nftables, for this organization\n" +
    "alone. The kernel opens it again, even if agent and engine are killed. Its machine needs Linux and nft.",
  "control-plane-away":
    "Nodes do not contact the control plane for that time: they learn of changes, revocations included, when it has ended.\n" +
    "Ephemeral nodes go on as usual.",
};

/** `role`: of the nodes that are away; undefined for the control plane. */
const drillCommand = (kind: Kind, role: "lighthouse" | "relay" | undefined): Implementation => ({
  notes: `${effectOf[kind]}\nIt ends by itself. This command waits for the reports of the nodes; \`drill show\` prints them again.`,
  args: {
    ...orgArg,
    ...(role === undefined
      ? {}
      : {
          node: valueFlag("NAME", `The ${role} (repeatable; default: the only one)`, { repeatable: true }),
        }),
    for: valueFlag("D", "For how long: 10s to 10m (default: 60s)"),
  },
  examples: [`${commands} ${kind} acme --for 60s`],
  async run(context) {
    const { values, words, output, system } = context;
    const [slug = ""] = words;
    const names = role === undefined ? [] : values.list("node");
    const forS = values.duration("for");
    const begun = await write(context, async (api) => {
      const nodes: number[] = [];
      for (const name of names) nodes.push((await nodeByName(api, slug, name)).id);
      const body = await checked(drillsApi.create.body, { kind, nodes, ...given({ for_s: forS }) });
      return request(drillsApi.create, { slug }, body);
    });
    if (begun === undefined) return;
    if (begun.too_old.count > 0) output.say(tooOldLine(begun));
    const { id } = begun;
    let lastProgress = "";
    for (;;) {
      const shown = await find(context, slug, id);
      if (shown.state === "ended") return print(context, shown);
      const progress = progressOf(shown);
      if (progress !== lastProgress && system.stderr.isTerminal) output.say(progress);
      lastProgress = progress;
      await system.sleep(pollMs);
    }
  },
});

/** `id` undefined: the newest drill. Throws not_found. */
async function find(context: Context, slug: string, id: number | undefined): Promise<Shown> {
  const query = id === undefined ? { newest: "1" } : { id: String(id) };
  const [found] = await read(context, (api) => api.call(drillsApi.list, { slug }, query));
  if (found !== undefined) return found;
  const text = id === undefined ? `${slug} has had no drill` : `${slug} has no drill ${id}`;
  throw new AppError("not_found", text, {
    hint: `To begin one: \`${commands} lighthouse-away ${slug} --for 60s\`.`,
  });
}

export const lighthouseAway = drillCommand("lighthouse-away", "lighthouse");
export const relayAway = drillCommand("relay-away", "relay");
export const controlPlaneAway = drillCommand("control-plane-away", undefined);

const idArg = {
  ID: wordArg("The number of the drill; without it the newest one", { required: false }),
};

/** The word ID; undefined means the newest drill. */
function numberIn([, given]: readonly string[]): number | undefined {
  if (given === undefined) return undefined;
  if (isNumber(given)) return Number(given);
  throw new AppError("usage", `"${given}" is no number of a drill`);
}

export const show: Implementation = {
  args: { ...orgArg, ...idArg },
  examples: [`${commands} show acme`, `${commands} show acme 3`],
  async run(context) {
    const [slug = ""] = context.words;
    print(context, await find(context, slug, numberIn(context.words)));
  },
};

export const abort: Implementation = {
  notes:
    "Nodes hear of it within seconds, in server mode within a minute. A drill without the control plane cannot be aborted: its\n" +
    "nodes do not contact the control plane.",
  args: { ...orgArg, ...idArg },
  examples: [`${commands} abort acme`, `${commands} abort acme 3`],
  async run(context) {
    const [slug = ""] = context.words;
    const id = numberIn(context.words) ?? (await find(context, slug, undefined)).id;
    const shown = await write(context, () => request(drillsApi.abort, { slug, id }));
    if (shown !== undefined) context.output.result(shown, `Drill ${id} is aborted\n`);
  },
};

function print({ output }: Context, shown: Shown): void {
  const rows = shown.losses.map(({ node_name: node, peer_name: peer, from_s: from, until_s: until }) => [
    node,
    peer,
    seconds(from),
    until === null ? "not yet" : seconds(until),
    until === null ? null : seconds(until - from),
  ]);
  const columns = ["NODE", "LOST", "FROM", "UNTIL", "FOR"];
  output.list(shown, { columns, rows, none: "" }, `\n${factsOf(shown).join("\n")}\n`);
}

const targetsOf = ({ nodes }: Shown) => nodes.map(({ node_name: name }) => name).join(", ");
/** Names no nodes in a drill of the control plane: there `nodes` are those that refused. */
const titleOf = (shown: Shown): string =>
  `${shown.kind}${shown.kind === "control-plane-away" || shown.nodes.length === 0 ? "" : ` (${targetsOf(shown)})`} for ${shown.for_s} s from ${shown.begins_at}`;

function progressOf(shown: Shown): string {
  if (shown.state === "running") return `Drill ${shown.id}: ${titleOf(shown)}`;
  return `The drill is over; waiting for the reports of ${countOf(shown.silent.count, "node")}`;
}

const namesOf = ({ count, first }: Shown["silent"]) =>
  `${first.join(", ")}${count > first.length ? ` and ${count - first.length} more` : ""}`;
const tooOldLine = ({ too_old: nodes }: Shown) => `Agents that are too old take no part: ${namesOf(nodes)}`;

/** What `show` says of a drill below its pairs. */
export function factsOf(shown: Shown): string[] {
  const { losses, reported, watched, silent, left_out: leftOut, nodes, state } = shown;
  const refused = nodes.filter((each) => each.state === "refused");
  const nothing =
    watched === 0 ? "No node had a peer that answers: the drill proves nothing." : "No node lost a peer.";
  return [
    `Drill ${shown.id}: ${titleOf(shown)}, ${state}`,
    ...(shown.aborted_at == null ? [] : [`It was aborted at ${shown.aborted_at}.`]),
    ...(state === "ended" && losses.length === 0 && refused.length === 0 ? [nothing] : []),
    ...(losses.length === 0 ? [] : ["Times are in seconds since the begin."]),
    ...(leftOut === 0 ? [] : [`${leftOut} more pairs are left out.`]),
    ...refused.map(({ node_name: name, reason }) => `${name} was not away: ${reason}`),
    ...nodes
      .filter((each) => each.state === "told" && state === "ended")
      .map(({ node_name: name }) => `${name} did not say that it was away.`),
    `${countOf(reported, "node")} reported, which watched ${countOf(watched, "peer")}.`,
    ...(silent.count === 0 ? [] : [`No report of ${namesOf(silent)}.`]),
    ...(shown.too_old.count === 0 ? [] : [`${tooOldLine(shown)}.`]),
  ];
}
