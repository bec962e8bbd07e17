// `agent admin route …`: networks behind nodes, and their routers.

import { request } from "../../../api/request.ts";
import { routesApi, type Route } from "../../../api/paths/routes.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { quoteWord } from "../../../base/quote.ts";
import { maxMetric } from "../../../protocol/routing/advertised.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { switchFlag, valueFlag, wordArg, type Flags } from "../../values.ts";
import { read, write, type Api } from "../api.ts";
import { checked, nodeByName } from "../lookup.ts";

const networkArg = {
  NETWORK: wordArg("The network as other nodes see it, such as 192.168.7.0/24"),
};
const viaFlag = (description: string): Flags => ({
  via: valueFlag("NODE", description, { repeatable: true }),
});
const metricFlag = {
  metric: valueFlag(
    "N",
    `Lower is preferred, 0 to ${maxMetric}; 100 unless set. Among equals nodes take the nearest router`,
  ),
};
type Router = Route["routers"][number];

const columns = ["NETWORK", "ROUTER", "METRIC", "STATE", "BEHIND", "MASQUERADES", "WATCHES"];
const rowsOf = (routes: readonly Route[]) =>
  routes.flatMap(({ network, routers }) =>
    routers.map((each) => [
      network,
      each.node_name,
      each.metric,
      stateOf(each),
      each.behind,
      yesOrNo(each.masquerade),
      each.watch,
    ]),
  );

function yesOrNo(value: boolean | null): string | null {
  if (value === null) return null;
  return value ? "yes" : "no";
}

/** The state of a router, the first reason why it forwards nothing before the others. */
export function stateOf({ approved, maintenance, online, offered, state, why }: Router): string {
  if (!approved) return "waits for approval";
  if (maintenance) return "maintenance";
  if (!online) return "away";
  // Only an offer makes the node report its state: root may have set up forwarding by hand, or not.
  if (!offered) return "not offered by its root: unknown whether it forwards";
  if (state === "down") return "the network behind does not answer";
  if (state === "failed") return `not ready: ${why ?? "unknown reason"}`;
  return state === "ready" ? "ready" : "not ready yet";
}

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin route list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const routes = await read(context, (api) => api.all(routesApi.list, { slug }));
    const none = `No node of ${slug} routes a network, or offers one.`;
    context.output.list({ routes }, { columns, rows: rowsOf(routes), none });
  },
};

export const show: Implementation = {
  args: { ...orgArg, ...networkArg },
  examples: [`${brand.executable} admin route show acme 192.168.7.0/24`],
  async run(context) {
    const [slug = "", network = ""] = context.words;
    const routes = await read(context, (api) => api.all(routesApi.list, { slug }, { search: network }));
    const route = routes.find((each) => each.network === network);
    if (route === undefined)
      throw new AppError("not_found", `No node of ${slug} routes ${network}, or offers it`, {
        hint: `\`${brand.executable} admin route list ${quoteWord(slug)}\` lists the routes.`,
      });
    context.output.list(route, { columns, rows: rowsOf([route]), none: "" });
  },
};

/** The ids of the routers that --via names. */
async function idsOf(context: Context, api: Api, slug: string): Promise<number[]> {
  const ids: number[] = [];
  for (const name of context.values.list("via")) ids.push((await nodeByName(api, slug, name)).id);
  return ids;
}

export const create: Implementation = {
  notes:
    "Several routers of one network stand in for each other: nodes use the one with the lowest metric that works, among\n" +
    `equals the nearest. On a router, root makes the machine ready: ${brand.executable} up --advertise NETWORK`,
  args: { ...orgArg, ...networkArg, ...viaFlag("A router (repeatable)"), ...metricFlag },
  examples: [
    `${brand.executable} admin route create acme 192.168.7.0/24 --via router1 --via router2`,
    `${brand.executable} admin route create acme 192.168.7.0/24 --via router3 --metric 200`,
  ],
  async run(context) {
    const { output, values, words } = context;
    const [slug = "", network = ""] = words;
    if (values.list("via").length === 0)
      throw new AppError("usage", "Say which nodes are the routers: --via NODE");
    const metric = values.integer("metric", 0, maxMetric);
    // Check the words before anything is asked: 1 stands for a router.
    const body = await checked(routesApi.create.body, { network, via: [1], ...given({ metric }) });
    const route = await write(context, async (api) =>
      request(routesApi.create, { slug }, { ...body, via: await idsOf(context, api, slug) }),
    );
    if (route === undefined) return;
    const named = route.routers.filter(({ node_name: name }) => values.list("via").includes(name));
    output.result(route, `${route.network} is routed by ${namesOf(route.routers)}\n`);
    for (const each of named.filter(({ offered }) => !offered))
      output.say(
        `On ${each.node_name}, root makes the machine ready: \`sudo ${brand.executable} up ${quoteWord(slug)} --advertise ${network}\`. ` +
          "The hosts behind it need a route back to the overlay's network, or add +masquerade to the network.",
      );
  },
};

const namesOf = (routers: readonly Router[]) =>
  routers
    .filter(({ approved }) => approved)
    .map(({ node_name: name, maintenance }) => (maintenance ? `${name} (maintenance)` : name))
    .join(", ");

export const update: Implementation = {
  notes:
    "--maintenance moves flows away from a router before it is switched off: nodes use the others. Hosts with open TCP\n" +
    "connections keep the former router until these end, an hour at most.",
  args: {
    ...orgArg,
    ...networkArg,
    ...viaFlag("Only this router (repeatable); otherwise all of the network"),
    ...metricFlag,
    maintenance: switchFlag("Use the other routers, as long as one of them works", {
      negativeDescription: "Use it again",
    }),
  },
  examples: [
    `${brand.executable} admin route update acme 192.168.7.0/24 --via router1 --maintenance`,
    `${brand.executable} admin route update acme 192.168.7.0/24 --via router1 --no-maintenance --metric 50`,
  ],
  async run(context) {
    const { output, values, words } = context;
    const [slug = "", network = ""] = words;
    const metric = values.integer("metric", 0, maxMetric);
    // Undefined: neither --maintenance nor --no-maintenance was given.
    const maintenance = values.text("maintenance") === undefined ? undefined : values.on("maintenance");
    if (metric === undefined && maintenance === undefined)
      throw new AppError("usage", "Say what to change: --metric or --maintenance");
    const change = given({ metric, maintenance });
    const body = await checked(routesApi.update.body, { network, ...change });
    const route = await write(context, async (api) => {
      const via = await idsOf(context, api, slug);
      return request(routesApi.update, { slug }, { ...body, ...(via.length === 0 ? {} : { via }) });
    });
    if (route === undefined) return;
    output.result(route, `${route.network} is routed by ${namesOf(route.routers)}\n`);
  },
};

export const remove: Implementation = {
  args: {
    ...orgArg,
    ...networkArg,
    ...viaFlag("Only this router (repeatable); otherwise all of the network"),
  },
  examples: [
    `${brand.executable} admin route delete acme 192.168.7.0/24 --via router1`,
    `${brand.executable} admin route delete acme 192.168.7.0/24`,
  ],
  async run(context) {
    const { output, words, values } = context;
    const [slug = "", network = ""] = words;
    const done = await write(context, async (api) => {
      const ids = await idsOf(context, api, slug);
      const via = ids.length === 0 ? {} : { via: ids.join(",") };
      return request(routesApi.delete, { slug }, { network, ...via });
    });
    if (done === undefined) return;
    const who = values.list("via").length === 0 ? "No node" : `${values.list("via").join(", ")} no longer`;
    output.result({ network }, `${who} routes ${network}\n`);
  },
};
