// The background loop that sends the deliveries of outbox.ts: JSON as https://www.standardwebhooks.com specifies (HMAC-SHA256 over id,
// time and body), or what a chat, a mail server or a syslog server takes. A slow or failing webhook does not delay the others.

import { createHmac } from "node:crypto";
import { AppError, messageOf } from "../../base/errors.ts";
import { reasonOfCode } from "../../base/system-errors.ts";
import { openSecret } from "../../pki/secrets.ts";
import { claimDue, queueEvents, settleDelivery, type Claimed, type Outcome } from "./outbox.ts";
import type { ServerOptions } from "../options.ts";
import { LeaseLost } from "../store/leases.ts";
import type { Throttle } from "../http/throttle.ts";
import { sendMailOf } from "../users/mail.ts";
import { chatRequests, isUrgentEvent, textOfEvent } from "./formats.ts";
import { resolvedTo, resolveTarget } from "./webhook-target.ts";
import { noMail, webhookContext } from "./webhooks.ts";

type Deps = Pick<
  ServerOptions,
  "db" | "system" | "log" | "secretKey" | "webhookNetworks" | "mail" | "publicUrl"
> & {
  throttle: Throttle;
  /** Whether this replica sends now. */
  mayRun(): boolean;
  /** Records outcomes even if another replica sends now: each names its own claim. */
  outcomes: ServerOptions["db"];
};

const pollEveryMs = 1000;
/** The time limit of one attempt. */
const requestMs = 10_000;

/** Sends until `stop`. The next server repeats a delivery that the stop interrupts. */
export function makeDeliveries(deps: Deps): { start(): void; stop(): Promise<void> } {
  const { db, system, log, mayRun } = deps;
  const closing = new AbortController();
  /** By webhook. */
  const underWay = new Map<number, Promise<void>>();
  /** See `claimDue`. */
  const served = new Set<number>();
  /** Aborted when a webhook is free again. */
  let wake = new AbortController();

  const turn = async () => {
    const now = system.now();
    await queueEvents(db, now);
    for (const claimed of await claimDue(db, now, new Set(underWay.keys()), served)) {
      const sent = deliver(deps, claimed, closing.signal)
        .catch((error: unknown) =>
          log.warn("cannot record the outcome of a webhook delivery", { reason: messageOf(error) }),
        )
        .finally(() => {
          underWay.delete(claimed.webhookId);
          wake.abort();
        });
      underWay.set(claimed.webhookId, sent);
    }
  };
  const run = async () => {
    while (!closing.signal.aborted) {
      const done = mayRun() ? turn() : Promise.resolve();
      await done.catch((error: unknown) => {
        if (error instanceof LeaseLost) log.info(error.message);
        else log.warn("cannot send webhooks now; retrying", { reason: messageOf(error) });
      });
      const awake = AbortSignal.any([wake.signal, closing.signal]);
      // The wait ends early when a webhook is free again or the server stops.
      await system.sleep(pollEveryMs, awake).catch(() => undefined);
      if (wake.signal.aborted) wake = new AbortController();
    }
    await Promise.all(underWay.values());
  };
  let running: Promise<void> | undefined;
  return {
    start: () => void (running = run()),
    async stop() {
      closing.abort();
      await running;
    },
  };
}

/** Sends one delivery and records its outcome. */
async function deliver(deps: Deps, claimed: Claimed, closing: AbortSignal): Promise<void> {
  const { outcomes, system } = deps;
  const outcome = await send(deps, claimed, closing).catch((error: unknown) => failureOf(error, closing));
  const random = (system.random(1)[0] ?? 0) / 255;
  await settleDelivery(outcomes, claimed, outcome, { now: system.now(), random });
}

const delivered: Outcome = { status: null, message: null, delivered: true };

