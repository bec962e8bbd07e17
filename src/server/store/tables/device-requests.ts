// Sign-ins of the command line that wait for a browser (RFC 8628). They end after five minutes.

import { integer, integerOrNull, serial, since, table, text, type TableRow } from "../table.ts";

export const deviceRequests = table(
  "device_requests",
  {
    id: serial,
    /** Of the code that the command line polls with. */
    deviceHash: text("UNIQUE"),
    /** Of the code that the user types in the browser. */
    userHash: text("UNIQUE"),
    /** What the machine calls itself. It proves nothing. */
    machine: text(),
    address: text(),
    createdAt: integer(),
    expiresAt: integer(),
    /** The user who decided, and when; null: nobody yet. */
    userId: integerOrNull("REFERENCES users (id)"),
    decidedAt: integerOrNull(),
    /** 1: approved, 0: refused. */
    isApproved: integerOrNull(),
    /** The last poll, ms. */
    polledAt: integerOrNull(),
    /** The provider by which the browser that approved was signed in, and the end of that session; null: without one. */
    providerId: since(32, integerOrNull()),
    providerUntil: since(32, integerOrNull()),
  },
  { indexes: ["CREATE INDEX device_requests_expiry ON device_requests (expires_at)"] },
);
export type DeviceRequestRow = TableRow<typeof deviceRequests>;
