// `agent admin node …`: list, create, rename, revoke, restore, renew. node-show.ts has `show`, node-update.ts `update`, node-transfer.ts
// `transfer`. Revoking a stolen laptop needs no HTTP client.

import { nodesApi } from "../../../api/nodes.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { quoteWord } from "../../../base/quote.ts";
import type { Node } from "../../../protocol/node.ts";
import { sessionsEndedHeader } from "../../../protocol/sign-in.ts";
import type { Implementation } from "../../command.ts";
import { switchFlag, valueFlag, wordArg, type Values } from "../../values.ts";
import { orgArg } from "../../server/server-flags.ts";
import { given } from "../../../base/given.ts";
import type { Cell } from "../../table.ts";
import { read, write } from "../api.ts";
import { checked, missingGroups, nodeArg, nodeByName, revokedNodeByName, sayNewGroups } from "../lookup.ts";
import { shownGroups } from "../../../protocol/shown-groups.ts";
import { ownerOf, ownersOf, roleOf, stateOf } from "./node-cells.ts";
import { isOnlyLighthouse, withoutLighthouse } from "./node-update.ts";

export const list: Implementation = {
  args: {
    ...orgArg,
    revoked: switchFlag("List revoked nodes, and when they were revoked"),
    mine: switchFlag("List only your own nodes"),
    offline: switchFlag("List only active nodes that are not in contact"),
    group: valueFlag("G", "List only the nodes of this group"),
    versions: switchFlag("List the versions of engine and agent, and the platform"),
    certificates: switchFlag("List the end of each certificate; the one that ends first is on top"),
  },
  examples: [
    `${brand.executable} admin node list acme`,
    `${brand.executable} admin node list acme --offline`,
    `${brand.executable} admin node list acme --certificates`,
  ],
  async run(context) {
    const { values, words, system, output } = context;
    const [slug = ""] = words;
    const { nodes, owners } = await read(context, async (api) => {
      const nodes = (await api.all(nodesApi.list, { slug }, queryOf(values))).filter(filterOf(values));
      if (values.on("certificates")) nodes.sort((a, b) => endMsOf(a) - endMsOf(b));
      return { nodes, owners: await ownersOf(api, slug, nodes) };
    });
    const further = furtherColumnsOf(values);
    const now = system.now();
    output.list(
      { nodes },
      {
        columns: ["NAME", "ADDRESS", "STATE", "ROLE", "GROUPS", "OWNER", ...further.columns],
        rows: nodes.map((node) => [
          node.name,
          node.ip_address,
          stateOf(node, now),
          roleOf(node),
          shownGroups(node).join(", "),
          ownerOf(node, owners),
          ...further.cellsOf(node),
        ]),
        none: `${slug} has no ${kindOf(values)}.`,
      },
    );
  },
};

/** The flags by which the control plane filters. */
const queryOf = (values: Values) => ({
  ...(values.on("revoked") ? { revoked: "true" as const } : {}),
  ...(values.on("mine") ? { owner: "me" as const } : {}),
});

/** The flags by which this command filters what it got. A phone is never in contact, so it is not offline. */
function filterOf(values: Values): (node: Node) => boolean {
  const [offline, group] = [values.on("offline"), values.text("group")];
  return (node) =>
    (!offline || (node.state === "active" && !node.online && node.phone == null)) &&
    (group === undefined || shownGroups(node).includes(group));
}

/** "revoked nodes in the group web": what an empty list has none of. */
function kindOf(values: Values): string {
  const kinds = ["revoked", "offline"].filter((flag) => values.on(flag));
  const group = values.text("group");
  return `${[...kinds, "nodes"].join(" ")}${group === undefined ? "" : ` in the group ${group}`}`;
}

/** The last columns of the list. */
function furtherColumnsOf(values: Values): FurtherColumns {
  if (values.on("certificates")) return furtherColumns.certificates;
  if (values.on("versions")) return furtherColumns.versions;
  return values.on("revoked") ? furtherColumns.revoked : furtherColumns.seen;
}

type FurtherColumns = { columns: string[]; cellsOf(node: Node): Cell[] };
const furtherColumns = {
  seen: { columns: ["LAST CHECK-IN"], cellsOf: (node) => [node.last_checkin_at] },
  revoked: { columns: ["REVOKED"], cellsOf: (node) => [node.revoked_at] },
  certificates: { columns: ["CERTIFICATE ENDS"], cellsOf: (node) => [node.certificate?.not_after ?? null] },
  versions: {
    columns: ["ENGINE", "AGENT", "PLATFORM"],
    cellsOf: (node) => [node.overlay_version, node.agent_version, node.platform],
  },
} satisfies Record<string, FurtherColumns>;

/** Nodes without a certificate come last. */
const endMsOf = ({ certificate }: Node): number =>
  certificate === null ? Infinity : Date.parse(certificate.not_after);

