// Which replica runs each background loop. Only PostgreSQL has rows: one server at most uses a SQLite file.

import { integer, table, text } from "../table.ts";

export const leases = table("leases", {
  name: text("PRIMARY KEY"),
  /** The id of a replica; "" before the first one. */
  holder: text(),
  /** Rises with each takeover. A write of a former holder carries a lower one. */
  fence: integer(),
  /** By the clock of the database, ms. */
  expiresAt: integer(),
});
