// E-mail addresses of the organization's members by user.

import { apiPath } from "../../api/endpoint.ts";
import { membersApi, type ListedMember } from "../../api/members.ts";
import { usersApi } from "../../api/users.ts";
import { useMemo } from "preact/hooks";
import type { Names } from "./actor.ts";
import { useList } from "../contact/resource.ts";

/** Without `user_id`, the invitation was not accepted. */
export type Member = Pick<ListedMember, "user_id" | "email">;

export const membersPath = (slug: string) => apiPath(membersApi.list, { slug }, { page_size: "1000" });

export const emailsOf = (members: readonly Member[]): Names =>
  new Map(members.flatMap(({ user_id, email }) => (user_id === null ? [] : [[user_id, email] as const])));

/** Addresses of all users, for staff. */
export function useUserNames(): Names {
  const { data } = useList(apiPath(usersApi.list, {}, { page_size: "1000" }));
  return useMemo(() => new Map((data ?? []).map(({ id, email }) => [id, email])), [data]);
}

/** The e-mail addresses of the members of an organization. */
export function useMemberNames(slug: string): Names {
  const { data } = useList(membersPath(slug));
  // The same map while nothing changed: columns and filters are made of it.
  return useMemo(() => emailsOf(data ?? []), [data]);
}