export const create: Implementation = {
  args: {
    ...orgArg,
    ...nodeArg,
    "ip-address": valueFlag("A", "The overlay address (default: the next free one)"),
    group: valueFlag("G", "A group of the node (repeatable)", { repeatable: true }),
  },
  examples: [`${brand.executable} admin node create acme laptop --group staff`],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", name = ""] = words;
    const groups = [...values.list("group")];
    const body = await checked(nodesApi.create.body, {
      name,
      groups,
      ...given({ ip_address: values.text("ip-address") }),
    });
    let new_groups: string[] = [];
    const node = await write(context, async (api) => {
      new_groups = await missingGroups(api, slug, groups);
      return request(nodesApi.create, { slug }, body);
    });
    // `write` has printed the plan of --dry-run, here and below.
    if (node === undefined) return;
    sayNewGroups(output, new_groups);
    output.result(
      { ...node, new_groups },
      `Created node ${node.name} (${node.ip_address}). It is pending until its machine registers.\n`,
    );
  },
};

export const rename: Implementation = {
  notes:
    "The node gets a new certificate. Its machine keeps running; the old name is held until all nodes know the new one.",
  args: {
    ...orgArg,
    ...nodeArg,
    NEW: wordArg("The new name"),
  },
  examples: [`${brand.executable} admin node rename acme laptop adas-laptop`],
  async run(context) {
    const [slug = "", name = "", newName = ""] = context.words;
    const body = await checked(nodesApi.update.body, { name: newName });
    const node = await write(context, async (api) =>
      request(nodesApi.update, { slug, id: (await nodeByName(api, slug, name)).id }, body),
    );
    if (node !== undefined) context.output.result(node, `Renamed node ${name} to ${node.name}\n`);
  },
};

const reasonFlag = valueFlag("TEXT", "The reason to tell the node");

export const revoke: Implementation = {
  args: { ...orgArg, ...nodeArg, reason: reasonFlag },
  examples: [`${brand.executable} admin node revoke acme laptop --reason stolen`],
  async run(context) {
    const { words, output, values } = context;
    const [slug = "", name = ""] = words;
    const reason = values.text("reason");
    let id = 0;
    let sessionsEnded = 0;
    let owner = "";
    let isLastLighthouse = false;
    const gone = await write(context, async (api) => {
      const node = await nodeByName(api, slug, name);
      id = node.id;
      isLastLighthouse = await isOnlyLighthouse(api, slug, node);
      owner = ownerOf(node, await ownersOf(api, slug, [node]));
      const effect = `revoke node ${name} (${node.ip_address}) and block its certificates`;
      const heard = (headers: Headers) =>
        void (sessionsEnded = Number(headers.get(sessionsEndedHeader) ?? 0));
      return { ...request(nodesApi.revoke, { slug, id }, given({ reason })), effect, heard };
    });
    if (gone === undefined) return;
    output.result({ id, name, state: "revoked", sessions_ended: sessionsEnded }, `Revoked node ${name}\n`);
    if (sessionsEnded > 0) {
      const sessions = sessionsEnded === 1 ? "session" : "sessions";
      output.say(`${sessionsEnded} ${sessions} of \`${brand.executable} login\` on its machine ended too.`);
    }
    if (isLastLighthouse) output.say(withoutLighthouse(slug));
    const restoreLine = `${brand.executable} admin node restore ${words.map(quoteWord).join(" ")}`;
    output.say(`The list of nodes no longer shows it. Restore it with \`${restoreLine}\`.`);
    // A node of the organization has no owner, and a former member only a number.
    const user = owner.includes("@") ? quoteWord(owner) : "EMAIL";
    const sessionsLine = `${brand.executable} admin session list --org ${quoteWord(slug)} --user ${user}`;
    output.say(
      `If it was stolen: browsers on it may still be signed in: \`${sessionsLine}\`. What else to do: ${brand.docsUrl}stolen-laptop.md`,
    );
  },
};

export const restore: Implementation = {
  args: { ...orgArg, ...nodeArg },
  examples: [`${brand.executable} admin node restore acme laptop`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const node = await write(context, async (api) =>
      request(nodesApi.restore, { slug, id: (await revokedNodeByName(api, slug, name)).id }),
    );
    if (node === undefined) return;
    context.output.result(
      { id: node.id, name: node.name, state: node.state },
      `Restored node ${node.name} (${node.ip_address})\n`,
    );
    if (node.state !== "pending")
      return context.output.say(
        "Its machine starts the overlay with its next check-in, within a minute, unless a user stopped it.",
      );
    context.output.say(
      `Its machine has to register, with a token of \`${brand.executable} admin token create ${quoteWord(slug)} --node ${quoteWord(node.name)}\`.`,
    );
  },
};

export const renew: Implementation = {
  notes:
    "The node fetches them at once. Certificates are renewed by themselves in time: this is for a test, or after a change.",
  args: { ...orgArg, ...nodeArg },
  examples: [`${brand.executable} admin node renew acme web`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const renewed = await write(context, async (api) =>
      request(nodesApi.renewCertificate, { slug, id: (await nodeByName(api, slug, name)).id }),
    );
    if (renewed === undefined) return;
    context.output.result(
      { name, ...renewed },
      `Renewed the certificates of node ${name}, valid until ${renewed.certificate.not_after}\n`,
    );
  },
};
