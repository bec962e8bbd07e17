// Aliases: further names of machines inside the network, as GET names/ shows them. Pure.

export type Alias = { id: number; name: string; node: number; address: string | null; is_shadowed: boolean };

/** By machine: "intranet, wiki". */
export type AliasWords = ReadonlyMap<number, string>;

export const aliasWords = (all: readonly Pick<Alias, "name" | "node">[]): AliasWords =>
  new Map(
    [...Map.groupBy(all, ({ node }) => node)].map(([id, of]) => [id, of.map(({ name }) => name).join(", ")]),
  );
