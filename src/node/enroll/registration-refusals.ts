// What follows from a registration that failed: the line that helps, and whether the keys are kept for the next run.

import { AppError } from "../../base/errors.ts";
import { isUnsent } from "../../base/system-errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { brand } from "../../brand.ts";

/** The registration that was refused. */
type Refused = { slug: string; credential: { registrationToken: string } | { accessToken: string } };

/** The error with what this machine asked for, and the line that helps: the server only says what is wrong. */
export function explainRefusal(error: unknown, registration: Refused, name: string): unknown {
  if (!(error instanceof AppError)) return error;
  const { slug } = registration;
  if (error.code === "not_found") {
    return new AppError("not_found", `There is no organization "${slug}" that this credential belongs to`, {
      cause: error,
      hint: "Check --org-slug and --api-base.",
    });
  }
  const hint = hintFor(error, registration, name);
  if (hint === undefined) return error;
  return new AppError(error.code, error.message, { ...error.details, cause: error, hint });
}

function hintFor({ code, details }: AppError, { slug, credential }: Refused, name: string) {
  const admin = `${brand.executable} admin`;
  const token = `${admin} token create ${quoteWord(slug)}`;
  const bound = `${token} --node ${quoteWord(name)}`;
  switch (code) {
    case "registration_refused":
      return "Ask the administrator why. The next run asks again, with new keys.";
    case "token_not_valid":
      if (!("registrationToken" in credential)) return undefined;
      // A server that knows the token gives a hint. A former server does not, and so may mean either.
      return details.hint === undefined
        ? `A token works in one organization only: check --org-slug ("${slug}") and --api-base too, or ask an administrator for a new one: \`${token}\`.`
        : `Ask an administrator for a new one: \`${token}\`.`;
    case "token_scope":
      return `Ask an administrator for one that does: \`${token} --lighthouse\`.`;
    case "name_held":
      return `Choose another name, or ask an administrator for a token that is bound to this one: \`${bound}\`.`;
    case "name_taken":
      return (
        `Choose another name with --node-name. If it is this machine's own former node, an administrator takes its place: ` +
        `\`${brand.executable} register --replace\` without a registration token. Or with a new key: ` +
        `\`${admin} node revoke ${quoteWord(slug)} ${quoteWord(name)}\`, then \`${bound}\`.`
      );
    default:
      return undefined;
  }
}

/**
 * Whether the next run must begin with other keys. `isEnrolled`: a user has confirmed these in a browser. `isResumed`: an earlier run
 * may have sent these. An error that is no AppError is a defect of this program: the keys are kept.
 *
 * | error                                        | keys                                          |
 * |----------------------------------------------|-----------------------------------------------|
 * | `registration_refused`                       | dropped: an administrator refused them        |
 * | `spent`, after a confirmation in the browser | dropped: it was of these keys, and is used up |
 * | any other, of a resumed registration         | kept                                          |
 * | `control_plane_unreachable`, nothing sent    | dropped                                       |
 * | `control_plane_unreachable`, `uncertain`     | kept: the control plane may have them         |
 * | any other                                    | dropped                                       |
 */
export function mustDropKeys(
  error: unknown,
  { isEnrolled }: { isEnrolled?: boolean },
  isResumed: boolean,
): boolean {
  if (!(error instanceof AppError)) return false;
  const { code, cause } = error;
  if (code === "registration_refused") return true;
  if (isEnrolled === true && spent.has(code)) return true;
  if (isResumed || uncertain.has(code)) return false;
  return code !== "control_plane_unreachable" || isUnsent(cause);
}

/** Refusals after which the confirmation cannot be used again. */
const spent: ReadonlySet<string> = new Set(["token_not_valid", "conflict", "name_taken", "name_held"]);

/** Errors after which the control plane may have registered these keys: its answer was not clear, or this machine failed then. */
const uncertain: ReadonlySet<string> = new Set([
  "untrusted_answer",
  "approval_pending",
  "internal",
  "storage_unavailable",
  "request_timeout",
  "disk_full",
  "os_permission",
  "failed",
]);
