// What the routes share: made once by makeApp, handed to every routes file.

import type { Log } from "../log.ts";
import type { SecretKeys } from "../pki/secrets.ts";
import type { System } from "../system.ts";
import type { Network } from "../ip.ts";
import type { Auth } from "./people/auth.ts";
import type { Changes } from "./config/changes.ts";
import type { Meters } from "./http/meters.ts";
import type { Database } from "./store/database.ts";
import type { Throttle } from "./http/throttle.ts";
import type { Sessions } from "./people/sessions.ts";
import type { Passwords } from "./people/passwords.ts";

/** What `serve` (or a test) gives. */
export type ServerOptions = {
  db: Database;
  system: Pick<System, "now" | "random" | "sleep" | "fetch" | "lookup">;
  log: Log;
  /** Encrypts what is secret in the database. */
  secretKey: SecretKeys;
  /** What nodes and links are told, without a final slash. */
  publicUrl: string;
  /** `sha256:HEX` of our own TLS CA, where nodes have to be told it. */
  caFingerprint?: string;
  accessLifetimeS: number;
  refreshLifetimeS: number;
  /** Where webhooks may lead besides public addresses. */
  webhookNetworks?: readonly Network[];
  /** Every request is logged, not only what changes something. */
  logReads?: boolean;
  /** A published release that this server mirrors at /releases/. */
  releasesDirectory?: string;
};

export type Services = ServerOptions & {
  auth: Auth;
  sessions: Sessions;
  passwords: Passwords;
  meters: Meters;
  /** Polls that wait for news of an organization or a node. */
  changes: Changes;
  /** What is done after the last answer and before the database is closed. */
  atStop(act: () => Promise<void>): void;
  /** Guesses, by `address <ip>` and `account <email>`. */
  throttle: Throttle;
};
