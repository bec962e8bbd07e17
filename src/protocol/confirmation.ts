// The wire format of the user's confirmation, inside check-ins. Both sides use it.

import * as v from "valibot";
import type { Confirmation } from "./confirmation-shown.ts";
import { foreignText } from "../base/text.ts";

/** Shown in terminals: no control characters. */
export const ConfirmationAnswer = v.object({
  until: v.pipe(foreignText(64), v.isoTimestamp()),
  url: v.pipe(foreignText(2048), v.regex(/^https?:\/\/[!-~]+$/)),
});

/** Undefined if the control plane asks for no confirmation. */
export function confirmationIn({ confirm }: { confirm?: unknown }): Confirmation | undefined {
  const parsed = v.safeParse(ConfirmationAnswer, confirm);
  return parsed.success ? parsed.output : undefined;
}
