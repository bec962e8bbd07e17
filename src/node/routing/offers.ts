// What root of this machine offers to route, what of it an administrator has approved, and how it is going.

import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { makeDirectory, readTextIfThere, writeFileUntilBoot } from "../../base/files.ts";
import { parseOffer, type Advertised, type Offer } from "../../protocol/routing/advertised.ts";
import { subnetsIn } from "../files/granted/networks.ts";
import { readValidJson } from "../files/json-file.ts";
import { permissionsOrNone } from "../files/permissions.ts";
import { savedHealthDirectory } from "../health/saved-health.ts";

const text = (max: number) => v.pipe(v.string(), v.maxLength(max));
/** Until the next boot, like what it describes: forwarding by interface as it was before, and the state of each network. */
const RouterFile = v.object({
  forwarding: v.pipe(v.record(text(15), v.picklist(["0", "1"])), v.maxEntries(1000)),
  /** What switching on IPv6 changed (ipv6-forwarding.ts); absent: it was on, or is not needed. */
  ipv6: v.exactOptional(v.object({ acceptRa: v.pipe(v.array(text(15)), v.maxLength(1000)) })),
  /** The router is being removed: other organizations of the machine do not leave forwarding on for it. */
  ending: v.exactOptional(v.boolean()),
  networks: v.pipe(
    v.record(text(64), v.object({ state: text(16), why: v.exactOptional(text(200)) })),
    v.maxEntries(1000),
  ),
});
export type RouterFile = v.InferOutput<typeof RouterFile>;

export const routerFilePath = (directory: string, slug = basename(directory)) =>
  join(savedHealthDirectory(dirname(directory)), `${slug}.router.json`);

/** The router file of this organization, or of another one on this machine. */
export const readRouterFile = (directory: string, slug?: string): RouterFile | undefined =>
  readValidJson(routerFilePath(directory, slug), RouterFile);

export function writeRouterFile(directory: string, file: RouterFile): void {
  const path = routerFilePath(directory);
  makeDirectory(dirname(path), 0o755);
  writeFileUntilBoot(path, `${JSON.stringify(file)}\n`, 0o644);
}

/** Reads nothing else for a machine that offers nothing: every check-in asks. */
export function readOffers(directory: string): Offer[] {
  if (!existsSync(join(directory, "permissions.json"))) return [];
  return permissionsOrNone(directory).advertise.flatMap((each) => parseOffer(each) ?? []);
}

/** The offers that the node's certificate holds: only what both root and an administrator want is routed. */
export function approvedOffers(directory: string): Offer[] {
  const offers = readOffers(directory);
  if (offers.length === 0) return [];
  const approved = certified(directory);
  return offers.filter(({ network }) => approved.includes(network));
}

const certified = (directory: string) => subnetsIn(readTextIfThere(join(directory, "host.crt")) ?? "");

/** Networks that this node routes for others without an offer: root has set them up by hand, or has ended the offer. */
export function withoutOffer(directory: string): string[] {
  const offered = readOffers(directory).map(({ network }) => network);
  return certified(directory).filter((each) => !each.endsWith("/0") && !offered.includes(each));
}

/** Whether there is something to make ready, to take back, or to watch. */
export function isRouter(directory: string): boolean {
  return (
    readRouterFile(directory) !== undefined ||
    approvedOffers(directory).length > 0 ||
    withoutOffer(directory).length > 0
  );
}

/** What check-ins report; undefined where nothing is offered. */
export function advertisedNow(directory: string): Advertised[] | undefined {
  const offers = readOffers(directory);
  if (offers.length === 0) return undefined;
  const states = readRouterFile(directory)?.networks ?? {};
  return offers.map((each) => ({ ...each, ...states[each.network] }));
}
