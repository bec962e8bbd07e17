// Answers the challenges of an ACME order: a text for HTTP-01 that all replicas serve, or a TXT record for DNS-01.

import { AppError } from "../../../base/errors.ts";
import { clean } from "../../../base/log.ts";
import { dnsValue, keyAuthorization, type AccountKey } from "../../../pki/acme-keys.ts";
import type { System } from "../../../base/system.ts";
import type { AcmeOptions } from "../../options.ts";
import { Authorization, Challenge } from "./messages.ts";
import type { AcmeStore } from "../../store/acme-state.ts";

/** `signal`: aborted when the server stops, or the attempt takes too long. */
export type OrderDeps = {
  system: Pick<System, "fetch" | "now" | "sleep" | "run">;
  store: AcmeStore;
  signal: AbortSignal;
};

const hookWithinMs = 300_000;

/** Makes the answer to a challenge available. Returns the challenge, for the caller to tell the authority. */
export type Solver = (authorization: Authorization) => Promise<Challenge>;

/** `cleaners`: gets what the caller has to run after the order, to remove what was published. */
export function makeSolver(
  { dnsHook }: AcmeOptions,
  key: AccountKey,
  { system, store, signal }: OrderDeps,
  cleaners: (() => Promise<void>)[],
): Solver {
  const type = dnsHook === undefined ? "http-01" : "dns-01";
  const published: Record<string, string> = {};
  return async ({ identifier, challenges }) => {
    const challenge = challenges.find((each) => each.type === type);
    if (challenge?.token === undefined) {
      const offered = challenges.map((each) => each.type).join(", ");
      const hint =
        type === "dns-01"
          ? "Leave --acme-dns-hook out: addresses are proved by HTTP-01."
          : "This authority wants another proof: see --acme-dns-hook.";
      throw new AppError(
        "failed",
        `The ACME server offers no ${type} for ${clean(identifier.value)}, only: ${clean(offered, 200)}`,
        {
          hint,
        },
      );
    }
    const authorization = await keyAuthorization(key, challenge.token);
    if (dnsHook === undefined) {
      published[challenge.token] = authorization;
      // The answers stay as long as the order: the authority may ask while an attempt is interrupted.
      await store.setChallenges(published);
      return challenge;
    }
    const record = `_acme-challenge.${identifier.value}`;
    const value = dnsValue(authorization);
    // Before the record is added: a program that fails or is stopped may have added it all the same.
    cleaners.push(() => runHook(system, dnsHook, ["remove", record, value]).catch(() => undefined));
    await unlessAborted(runHook(system, dnsHook, ["add", record, value]), signal);
    return challenge;
  };
}

/** Rejects when aborted; the work itself continues. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = () => reject(signal.reason instanceof Error ? signal.reason : new Error("Aborted"));
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort, { once: true });
  return Promise.race([work, promise]).finally(() => signal.removeEventListener("abort", abort));
}

async function runHook(system: Pick<System, "run">, hook: string, args: string[]): Promise<void> {
  const { status, stderr, timedOut } = await system.run([hook, ...args], { timeoutMs: hookWithinMs });
  if (status === 0) return;
  const how = timedOut ? `was stopped after ${hookWithinMs / 1000} s` : `ended with ${status}`;
  throw new AppError("failed", `${hook} ${args[0]} ${args[1]} ${how}: ${clean(stderr.trim(), 300)}`, {
    hint: "Run the program by hand with the same words; it must end with 0 once the name servers answer with the record.",
  });
}
