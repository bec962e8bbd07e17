// Whether the lighthouses and relays of an organization answer from outside of the overlay, and what that says: the one
// diagnosis of `doctor` and `netcheck`, so that they never contradict each other.

import { brand } from "../../brand.ts";
import { mostAddresses } from "../../base/connect-failure.ts";
import { joinHostPort, parseAddress } from "../../base/ip.ts";
import { quoteWord } from "../../base/quote.ts";
import type { System } from "../../base/system.ts";
import { checkWayOut } from "../health/findings.ts";
import { askEngine } from "../engine/ask-engine.ts";
import { fail, ok, warn, type Finding } from "./check.ts";
import type { Hub } from "./hubs.ts";

const run = brand.executable;

export type AskedHub = Hub & {
  is: "answers" | "closed" | "no route" | "silent" | "unknown name";
  rttMs?: number;
  /** The underlay address with this result; undefined for an unknown name. */
  address?: string;
};

/** The best result first: an engine uses the address that answers. */
const telling = ["answers", "closed", "silent", "no route"];

export function askHubs(hubs: readonly Hub[], system: Pick<System, "lookup">): Promise<AskedHub[]> {
  return Promise.all(
    hubs.map(async (hub): Promise<AskedHub> => {
      const { host, port } = hub;
      const found = parseAddress(host) === undefined ? await system.lookup(host, "system") : [host];
      const answers = await Promise.all(
        [...new Set(found)]
          .slice(0, mostAddresses)
          .map(async (address) => ({ address, ...(await askEngine(address, port)) })),
      );
      const [best] = answers.toSorted((a, b) => telling.indexOf(a.is) - telling.indexOf(b.is));
      return best === undefined ? { ...hub, is: "unknown name" } : { ...hub, ...best };
    }),
  );
}

/** Adds the address that a name leads to: only the address shows that the name is another machine's. */
function placeOf({ host, port, name, overlay, address = host }: AskedHub): string {
  const whose = name === overlay ? "" : ` of ${name}`;
  return `UDP ${joinHostPort(host, port)}${whose}${address === host ? "" : ` (${address})`}`;
}

/** Why none of them can be used. One that answers comes first, because that leaves the fewest causes. */
export function whyUnreached(
  asked: readonly AskedHub[],
  slug: string,
  isPlaneSilent = false,
): { why: string; cure: string } {
  const order = ["answers", "unknown name", "no route", "closed", "silent"];
  const [first] = asked.toSorted((a, b) => order.indexOf(a.is) - order.indexOf(b.is));
  const org = quoteWord(slug);
  if (first === undefined)
    return { why: "no address of it is known", cure: `${run} sync-config --org-slug ${org}` };
  const all = asked.filter(({ is }) => is === first.is);
  const at = all.map(placeOf).join(", ");
  const { host, port, address = host } = first;
  switch (first.is) {
    case "answers":
      return {
        why: `an engine listens at ${at}, but makes no tunnel with this node: a certificate or CA differs, or this node is blocked`,
        cure: `${run} sync-config --org-slug ${org}; then the reason is in the lighthouse's log: ${run} logs ${org}`,
      };
    case "unknown name":
      return {
        why: `its name ${host} is unknown`,
        cure: `Correct this machine's name server: getent hosts ${quoteWord(host)}`,
      };
    case "no route":
      return {
        why: `no route to ${at}: this machine is not connected, or no machine has that address`,
        cure: `Connect this machine to the network, then: ip route get ${address}. If it is connected, the lighthouse may have another address now: there, ${run} doctor`,
      };
    case "closed":
      return {
        why: `${at} is closed, no engine listens there`,
        cure: `On the lighthouse: ${run} start ${org}${nameToo(first)}`,
      };
    case "silent":
      if (isPlaneSilent)
        return {
          why: `nothing comes back from ${at}, and the control plane does not answer either: this machine has no way out, or both are off`,
          cure: `${checkWayOut}: ip route get ${address}`,
        };
      return {
        why: `nothing comes back from ${at}: a firewall drops it, or the machine is off`,
        cure: `Permit UDP ${port} out of this machine and its network, and in every firewall before the lighthouse; then on the lighthouse: ${run} check-port ${port}${nameToo(first)}`,
      };
  }
}

/** What may be wrong, beside the usual causes, where nothing answers at the address of a name. */
function nameToo({ host, address = host }: AskedHub): string {
  return address === host
    ? ""
    : `. If ${address} is not its address, correct what the name server says of ${host}`;
}

/** `carries`: a lighthouse answers through the overlay, so UDP passes. */
export function udpFinding(
  asked: readonly AskedHub[],
  slug: string,
  { carries, isPlaneSilent }: { carries: boolean; isPlaneSilent?: boolean },
): Finding {
  const answering = asked.filter(({ is }) => is === "answers");
  if (answering.length === asked.length)
    return ok(`UDP passes out and back: ${asked.length} of ${asked.length} lighthouses and relays answer`);
  const others = asked.filter(({ is }) => is !== "answers");
  const { why, cure } = whyUnreached(others, slug, isPlaneSilent === true && answering.length === 0);
  if (answering.length > 0)
    return warn(`UDP passes to ${answering.map(placeOf).join(", ")}, but ${why}`, cure);
  return carries
    ? warn(`UDP passes in the tunnels that are there. For new ones, ${why}`, cure)
    : fail(`UDP does not pass: ${why}`, cure);
}
