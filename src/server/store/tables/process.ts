// What servers and admin commands tell each other through the database.

import { integer, serial, table, text } from "../table.ts";

export const meta = table("meta", { key: text("PRIMARY KEY"), value: text() });

/** Wake-ups for other processes (SQLite alone; PostgreSQL has NOTIFY). */
export const notices = table("notices", {
  id: serial,
  channel: text(),
  payload: text(),
  createdAt: integer(),
});
