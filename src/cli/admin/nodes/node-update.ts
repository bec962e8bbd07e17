// `agent admin node update`: name, address, groups, subnets, roles and overrides of a node.

import { nodesApi, nodeSettings } from "../../../api/nodes.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { given } from "../../../base/given.ts";
import { isPrivate, parseNetwork } from "../../../base/ip.ts";
import type { Node } from "../../../protocol/node.ts";
import type { Context, Implementation } from "../../command.ts";
import { quoteWord } from "../../../base/quote.ts";
import { orgArg } from "../../server/server-flags.ts";
import { write, type Api } from "../api.ts";
import { checked, missingGroups, nodeArg, nodeByName, sayNewGroups } from "../lookup.ts";
import { readChanges, settingFlags } from "../setting-flags.ts";

export const update: Implementation = {
  args: { ...orgArg, ...nodeArg, ...settingFlags(nodeSettings) },
  examples: [
    `${brand.executable} admin node update acme laptop --add-group staff --remove-group guests`,
    `${brand.executable} admin node update acme router --add-subnet 192.168.7.0/24 --relay`,
    `${brand.executable} admin node update acme gate --add-exit-group staff`,
    `echo '{}' | ${brand.executable} admin node update acme laptop --config-overrides -`,
  ],
  async run(context) {
    const { words, output } = context;
    const [slug = "", name = ""] = words;
    // All but the lists, which the flags change item by item.
    const settings = await readChanges(context, nodeSettings);
    // Check the flags before anything is asked. Only then are the node's own groups known.
    await checked(nodesApi.update.body, {
      ...settings,
      ...listsOf(context, { groups: [], subnets: [], exit_groups: [] }),
    });
    let new_groups: string[] = [];
    let notRemoved: string[] = [];
    let wasLastLighthouse = false;
    const node = await write(context, async (api) => {
      const before = await nodeByName(api, slug, name);
      wasLastLighthouse = settings.is_lighthouse === false && (await isOnlyLighthouse(api, slug, before));
      const body = await checked(nodesApi.update.body, { ...settings, ...listsOf(context, before) });
      notRemoved = unknownRemovals(context, before);
      new_groups = await missingGroups(api, slug, body.groups ?? []);
      return request(nodesApi.update, { slug, id: before.id }, body);
    });
    if (node === undefined) return;
    sayNewGroups(output, new_groups);
    output.result(node, `Updated node ${node.name}\n`);
    if (wasLastLighthouse) output.say(withoutLighthouse(slug));
    for (const sentence of [...notRemoved, ...nextSteps(context, slug, node)]) output.say(sentence);
  },
};

export async function isOnlyLighthouse(api: Api, slug: string, node: Node): Promise<boolean> {
  if (!node.is_lighthouse) return false;
  const nodes = await api.all(nodesApi.list, { slug });
  return !nodes.some((each) => each.is_lighthouse && each.id !== node.id);
}

/** Said after the last lighthouse went. */
export const withoutLighthouse = (slug: string): string =>
  "It was the only lighthouse: nodes no longer find each other. Make another one: " +
  `\`${brand.executable} admin token create ${quoteWord(slug)} --lighthouse\`.`;

/** What else the changes need before they work. */
function nextSteps({ values }: Context, slug: string, node: Node): string[] {
  const sentences: string[] = [];
  if (node.is_lighthouse && node.public_ip === null)
    sentences.push(
      `${node.name} has no public address, so other nodes cannot find this lighthouse: ` +
        `\`${brand.executable} admin node update ${quoteWord(slug)} ${quoteWord(node.name)} --public-ip ADDRESS\`. Its UDP port must be open.`,
    );
  if (values.list("add-exit-group").length > 0)
    sentences.push(
      `${node.name} is an exit only while its root permits it: \`sudo ${brand.executable} up --advertise-exit\`. A machine takes this exit only by its own ` +
        `word: \`sudo ${brand.executable} exit use ${quoteWord(node.name)}\`.`,
    );
  if (values.on("names")) sentences.push(needsOfNameServer(slug, node));
  const subnets = values.list("add-subnet");
  if (subnets.length > 0)
    sentences.push(
      `On ${node.name}, root makes the machine ready: \`sudo ${brand.executable} up ${quoteWord(slug)} --advertise ${quoteWord(subnets.join(","))}\`. ` +
        "The hosts behind it need a route back to the overlay's network, or add +masquerade to each network.",
    );
  const ofInternet = subnets.filter(isOfInternet);
  if (ofInternet.length > 0)
    sentences.push(
      `${ofInternet.join(", ")}: a part of the internet. Each node routes it only after root there has allowed it: ` +
        `\`${brand.executable} sync-config --org-slug ${quoteWord(slug)} --allow-routes ${quoteWord(ofInternet.join(","))}\``,
    );
  return sentences;
}

function isOfInternet(text: string): boolean {
  const network = parseNetwork(text);
  return network !== undefined && !isPrivate(network);
}

/** Further needs of a name server: the permission of its root, and rules that let nodes reach it. */
function needsOfNameServer(slug: string, { name, ip_address }: Node): string {
  const rule = (protocol: string) =>
    `\`${brand.executable} admin rule create ${quoteWord(slug)} --protocol ${quoteWord(protocol)} --ports 53 --target ${quoteWord(`node:${name}`)}\``;
  return (
    `On ${name}, root has to allow it: \`sudo ${brand.executable} names --on --peers\`. It then knows all names of the organization, ` +
    `and answers at ${ip_address} each node for the names that this node may see. ` +
    `Nodes need rules to reach it, unless there are such: ${rule("udp")} and ${rule("tcp")}.`
  );
}

/** Sentences about what a flag should remove and the node does not have: often a typing error, so that something stays. */
function unknownRemovals(
  { values }: Context,
  { name, groups, subnets, exit_groups: exits = [] }: Node,
): string[] {
  const unknownIn = (kind: string, own: readonly string[]) =>
    values.list(`remove-${kind}`).filter((each) => !own.includes(each));
  return [
    ...unknownIn("group", groups).map((group) => `${name} was not in the group ${group}`),
    ...unknownIn("subnet", subnets).map((network) => `${name} had no subnet ${network}`),
    ...unknownIn("exit-group", exits).map((group) => `${name} was no exit for ${group}`),
  ];
}

/** The lists after the flags' changes. `before`: the node's own; a list without a flag is left out. */
function listsOf({ values }: Context, before: Pick<Node, "groups" | "subnets" | "exit_groups">) {
  const changed = (items: readonly string[], kind: string) => {
    const [added, removed] = [values.list(`add-${kind}`), values.list(`remove-${kind}`)];
    if (added.length + removed.length === 0) return undefined;
    return [...new Set([...items, ...added])].filter((each) => !removed.includes(each));
  };
  const groups = changed(before.groups, "group");
  const subnets = changed(before.subnets, "subnet");
  const exit_groups = changed(before.exit_groups ?? [], "exit-group");
  return given({ groups, subnets, exit_groups });
}
