// What `serve`, an admin command or a test gives the control plane: the edges of the process and its settings.

import type { Log } from "../log.ts";
import type { SecretKeys } from "../pki/secrets.ts";
import type { System } from "../system.ts";
import type { Network } from "../ip.ts";
import type { Database } from "./store/database.ts";

export type ServerOptions = {
  db: Database;
  system: Pick<System, "now" | "random" | "sleep" | "fetch" | "lookup">;
  log: Log;
  /** Encrypts the secrets in the database. */
  secretKey: SecretKeys;
  /** Base address for nodes and links, without a final slash. */
  publicUrl: string;
  /** `sha256:HEX` of our own TLS CA, where nodes have to pin it. */
  caFingerprint?: string;
  accessLifetimeS: number;
  refreshLifetimeS: number;
  /** Networks that webhooks may reach besides public addresses. */
  webhookNetworks?: readonly Network[];
  /** Log every request, not only those that change something. */
  logReads?: boolean;
  /** A published release that this server mirrors at /releases/. */
  releasesDirectory?: string;
};
