// Takes the rules, routes and table of an exit away from the kernel, and keeps the file of its block.

import { rmSync } from "node:fs";
import { readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import type { System } from "../../base/system.ts";
import type { Change } from "../../platform/machine-changes.ts";
import { keepTable, tableRemoval, tableScript } from "../../platform/nftables.ts";
import { blockFile, othersWithExit } from "../files/granted/exits.ts";
import { ipProgram } from "../../platform/network/kernel.ts";
import { applyExit, rulesRemoval } from "./apply-plan.ts";
import { noPlan } from "./exit-plan.ts";

type Place = { slug: string; directory: string };

/** Writes the table that a unit loads at a boot before the network is up (unit-exit.ts). Without a body: removes it. */
export function keepBlock({ slug, directory }: Place, body: string | undefined): void {
  const path = blockFile(directory);
  const text = body === undefined ? undefined : tableScript("exit", slug, body);
  if (text === undefined) rmSync(path, { force: true });
  else if (readTextIfThere(path) !== text) writeFileAtomic(path, text, 0o644);
}

/**
 * Takes away this organization's rules, routes and block. Returns why that failed; undefined if it did not. If another organization
 * has an exit by now, the rules and routes are that one's, and stay. The caller reloads the engine.
 */
export async function leaveKernel(
  { slug, directory }: Place,
  system: Pick<System, "run" | "platform">,
): Promise<string | undefined> {
  // Without `ip` this machine never used an exit.
  if (ipProgram(system) === undefined) return undefined;
  keepBlock({ slug, directory }, undefined);
  return othersWithExit({ slug, directory }).length === 0
    ? applyExit(slug, noPlan, system)
    : keepTable("exit", slug, undefined, system);
}

/** What leaveKernel does, as a list of changes. `gone`: organizations whose lists are applied first, so their exits do not count. */
export async function exitRemoval(
  { slug, directory }: Place,
  system: Pick<System, "run" | "platform">,
  gone: readonly string[],
): Promise<Change[]> {
  const isOthers = othersWithExit({ slug, directory }).some((each) => !gone.includes(each));
  return [
    { change: "remove", path: blockFile(directory) },
    ...(isOthers ? [] : await rulesRemoval(system)),
    ...(await tableRemoval("exit", slug, system)),
  ];
}
