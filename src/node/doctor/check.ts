// The form of the doctor's checks. A check never changes anything and never throws; the user applies the remedy.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { isPrivileged } from "../../platform/privilege.ts";
import { AppError, messageOf, systemErrorCode } from "../../base/errors.ts";

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

export const ok = (evidence: string): Finding => ({ verdict: "ok", evidence });
export const skipped = (evidence: string): Finding => ({ verdict: "skipped", evidence });
export const warn = (evidence: string, remedy: string): Finding => ({ verdict: "warn", evidence, remedy });
export const fail = (evidence: string, remedy: string): Finding => ({ verdict: "fail", evidence, remedy });

/**
 * Runs a check. What it throws becomes a failure with that message; `remedy` is used if the error has no hint. What an
 * ordinary user may not see is no failure.
 */
export async function runCheck(
  id: string,
  slug: string | undefined,
  work: () => Finding | Promise<Finding>,
  remedy?: string,
  isRoot = isPrivileged(),
): Promise<Check> {
  const where = given({ org_slug: slug });
  try {
    return { id, ...where, ...(await work()) };
  } catch (error) {
    // Without permission the cause is unknown, so never advise to change keys or files.
    const denied = isDenied(error);
    const hint = denied ? asRoot : ((error instanceof AppError ? error.details.hint : undefined) ?? remedy);
    const evidence = messageOf(error);
    if (denied && !isRoot) return { id, ...where, ...skipped(`not seen: ${evidence}`), remedy: asRoot };
    return { id, ...where, verdict: "fail", evidence, ...given({ remedy: hint }) };
  }
}

function isDenied(error: unknown): boolean {
  return ["EACCES", "EPERM", "os_permission"].includes(systemErrorCode(error) ?? "");
}

const signs = { ok: "ok  ", warn: "WARN", fail: "FAIL", skipped: "-   " } as const;

export function renderChecks(checks: readonly Check[]): string {
  const lines = checks.flatMap(({ id, org_slug, verdict, evidence, remedy }) => {
    const name = org_slug === undefined ? id : `${org_slug} ${id}`;
    return [
      `${signs[verdict]}  ${name.padEnd(28)} ${evidence}`,
      ...(remedy === undefined || verdict === "ok" ? [] : [`      ${"".padEnd(28)} → ${remedy}`]),
    ];
  });
  const failed = checks.filter(({ verdict }) => verdict === "fail").length;
  const warned = checks.filter(({ verdict }) => verdict === "warn").length;
  return `${lines.join("\n")}\n\n${failed} failed, ${warned} ${warned === 1 ? "warning" : "warnings"}, ${checks.length - failed - warned} ok or skipped\n`;
}
