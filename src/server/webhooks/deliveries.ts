// Sends what the outbox holds, as https://www.standardwebhooks.com has it: HMAC-SHA256 over id, time and body. A webhook
// that is slow or down holds up no other.

import { createHmac } from "node:crypto";
import { AppError, messageOf } from "../../errors.ts";
import { openSecret } from "../../pki/secrets.ts";
import {
  claimDue,
  forgetOldDeliveries,
  queueEvents,
  settleDelivery,
  type Claimed,
  type Outcome,
} from "../audit/outbox.ts";
import type { Services } from "../services.ts";
import { resolveTarget } from "./webhook-target.ts";
import { webhookContext } from "./webhooks.ts";

type Deps = Pick<Services, "db" | "system" | "log" | "secretKey" | "webhookNetworks" | "atStop">;

const lookEveryMs = 1000;
const forgetEveryMs = 3_600_000;
const requestMs = 10_000;

/** Goes on until the server stops; what is being sent then is sent again by the next. */
export function startDeliveries(deps: Deps): void {
  const { db, system, log, atStop } = deps;
  const closing = new AbortController();
  const inHand = new Map<number, Promise<void>>();
  let wake = new AbortController();
  let forgotten = system.now();

  const turn = async () => {
    const now = system.now();
    await queueEvents(db, now);
    for (const claimed of await claimDue(db, now, new Set(inHand.keys()))) {
      const sent = deliver(deps, claimed, closing.signal)
        .catch((error: unknown) => log.warn("a delivery cannot be settled", { reason: messageOf(error) }))
        .finally(() => {
          inHand.delete(claimed.webhookId);
          wake.abort();
        });
      inHand.set(claimed.webhookId, sent);
    }
    if (now - forgotten < forgetEveryMs) return;
    forgotten = now;
    await forgetOldDeliveries(db, now);
  };
  const run = async () => {
    while (!closing.signal.aborted) {
      await turn().catch((error: unknown) => {
        log.warn("webhooks wait; they are tried again", { reason: messageOf(error) });
      });
      const early = AbortSignal.any([wake.signal, closing.signal]);
      // Ended early where a webhook has become free, or the server stops.
      await system.sleep(lookEveryMs, early).catch(() => undefined);
      if (wake.signal.aborted) wake = new AbortController();
    }
    await Promise.all(inHand.values());
  };
  const running = run();
  atStop(async () => {
    closing.abort();
    await running;
  });
}

async function deliver(deps: Deps, claimed: Claimed, closing: AbortSignal): Promise<void> {
  const { db, system } = deps;
  const outcome = await send(deps, claimed, closing).catch((error: unknown) => failed(error, closing));
  const random = (system.random(1)[0] ?? 0) / 255;
  await settleDelivery(db, claimed, outcome, { now: system.now(), random });
}

async function send(deps: Deps, claimed: Claimed, closing: AbortSignal): Promise<Outcome> {
  const { system, secretKey } = deps;
  const url = new URL(claimed.url);
  const address = await resolveTarget(url, deps);
  const secret = openSecret(secretKey, claimed.sealedSecret, webhookContext(claimed.webhookId));
  const body = JSON.stringify({ organization: claimed.organization, ...claimed.event });
  const isName = !url.hostname.startsWith("[") && url.hostname !== address;
  const place = new URL(url);
  place.hostname = address.includes(":") ? `[${address}]` : address;
  const response = await system.fetch(place.href, {
    method: "POST",
    headers: { Host: url.host, ...signedHeaders(claimed.id, Math.floor(system.now() / 1000), body, secret) },
    body,
    redirect: "manual",
    keepalive: false,
    signal: AbortSignal.any([AbortSignal.timeout(requestMs), closing]),
    ...(isName ? { tls: { serverName: url.hostname } } : {}),
  });
  await response.body?.cancel();
  const { status } = response;
  if (status >= 200 && status < 300) return { status, message: null, delivered: true };
  const message = status >= 300 && status < 400 ? "Redirects are not followed." : `Answered ${status}.`;
  return { status, message, delivered: false };
}

/** `id` stays the same when it is tried again. */
export function signedHeaders(
  id: number,
  timestamp: number,
  body: string,
  secret: string,
): Record<string, string> {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const signature = createHmac("sha256", key).update(`msg_${id}.${timestamp}.${body}`).digest("base64");
  return {
    "Content-Type": "application/json",
    "Webhook-Id": `msg_${id}`,
    "Webhook-Timestamp": String(timestamp),
    "Webhook-Signature": `v1,${signature}`,
  };
}

/** For the delivery log; what the system says of a connection names no address that a name stands for. */
function failed(error: unknown, closing: AbortSignal): Outcome {
  const fails = (message: string): Outcome => ({ status: null, message, delivered: false });
  if (closing.aborted) return { ...fails("The server stopped; it is tried again."), interrupted: true };
  if (error instanceof AppError) return fails(error.message);
  if (error instanceof Error && error.name === "TimeoutError") return fails("No answer within 10 seconds.");
  const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
  return fails(`The connection failed${code}.`);
}
