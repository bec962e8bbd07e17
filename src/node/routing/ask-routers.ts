// Asks routers once whether they reach the networks behind them, for the doctor. A router answers pings, but not those with the mark of a
// network that it does not reach (route-probe.ts).

import { defer } from "../../base/defer.ts";
import type { System } from "../../base/system.ts";
import { Echoes } from "../../platform/network/echoes.ts";
import type { OpenEcho } from "../../platform/network/echo-socket.ts";
import { probeMark } from "./route-probe.ts";

/** More are not asked. */
const mostAsked = 16;
const rounds = 5;
const roundMs = 400;

/** A network and the overlay address of the router that is used for it. */
export type UsedRoute = { network: string; router: string };

/** The routes whose routers answer, and say that they do not reach the network. `own`: the overlay addresses of this node. */
export async function unreachedRoutes(
  routes: readonly UsedRoute[],
  own: readonly string[],
  { open, system }: { open: OpenEcho; system: Pick<System, "sleep" | "monotonic"> },
): Promise<UsedRoute[]> {
  const echoes = new Echoes({ open, monotonic: system.monotonic });
  using _ = defer(() => echoes.close());
  const asked = routes.slice(0, mostAsked);
  const wanted = asked.flatMap(({ network, router: to }) => {
    const from = own.find((address) => address.includes(":") === to.includes(":"));
    if (from === undefined) return [];
    // A plain ping has no mark: the router answers it in any case.
    return [
      [network, { from, to, mark: probeMark(network) }] as const,
      [to, { from, to, mark: "" }] as const,
    ];
  });
  echoes.set(new Map(wanted));
  const hasAnswered = (key: string) => echoes.get(key)?.answeredAt !== undefined;
  for (let round = 0; round < rounds && !asked.every(({ network }) => hasAnswered(network)); round++) {
    await echoes.send(() => 0);
    await system.sleep(roundMs);
  }
  return asked.filter(({ network, router }) => hasAnswered(router) && !hasAnswered(network));
}
