// `agent admin node …`: nodes. Revoking a stolen laptop needs no HTTP client.

import { brand } from "../../brand.ts";
import { quoteWord } from "../../plan.ts";
import type { Admin } from "../../server/admin.ts";
import type { NodeStore } from "../../server/nodes/node-store.ts";
import { AppError } from "../../errors.ts";
import {
  missingGroups,
  onOrganization,
  onlyPlanned,
  overridesFlag,
  readOverrides,
  sayNewGroups,
} from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Context, Implementation } from "../command.ts";
import { dataFlags, orgArg } from "../server-flags.ts";
import type { Args } from "../values.ts";

const nodeArg: Args = { NAME: { type: "positional", description: "The node's name" } };

async function storeOf({ db, system, secretKey }: Admin): Promise<NodeStore> {
  const { openAuthorities } = await import("../../server/certificates/authorities.ts");
  const { makeChanges } = await import("../../server/config/changes.ts");
  return { db, system, secretKey, authorities: openAuthorities({ secretKey }), changes: makeChanges(system) };
}

export const list: Implementation = {
  args: {
    ...orgArg,
    revoked: { type: "boolean", description: "List revoked nodes, and when they were revoked" },
    ...dataFlags,
  },
  examples: [`${brand.executable} admin node list acme`],
  async run(context) {
    const revoked = context.values.on("revoked");
    const { listNodes } = await import("../../server/nodes/nodes.ts");
    const nodes = await onOrganization(context, context.words[0] ?? "", async (admin, org) => {
      const store = await storeOf(admin);
      const all = [];
      for (let page = 1; ; page++) {
        const { items, total } = await listNodes(
          store,
          org,
          { page, page_size: 1000, search: "" },
          { revoked },
        );
        all.push(...items);
        if (items.length === 0 || all.length >= total) return all;
      }
    });
    const lines = nodes.map((node) =>
      tableLine([
        node.id,
        node.name,
        node.ip_address,
        node.state,
        (revoked ? node.revoked_at : node.last_checkin_at) ?? "-",
      ]),
    );
    context.output.result({ nodes }, lines.join(""));
  },
};

export const show: Implementation = {
  args: { ...orgArg, ...nodeArg, ...dataFlags },
  examples: [`${brand.executable} admin node show acme laptop`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const { findNodeByName, showOne } = await import("../../server/nodes/nodes.ts");
    const node = await onOrganization(context, slug, async (admin, org) =>
      showOne(await storeOf(admin), org, await findNodeByName(admin.db, org.id, name)),
    );
    const lines = Object.entries(node).map(([key, value]) =>
      tableLine([`${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`]),
    );
    context.output.result(node, lines.join(""));
  },
};

