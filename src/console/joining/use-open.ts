// The requests to join that are open.

import { useMemo } from "preact/hooks";
import { mayAdminister } from "../contact/me.ts";
import { useList } from "../contact/resource.ts";
import { approvedPath, registrationsPath, type Registration } from "./registrations.ts";

/** Those that wait, or were approved and have not come back; undefined until it is read, and for members. */
export function useOpen(slug: string): readonly Registration[] | undefined {
  const isAsked = mayAdminister.value;
  // The empty path sends no request.
  const { data: waiting } = useList(isAsked ? registrationsPath(slug) : "");
  const { data: approved } = useList(isAsked ? approvedPath(slug) : "");
  return useMemo(() => waiting && [...waiting, ...(approved ?? [])], [waiting, approved]);
}
