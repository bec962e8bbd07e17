// Machines that wait for approval, as GET registrations/ shows them to administrators.

import { org } from "./api.ts";

export type Registration = {
  id: number;
  name: string;
  key_sha256: string;
  groups: readonly string[];
  is_lighthouse: boolean;
  is_relay: boolean;
  owner_id: number | null;
  /** With which it asked. */
  registration_token_id: number | null;
  platform: string | null;
  version: string | null;
  seen_from: string;
  created_at: string;
  /** Null while it waits. */
  approved_at: string | null;
  last_asked_at: string | null;
  expires_at: string;
};

export const registrationsPath = (own: string) => org(own, "registrations/?page_size=1000");
/** Those that were approved, and have not come back since. */
export const approvedPath = (own: string) => `${registrationsPath(own)}&state=approved`;
