// Who is signed in, and the organizations that this person sees.

import { computed, signal } from "@preact/signals";
import { ask, get, getAll, isSignedOut, send, sessionPath } from "./api.ts";
import { segments } from "./router.ts";

export type Me = { id: number; email: string; is_staff: boolean };
export type Organization = {
  id: number;
  slug: string;
  name: string;
  network: string;
  /** Null: staff who are not members, and may only read. */
  role: "member" | "admin" | "owner" | null;
};

export const me = signal<Me | undefined>(undefined);
export const organizations = signal<readonly Organization[]>([]);

/** The slug that the address names. */
export const slug = computed(() => {
  const [first] = segments.value;
  return first === undefined || first === "-" ? undefined : first;
});
export const organization = computed(() => organizations.value.find((each) => each.slug === slug.value));

/** Whether changes are offered. The control plane decides again for each. */
export const mayAdminister = computed(() => {
  const role = organization.value?.role;
  return role === "admin" || role === "owner";
});

/** Reads who is signed in. Without a session, `isSignedOut` is true afterwards. */
export async function readMe(): Promise<void> {
  const found = await get<Me>("/api/user/");
  organizations.value = await getAll<Organization>("/api/org/?page_size=1000");
  me.value = found;
}

export async function signIn(email: string, password: string): Promise<void> {
  await ask("POST", sessionPath, { body: { email, password } });
  await readMe();
  isSignedOut.value = false;
}

export async function signOut(): Promise<void> {
  await send("DELETE", sessionPath);
  me.value = undefined;
  isSignedOut.value = true;
}
