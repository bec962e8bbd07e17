// `agent admin rollout …`: updates of nodes in rings.

import * as v from "valibot";
import { request } from "../../../api/request.ts";
import {
  RolloutHours,
  rolloutsApi,
  usualWatchS,
  type rolloutActions,
  type Rollout,
} from "../../../api/rollouts.ts";
import { overridesSetting } from "../../../api/organizations.ts";
import { brand } from "../../../brand.ts";
import { hoursFrom, hoursText } from "../../../protocol/updates/hours.ts";
import { AppError } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { countOf } from "../../../base/quantities.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read, write } from "../api.ts";
import { checked, isNumber } from "../lookup.ts";
import { readSettings, settingFlags } from "../setting-flags.ts";
import { valueFlag, wordArg } from "../../values.ts";

const idArg = {
  ID: wordArg("The number of the rollout; without it the newest one", { required: false }),
};
const commands = `${brand.executable} admin rollout`;
const settingsInRings = {
  ...overridesSetting,
  flag: "settings",
  help: "Change the settings of all engines: all overrides of the organization, as the JSON object of this file (- is standard input)",
} as const;

/** A rollout as any control plane sends it: an older one leaves fields out. */
type Shown = v.InferInput<typeof Rollout>;

/** What it changes: "agent 0.2.0, engine 1.12.0". */
const whatOf = ({ agent, engine, settings = null }: Shown) =>
  [
    agent === null ? [] : `agent ${agent}`,
    engine === null ? [] : `engine ${engine}`,
    settings === null ? [] : `settings ${Object.keys(settings).join(", ") || "none"}`,
  ]
    .flat()
    .join(", ");

function stateOf(shown: Shown): string {
  const { state, ring, rings } = shown;
  if (state === "running" && ring === 0) return "chooses its nodes";
  if (state === "running") return `ring ${ring} of ${rings.length}`;
  return state === "returning" ? `ring ${ring} goes back` : state;
}

/** "3 of 20": the nodes that have passed. */
const passedOf = ({ rings }: Shown) => {
  const sum = (key: "waiting" | "updating" | "passed" | "left_out") =>
    rings.reduce((all, each) => all + each[key], 0);
  return `${sum("passed")} of ${sum("passed") + sum("waiting") + sum("updating") + sum("left_out")}`;
};

export const list: Implementation = {
  args: orgArg,
  examples: [`${commands} list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const rollouts = await read(context, (api) => api.all(rolloutsApi.list, { slug }));
    const rows = rollouts.map((each) => [
      each.id,
      whatOf(each),
      stateOf(each),
      passedOf(each),
      each.created_at,
      each.reason === "" ? null : each.reason,
    ]);
    const columns = ["ID", "VERSIONS", "STATE", "NODES", "STARTED", "REASON"];
    context.output.list({ rollouts }, { columns, rows, none: `Nothing of ${slug} was updated in rings.` });
  },
};

/** The rollout of the word ID; without the word the newest one. Throws not_found if there is none. */
async function rolloutId(context: Context): Promise<number> {
  const [slug = "", text] = context.words;
  if (text !== undefined) {
    if (isNumber(text)) return Number(text);
    throw new AppError("usage", `"${text}" is no number of a rollout`);
  }
  const [newest] = await read(context, (api) => api.call(rolloutsApi.list, { slug }, { page_size: "1" }));
  if (newest === undefined) throw new AppError("not_found", `Nothing of ${slug} was updated in rings`);
  return newest.id;
}

export const show: Implementation = {
  args: { ...orgArg, ...idArg },
  examples: [`${commands} show acme`, `${commands} show acme 3`],
  async run(context) {
    const [slug = ""] = context.words;
    const id = await rolloutId(context);
    const [rollout, nodes] = await read(context, async (api) => [
      await api.call(rolloutsApi.retrieve, { slug, id }),
      await api.all(rolloutsApi.nodes, { slug, id }),
    ]);
    const rows = nodes.map((each) => [
      each.ring,
      each.node_name,
      each.state,
      each.since,
      each.reason === "" ? null : each.reason,
    ]);
    const columns = ["RING", "NODE", "STATE", "SINCE", "REASON"];
    context.output.list(
      { ...rollout, nodes },
      { columns, rows, none: "" },
      `\n${factsOf(rollout).join("\n")}\n`,
    );
  },
};

export const create: Implementation = {
  notes:
    "Rings: one node, 5 %, 25 %, all; lighthouses, relays, routers and exits last, one of a kind at a time. A ring has passed when its\n" +
    "nodes are online and packets pass to the peers that they had before. Otherwise it stops, and the ring goes back. Nodes take\n" +
    "signed releases only, never a lower version, and only if root permits it:\n" +
    `sudo ${brand.executable} sync-config --org-slug ORG --allow-updates agent,engine\n` +
    "Settings need no permission. Nodes with an agent before 0.2.0 get them at the end.",
  args: {
    ...orgArg,
    agent: valueFlag("V", "Update the agent to this version"),
    engine: valueFlag("V", "Update the engine to this version"),
    ...settingFlags({ settings: settingsInRings }),
    group: valueFlag("G", "Only nodes of this group (repeatable; default: all nodes)", { repeatable: true }),
    hours: valueFlag(
      "DAYS:FROM-UNTIL",
      "Only then, in each node's own time: 22-5, or sat,sun:0-24 (repeatable; default: always)",
      { repeatable: true },
    ),
    watch: valueFlag("D", `How long a ring is watched (default: ${usualWatchS / 60}m)`),
  },
  examples: [
    `${commands} create acme --engine 1.12.0`,
    `${commands} create acme --agent 0.2.0 --group servers --hours 22-5 --watch 1h`,
    `echo '{"tun":{"mtu":1400}}' | ${commands} create acme --settings -`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const [slug = ""] = words;
    const [agent, engine] = [values.text("agent"), values.text("engine")];
    const { settings } = await readSettings(context, { settings: settingsInRings });
    if (agent === undefined && engine === undefined && settings === undefined)
      throw new AppError("usage", "Say what: --agent V, --engine V, or both; or --settings FILE");
    const body = await checked(rolloutsApi.create.body, {
      groups: values.list("group"),
      hours: values.list("hours").map(readHours),
      ...given({ agent, engine, settings, watch_s: values.duration("watch", 10) }),
    });
    const rollout = await write(context, () => request(rolloutsApi.create, { slug }, body));
    if (rollout === undefined) return;
    const count = rollout.rings.reduce((sum, each) => sum + each.waiting, 0);
    const nodes =
      rollout.ring === 0
        ? "chooses its nodes"
        : `updates ${countOf(count, "node")} in ${countOf(rollout.rings.length, "ring")}`;
    output.result(rollout, `Rollout ${rollout.id} ${nodes}: ${whatOf(rollout)}\n`);
    if (settings === undefined && rollout.ring !== 0)
      output.say(
        "Other nodes have this version, do not permit it, are away, or have an agent of a package: " +
          `\`${brand.executable} admin node list ${quoteWord(slug)} --versions\``,
      );
    output.say(`To watch: \`${commands} show ${quoteWord(slug)}\``);
  },
};

