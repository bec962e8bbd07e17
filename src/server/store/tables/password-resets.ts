// Links for a new password, sent by e-mail. Only their hashes are stored.

import { integer, table, text } from "../table.ts";

export const passwordResets = table(
  "password_resets",
  {
    secretHash: text("PRIMARY KEY"),
    userId: integer("REFERENCES users (id)"),
    expiresAt: integer(),
  },
  { indexes: ["CREATE INDEX password_resets_user ON password_resets (user_id)"] },
);
