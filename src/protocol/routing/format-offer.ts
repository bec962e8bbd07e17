// The text of an offered network. In a file of its own, because the console loads it without the schemas of advertised.ts.

import type { Offer } from "./advertised.ts";

/**
 * The reverse of `parseOffer`: `10.9.0.0/24=192.168.1.0/24@192.168.1.1+masquerade`, where all but the network may be absent. The list
 * of routes has null for what is absent.
 */
export function formatOffer({
  network,
  behind,
  watch,
  masquerade,
}: { [Key in keyof Offer]: Offer[Key] | null }): string {
  const parts = [behind && `=${behind}`, watch && `@${watch}`, masquerade === true && "+masquerade"];
  return [network, ...parts.filter((each) => typeof each === "string")].join("");
}
