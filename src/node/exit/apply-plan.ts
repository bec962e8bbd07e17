// Brings the kernel to a plan (exit-plan.ts): compares what is there with what is wanted, and changes the difference. So a start
// after a crash, a program that removed our rules, and a new network are one case. Of the machine's rules and
// routes, only those with our numbers are touched.

import * as v from "valibot";
import { messageOf } from "../../base/errors.ts";
import type { System } from "../../base/system.ts";
import { ipProgram } from "../../platform/network/kernel.ts";
import type { Change } from "../../platform/machine-changes.ts";
import { keepTable } from "../../platform/nftables.ts";
import { exitTable, firstPriority, lastPriority, noPlan, type ExitPlan, type Family } from "./exit-plan.ts";

type UsedSystem = Pick<System, "run" | "platform">;

const timeoutMs = 5000;
const families = [4, 6] as const;

const Rule = v.looseObject({
  priority: v.number(),
  src: v.optional(v.string()),
  dst: v.optional(v.string()),
  dstlen: v.optional(v.number()),
  fwmark: v.optional(v.string()),
  table: v.optional(v.string()),
  suppress_prefixlen: v.optional(v.number()),
});
const Route = v.looseObject({
  type: v.optional(v.string()),
  dst: v.string(),
  dev: v.optional(v.string()),
  metric: v.optional(v.number()),
});
/** Entries of a list that `ip` prints. */
const most = 4096;
const Rules = v.pipe(v.string(), v.parseJson(), v.array(Rule), v.maxLength(most));
const Routes = v.pipe(v.string(), v.parseJson(), v.array(Route), v.maxLength(most));

/** `isLeaving`: the plan has no rules. Then it is no failure if another process removes the same at the same time. */
type Goal = { plan: ExitPlan; isLeaving: boolean };
const leaving: Goal = { plan: noPlan, isLeaving: true };

/** Returns why the kernel is not as planned; undefined if it is. Does not reject. */
export async function applyExit(
  slug: string,
  plan: ExitPlan,
  system: UsedSystem,
): Promise<string | undefined> {
  try {
    const isLeaving = plan.rules[4].length === 0 && plan.rules[6].length === 0;
    const applyTable = () => keepTable("exit", slug, plan.nft, system);
    // The table may have a block: it comes before packets are led to the exit, and goes after that has ended.
    const reason = isLeaving ? undefined : await applyTable();
    if (reason !== undefined) return reason;
    for (const family of families) await applyFamily(family, { plan, isLeaving }, system);
    return isLeaving ? await applyTable() : undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** The changes that remove all rules and routes of an exit. */
export async function rulesRemoval(system: UsedSystem): Promise<Change[]> {
  const ip = ipProgram(system);
  if (ip === undefined) return [];
  const commands = await Promise.all(
    families.map(async (family) =>
      (await commandsFor(family, leaving, system)).map((words) => [ip, `-${family}`, ...words.split(" ")]),
    ),
  );
  return commands.flat().map((argv) => ({ change: "run", argv }));
}

/** The command and the running part (use-exit.ts) may leave an exit at the same time: then nothing must be left afterwards. */
async function applyFamily(family: Family, goal: Goal, system: UsedSystem): Promise<void> {
  const commands = await commandsFor(family, goal, system);
  if (commands.length === 0) return;
  try {
    // -force: `ip` goes on after a command that fails, and tells the failure by its exit status.
    await run(family, ["-force", "-batch", "-"], system, { input: `${commands.join("\n")}\n` });
  } catch (error) {
    if (!goal.isLeaving || (await commandsFor(family, goal, system)).length > 0) throw error;
  }
}

/** What is to be done for the goal: the words behind `ip -4` or `ip -6`, a command each. */
async function commandsFor(family: Family, { plan, isLeaving }: Goal, system: UsedSystem): Promise<string[]> {
  const rules = await readRules(family, system);
  const routes = await readRoutes(family, system);
  const wantedRules = plan.rules[family].map(([priority, words]) => `${words} priority ${priority}`);
  const wantedRoutes = plan.routes[family];
  // Routes are added before the rules that lead to them, and removed after these: no rule ever leads to a table without its routes.
  const adding = [
    ...wantedRoutes
      .filter((each) => !routes.includes(each))
      .map((each) => `route add ${each} table ${exitTable}`),
    ...wantedRules.filter((each) => !rules.includes(each)).map((each) => `rule add ${each}`),
  ];
  const removing = [
    ...extra(rules, wantedRules).map((each) => `rule del ${each}`),
    ...extra(routes, wantedRoutes).map((each) => `route del ${each} table ${exitTable}`),
  ];
  return isLeaving ? removing : [...adding, ...removing];
}

/** The rules or routes that are not wanted, and those that are there twice. */
const extra = (present: readonly string[], wanted: readonly string[]) =>
  present.filter((each, at) => !wanted.includes(each) || present.indexOf(each) !== at);

/** The kernel's rules in the words of the plan. */
async function readRules(family: Family, system: UsedSystem): Promise<string[]> {
  const text = await run(family, ["-json", "rule", "show"], system);
  const all = v.parse(Rules, text.trim() === "" ? "[]" : text);
  const ours = all.filter(({ priority }) => priority >= firstPriority && priority <= lastPriority);
  return ours.map(({ priority, src, dst, dstlen, fwmark, table, suppress_prefixlen: least }) =>
    [
      ...(src === undefined || src === "all" ? [] : [`from ${src}`]),
      ...(dst === undefined ? [] : [`to ${dst}${dstlen === undefined ? "" : `/${dstlen}`}`]),
      ...(fwmark === undefined ? [] : [`fwmark ${fwmark}`]),
      `lookup ${table ?? "main"}`,
      ...(least === undefined ? [] : [`suppress_prefixlength ${least}`]),
      `priority ${priority}`,
    ].join(" "),
  );
}

async function readRoutes(family: Family, system: UsedSystem): Promise<string[]> {
  const words = ["-json", "route", "show", "table", `${exitTable}`];
  const text = await run(family, words, system, { mayFail: true });
  return v
    .parse(Routes, text.trim() === "" ? "[]" : text)
    .map(({ type, dst, dev, metric }) =>
      type === undefined || type === "unicast"
        ? `${dst} dev ${dev ?? ""}`
        : `${type} ${dst}${metric === undefined ? "" : ` metric ${metric}`}`,
    );
}

/** The output of `ip`. `mayFail`: a failure is an empty text, since an empty routing table does not exist. */
async function run(
  family: Family,
  words: readonly string[],
  system: UsedSystem,
  { input, mayFail = false }: { input?: string; mayFail?: boolean } = {},
): Promise<string> {
  const ip = ipProgram(system);
  if (ip === undefined) throw new Error("this machine has no ip (the package iproute2)");
  const options = input === undefined ? { timeoutMs } : { timeoutMs, input };
  const { status, stdout, stderr } = await system.run([ip, `-${family}`, ...words], options);
  // `ip` prints half a list for a table that does not exist.
  if (status !== 0 && mayFail) return "";
  if (status !== 0) throw new Error(`ip ${words.join(" ")}: ${stderr.trim().slice(0, 300)}`);
  return stdout;
}
