// A plan as lines of text, for the command line. Pure.

import type { AnswerOf } from "../../api/endpoint.ts";
import type { policyApi } from "../../api/policy.ts";
import { oneLine } from "../../base/unprintable.ts";

type Plan = AnswerOf<typeof policyApi.plan>;

const shownPairs = 20;
const shownClasses = 50;

export function planText(plan: Plan): string {
  const lines = [...ruleLines(plan), ...nodeLines(plan), ...accessLines(plan), ...plan.kept];
  const tests = plan.tests.failing.map((sentence) => `Failing: ${sentence}`);
  if (plan.is_empty) lines.unshift("Nothing changes.");
  lines.push(
    ...tests,
    `Policy version ${plan.version}; ${plan.tests.after - tests.length} of ${plan.tests.after} tests pass`,
  );
  // Descriptions may have several lines.
  return `${lines.map(oneLine).join("\n")}\n`;
}

/** For a file by which nodes lose access, perhaps the administrator's own: how to apply it safely. Undefined: none loses access. */
export function lossSentence({ access }: Plan): string | undefined {
  const isLoss = [...access.classes, ...access.pairs].some(({ loses }) => loses.length > 0);
  return isLoss
    ? "Nodes lose access. Apply it with `--confirm 10m`: then it goes back by itself unless you confirm it."
    : undefined;
}

type Shown = Plan["rules"]["create"][number];

function ruleLines({ rules, groups, aliases }: Plan): string[] {
  const text = ({ id, direction, protocol, ports, peer, target, description }: Shown) =>
    `rule ${id === null ? "" : `${id} `}${direction} ${protocol}/${ports} peer ${peer} target ${target}` +
    (description === "" ? "" : ` (${description})`);
  return [
    ...groups.create.map((name) => `+ group ${name}`),
    ...groups.describe.map((name) => `~ group ${name}`),
    ...groups.delete.map((name) => `- group ${name}`),
    ...(groups.members ?? []).map(
      ({ group, add, remove }) =>
        `~ group ${group}: ${[...add.map((each) => `+${each}`), ...remove.map((each) => `-${each}`)].join(", ")}`,
    ),
    ...rules.create.map((rule) => `+ ${text(rule)}`),
    ...rules.describe.map((rule) => `~ ${text(rule)}`),
    ...rules.delete.map((rule) => `- ${text(rule)}`),
    ...aliases.delete.map((name) => `- alias ${name}`),
    ...aliases.create.map((name) => `+ alias ${name}`),
  ];
}

function nodeLines({ nodes }: Plan): string[] {
  return nodes.map(({ name, groups, routes, relay }) => {
    const changes = [
      ...groups.add.map((group) => `+group ${group}`),
      ...groups.remove.map((group) => `-group ${group}`),
      ...routes.add.map((network) => `+route ${network}`),
      ...routes.remove.map((network) => `-route ${network}`),
      ...(relay === null ? [] : [relay ? "+relay" : "-relay"]),
    ];
    return `~ node ${name}: ${changes.join(", ")}`;
  });
}

function pairsWith(owners: Plan["access"]["classes"][number]["owners"]): string {
  if (owners === undefined || owners === "any") return "";
  // Nodes of the organization have no owner, so they do not count as nodes of the same owner.
  return owners === "same" ? " of the same owner" : " not of the same owner";
}

function accessLines({ access, is_empty: isEmpty }: Plan): string[] {
  if (access.pairs_changed === 0)
    return isEmpty ? [] : ["No registered node, and no network behind one, gains or loses access."];
  type Class = Plan["access"]["classes"][number];
  const side = ({ groups, nodes, count, are }: Class["from"]) => {
    const what =
      groups.length === 0 ? "" : ` ${are === undefined ? "in" : "behind nodes in"} ${groups.join("+")}`;
    return count === 1
      ? (nodes[0] ?? "")
      : `${count} ${are ?? "nodes"}${what} (${nodes.join(", ")}${count > nodes.length ? ", …" : ""})`;
  };
  const change = ({ gains, loses }: Pick<Class, "gains" | "loses">) =>
    [
      ...(gains.length === 0 ? [] : [`gains ${gains.join(", ")}`]),
      ...(loses.length === 0 ? [] : [`loses ${loses.join(", ")}`]),
    ].join("; ");
  const classes = access.classes.slice(0, shownClasses);
  const leftOut = access.classes.length - classes.length + access.classes_left_out;
  const count = access.pairs_changed;
  const isWide = access.classes.some(({ from, to }) => from.are !== undefined || to.are !== undefined);
  const what = isWide ? "nodes, and networks behind them," : "nodes";
  const lines = [
    count === 1
      ? `1 pair of ${what} gains or loses access:`
      : `${count} pairs of ${what} gain or lose access:`,
    ...classes.map(
      (each) => `  ${side(each.from)} to ${side(each.to)}${pairsWith(each.owners)}: ${change(each)}`,
    ),
    ...(leftOut > 0 ? [`  … and ${leftOut} more (--json has 500)`] : []),
  ];
  // Classes of one node each are pairs already.
  if (classes.length === count) return lines;
  const pairs = access.pairs.slice(0, shownPairs);
  return [
    ...lines,
    "For example:",
    ...pairs.map((each) => `  ${each.from.name} to ${each.to.name}: ${change(each)}`),
    ...(access.pairs_changed > pairs.length ? ["  … (--json has the first 1,000)"] : []),
  ];
}
