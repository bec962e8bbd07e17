// How the console shows when users who leave a provider are signed out, from what it gave at sign-ins.
import type { Provider } from "../../api/providers/providers.ts";

type Leaving = Provider["leaving"];

/** One or two sentences. null: not known before the first sign-in. */
export function leavingText(leaving: Leaving): string {
  if (leaving === null)
    return "How soon users who leave there are signed out here is known after the first sign-in.";
  return leaving === "hourly"
    ? "It is asked every hour whether users are still there: a user who left is signed out within an hour, and loses nodes then where an organization is set to that."
    : "It gives no token to ask by: a user who left there is signed out 24 hours after the last sign-in, and loses nodes then only where an organization is set to that. The scope offline_access may change that.";
}
