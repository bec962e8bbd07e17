// Machines that wait for approval, as GET registrations/ shows them to administrators.

import { org } from "./api.ts";
import { html } from "./html.ts";
import { slug } from "./me.ts";
import { useList } from "./resource.ts";

export type Registration = {
  id: number;
  name: string;
  key_sha256: string;
  groups: readonly string[];
  is_lighthouse: boolean;
  is_relay: boolean;
  owner_id: number | null;
  platform: string | null;
  version: string | null;
  seen_from: string;
  created_at: string;
  expires_at: string;
};

export const registrationsPath = (own: string) => org(own, "registrations/?page_size=1000");

/** How many machines wait, beside a title of the navigation. Zero is shown as nothing. */
export function WaitingCount() {
  const count = useList<Registration>(registrationsPath(slug.value ?? "")).data?.length ?? 0;
  return count === 0
    ? null
    : html`<span class="count">${count}<span class="unseen"> waiting for you</span></span>`;
}
