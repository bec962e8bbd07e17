// What follows from a registration that failed: the line that helps, and whether the keys are kept for the next run.

import { AppError, systemErrorCode } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { brand } from "../../brand.ts";

type Refused = { slug: string; credential: { registrationToken: string } | { accessToken: string } };

/** The server only says what is wrong. Add what this machine asked for, and the line that helps. */
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

function hintFor({ code, message }: AppError, { slug, credential }: Refused, name: string) {
  const admin = `${brand.executable} admin`;
  const token = `${admin} token create ${quoteWord(slug)}`;
  const bound = `${token} --node ${quoteWord(name)}`;
  switch (code) {
    case "registration_refused":
      return "Ask the administrator why. Run again, it asks anew, with new keys.";
    case "token_not_valid":
      if (!("registrationToken" in credential)) return undefined;
      return /expired|used up|revoked/.test(message)
        ? `Ask an administrator for a new one: \`${token}\`.`
        : `A token works in one organization only: check --org-slug ("${slug}") and --api-base too.`;
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

/** Whether the next run must begin with other keys. `isResumed`: an earlier run may have sent these. */
export function mustDropKeys(
  error: unknown,
  { isEnrolled }: { isEnrolled?: boolean },
  isResumed: boolean,
): boolean {
  const code = error instanceof AppError ? error.code : "";
  // An administrator refused these keys.
  if (code === "registration_refused") return true;
  // The confirmation in the browser was of these keys, and is used up.
  const spent = ["token_not_valid", "conflict", "name_taken", "name_held"];
  if (isEnrolled === true && spent.includes(code)) return true;
  return !isResumed && !mayHaveArrived(error);
}

/** The answer is not clear, or this machine failed, as on a full disk. */
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

/** The control plane may have registered the keys, or holds a request for them: keep them for a retry. */
function mayHaveArrived(error: unknown): boolean {
  if (!(error instanceof AppError)) return true;
  if (uncertain.has(error.code)) return true;
  const cause = systemErrorCode(error.cause);
  const neverSent = ["ConnectionRefused", "ECONNREFUSED", "FailedToOpenSocket", "ENOTFOUND", "EAI_AGAIN"];
  return error.code === "control_plane_unreachable" && !(cause !== undefined && neverSent.includes(cause));
}
