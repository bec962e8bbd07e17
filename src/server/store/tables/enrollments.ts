// Machines that wait until a user confirms them in a browser. They end after some minutes. A request holds no name, no
// address and no certificate.

import {
  integer,
  integerOrNull,
  integerWithDefault,
  serial,
  table,
  text,
  textOrNull,
  type TableRow,
} from "../table.ts";

export const enrollments = table(
  "enrollments",
  {
    id: serial,
    /** Names the request in the address of the page. Not a secret: it confirms nothing. */
    code: text("UNIQUE"),
    /** Of the machine's own secret. After the confirmation it is the registration token. */
    tokenHash: text("UNIQUE"),
    /** The name that the node asks for. */
    name: text(),
    hostPublicKey: text(),
    csrKeySha256: textOrNull(),
    /** The organization that the machine asks for; null: the user chooses. Nothing says that it exists. */
    slug: textOrNull(),
    /** What the machine says of itself. It proves nothing. */
    machine: text(),
    platform: textOrNull(),
    address: text(),
    createdAt: integer(),
    expiresAt: integer(),
    /** How often words were typed for it, right or wrong. */
    tries: integerWithDefault("DEFAULT 0"),
    /** The organization for which it was confirmed; null: it waits. */
    orgId: integerOrNull("REFERENCES organizations (id)"),
  },
  { indexes: ["CREATE INDEX enrollments_expiry ON enrollments (expires_at)"] },
);
export type EnrollmentRow = TableRow<typeof enrollments>;
