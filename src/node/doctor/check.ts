// What a check of the doctor is: it looks, never changes anything, and never throws. Fixing is the reader's part.

import { brand } from "../../brand.ts";
import { AppError, messageOf, systemErrorCode } from "../../errors.ts";

export type Verdict = "ok" | "warn" | "fail" | "skipped";

export type Finding = {
  verdict: Verdict;
  /** What was seen. */
  evidence: string;
  /** The exact line or step that puts it right. */
  remedy?: string;
};

export type Check = Finding & { id: string; org_slug?: string };

/** The remedy of everything that only root can look at. */
export const asRoot = `sudo ${brand.executable} doctor`;

export const ok = (evidence: string): Finding => ({ verdict: "ok", evidence });
export const skipped = (evidence: string): Finding => ({ verdict: "skipped", evidence });
export const warn = (evidence: string, remedy: string): Finding => ({ verdict: "warn", evidence, remedy });
export const fail = (evidence: string, remedy: string): Finding => ({ verdict: "fail", evidence, remedy });

/** Runs one look; what it throws is a failure with the thrown sentence, and `remedy` where the sentence has no hint. */
export async function look(
  id: string,
  slug: string | undefined,
  work: () => Finding | Promise<Finding>,
  remedy?: string,
): Promise<Check> {
  const where = slug === undefined ? {} : { org_slug: slug };
  try {
    return { id, ...where, ...(await work()) };
  } catch (error) {
    // Who may not look cannot know what is wrong: nothing that changes keys or files is advised then.
    const hint = isForbidden(error)
      ? asRoot
      : ((error instanceof AppError ? error.details.hint : undefined) ?? remedy);
    const evidence = messageOf(error);
    return { id, ...where, verdict: "fail", evidence, ...(hint === undefined ? {} : { remedy: hint }) };
  }
}

function isForbidden(error: unknown): boolean {
  return ["EACCES", "EPERM", "os_permission"].includes(systemErrorCode(error) ?? "");
}
