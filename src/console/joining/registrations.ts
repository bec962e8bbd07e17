// Nodes that wait for approval, as GET registrations/ shows them to administrators.

import { registrationsApi } from "../../api/registrations.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";

export type Registration = SentOf<typeof registrationsApi.list>[number];

/** The fingerprint that the machine itself shows. */
export const keyOf = ({ key_sha256 }: Pick<Registration, "key_sha256">) => key_sha256.slice(0, 16);

export const registrationsPath = (slug: string) =>
  apiPath(registrationsApi.list, { slug }, { page_size: "1000" });
/** Machines that were approved, and have not come back since. */
export const approvedPath = (slug: string) =>
  apiPath(registrationsApi.list, { slug }, { page_size: "1000", state: "approved" });
