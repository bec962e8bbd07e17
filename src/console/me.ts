// Who is signed in, and the organizations that this person sees.

import { computed, signal } from "@preact/signals";
import { ApiError, ask, get, getAll, isSignedOut, sessionPath } from "./api.ts";
import { provePasskey } from "./passkeys.ts";
import { segments } from "./router.ts";

export type Me = { id: number; email: string; is_staff: boolean; server_version: string };
export type Organization = {
  id: number;
  slug: string;
  name: string;
  network: string;
  /** Null: staff who are not members, and may only read. */
  role: "member" | "admin" | "owner" | null;
  /** Who may add machines of their own by confirming them in a browser. */
  self_enrollment: "off" | "admins" | "members";
};

/** The person's second factors. */
export type Factors = { totp: boolean; passkeys: number; recovery_codes_left: number; is_required: boolean };

export const me = signal<Me | undefined>(undefined);
export const factors = signal<Factors | undefined>(undefined);
/** A second factor is required, and the person has none: most requests are refused until there is one. */
export const isFactorMissing = computed(() => {
  const own = factors.value;
  return own !== undefined && own.is_required && !own.totp && own.passkeys === 0;
});
export const organizations = signal<readonly Organization[]>([]);

/** The slug that the address names. */
export const slug = computed(() => {
  const [first] = segments.value;
  return first === undefined || first === "-" ? undefined : first;
});
let lastSlug: string | undefined;
/** The organization of the navigation: that of the address, or the last one, or the only one. */
export const shownOrganization = computed(() => {
  const all = organizations.value;
  const wanted = slug.value ?? lastSlug;
  const found = all.find((each) => each.slug === wanted) ?? (all.length === 1 ? all[0] : undefined);
  lastSlug = found?.slug;
  return found;
});
export const organization = computed(() => organizations.value.find((each) => each.slug === slug.value));

/** Whether changes are offered. The control plane decides again for each. */
export const mayAdminister = computed(() => isAdmin(organization.value));

export const isAdmin = (shown: Organization | undefined): boolean =>
  shown?.role === "admin" || shown?.role === "owner";

/** Whether the person may add machines of their own by confirming them here. */
export const mayAddOwn = computed(() => {
  const shown = organization.value;
  if (shown === undefined || shown.role === null) return false;
  return shown.self_enrollment === "members" || (shown.self_enrollment === "admins" && isAdmin(shown));
});

/** Reads who is signed in. Without a session, `isSignedOut` is true afterwards. */
export async function readMe(): Promise<void> {
  const [found, all] = await Promise.all([
    get<Me>("/api/user/"),
    getAll<Organization>("/api/org/?page_size=1000"),
    readFactors(),
  ]);
  organizations.value = all;
  me.value = found;
}

export async function readFactors(): Promise<void> {
  factors.value = await get<Factors>("/api/user/factors/");
}

/** `otp` follows when the control plane answered `second_factor_required`. */
export async function signIn(email: string, password: string, otp?: string): Promise<void> {
  await ask("POST", sessionPath, { body: { email, password, ...(otp === undefined ? {} : { otp }) } });
  await signedIn();
}

export async function signInByPasskey(): Promise<void> {
  await provePasskey(`${sessionPath}passkey/`);
  await signedIn();
}

async function signedIn(): Promise<void> {
  try {
    await readMe();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    const detail = "The sign-in was right, but this browser does not keep the session: its cookie needs TLS.";
    const hint =
      "Open the console at its https:// address. Without TLS, some browsers keep it on the control plane's own machine; Safari does not.";
    throw new ApiError(0, { code: "no_session", detail, hint }, null);
  }
  isSignedOut.value = false;
}

export async function signOut(): Promise<void> {
  const { headers } = await ask("DELETE", sessionPath);
  me.value = undefined;
  isSignedOut.value = true;
  // The next sign-in there would ask for no password: the browser signs out of the provider too.
  const page = headers.get("x-sign-out-page");
  if (page !== null) location.assign(page);
}
