// Passkeys of users (WebAuthn).

import { integer, integerOrNull, serial, table, text, type TableRow } from "../table.ts";

export const passkeys = table(
  "passkeys",
  {
    id: serial,
    userId: integer("REFERENCES users (id)"),
    credentialId: text("UNIQUE"),
    /** COSE, in base64url. */
    publicKey: text(),
    /** Of the last use; 0 for synced passkeys. */
    counter: integer(),
    /** Words with spaces between, as the browser told them. */
    transports: text(),
    name: text(),
    /** The host that the passkey is bound to. */
    rpId: text(),
    createdAt: integer(),
    lastUsedAt: integerOrNull(),
  },
  { indexes: ["CREATE INDEX passkeys_user ON passkeys (user_id, id)"] },
);
export type PasskeyRow = TableRow<typeof passkeys>;
