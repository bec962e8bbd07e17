// The values that `serve`, an admin command or a test passes to the control plane: the system and the settings.

import type { Log } from "../base/log.ts";
import type { ExternalAccount } from "../pki/acme-keys.ts";
import type { SecretKeys } from "../pki/secrets.ts";
import type { System } from "../base/system.ts";
import type { Network } from "../base/ip.ts";
import type { ServerClock } from "./store/clock.ts";
import type { Database } from "./store/database.ts";

/** How long an organization keeps its events in the database, and how many bytes it may store. */
export type Retention = {
  eventsS: number;
  eventBytes: number;
  /** Events, archives in the data directory, and rows that members can create. */
  organizationBytes: number;
};
export const defaultRetention: Retention = {
  eventsS: 400 * 86_400,
  eventBytes: 1_000_000_000,
  organizationBytes: 4_000_000_000,
};

/** `serve --tls acme`. */
export type AcmeOptions = {
  directoryUrl: string;
  /** A DNS name or an IP address. */
  name: string;
  /** PEM of CAs for the connection to the ACME server. */
  trust?: string;
  email?: string;
  externalAccount?: ExternalAccount;
  /** Without one: `shortlived` for an IP address if the authority has it. */
  profile?: string;
  /** DNS-01 by this program instead of HTTP-01. */
  dnsHook?: string;
};

/** The SMTP server. `url`: smtp: or smtps:, without user and password. */
export type MailOptions = {
  url: string;
  from: string;
  user?: string;
  password?: string;
  /** PEM of CAs for the connection. */
  trust?: string;
};

export type ServerOptions = {
  db: Database;
  system: Pick<
    System,
    | "now"
    | "monotonic"
    | "random"
    | "sleep"
    | "fetch"
    | "lookup"
    | "lookupTexts"
    | "run"
    | "executable"
    | "platform"
  >;
  /** Its believed time, which does not follow a jump of the machine's clock, is the `now` of the services (clock.ts). */
  clock: ServerClock;
  log: Log;
  /** Encrypts the secrets in the database. */
  secretKey: SecretKeys;
  /** The base URL for nodes and links, without a final slash. */
  publicUrl: string;
  /** `sha256:HEX` of the server's own TLS CA, if nodes must pin it. */
  caFingerprint?: string;
  /** The certificate of that CA, which the install script of this server brings. */
  caPem?: string;
  /** The TLS certificate that the server presents now, in PEM. Undefined over plain HTTP. */
  tlsCertificate?: () => string | undefined;
  /** How long the tokens of users' sessions are valid: access tokens, and the refresh tokens that renew them. */
  accessLifetimeS: number;
  refreshLifetimeS: number;
  /** Networks that webhooks may reach besides public addresses. */
  webhookNetworks?: readonly Network[];
  /** The directory for archives of events. Without one, no event is archived. */
  dataDirectory?: string;
  retention?: Retention;
  /** Log all requests, also check-ins and reads. */
  logReads?: boolean;
  /** The TLS certificate comes from this ACME server. */
  acme?: AcmeOptions;
  /** Tell nodes that come by the listener of the own CA to trust the public certificate at `publicUrl`. */
  movesNodes?: boolean;
  /** Without one, administrators pass links on themselves. */
  mail?: MailOptions;
  /**
   * Where the agent of this machine keeps its organizations: lighthouses and relays among them are reached by TCP through the
   * listener. Without it, none is.
   */
  machineRoot?: string;
  /** The directory of a release that this server hands out, in preference to the release that it was installed from. */
  releasesDirectory?: string;
  /** In tests, in place of the keys of this executable. */
  releaseKeys?: readonly string[];
};

/** What most operations need of the options: the database, and the system's clock, random bytes and network. */
export type Store = Pick<ServerOptions, "db" | "system">;
