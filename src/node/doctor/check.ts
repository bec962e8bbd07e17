// What a check of the doctor is: it looks, never changes anything, and never throws. Fixing is the reader's part.

import { messageOf } from "../../errors.ts";

export type Verdict = "ok" | "warn" | "fail" | "skipped";

export type Finding = {
  verdict: Verdict;
  /** What was seen. */
  evidence: string;
  /** The exact line or step that puts it right. */
  remedy?: string;
};

export type Check = Finding & { id: string; org_slug?: string };

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
    const hint = (error instanceof Error && "details" in error ? hintOf(error.details) : undefined) ?? remedy;
    const evidence = messageOf(error);
    return { id, ...where, verdict: "fail", evidence, ...(hint === undefined ? {} : { remedy: hint }) };
  }
}

function hintOf(details: unknown): string | undefined {
  return typeof details === "object" &&
    details !== null &&
    "hint" in details &&
    typeof details.hint === "string"
    ? details.hint
    : undefined;
}
