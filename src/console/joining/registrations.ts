// Machines that wait for approval, as GET registrations/ shows them to administrators.

import { registrationsApi } from "../../api/node-calls.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";

export type Registration = SentOf<typeof registrationsApi.list>[number];

export const registrationsPath = (own: string) =>
  apiPath(registrationsApi.list, { slug: own }, { page_size: "1000" });
/** Machines that were approved, and have not come back since. */
export const approvedPath = (own: string) =>
  apiPath(registrationsApi.list, { slug: own }, { page_size: "1000", state: "approved" });
