// `agent admin rule …`: firewall rules.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { ItemOf } from "../../../api/endpoint.ts";
import { request } from "../../../api/request.ts";
import { CheckedRule, rulesApi } from "../../../api/rules.ts";
import { isUsersGroup } from "../../../protocol/users-groups.ts";
import type { Context, Implementation } from "../../command.ts";
import { quoteWord } from "../../../base/quote.ts";
import { orgArg } from "../../server/server-flags.ts";
import { given } from "../../../base/given.ts";
import { valueFlag, wordArg, type Values } from "../../values.ts";
import { read, write, type Api } from "../api.ts";
import { checked, isNumber, missingGroups, sayNewGroups } from "../lookup.ts";
import { linesOf, openedNetworks, openedText, type Opened, type Opening } from "./opened-networks.ts";
import { idsOf, readSide, shownSide, sideNames, unknownIds, type IdOf, type Side } from "./rule-sides.ts";

type Rule = ItemOf<typeof rulesApi.list>;

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin rule list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const { rules, names } = await read(context, async (api) => {
      const rules = await api.all(rulesApi.list, { slug });
      const sides = rules.flatMap(({ peer, target }) => [peer, target]);
      return { rules, names: await sideNames(api, slug, sides) };
    });
    context.output.list(
      { rules },
      {
        columns: ["ID", "DIRECTION", "PROTOCOL", "PORTS", "PEER", "TARGET", "DESCRIPTION"],
        rows: rules.map(({ id, direction, protocol, ports, peer, target, description }) => [
          id,
          direction,
          protocol,
          ports,
          shownSide(peer, names),
          shownSide(target, names),
          description,
        ]),
        none: `${slug} has no firewall rules: all traffic is refused.`,
      },
    );
  },
};

const ruleFlags = {
  direction: valueFlag("inbound|outbound", "Direction, seen from the target"),
  protocol: valueFlag("any|tcp|udp|icmp", "Protocol"),
  ports: valueFlag("P", "any, a port, or a range such as 8000-8010"),
  peer: valueFlag(
    "SIDE",
    "The other side: any, group:G, node:NAME, user:EMAIL (the nodes of a member), idp:GROUP (the nodes of the users who have the group at a provider of identities), self (the nodes with the same owner) or a network",
  ),
  target: valueFlag(
    "SIDE",
    "The nodes with this rule: any, group:G, node:NAME, user:EMAIL or idp:GROUP; or network:CIDR, a network behind nodes and not these nodes themselves",
  ),
  description: valueFlag("TEXT", 'A description; "" clears it', { clears: true }),
};

/** The rule without flags. The `default` of a flag is only shown in the help (values.ts). */
const anyTraffic = {
  direction: "inbound",
  protocol: "any",
  ports: "any",
  peer: { any: true },
  target: { any: true },
} as const;

export const create: Implementation = {
  args: {
    ...orgArg,
    direction: { ...ruleFlags.direction, default: "inbound" },
    protocol: { ...ruleFlags.protocol, default: "any" },
    ports: { ...ruleFlags.ports, default: "any" },
    peer: { ...ruleFlags.peer, default: "any" },
    target: { ...ruleFlags.target, default: "any" },
    description: ruleFlags.description,
  },
  examples: [`${brand.executable} admin rule create acme --protocol tcp --ports 443 --target group:web`],
  async run(context) {
    const { values, words, output } = context;
    const [slug = ""] = words;
    // All defaults together would allow all traffic. That must be said explicitly.
    if (values.firstOf(["protocol", "ports", "peer", "target"]) === undefined) {
      throw new AppError("usage", "Say what the rule allows: --protocol, --ports, --peer or --target", {
        hint: "To allow all traffic from all nodes, give --peer any.",
      });
    }
    // Check the flags before anything is asked. Only then can node names be resolved.
    await checked(CheckedRule, { ...anyTraffic, ...(await readFields(values, unknownIds)) });
    let new_groups: string[] = [];
    let rulesBefore: Rule[] = [];
    let opened: readonly Opened[] = [];
    const rule = await write(context, async (api) => {
      const body = await checked(rulesApi.create.body, {
        ...anyTraffic,
        ...(await readFields(values, idsOf(api, slug))),
      });
      opened = await openedNetworks(api, slug, body);
      sayPlanned(context, opened, body);
      new_groups = await newGroups(api, slug, body);
      // Only for the warning below: the right to write rules may come without the right to read them.
      rulesBefore = await api.all(rulesApi.list, { slug }).catch(() => []);
      return request(rulesApi.create, { slug }, body);
    });
    if (rule === undefined) return;
    sayNewGroups(output, new_groups);
    output.result(
      { ...rule, new_groups, networks_behind: linesOf(opened) },
      `Created rule ${rule.id}\n${openedText(opened, rule)}`,
    );
    sayTwin(output, slug, rule, rulesBefore);
    sayEmptyGroups(output, slug, new_groups);
  },
};

