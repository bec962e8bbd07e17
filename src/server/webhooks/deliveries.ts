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
import { chatRequests } from "./chat-requests.ts";
import { isUrgentEvent, textOfEvent } from "./event-text.ts";
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
  const stopping = new AbortController();
  /** By the id of the webhook. */
  const underWay = new Map<number, Promise<void>>();
  /** Ids of organizations, those that were served longest ago first. `claimDue` keeps it. */
  const served = new Set<number>();
  /** Aborted when a webhook is free again: then the wait of the loop ends. */
  let wake = new AbortController();

  const sendDue = async () => {
    const now = system.now();
    await queueEvents(db, now);
    for (const claimed of await claimDue(db, now, new Set(underWay.keys()), served)) {
      const sent = deliver(deps, claimed, stopping.signal)
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
  const loop = async () => {
    while (!stopping.signal.aborted) {
      const turn = mayRun() ? sendDue() : Promise.resolve();
      await turn.catch((error: unknown) => {
        if (error instanceof LeaseLost) log.info(error.message);
        else log.warn("cannot send webhooks now; retrying", { reason: messageOf(error) });
      });
      const awake = AbortSignal.any([wake.signal, stopping.signal]);
      await system.sleep(pollEveryMs, awake).catch(() => undefined);
      if (wake.signal.aborted) wake = new AbortController();
    }
    await Promise.all(underWay.values());
  };
  let running: Promise<void> | undefined;
  return {
    start: () => void (running = loop()),
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** Sends one delivery and records its outcome. */
async function deliver(deps: Deps, claimed: Claimed, stopping: AbortSignal): Promise<void> {
  const { outcomes, system } = deps;
  const outcome = await send(deps, claimed, stopping).catch((error: unknown) => failureOf(error, stopping));
  const random = (system.random(1)[0] ?? 0) / 255;
  await settleDelivery(outcomes, claimed, outcome, { now: system.now(), random });
}

/** Sends it once, in the format of its webhook. Throws what `failureOf` puts into words. */
async function send(deps: Deps, claimed: Claimed, stopping: AbortSignal): Promise<Outcome> {
  const { format, event, organization } = claimed;
  const url = new URL(claimed.url);
  switch (format) {
    case "mail":
      return sendByMail(deps, claimed, url);
    case "syslog":
      return sendToSyslog(deps, claimed, url, stopping);
    case "json":
      return post(deps, claimed, { url, body: { organization, ...event } }, stopping);
    default:
      return post(
        deps,
        claimed,
        chatRequests[format](url, eventTextOf(claimed), isUrgentEvent(event)),
        stopping,
      );
  }
}

const messageName = ({ id }: Claimed) => `msg_${id}`;
const eventTextOf = (claimed: Claimed) =>
  textOfEvent(claimed.event, claimed.organization, messageName(claimed));

/** The receiver took the message. Mail and syslog have no HTTP status. */
const takenWithoutStatus: Outcome = { status: null, message: null, delivered: true };

async function sendByMail(deps: Deps, claimed: Claimed, url: URL): Promise<Outcome> {
  const { mail, throttle, log } = deps;
  if (mail === undefined) throw noMail();
  const { title, text } = eventTextOf(claimed);
  const messageId = `<${messageName(claimed)}.${claimed.webhookId}@${new URL(deps.publicUrl).host}>`;
  // The URL is `mailto:` and the address of the receiver.
  const message = { to: url.pathname, subject: title, text: `${text}\n`, messageId };
  await sendMailOf(claimed.organization, { mail, throttle }, message).catch((error: unknown) => {
    throw shownMailFailure(error, log);
  });
  return takenWithoutStatus;
}

async function sendToSyslog(deps: Deps, claimed: Claimed, url: URL, stopping: AbortSignal): Promise<Outcome> {
  const { sendSyslog, syslogFrame } = await import("./syslog.ts");
  const address = await resolveTarget(url, deps);
  const { id, event } = claimed;
  const { hostname } = new URL(deps.publicUrl);
  const frame = syslogFrame(event, eventTextOf(claimed), {
    host: hostname,
    deliveryId: id,
    at: Date.parse(event.at),
  });
  await sendSyslog(url, address, frame, AbortSignal.any([AbortSignal.timeout(requestMs), stopping]));
  return takenWithoutStatus;
}

/** Hides the reason from the organization: it names the operator's mail server and its address. The log has it. */
function shownMailFailure(error: unknown, log: Deps["log"]): unknown {
  if (error instanceof AppError && error.code === "throttled") return error;
  log.warn("Cannot send an alarm by e-mail", { reason: messageOf(error) });
  // `responseCode`: the SMTP status, which nodemailer adds to its errors.
  const cause: unknown = error instanceof AppError ? error.details.cause : undefined;
  const answer: unknown = Object(cause)["responseCode"];
  const what = typeof answer === "number" ? `answered ${answer}` : "did not take the message";
  return new AppError(
    "failed",
    `The mail server of this control plane ${what}. The reason is in the control plane's log.`,
  );
}

/** POSTs JSON, signed. Programs verify the signature; chats ignore it. */
async function post(
  deps: Deps,
  claimed: Claimed,
  { url, body: content }: { url: URL; body: unknown },
  stopping: AbortSignal,
): Promise<Outcome> {
  const { system, secretKey } = deps;
  const target = await resolvedTo(url, deps);
  const secret = openSecret(secretKey, claimed.secretSealed, webhookContext(claimed.webhookId));
  const body = JSON.stringify(content);
  const timestamp = Math.floor(system.now() / 1000);
  const response = await system.fetch(target.href, {
    method: "POST",
    headers: { Host: url.host, ...signedHeaders(messageName(claimed), timestamp, body, secret) },
    body,
    redirect: "manual",
    keepalive: false,
    signal: AbortSignal.any([AbortSignal.timeout(requestMs), stopping]),
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

/** `id`: the same in retries, so a receiver can discard duplicates. `timestamp`: seconds since 1970. */
function signedHeaders(id: string, timestamp: number, body: string, secret: string): Record<string, string> {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  return {
    "Content-Type": "application/json",
    "Webhook-Id": id,
    "Webhook-Timestamp": String(timestamp),
    "Webhook-Signature": `v1,${signature}`,
  };
}

/** What the organization reads about a failure. Of a system error only the code: its message may name an internal address. */
function failureOf(error: unknown, stopping: AbortSignal): Outcome {
  const because = (message: string): Outcome => ({ status: null, message, delivered: false });
  if (stopping.aborted)
    return { ...because("The server stopped. It retries after its restart."), interrupted: true };
  if (error instanceof AppError) return because(error.message);
  if (error instanceof Error && error.name === "TimeoutError")
    return because("The receiver did not answer within 10 seconds.");
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const reason = reasonOfCode(code);
  const why = [reason === undefined ? "" : `: ${reason}`, code === "" ? "" : ` (${code})`].join("");
  return because(`The connection failed${why}.`);
}
