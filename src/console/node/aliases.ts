// Aliases: further names of nodes inside the network, as GET names/ shows them. Pure.

import type { Alias } from "../../api/names.ts";

/** By node: "intranet, wiki". */
export type AliasWords = ReadonlyMap<number, string>;

export const aliasWords = (all: readonly Pick<Alias, "name" | "node">[]): AliasWords =>
  new Map(
    [...Map.groupBy(all, ({ node }) => node)].map(([id, aliases]) => [
      id,
      aliases.map(({ name }) => name).join(", "),
    ]),
  );
