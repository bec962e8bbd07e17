// E-mail addresses of the organization's members by user.

import { useMemo } from "preact/hooks";
import type { Names } from "./actor.ts";
import { org } from "./api.ts";
import { useList } from "./resource.ts";

/** A member, as GET members/ shows it. Without `user_id`, the invitation was not accepted. */
export type Member = { user_id: number | null; email: string };

export const membersPath = (own: string) => org(own, "members/?page_size=1000");

export const emailsOf = (members: readonly Member[]): Names =>
  new Map(members.flatMap(({ user_id, email }) => (user_id === null ? [] : [[user_id, email] as const])));

/** Of all users: for staff. */
export function useUserNames(): Names {
  const { data } = useList<{ id: number; email: string }>("/api/users/?page_size=1000");
  return useMemo(() => new Map((data ?? []).map(({ id, email }) => [id, email])), [data]);
}

export function useMemberNames(own: string): Names {
  const { data } = useList<Member>(membersPath(own));
  // The same map while nothing changed: columns and filters are made of it.
  return useMemo(() => emailsOf(data ?? []), [data]);
}
