// Replaced tokens of nodes. Only their hashes are stored.

import { integer, table, text } from "../table.ts";

/** Replaced tokens of nodes. They stay known, so that using one does not count as guessing. */
export const retiredTokens = table("retired_tokens", {
  tokenHash: text("PRIMARY KEY"),
  retiredAt: integer(),
});
