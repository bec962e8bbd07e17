// The form of the doctor's checks. A check changes nothing; the user applies the remedy. An error that a check throws becomes its
// finding.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { isPrivileged } from "../../platform/privilege.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";

export type Verdict = "ok" | "warn" | "fail" | "skipped";

export type Finding = {
  verdict: Verdict;
  evidence: string;
  /** The exact command or step that repairs it. */
  remedy?: string;
};

export type Check = Finding & { id: string; org_slug?: string };

/** The remedy of checks that only root can run. */
export const asRoot = `sudo ${brand.executable} doctor`;
/** The remedy where even root is denied. */
export const deniedToRoot =
  "File modes do not stop root: look for SELinux, AppArmor, an immutable file or the limits of a container";

export const ok = (evidence: string): Finding => ({ verdict: "ok", evidence });
export const skipped = (evidence: string): Finding => ({ verdict: "skipped", evidence });
export const warn = (evidence: string, remedy: string): Finding => ({ verdict: "warn", evidence, remedy });
export const fail = (evidence: string, remedy: string): Finding => ({ verdict: "fail", evidence, remedy });

/**
 * Runs a check of the machine, or of an organization (`slug`). An error becomes a failure with its message and its hint, or with
 * `cure` if it has no hint. What an ordinary user may not see is skipped, not failed.
 */
export async function runCheck(
  { id, slug }: { id: string; slug?: string },
  work: () => Finding | Promise<Finding>,
  { cure, isRoot = isPrivileged() }: { cure?: string; isRoot?: boolean } = {},
): Promise<Check> {
  const name = { id, ...given({ org_slug: slug }) };
  try {
    return { ...name, ...(await work()) };
  } catch (error) {
    const evidence = messageOf(error);
    const remedy = (error instanceof AppError ? error.details.hint : undefined) ?? cure;
    if (!isDenied(error)) return { ...name, verdict: "fail", evidence, ...given({ remedy }) };
    // Without permission the cause is unknown, so never advise to change keys or files.
    if (isRoot) return { ...name, ...fail(evidence, deniedToRoot) };
    return { ...name, ...skipped(`not seen: ${evidence}`), remedy: asRoot };
  }
}

function isDenied(error: unknown): boolean {
  return ["EACCES", "EPERM", "os_permission"].includes(systemErrorCode(error) ?? "");
}

/** Width of the column of names in the output. */
const nameWidth = 28;
const signs = { ok: "ok  ", warn: "WARN", fail: "FAIL", skipped: "-   " } as const;

export function renderChecks(checks: readonly Check[]): string {
  const lines = checks.flatMap(({ id, org_slug, verdict, evidence, remedy }) => {
    const name = org_slug === undefined ? id : `${org_slug} ${id}`;
    return [
      `${signs[verdict]}  ${name.padEnd(nameWidth)} ${evidence}`,
      ...(remedy === undefined || verdict === "ok" ? [] : [`      ${"".padEnd(nameWidth)} → ${remedy}`]),
    ];
  });
  const failed = checks.filter(({ verdict }) => verdict === "fail").length;
  const warned = checks.filter(({ verdict }) => verdict === "warn").length;
  return `${lines.join("\n")}\n\n${failed} failed, ${warned} ${warned === 1 ? "warning" : "warnings"}, ${checks.length - failed - warned} ok or skipped\n`;
}
