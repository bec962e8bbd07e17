// What this machine has changed as a router of an organization, and the state of each network behind it: true until the next boot.

import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { makeDirectory, writeFileUntilBoot } from "../../base/files.ts";
import { installNft, noNft } from "../../platform/nftables.ts";
import { readValidJson } from "../files/json-file.ts";
import { savedHealthDirectory } from "../health/saved-health.ts";

const RouterFile = v.object({
  /** By interface: the value of IPv4 forwarding from before. */
  forwarding: v.pipe(v.record(boundedText(15), v.picklist(["0", "1"])), v.maxEntries(1000)),
  /** What switching on IPv6 changed (ipv6-forwarding.ts); absent: it was on, or is not needed. */
  ipv6: v.exactOptional(v.object({ acceptRa: v.pipe(v.array(boundedText(15)), v.maxLength(1000)) })),
  /** The router is being removed: other organizations of the machine do not leave forwarding on for it. */
  ending: v.exactOptional(v.boolean()),
  /** By network: its state, and why it failed. */
  networks: v.pipe(
    v.record(boundedText(64), v.object({ state: boundedText(16), why: v.exactOptional(boundedText(200)) })),
    v.maxEntries(1000),
  ),
});
export type RouterFile = v.InferOutput<typeof RouterFile>;

export const routerFilePath = (directory: string, slug = basename(directory)) =>
  join(savedHealthDirectory(dirname(directory)), `${slug}.router.json`);

/** The router file of this organization, or of another one on this machine. */
export const readRouterFile = (directory: string, slug?: string): RouterFile | undefined =>
  readValidJson(routerFilePath(directory, slug), RouterFile);

/** The networks that this router does not reach now: the reason, in one sentence without a full stop, and a command. */
export function unreachedNetworks(directory: string): { what: string; cure: string }[] {
  return Object.entries(readRouterFile(directory)?.networks ?? {}).flatMap(
    ([network, { state, why = "" }]) => {
      if (state === "ready") return [];
      const reason = state === "down" ? "what is behind it does not answer" : why;
      return {
        what: `This node is a router of ${network}, but ${reason}`,
        cure: why === noNft ? installNft : `ip route get ${network.replace(/\/\d+$/, "")}`,
      };
    },
  );
}

export function writeRouterFile(directory: string, file: RouterFile): void {
  const path = routerFilePath(directory);
  makeDirectory(dirname(path), 0o755);
  writeFileUntilBoot(path, `${JSON.stringify(file)}\n`, 0o644);
}
