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
  /** The result of asking it (`askEngine`). */
  is: "answers" | "closed" | "no route" | "silent" | "unknown name";
  rttMs?: number;
  /** The underlay address with this result; undefined for an unknown name. */
  address?: string;
};

/** For one hub with several addresses: the best result counts, because the engine uses the address that answers. */
const bestFirst = ["answers", "closed", "silent", "no route"];

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
      const [best] = answers.toSorted((a, b) => bestFirst.indexOf(a.is) - bestFirst.indexOf(b.is));
      return best === undefined ? { ...hub, is: "unknown name" } : { ...hub, ...best };
    }),
  );
}

/** A hub in a sentence, with the address that a DNS name leads to: it may be that of another machine. */
function describeHub({ host, port, name, overlay, address = host }: AskedHub): string {
  const whose = name === overlay ? "" : ` of ${name}`;
  return `UDP ${joinHostPort(host, port)}${whose}${address === host ? "" : ` (${address})`}`;
}

/** For several hubs: the result that leaves the fewest causes. */
const clearestFirst = ["answers", "unknown name", "no route", "closed", "silent"];

/** Why none of these hubs can be used. `isPlaneSilent`: the control plane cannot be reached either. */
export function whyUnreached(
  asked: readonly AskedHub[],
  slug: string,
  isPlaneSilent = false,
): { why: string; cure: string } {
  const [clearest] = asked.toSorted((a, b) => clearestFirst.indexOf(a.is) - clearestFirst.indexOf(b.is));
  const org = quoteWord(slug);
  if (clearest === undefined)
    return { why: "no address of it is known", cure: `${run} sync-config --org-slug ${org}` };
  const hubs = asked
    .filter(({ is }) => is === clearest.is)
    .map(describeHub)
    .join(", ");
  const { host, port, address = host } = clearest;
  switch (clearest.is) {
    case "answers":
      return {
        why: `an engine listens at ${hubs}, but makes no tunnel with this node: a certificate or CA differs, or this node is blocked`,
        cure: `${run} sync-config --org-slug ${org}; then the reason is in the lighthouse's log: ${run} logs ${org}`,
      };
    case "unknown name":
      return {
        why: `its name ${host} is unknown`,
        cure: `Correct this machine's name server: getent hosts ${quoteWord(host)}`,
      };
    case "no route":
      return {
        why: `no route to ${hubs}: this machine is not connected, or no machine has that address`,
        cure: `Connect this machine to the network, then: ip route get ${address}. If it is connected, the lighthouse may have another address now: there, ${run} doctor`,
      };
    case "closed":
      return {
        why: `${hubs} is closed, no engine listens there`,
        cure: `On the lighthouse: ${run} start ${org}${orWrongName(clearest)}`,
      };
    case "silent":
      if (isPlaneSilent)
        return {
          why: `nothing comes back from ${hubs}, and the control plane does not answer either: this machine has no way out, or both are off`,
          cure: `${checkWayOut}: ip route get ${address}`,
        };
      return {
        why: `nothing comes back from ${hubs}: a firewall drops it, or the machine is off`,
        cure: `Permit UDP ${port} out of this machine and its network, and in every firewall before the lighthouse; then on the lighthouse: ${run} check-port ${port}${orWrongName(clearest)}`,
      };
  }
}

/** A further cause if the address came from a DNS name; empty otherwise. */
function orWrongName({ host, address = host }: AskedHub): string {
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
    return warn(`UDP passes to ${answering.map(describeHub).join(", ")}, but ${why}`, cure);
  return carries
    ? warn(`UDP passes in the tunnels that are there. For new ones, ${why}`, cure)
    : fail(`UDP does not pass: ${why}`, cure);
}
