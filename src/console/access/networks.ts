// The networks behind machines. Rules let packets to a network pass as they let packets to the machine in front of it pass. Pure.

import type { Machine } from "../machines.ts";

type Router = Pick<Machine, "name" | "groups" | "subnets">;

/** The machines with networks behind them that a side of a rule names. Who owns a machine is not looked at. */
const routersOf = (word: string, machines: readonly Router[]): readonly Router[] =>
  machines.filter(
    ({ name, groups, subnets }) =>
      subnets.length > 0 &&
      (word === "any" ||
        word === `node:${name}` ||
        (word.startsWith("group:") && groups.includes(word.slice("group:".length)))),
  );

const maxNamed = 5;

/** "gw-berlin: 192.168.20.0/24, 192.168.30.0/24", of the first machines; the last is how many more there are. */
export function networksBehind(
  words: readonly string[],
  machines: readonly Router[],
  max = maxNamed,
): readonly string[] {
  const routers = [...new Set(words.flatMap((word) => routersOf(word, machines)))];
  const named = routers.slice(0, max).map(({ name, subnets }) => `${name}: ${subnets.join(", ")}`);
  const more = routers.length - named.length;
  return more === 0 ? named : [...named, `and ${more} more machines with networks`];
}

/** What the administrator can do who wants one network open to one group: no single rule does it. */
export const gatewayWords =
  "What reaches a machine reaches all networks behind it. To open one network to one group only, give it a machine of its own as gateway. Then let no other rule reach that machine: a rule to all machines does, and so does a rule to one of its groups.";

/** Why a side cannot name this network, and what to name. Undefined: it is no network. */
export function networkFault(word: string, machines: readonly Router[]): string | undefined {
  if (!/^[\d.a-f:]+\/\d{1,3}$/i.test(word)) return undefined;
  const router = machines.find(({ subnets }) => subnets.includes(word.toLowerCase()));
  return router === undefined
    ? `A network cannot stand here: name the machine in front of ${word}. ${gatewayWords}`
    : `${word} is behind ${router.name}: name ${router.name}. ${gatewayWords}`;
}
