// The control plane's demand that the user of a node confirms that it is still theirs. Answers to check-ins carry it.

import * as v from "valibot";
import { foreignText } from "../base/text.ts";

/**
 * `until`: the node is revoked then. `url`: the page with the button. Both are shown in terminals: no control characters.
 */
export const ConfirmationAnswer = v.object({
  until: v.pipe(foreignText(64), v.isoTimestamp()),
  url: v.pipe(foreignText(2048), v.regex(/^https?:\/\/[!-~]+$/)),
});
export type Confirmation = v.InferOutput<typeof ConfirmationAnswer>;

/** Undefined if the control plane asks for no confirmation. */
export function confirmationIn({ confirm }: { confirm?: unknown }): Confirmation | undefined {
  const parsed = v.safeParse(ConfirmationAnswer, confirm);
  return parsed.success ? parsed.output : undefined;
}
