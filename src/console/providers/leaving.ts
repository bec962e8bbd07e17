// When users who leave a provider are signed out, in words: it depends on what the provider gives at sign-ins. Pure.

import type { Provider } from "../../api/providers/providers.ts";

type Leaving = Provider["leaving"];

/** One or two sentences. `leaving` null: not known before the first sign-in. */
export function leavingText(leaving: Leaving): string {
  if (leaving === null)
    return "How soon users who leave there are signed out here is known after the first sign-in.";
  return leaving === "hourly"
    ? "A user who left there is signed out within an hour, and loses nodes then where an organization is set to that."
    : "It cannot be asked whether users are still there: one who left is signed out 24 hours after the last sign-in, and loses nodes then where an organization is set to that. The scope offline_access may change that.";
}
