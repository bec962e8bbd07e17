// Waits until an administrator has approved this machine: repeats the same registration as often as the control plane says.

import { fingerprintOfHostKey } from "../../pki/keys.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import type { RegisterAnswer, RegisterRequest, RegisterWaiting } from "../../protocol/registration.ts";
import type { System } from "../../base/system.ts";

/** Sends a registration again and again until it is approved. */
type UntilApproved = (send: () => Promise<RegisterAnswer | RegisterWaiting>) => Promise<RegisterAnswer>;

type Waiting = { slug: string } & WaitingOptions;
export type WaitingOptions = {
  /** How long to wait for an administrator's approval, ms. Unset: without an end. */
  approvalMs?: number | undefined;
  /** Tells the user what it waits for. */
  tell?: ((sentence: string) => void) | undefined;
};

/** The pause after a failure of network or server, which must not end a wait of hours. */
const retryAfterS = 30;

/** Throws approval_pending at the end of the time. */
export function makeUntilApproved(
  { slug, approvalMs, tell }: Waiting,
  { name, host_public_key }: Pick<RegisterRequest, "name" | "host_public_key">,
  system: Pick<System, "monotonic" | "sleep">,
): UntilApproved {
  const list = `\`${brand.executable} admin registration list ${quoteWord(slug)}\``;
  const key = fingerprintOfHostKey(host_public_key).slice(0, 16);
  const end = approvalMs === undefined ? Number.POSITIVE_INFINITY : system.monotonic() + approvalMs;
  const leftMs = () => end - system.monotonic();
  return async (send) => {
    let isWaiting = false;
    for (;;) {
      const answer = await send().catch((error: unknown) => {
        // The first request must succeed, so that mistakes are reported at once.
        if (!isWaiting || !isPassing(error)) throw error;
        return { state: "waiting", retry_after: error.details.retryAfter ?? retryAfterS } as const;
      });
      if (!("state" in answer)) return answer;
      if (!isWaiting) {
        tell?.(
          `${slug} admits new machines after approval. An administrator approves ${name} with key ${key} (${list}). Waiting ` +
            "for it; after an interruption, run the same command again.",
        );
      }
      isWaiting = true;
      if (leftMs() <= 0) throw stillWaiting(slug, name, list);
      await system.sleep(Math.min(answer.retry_after * 1000, Math.max(0, leftMs())));
    }
  };
}

/** Whether the failure may pass by itself: the control plane restarts, or the network is away for a moment. */
export function isPassing(error: unknown): error is AppError {
  const codes = ["control_plane_unreachable", "throttled", "storage_unavailable"];
  return error instanceof AppError && codes.includes(error.code);
}

function stillWaiting(slug: string, name: string, list: string): AppError {
  return new AppError("approval_pending", `No administrator of ${slug} has approved ${name} yet`, {
    hint: `An administrator finds it with ${list}. Run the same command again: it continues with the same keys.`,
  });
}