export const update: Implementation = {
  args: {
    ...orgArg,
    ID: wordArg("The rule's number"),
    ...ruleFlags,
  },
  examples: [`${brand.executable} admin rule update acme 3 --ports 8443 --peer group:staff`],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", word = ""] = words;
    const id = readId(word);
    if (values.firstOf(Object.keys(ruleFlags)) === undefined)
      throw new AppError("usage", "Say what to change: such as --ports, --peer or --description");
    await checked(rulesApi.update.body, await readFields(values, unknownIds));
    let new_groups: string[] = [];
    let opened: readonly Opened[] = [];
    const rule = await write(context, async (api) => {
      // `given` only tells the type: no field is undefined.
      const body = given(await checked(rulesApi.update.body, await readFields(values, idsOf(api, slug))));
      // Only for what the rule opens: the right to write rules may come without the right to read them.
      const before = await api
        .all(rulesApi.list, { slug })
        .then((rules) => rules.find((each) => each.id === id))
        .catch(() => undefined);
      if (before !== undefined) {
        const after = { ...before, ...body };
        opened = await openedNetworks(api, slug, after);
        sayPlanned(context, opened, after);
      }
      new_groups = await newGroups(api, slug, body);
      return request(rulesApi.update, { slug, id }, body);
    });
    if (rule === undefined) return;
    sayNewGroups(output, new_groups);
    output.result(
      { ...rule, new_groups, networks_behind: linesOf(opened) },
      `Updated rule ${rule.id}\n${openedText(opened, rule)}`,
    );
    sayEmptyGroups(output, slug, new_groups);
  },
};

/** The fields that the flags give, in the form of the API. */
async function readFields(values: Values, idOf: IdOf): Promise<{ peer?: Side; target?: Side }> {
  const side = async (flag: "peer" | "target") => {
    const text = values.text(flag);
    return text === undefined ? undefined : readSide(flag, text, idOf);
  };
  return given({
    direction: values.text("direction"),
    protocol: values.text("protocol"),
    ports: values.text("ports"),
    peer: await side("peer"),
    target: await side("target"),
    description: values.text("description"),
  });
}

/** Groups that the rule names and that do not exist yet. Groups of users need none. */
function newGroups(
  api: Api,
  slug: string,
  { peer, target }: { peer?: Side; target?: Side },
): Promise<string[]> {
  const groups = [peer, target].flatMap((side) =>
    side !== undefined && "group" in side ? [side.group] : [],
  );
  return missingGroups(
    api,
    slug,
    groups.filter((group) => !isUsersGroup(group)),
  );
}

/** Part of the plan of --dry-run. `opened`: routers whose networks the rule lets packets pass to (opened-networks.ts). */
function sayPlanned({ settings, output }: Context, opened: readonly Opened[], rule: Opening): void {
  if (settings.dryRun && !output.json && opened.length > 0) output.say(openedText(opened, rule).trimEnd());
}

function sayTwin(output: Context["output"], slug: string, rule: Rule, rulesBefore: readonly Rule[]): void {
  const twin = rulesBefore.find((each) => meaningOf(each) === meaningOf(rule));
  if (twin !== undefined)
    output.say(
      `Rule ${twin.id} permits the same already, so both have to be deleted to end it. To delete the new one: \`${brand.executable} admin rule delete ${quoteWord(slug)} ${rule.id}\``,
    );
}

function sayEmptyGroups(output: Context["output"], slug: string, groups: readonly string[]): void {
  if (output.json) return;
  for (const group of groups)
    output.say(
      `No node is in ${group} yet: \`${brand.executable} admin node update ${quoteWord(slug)} NODE --add-group ${quoteWord(group)}\``,
    );
}

/** Equal for rules that permit the same: all but number and description. */
const meaningOf = ({ direction, protocol, ports, peer, target }: Rule) =>
  JSON.stringify([direction, protocol, ports, peer, target]);

/** The word ID of a command line. */
function readId(id: string): number {
  if (!isNumber(id)) throw new AppError("usage", `ID must be a number, not "${id}"`);
  return Number(id);
}

export const remove: Implementation = {
  args: { ...orgArg, ID: wordArg("The rule's number") },
  examples: [`${brand.executable} admin rule delete acme 3`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    const id = readId(word);
    const answer = await write(context, () => ({
      ...request(rulesApi.delete, { slug, id }),
      effect: `delete rule ${id}`,
    }));
    if (answer !== undefined) context.output.result({ id, deleted: true }, `Deleted rule ${id}\n`);
  },
};
