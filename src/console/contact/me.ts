// The signed-in user, and the organizations that this user sees.

import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { factorsApi, type Factors } from "../../api/factors/factors.ts";
import { passkeyProofsApi } from "../../api/factors/passkeys.ts";
import { organizationsApi, type Organization as Full } from "../../api/organizations.ts";
import { browserSessionApi } from "../../api/sessions.ts";
import { ownUserApi } from "../../api/users.ts";
import { computed, signal } from "@preact/signals";
import { actFor, ApiError, ask, call, get, getAll, isSignedOut } from "./api.ts";
import { provePasskey } from "../account/passkeys.ts";
import { root, segments } from "../frame/router.ts";

export type Me = SentOf<typeof ownUserApi.retrieve>;
/** `name`: the slug, while the organization is closed. `role`: null for staff who are not members, and may only read. */
export type Organization = Pick<
  Full,
  "id" | "slug" | "name" | "network" | "role" | "self_enrollment" | "second_factor_required"
> &
  Partial<Pick<Full, "created_at">>;
/** The organization requires a second factor, which this session has not proven: nothing else is known of it. */
const closed = { network: "", role: null, self_enrollment: "off", second_factor_required: true } as const;

export const me = signal<Me>();
/** The user's second factors. */
export const factors = signal<Factors>();
/** A second factor is required, and the user has none: most requests are refused until there is one. */
export const isFactorMissing = computed(() => {
  const present = factors.value;
  return present !== undefined && present.is_required && !present.totp && present.passkeys === 0;
});
export const organizations = signal<readonly Organization[]>([]);

/** The slug that the address names. Undefined on pages of no organization, whose first segment is "-" (router.ts). */
export const currentSlug = computed(() => {
  const [first] = segments.value;
  return first === undefined || first === "-" ? undefined : first;
});
let lastSlug: string | undefined;
/** The organization of the navigation: that of the address, or the last one, or the only one. */
export const shownOrganization = computed(() => {
  const all = organizations.value;
  const wanted = currentSlug.value ?? lastSlug;
  const found = all.find((each) => each.slug === wanted) ?? (all.length === 1 ? all[0] : undefined);
  lastSlug = found?.slug;
  return found;
});
export const organization = computed(() =>
  organizations.value.find((each) => each.slug === currentSlug.value),
);

/** Whether changes are offered. The control plane decides again for each. */
export const mayAdminister = computed(() => isAdmin(organization.value));

export const isAdmin = (shown: Organization | undefined): boolean =>
  shown?.role === "admin" || shown?.role === "owner";

/** Whether the user may add machines of their own by confirming them here. */
export const mayAddOwn = computed(() => {
  const shown = organization.value;
  if (shown === undefined || shown.role === null) return false;
  return shown.self_enrollment === "members" || (shown.self_enrollment === "admins" && isAdmin(shown));
});

/** Nothing is shown any more, because the browser loads another page. */
export const isOver = signal(false);

/**
 * Data and input of this page belong to one user: before another one signs in, the browser drops all of it. `path`:
 * of the page that is loaded, by default the same again.
 */
function forget(path = location.pathname + location.search): void {
  isOver.value = true;
  // Leave without the browser's question about unsaved input, which belongs to the former user.
  addEventListener("beforeunload", (event) => event.stopImmediatePropagation(), true);
  location.assign(path);
}

/** Each tab sends the others the id of the signed-in user, or 0 after a sign-out. */
const tabs = new BroadcastChannel("user");
tabs.addEventListener("message", ({ data }: MessageEvent<number>) => {
  const shown = me.peek()?.id ?? 0;
  if (data === shown) {
    // Signed in again in another tab: no need to ask here.
    if (shown !== 0) isSignedOut.value = false;
    // A page that is still loading gets its own answer.
  } else if (shown !== 0 || isSignedOut.peek()) forget();
});

/** Reads who is signed in. Without a session, `isSignedOut` is true afterwards. */
export async function readMe(): Promise<void> {
  const [user, all, ownFactors] = await Promise.all([
    get(apiPath(ownUserApi.retrieve, {})),
    getAll(apiPath(organizationsApi.list, {}, { page_size: "1000" })),
    get(apiPath(factorsApi.retrieve, {})),
  ]);
  tabs.postMessage(user.id);
  if ((me.peek()?.id ?? user.id) !== user.id) return forget();
  // From now on, the server refuses changes if the session belongs to another user than this page.
  actFor(user.id);
  organizations.value = all.map((each) => ("name" in each ? each : { ...each, ...closed, name: each.slug }));
  factors.value = ownFactors;
  me.value = user;
}

/** The error of the first requests. */
export const startError = signal<ApiError>();
const startAgainMs = 5000;
let retry: ReturnType<typeof setTimeout> | undefined;

/** Reads the signed-in user, and tries again until there is an answer. */
export function start(): void {
  clearTimeout(retry);
  readMe().catch((error: unknown) => {
    if (!(error instanceof ApiError)) throw error;
    startError.value = error;
    if (!isSignedOut.peek()) retry = setTimeout(start, startAgainMs);
  });
}

/** `otp` follows when the control plane answered `second_factor_required`. */
export async function signIn(email: string, password: string, otp?: string): Promise<void> {
  await call(browserSessionApi.create, {}, { email, password, otp });
  await signedIn();
}

/** Throws an ApiError; also if the user cancels. */
export async function signInByPasskey(): Promise<void> {
  await provePasskey(passkeyProofsApi.signInOptions, passkeyProofsApi.signIn);
  await signedIn();
}

async function signedIn(): Promise<void> {
  try {
    await readMe();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    const detail = "This browser does not keep the session: its cookie needs https://.";
    throw new ApiError(0, { code: "no_session", detail }, null);
  }
  isSignedOut.value = false;
}

/** Ends the session, and loads the page that follows. Throws an ApiError. */
export async function signOut(): Promise<void> {
  const { headers } = await ask("DELETE", apiPath(browserSessionApi.delete, {}));
  tabs.postMessage(0);
  // The next sign-in at a provider would ask for no password: the browser signs out there too.
  forget(headers.get("x-sign-out-page") ?? root);
}
