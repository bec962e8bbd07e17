// What needs a user's attention, in words: loaded with the overview alone. Pure.

import type { Attention } from "../api/paths.ts";
import type { SentOf } from "../api/endpoint.ts";
import type { nodesApi } from "../api/nodes.ts";
import { separateCopy } from "../protocol/finding-kinds.ts";
import { ago } from "./ago.ts";

type Found<T> = { count: number; first: readonly T[] };
type Named = { id: number; name: string };

type Failing = NonNullable<Attention["failing_tests"]>;

export const testsWords = ({ count, all }: Failing): string =>
  all === 1
    ? "The test of the policy fails"
    : `${count} of ${all} tests of the policy ${count === 1 ? "fails" : "fail"}`;

/** `more`: the machine's problem. */
export type Need = Named & { more: string };

/** `show`: the filter of the list of machines that has all of them. */
export type Needy = { title: string; show: string; count: number; needs: readonly Need[] };

type Ill = Pick<Attention, "hubs_away" | "broken_paths" | "not_applied" | "cloned">;

/** Machines that others need and that are away, those that do not reach a peer, and those that take no configuration. */
export function degraded(ill: Ill, now: number): Needy[] {
  const { hubs_away, broken_paths, not_applied, cloned } = ill;
  return [
    needy(
      "Keys that two machines use",
      "cloned",
      cloned,
      () =>
        `is two machines with the same keys, and tunnels alternate between them. On the copy alone: ${separateCopy}, with a new join key`,
    ),
    needy("Lighthouses and relays away", "hubs", hubs_away, ({ is_lighthouse }) =>
      is_lighthouse
        ? "is away: machines find each other by this lighthouse"
        : "is away: it relays for others",
    ),
    needy("Machines that do not reach a peer", "broken", broken_paths, ({ peers, peer_count }) => {
      const rest = peer_count - peers.length;
      return `does not reach ${peers.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
    }),
    needy(
      "Machines that take no configuration",
      "late",
      not_applied,
      ({ since }) =>
        `checks in, but has not applied the configuration of ${ago(Date.parse(since), now)}: rules that were saved since are not in force on it`,
    ),
  ];
}

const needy = <T extends Named>(
  title: string,
  show: string,
  { count, first }: Found<T>,
  more: (each: T) => string,
): Needy => ({
  title,
  show,
  count,
  needs: first.map((each) => ({ id: each.id, name: each.name, more: more(each) })),
});

/** How many machines are online: a state if that is less than half of them. */
export function onlineOf({ active, online }: Pick<Attention, "active" | "online">): {
  words: string;
  isBad: boolean;
} {
  if (active === 0) return { words: "No machine is registered.", isBad: false };
  if (online === 0) return { words: `None of ${active} machines is online.`, isBad: true };
  const isBad = online * 2 < active;
  return {
    words: `${isBad ? "Only " : ""}${online} of ${active} machines ${online === 1 ? "is" : "are"} online.`,
    isBad,
  };
}

export type OnlineCount = { at: string; online: number };
type History = SentOf<typeof nodesApi.online>;

/** The plot in words. Uses single counts, because points of the plot can be averages. */
export function historyWords(
  { least, most, last }: Pick<History, "least" | "most" | "last">,
  time: (at: number) => string,
): string {
  if (least === null || most === null || last === null)
    return "Nothing was counted in this time; it is counted every five minutes.";
  const told = ({ online, at }: OnlineCount, words: string) => `${online} ${words} (${time(Date.parse(at))})`;
  return `Online (green) of all machines (grey): ${told(least, "at the fewest")}, ${told(most, "at the most")}, ${told(last, "at the last count")}`;
}
