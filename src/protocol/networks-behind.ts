// The networks behind nodes, for console and command line. Rules that let packets pass to a node also let them pass
// to the networks behind it. Pure.

/** A node. `groups`: those that a side of a rule may name. */
export type Router = { name: string; groups: readonly string[]; subnets: readonly string[] };

/** The nodes with networks behind them that a side of a rule names: "any", "node:NAME" or "group:NAME". */
export const routersOf = (word: string, nodes: readonly Router[]): readonly Router[] =>
  nodes.filter(
    ({ name, groups, subnets }) =>
      subnets.length > 0 &&
      (word === "any" ||
        word === `node:${name}` ||
        (word.startsWith("group:") && groups.includes(word.slice("group:".length)))),
  );

const maxNamed = 5;

/**
 * A line for each node: "gw-berlin: 192.168.20.0/24, 192.168.30.0/24". `words`: sides of rules, "any", "node:NAME" or
 * "group:NAME". After `max` nodes a line says how many more there are; a single further node takes that line itself.
 */
export function networksBehind(
  words: readonly string[],
  nodes: readonly Router[],
  max = maxNamed,
): readonly string[] {
  const routers = [...new Set(words.flatMap((word) => routersOf(word, nodes)))];
  const shown = routers.length > max + 1 ? routers.slice(0, max) : routers;
  const named = shown.map(({ name, subnets }) => `${name}: ${subnets.join(", ")}`);
  const more = routers.length - named.length;
  return more === 0 ? named : [...named, `and ${more} more nodes with networks`];
}
