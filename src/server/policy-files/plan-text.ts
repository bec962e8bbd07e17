// A plan as lines of text, for the command line. Pure.

import type { AnswerOf } from "../../api/endpoint.ts";
import { maxPlanClasses, maxPlanPairs, type policyApi } from "../../api/policy.ts";
import { oneLine } from "../../base/unprintable.ts";

type Plan = AnswerOf<typeof policyApi.plan>;

/** How many pairs and classes are shown. `--json` has more, up to the limits of the API. */
const shownPairs = 20;
const shownClasses = 50;

export function planText(plan: Plan): string {
  const lines = [...ruleLines(plan), ...nodeLines(plan), ...accessLines(plan), ...plan.kept];
  // `plan.kept` has sentences, `plan.tests.after` is the number of tests that there will be.
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

type ShownRule = Plan["rules"]["create"][number];

function ruleLines({ rules, groups, aliases }: Plan): string[] {
  const text = ({ id, direction, protocol, ports, peer, target, description }: ShownRule) =>
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

/** A change of access between two classes of nodes, or of networks behind nodes. */
type ChangedClasses = Plan["access"]["classes"][number];

/** Which pairs of nodes of two classes a change is about; empty: all. */
function pairsWith(owners: ChangedClasses["owners"]): string {
  if (owners === undefined || owners === "any") return "";
  // Nodes of the organization have no owner, so they do not count as nodes of the same owner.
  return owners === "same" ? " of the same owner" : " not of the same owner";
}

/** One side of a change: `2 nodes in web+prod (web1, web2)`, `3 networks behind nodes in web (…)`, or the name of a single one. */
function classText({ groups, nodes, count, are }: ChangedClasses["from"]): string {
  if (count === 1) return nodes[0] ?? "";
  const kind = are === "networks" ? "networks" : "nodes";
  const where = are === "networks" ? "behind nodes in" : "in";
  const inGroups = groups.length === 0 ? "" : ` ${where} ${groups.join("+")}`;
  return `${count} ${kind}${inGroups} (${nodes.join(", ")}${count > nodes.length ? ", …" : ""})`;
}

function changeText({ gains, loses }: Pick<ChangedClasses, "gains" | "loses">): string {
  const parts: string[] = [];
  if (gains.length > 0) parts.push(`gains ${gains.join(", ")}`);
  if (loses.length > 0) parts.push(`loses ${loses.join(", ")}`);
  return parts.join("; ");
}

function accessLines({ access, is_empty: isEmpty }: Plan): string[] {
  const count = access.pairs_changed;
  if (count === 0)
    return isEmpty ? [] : ["No registered node, and no network behind one, gains or loses access."];
  const classes = access.classes.slice(0, shownClasses);
  const leftOut = access.classes.length - classes.length + access.classes_left_out;
  const hasNetworks = access.classes.some(({ from, to }) => from.are === "networks" || to.are === "networks");
  const what = hasNetworks ? "nodes, and networks behind them," : "nodes";
  const lines = [
    count === 1
      ? `1 pair of ${what} gains or loses access:`
      : `${count} pairs of ${what} gain or lose access:`,
    ...classes.map(
      ({ from, to, owners, ...change }) =>
        `  ${classText(from)} to ${classText(to)}${pairsWith(owners)}: ${changeText(change)}`,
    ),
    ...(leftOut > 0 ? [`  … and ${leftOut} more (--json has ${maxPlanClasses})`] : []),
  ];
  // Classes of one node each are pairs already.
  if (classes.length === count) return lines;
  const pairs = access.pairs.slice(0, shownPairs);
  return [
    ...lines,
    "For example:",
    ...pairs.map(({ from, to, ...change }) => `  ${from.name} to ${to.name}: ${changeText(change)}`),
    ...(count > pairs.length ? [`  … (--json has the first ${maxPlanPairs.toLocaleString("en-US")})`] : []),
  ];
}
