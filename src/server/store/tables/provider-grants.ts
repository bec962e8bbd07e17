// What providers gave at sign-in, by which the server asks them every hour whether the person is still there.

import { integer, integerOrNull, serial, since, table, text, type TableRow } from "../table.ts";

/** What the token is sealed for. */
export const grantContext = (providerId: number, subject: string) =>
  `provider grant ${providerId} ${subject}`;

export const providerGrants = table(
  "provider_grants",
  {
    id: serial,
    providerId: integer("REFERENCES identity_providers (id)"),
    userId: integer("REFERENCES users (id)"),
    subject: text(),
    /** The refresh token. Providers may replace it with each use. */
    tokenSealed: text(),
    /** When the provider is asked next. */
    nextAt: integer(),
    /** Since when the provider refuses the token without saying why, ms; null: it does not. */
    refusedAt: since(44, integerOrNull()),
  },
  {
    constraints: ["UNIQUE (provider_id, subject)"],
    indexes: [
      "CREATE INDEX provider_grants_next ON provider_grants (next_at)",
      "CREATE INDEX provider_grants_user ON provider_grants (user_id)",
    ],
  },
);
export type ProviderGrantRow = TableRow<typeof providerGrants>;