/** What `show` says of a rollout below its nodes. */
export const factsOf = (rollout: Shown): string[] => [
  `${whatOf(rollout)}: ${stateOf(rollout)}, ${passedOf(rollout)} nodes; a ring is watched for ${inUnits(rollout.watch_s)}`,
  ...(rollout.hours.length === 0
    ? []
    : [`hours, in each node's own time: ${rollout.hours.map(hoursText).join(" ")}`]),
  ...(rollout.waits_until == null
    ? []
    : [`waits until ${rollout.waits_until}: then the hours of a node of ring ${rollout.ring} begin`]),
  ...(rollout.reason === "" ? [] : [`reason: ${rollout.reason}`]),
  ...(rollout.failed_node === null ? [] : [`node: ${rollout.failed_node}`]),
  ...(rollout.probe === "" ? [] : [`probe: ${rollout.probe}`]),
  ...(rollout.log === "" ? [] : [`log: ${rollout.log}`]),
];

/** The largest unit that is exact: 10 seconds, 30 minutes, 1 hour. */
function inUnits(seconds: number): string {
  if (seconds % 60 !== 0) return countOf(seconds, "second");
  return seconds % 3600 === 0 ? countOf(seconds / 3600, "hour") : countOf(seconds / 60, "minute");
}

/** `22-5`, `sat,sun:0-24`. */
function readHours(text: string): RolloutHours[number] {
  const parsed = v.safeParse(RolloutHours, [hoursFrom(text)]);
  const [read] = parsed.success ? parsed.output : [];
  if (read !== undefined) return read;
  throw new AppError("usage", `--hours: "${text}" is not hours such as 22-5 or sat,sun:0-24`);
}

const effects = {
  pause: "pauses: no other node is told; those that have changed are watched",
  resume: "goes on",
  abort: "ends: the nodes of its current ring go back",
} as const;

/** The command that pauses, resumes or aborts. */
const steerCommand = (action: (typeof rolloutActions)[number], notes: string): Implementation => ({
  notes,
  args: { ...orgArg, ...idArg },
  examples: [`${commands} ${action} acme`, `${commands} ${action} acme 3`],
  async run(context) {
    const [slug = ""] = context.words;
    const id = await rolloutId(context);
    const rollout = await write(context, () => request(rolloutsApi.steer, { slug, id }, { action }));
    if (rollout !== undefined) context.output.result(rollout, `Rollout ${id} ${effects[action]}\n`);
  },
});

export const pause = steerCommand(
  "pause",
  "Nodes that were told go on, and are watched; a failure still takes the ring back.",
);
export const resume = steerCommand(
  "resume",
  "Also where it paused by itself, because nothing was proven: then the next ring begins.",
);
export const abort = steerCommand(
  "abort",
  "Rings that have passed keep the new version. Of settings, all nodes go back to the former ones.",
);