export const create: Implementation = {
  args: {
    ...orgArg,
    ...nodeArg,
    "ip-address": {
      type: "string",
      valueHint: "A",
      description: "The overlay address (default: the next free one)",
    },
    group: {
      type: "string",
      valueHint: "G",
      repeatable: true,
      description: "A group of the node (repeatable)",
    },
    ...dataFlags,
  },
  examples: [`${brand.executable} admin node create acme laptop --group staff`],
  async run(context) {
    const [slug = "", name = ""] = context.words;
    const { createNode, NodeRequest } = await import("../../server/nodes/nodes.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const address = context.values.text("ip-address");
    const request = parse(NodeRequest, {
      name,
      groups: [...context.values.list("group")],
      ...(address === undefined ? {} : { ip_address: address }),
    });
    if (await onlyPlanned(context, { org: slug })) return;
    const node = await onOrganization(context, slug, async (admin, org) => {
      const new_groups = await missingGroups(admin, org, request.groups ?? []);
      return { ...(await createNode(await storeOf(admin), org, request, operator)), new_groups };
    });
    sayNewGroups(context.output, node.new_groups);
    context.output.result(
      node,
      `Created node ${node.name} (${node.ip_address}). It is pending until its machine registers.\n`,
    );
  },
};

export const update: Implementation = {
  args: { ...orgArg, ...nodeArg, ...overridesFlag, ...dataFlags },
  examples: [`echo '{}' | ${brand.executable} admin node update acme laptop --config-overrides -`],
  async run(context) {
    const { NodePatch } = await import("../../server/nodes/nodes.ts");
    const { parse } = await import("../../server/http/route.ts");
    const overrides = await readOverrides(context);
    if (overrides === undefined) throw new AppError("usage", "Say what to change: give --config-overrides");
    const patch = parse(NodePatch, { config_overrides: overrides });
    const node = await change(context, async (admin, org, name) => {
      const { findNodeByName, patchNode } = await import("../../server/nodes/nodes.ts");
      const { operator } = await import("../../server/audit/record.ts");
      const { id } = await findNodeByName(admin.db, org.id, name);
      return patchNode(await storeOf(admin), org, id, patch, operator);
    });
    if (node !== undefined) context.output.result(node, `Updated node ${node.name}\n`);
  },
};

export const revoke: Implementation = {
  args: {
    ...orgArg,
    ...nodeArg,
    reason: { type: "string", valueHint: "TEXT", description: "The reason to tell the node" },
    ...dataFlags,
  },
  examples: [`${brand.executable} admin node revoke acme laptop --reason stolen`],
  async run(context) {
    const reason = context.values.text("reason");
    const node = await change(context, async (admin, org, name) => {
      const { findNodeByName, showOne } = await import("../../server/nodes/nodes.ts");
      const { revokeNode } = await import("../../server/nodes/revoke.ts");
      const { operator } = await import("../../server/audit/record.ts");
      const store = await storeOf(admin);
      const record = await findNodeByName(admin.db, org.id, name);
      await revokeNode(store, org, record.id, operator, ...(reason === undefined ? [] : [reason]));
      return showOne(store, org, { ...record, state: "revoked" });
    });
    if (node === undefined) return;
    context.output.result({ id: node.id, name: node.name, state: "revoked" }, `Revoked node ${node.name}\n`);
    const line = `${brand.executable} admin node restore ${context.words.map(quoteWord).join(" ")}`;
    context.output.say(`The list of nodes no longer shows it. Restore it with \`${line}\`.`);
  },
};

export const restore: Implementation = {
  args: { ...orgArg, ...nodeArg, ...dataFlags },
  examples: [`${brand.executable} admin node restore acme laptop`],
  async run(context) {
    const node = await change(context, async (admin, org, name) => {
      const { findNodeByName, showOne } = await import("../../server/nodes/nodes.ts");
      const { restoreNode } = await import("../../server/nodes/revoke.ts");
      const { operator } = await import("../../server/audit/record.ts");
      const store = await storeOf(admin);
      const { id } = await findNodeByName(admin.db, org.id, name, "revoked");
      return showOne(store, org, await restoreNode(store, org, id, operator));
    });
    if (node === undefined) return;
    context.output.result(
      { id: node.id, name: node.name, state: node.state },
      `Restored node ${node.name} (${node.ip_address})\n`,
    );
    if (node.state !== "pending") return;
    const [slug = ""] = context.words;
    context.output.say(
      `Its machine has to register, with a token of \`${brand.executable} admin token create ${quoteWord(slug)} --node ${quoteWord(node.name)}\`.`,
    );
  },
};

/** Runs `work` on ORG and NAME. With --dry-run it only prints the plan. */
async function change<T>(
  context: Context,
  work: (admin: Admin, org: { id: number; slug: string }, name: string) => Promise<T>,
): Promise<T | undefined> {
  const [slug = "", name = ""] = context.words;
  if (await onlyPlanned(context, { org: slug })) return undefined;
  return onOrganization(context, slug, (admin, org) => work(admin, org, name));
}
