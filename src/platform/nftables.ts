// Tables of our own in the kernel's packet filter (Linux, nftables): one for each part and organization, written and
// removed whole. Nothing else of the machine's ruleset is read or changed.

import { existsSync } from "node:fs";
import { brand } from "../brand.ts";
import { messageOf } from "../base/errors.ts";
import type { System } from "../base/system.ts";
import { sha256Hex } from "../base/sha256.ts";
import type { Change } from "./machine-changes.ts";

type UsedSystem = Pick<System, "run" | "platform">;

const programs = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"];
const timeoutMs = 5000;

/** What has a table: the counter of a relay, a router, an exit, the counter of flows, a drill. */
export type TablePart = "relay" | "routes" | "exit" | "flows" | "drill";

export const tableOf = (part: TablePart, slug: string) => `${brand.id}-${part}-${slug}`;

/** Undefined if this machine has no nft, or does not run Linux. */
export function nftProgram({ platform }: Pick<System, "platform">): string | undefined {
  return platform === "linux" ? programs.find((each) => existsSync(each)) : undefined;
}

/** Why flows cannot be counted on this machine; undefined if they can. */
export function whyNoTables(): string | undefined {
  const { platform } = process;
  if (platform !== "linux") return "only machines with Linux can count them";
  return nftProgram({ platform }) === undefined ? noNft : undefined;
}

/** The line to type on a machine without nft. */
export const installNft = "apt-get install nftables # other systems: the package nftables";

/** Why this machine cannot have tables, also as a router tells it. */
export const noNft = "this machine has no nft (the package nftables)";

/**
 * Replaces a table of the family inet, in one transaction: no packet meets half of it. `body`: its chains and sets.
 * Undefined without an error, or why it cannot be. Does not reject.
 */
export async function putTable(
  part: TablePart,
  slug: string,
  body: string,
  system: UsedSystem,
): Promise<string | undefined> {
  return runScript(tableScript(part, slug, body), system);
}

/** Adds an empty chain, by whose name a listing tells which body is in force. */
export function versioned(body: string): string {
  const digest = sha256Hex(body).slice(0, 16);
  return `${body}\nchain version-${digest} { }`;
}

/**
 * Puts a table with this `versioned` body where another one or none is in force; removes it without one. Undefined without an
 * error, or why it cannot be. Does not reject.
 */
export async function keepTable(
  part: TablePart,
  slug: string,
  body: string | undefined,
  system: UsedSystem,
): Promise<string | undefined> {
  const present = await readTable(part, slug, system);
  if (body === undefined) {
    if (present === undefined) return undefined;
    const why = await run(["delete", "table", "inet", tableOf(part, slug)], system);
    // Another program may have removed it at the same time.
    return why !== undefined && (await readTable(part, slug, system)) !== undefined ? why : undefined;
  }
  const [version = ""] = /version-[0-9a-f]{16}/.exec(body) ?? [];
  return present?.includes(`"${version}"`) === true ? undefined : putTable(part, slug, body, system);
}

/** `{ a, b }` */
export const setOf = (items: readonly string[]): string => `{ ${items.join(", ")} }`;

/** A chain that accepts what its rules do not decide. `hook`: "filter hook input priority 0". */
export type Chain = { name: string; hook: string; rules: readonly string[] };

/** The chains that have rules, as the body of a table. */
export const chainsOf = (chains: readonly Chain[]): string =>
  chains
    .filter(({ rules }) => rules.length > 0)
    .map(({ name, hook, rules }) =>
      [`chain ${name} {`, `  type ${hook}; policy accept;`, ...rules.map((rule) => `  ${rule}`), "}"].join(
        "\n",
      ),
    )
    .join("\n");

/** The script of putTable. */
export function tableScript(part: TablePart, slug: string, body: string): string {
  const table = `inet ${tableOf(part, slug)}`;
  // Add the table before it is deleted: it may not exist.
  return `add table ${table}\ndelete table ${table}\ntable ${table} {\n${body}\n}\n`;
}

/**
 * The table as nft's JSON; undefined if there is none, or nft does not tell. `what`: `names` is everything but the elements of
 * sets. Does not reject.
 */
export async function readTable(
  part: TablePart,
  slug: string,
  system: UsedSystem,
  what: "counters" | "table" | "names" = "table",
): Promise<string | undefined> {
  const nft = nftProgram(system);
  if (nft === undefined) return undefined;
  const words = what === "counters" ? [what, "table"] : ["table"];
  const options = what === "names" ? ["-j", "-t"] : ["-j"];
  const command = [nft, ...options, "list", ...words, "inet", tableOf(part, slug)];
  const listed = await system.run(command, { timeoutMs }).catch(() => undefined);
  return listed?.status === 0 ? listed.stdout : undefined;
}

/** What removes a part's table; empty if there is none. Does not reject. */
export async function tableRemoval(part: TablePart, slug: string, system: UsedSystem): Promise<Change[]> {
  const nft = nftProgram(system);
  if (nft === undefined || (await readTable(part, slug, system)) === undefined) return [];
  return [{ change: "run", argv: [nft, "delete", "table", "inet", tableOf(part, slug)] }];
}

/** Runs a script of nft in one transaction. Undefined without an error, or why it cannot be. Does not reject. */
export function runScript(script: string, system: UsedSystem): Promise<string | undefined> {
  return run(["-f", "-"], system, script);
}

async function run(words: string[], system: UsedSystem, input?: string): Promise<string | undefined> {
  const nft = nftProgram(system);
  if (nft === undefined) return noNft;
  try {
    const options = input === undefined ? { timeoutMs } : { timeoutMs, input };
    const { status, stderr } = await system.run([nft, ...words], options);
    const said = stderr.trim().slice(0, 400);
    return status === 0 ? undefined : [`nft ended with status ${status}`, said].filter(Boolean).join(": ");
  } catch (error) {
    return messageOf(error);
  }
}
