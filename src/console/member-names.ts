// E-mail addresses of the organization's members by user.

import { useMemo } from "preact/hooks";
import type { Names } from "./activity.ts";
import { org } from "./api.ts";
import { useList } from "./resource.ts";

export function useMemberNames(own: string): Names {
  const { data } = useList<{ user_id: number | null; email: string }>(org(own, "members/?page_size=1000"));
  // The same map while nothing changed: columns and filters are made of it.
  return useMemo(
    () =>
      new Map(
        (data ?? []).flatMap(({ user_id, email }) => (user_id === null ? [] : [[user_id, email] as const])),
      ),
    [data],
  );
}
