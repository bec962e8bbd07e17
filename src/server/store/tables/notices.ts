// Wake-ups for other processes (SQLite alone; PostgreSQL has NOTIFY).

import { integer, serial, table, text } from "../table.ts";

export const notices = table("notices", {
  id: serial,
  channel: text(),
  payload: text(),
  createdAt: integer(),
});
