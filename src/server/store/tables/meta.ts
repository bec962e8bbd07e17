// What servers and admin commands share through the database, by key.

import { table, text } from "../table.ts";

export const meta = table("meta", { key: text("PRIMARY KEY"), value: text() });
