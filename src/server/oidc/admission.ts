// Whether an identity may sign in here at all: its tenant, its groups, the domain of its verified address. Pure.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { Email } from "../../api/values.ts";
import type { IdentityProviderRow } from "../store/tables/providers.ts";
import type { Claims } from "./provider-requests.ts";
import { comparedText, foreignText, oneSpelling } from "../../base/text.ts";
import { listOf } from "../../protocol/values.ts";

type Rules = Pick<IdentityProviderRow, "name" | "tenant" | "requiredGroups" | "domains" | "groupsClaim">;
export type Admitted = {
  subject: string;
  email: string | undefined;
  /** The provider vouches for the address. */
  isVerified: boolean;
  /** The provider's name for the user; it proves nothing. */
  called: string;
  groups: readonly string[];
};

/** Groups of an identity that count: the first ones. A list of more than Groups admits counts as no group. */
const maxGroups = 1000;
/** OpenID Connect allows 255. */
export const Subject = v.pipe(foreignText(255), v.minLength(1));
export const Called = foreignText(1000);
export const Groups = listOf(comparedText(500), 100_000);

/** Throws sign_in_refused. */
export function admitIdentity(rules: Rules, claims: Claims): Admitted {
  const subject = v.safeParse(Subject, claims.sub);
  if (!subject.success) throw refused(`${rules.name} gave no usable identity.`);
  if (rules.tenant !== null && !isOfTenant(rules.tenant, claims))
    throw refused(`This identity belongs to another tenant of ${rules.name}.`);
  const groups = groupsIn(claims, rules.groupsClaim);
  const { requiredGroups, domains } = rules;
  if (requiredGroups.length > 0 && !requiredGroups.some((group) => groups.includes(group)))
    throw refused(`This identity is in none of the groups of ${rules.name} that may sign in here.`);
  const parsed = v.safeParse(Email, claims["email"]);
  const email = parsed.success ? parsed.output : undefined;
  const isVerified = claims["email_verified"] === true;
  if (domains.length > 0 && !(isVerified && domains.includes(email?.split("@").at(-1) ?? "")))
    throw refused(`Only verified addresses of ${domains.join(", ")} may sign in by ${rules.name}.`);
  const called = ["preferred_username", "name"]
    .map((name) => claims[name])
    .find((each) => v.is(Called, each));
  return { subject: subject.output, email, isVerified, called: called ?? "", groups };
}

/** `tenant`: `CLAIM=VALUE`, which the claims must have. */
function isOfTenant(tenant: string, claims: Claims): boolean {
  const equals = tenant.indexOf("=");
  const value = valueAt(claims, tenant.slice(0, equals));
  return typeof value === "string" && oneSpelling(value) === oneSpelling(tenant.slice(equals + 1));
}

/** The groups in the claim, a text or a list of texts. Anything else is no group. */
function groupsIn(claims: Claims, path: string): string[] {
  const found = valueAt(claims, path);
  const parsed = v.safeParse(Groups, typeof found === "string" ? [found] : found, { abortEarly: true });
  return parsed.success ? [...new Set(parsed.output)].slice(0, maxGroups) : [];
}

/** The claim with exactly this name, else along the path between the dots: `realm_access.roles`. */
export function valueAt(claims: Claims, path: string): unknown {
  const whole = memberOf(claims, path);
  if (whole !== undefined) return whole.value;
  let value: unknown = claims;
  for (const name of path.split(".")) {
    const found = memberOf(value, name);
    if (found === undefined) return undefined;
    ({ value } = found);
  }
  return value;
}

/** Compares in NFC: provider and settings may encode the same name differently. */
function memberOf(object: unknown, name: string): { value: unknown } | undefined {
  if (typeof object !== "object" || object === null) return undefined;
  const found = Object.entries(object).find(([key]) => oneSpelling(key) === oneSpelling(name));
  return found === undefined ? undefined : { value: found[1] };
}

function refused(message: string): AppError {
  return new AppError("sign_in_refused", message);
}