async function send(deps: Deps, claimed: Claimed, closing: AbortSignal): Promise<Outcome> {
  const { id, event, organization, format } = claimed;
  const eventText = textOfEvent(event, organization, `msg_${id}`);
  const url = new URL(claimed.url);
  if (format === "mail") {
    if (deps.mail === undefined) throw noMail();
    const { host } = new URL(deps.publicUrl);
    const messageId = `<msg_${id}.${claimed.webhookId}@${host}>`;
    const message = { to: url.pathname, subject: eventText.title, text: `${eventText.text}\n`, messageId };
    const { mail, throttle, log } = deps;
    await sendMailOf(organization, { mail, throttle }, message).catch((error: unknown) => {
      throw shownMailFailure(error, log);
    });
    return delivered;
  }
  if (format === "syslog") {
    const { sendSyslog, syslogFrame } = await import("./syslog.ts");
    const address = await resolveTarget(url, deps);
    const { hostname } = new URL(deps.publicUrl);
    const frame = syslogFrame(event, eventText, { host: hostname, n: id, at: Date.parse(event.at) });
    await sendSyslog(url, address, frame, AbortSignal.any([AbortSignal.timeout(requestMs), closing]));
    return delivered;
  }
  if (format === "json") return post(deps, claimed, { url, body: { organization, ...event } }, closing);
  return post(deps, claimed, chatRequests[format](url, eventText, isUrgentEvent(event)), closing);
}

/** Hides the reason from the organization: it names the operator's mail server and its address. The log has it. */
function shownMailFailure(error: unknown, log: Deps["log"]): unknown {
  if (error instanceof AppError && error.code === "throttled") return error;
  log.warn("Cannot send an alarm by e-mail", { reason: messageOf(error) });
  const cause: unknown = error instanceof AppError ? error.details.cause : undefined;
  const answer: unknown = Object(cause)["responseCode"];
  const what = typeof answer === "number" ? `answered ${answer}` : "did not take the message";
  return new AppError(
    "failed",
    `The mail server of this control plane ${what}. The reason is in the control plane's log.`,
  );
}

async function post(
  deps: Deps,
  claimed: Claimed,
  sent: { url: URL; body: unknown },
  closing: AbortSignal,
): Promise<Outcome> {
  const { system, secretKey } = deps;
  const { url } = sent;
  const target = await resolvedTo(url, deps);
  const secret = openSecret(secretKey, claimed.secretSealed, webhookContext(claimed.webhookId));
  const body = JSON.stringify(sent.body);
  const response = await system.fetch(target.href, {
    method: "POST",
    headers: { Host: url.host, ...signedHeaders(claimed.id, Math.floor(system.now() / 1000), body, secret) },
    body,
    redirect: "manual",
    keepalive: false,
    signal: AbortSignal.any([AbortSignal.timeout(requestMs), closing]),
    ...(target.serverName === undefined ? {} : { tls: { serverName: target.serverName } }),
  });
  await response.body?.cancel();
  const { status } = response;
  if (status >= 200 && status < 300) return { status, message: null, delivered: true };
  const message =
    status >= 300 && status < 400
      ? "The receiver answered with a redirect. Webhooks do not follow redirects."
      : `The receiver answered ${status}.`;
  return { status, message, delivered: false };
}

/** `id` stays the same in retries, so a receiver can discard duplicates. */
function signedHeaders(id: number, timestamp: number, body: string, secret: string): Record<string, string> {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const signature = createHmac("sha256", key).update(`msg_${id}.${timestamp}.${body}`).digest("base64");
  return {
    "Content-Type": "application/json",
    "Webhook-Id": `msg_${id}`,
    "Webhook-Timestamp": String(timestamp),
    "Webhook-Signature": `v1,${signature}`,
  };
}

/** What the organization reads about a failure. Of a system error only the code: its message may name an internal address. */
function failureOf(error: unknown, closing: AbortSignal): Outcome {
  const because = (message: string): Outcome => ({ status: null, message, delivered: false });
  if (closing.aborted)
    return { ...because("The server stopped. It retries after its restart."), interrupted: true };
  if (error instanceof AppError) return because(error.message);
  if (error instanceof Error && error.name === "TimeoutError")
    return because("The receiver did not answer within 10 seconds.");
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const reason = reasonOfCode(code);
  const why = [reason === undefined ? "" : `: ${reason}`, code === "" ? "" : ` (${code})`].join("");
  return because(`The connection failed${why}.`);
}
