// Orders certificates: at the start, after a change of the operator's settings, when the authority suggests it (ARI,
// RFC 9773), else in the last third of the lifetime. A failure keeps the present certificate and is retried with
// backoff.

import { given } from "../../../base/given.ts";
import { AppError, messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import { clean } from "../../../base/log.ts";
import type { SecretKeys } from "../../../pki/secrets.ts";
import type { System } from "../../../base/system.ts";
import { ourselves, record } from "../../audit/record.ts";
import type { Meters } from "../../http/meters.ts";
import type { Database, Transaction } from "../../store/database.ts";
import { LeaseLost } from "../../store/leases.ts";
import type { AcmeOptions } from "../../options.ts";
import { AcmeProblem, readAcme } from "./client.ts";
import { Directory, RenewalInfo } from "./messages.ts";
import { identifierOf } from "./identifier.ts";
import { obtainCertificate } from "./order.ts";
import {
  makeAcmeStore,
  readCertificate,
  readStatus,
  setStatus,
  type Certificate,
  type Status,
} from "../../store/acme-state.ts";

export type RenewalDeps = {
  db: Database;
  secretKey: SecretKeys;
  system: Pick<System, "fetch" | "now" | "sleep" | "run" | "random">;
  log: Log;
  meters: Pick<Meters, "certificate">;
};

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;
/** The pauses after the first failures; the last one also after all later ones. Let's Encrypt permits five failures an hour. */
const retriesMs = [
  minuteMs,
  2 * minuteMs,
  5 * minuteMs,
  15 * minuteMs,
  30 * minuteMs,
  hourMs,
  3 * hourMs,
  6 * hourMs,
] as const;
const pauseAfter = (failures: number): number =>
  retriesMs[Math.min(failures, retriesMs.length) - 1] ?? minuteMs;
/** How often the authority is asked when to renew, unless it says. */
const askAgainMs = 6 * hourMs;

/** Returns one turn of the loop: it orders a certificate if one is due. */
export function makeAcmeRenewal(
  options: AcmeOptions,
  deps: RenewalDeps,
): (signal: AbortSignal) => Promise<void> {
  const { db, secretKey, system } = deps;
  let hasAttempted = false;
  return async (signal) => {
    const status = await readStatus(db);
    const certificate = await readCertificate(db, secretKey);
    if (mustWait(status, system.now(), !hasAttempted)) return;
    const statusNow =
      certificate === undefined ? status : await askWhen(options, certificate, status, deps, signal);
    if (certificate !== undefined && system.now() < renewAt(options, certificate, statusNow)) return;
    hasAttempted = true;
    await attempt(options, certificate, deps, signal);
  };
}

/**
 * An operator who has mended something restarts the server, and does not want to wait for the next retry. `isRestarted`: no attempt
 * since the start of the server.
 */
function mustWait({ failures, failedAt, waitUntil = 0 }: Status, now: number, isRestarted: boolean): boolean {
  // A clock that was set back must not stop retries for as long.
  if (failedAt === undefined || failedAt > now) return false;
  // Never longer than a day, whatever the authority asked for.
  const pauseMs = pauseAfter(isRestarted ? 1 : failures);
  return now < Math.min(Math.max(failedAt + pauseMs, waitUntil), failedAt + dayMs);
}

/** When to order, ms. Zero if the present certificate does not have the wanted settings. */
export function renewAt(
  options: AcmeOptions,
  { wish, notBefore, notAfter }: Certificate,
  { suggestedAt = Number.POSITIVE_INFINITY }: Status,
): number {
  const hasOtherSettings =
    wish.directoryUrl !== options.directoryUrl ||
    wish.name !== identifierOf(options).value ||
    (options.profile !== undefined && wish.profile !== options.profile);
  if (hasOtherSettings) return 0;
  const lifetime = notAfter - notBefore;
  // A suggestion may be before or after the last third, but never so late that no failure is allowed.
  const usual = notAfter - lifetime / 3;
  return suggestedAt === Number.POSITIVE_INFINITY ? usual : Math.min(suggestedAt, notAfter - lifetime / 10);
}

/** Asks the authority when it wants the certificate renewed, as often as it wants to be asked. */
async function askWhen(
  options: AcmeOptions,
  { renewalId }: Certificate,
  status: Status,
  { db, system, log }: RenewalDeps,
  signal: AbortSignal,
): Promise<Status> {
  const now = system.now();
  const { askAgainAt = 0 } = status;
  // A time more than two days away does not count: it may be from a clock that was ahead.
  if (renewalId === undefined || (now < askAgainAt && askAgainAt < now + 2 * dayMs)) return status;
  const { directoryUrl, trust } = options;
  const edge = { system, directoryUrl, signal, ...given({ trust }) };
  const ask = async (): Promise<Status> => {
    const { renewalInfo } = (await readAcme(edge, directoryUrl, Directory)).body;
    if (renewalInfo === undefined) return { ...status, askAgainAt: now + dayMs };
    const url = `${renewalInfo.replace(/\/$/, "")}/${renewalId}`;
    const { body, retryAfterMs = askAgainMs } = await readAcme(edge, url, RenewalInfo);
    const { start, end } = body.suggestedWindow;
    const { suggestedAt } = status;
    // A random moment, once for each window, so that not all customers come at once.
    const isKept = suggestedAt !== undefined && suggestedAt >= start && suggestedAt <= end;
    const chosen = isKept ? suggestedAt : start + randomShare(system) * (end - start);
    return { ...status, suggestedAt: chosen, askAgainAt: now + Math.max(retryAfterMs, minuteMs) };
  };
  const next = await ask().catch((error: unknown) => {
    signal.throwIfAborted();
    log.info("the certificate authority does not say when to renew", { reason: messageOf(error) });
    return { ...status, askAgainAt: now + hourMs };
  });
  await db.writeFor("rows", (tx) => setStatus(tx, next));
  return next;
}

function randomShare({ random }: Pick<System, "random">): number {
  return Buffer.from(random(4)).readUInt32BE() / 2 ** 32;
}

/** Orders a certificate and stores it, or notes the failure. */
async function attempt(
  options: AcmeOptions,
  present: Certificate | undefined,
  deps: RenewalDeps,
  signal: AbortSignal,
): Promise<void> {
  const { db, secretKey, system, log, meters } = deps;
  const { name, directoryUrl } = options;
  const authority = new URL(directoryUrl).host;
  const store = makeAcmeStore(db, secretKey);
  log.info("ordering a TLS certificate", { name, authority });
  try {
    const replaces = present?.wish.directoryUrl === directoryUrl ? present.renewalId : undefined;
    const certificate = await obtainCertificate(options, replaces, { system, store, signal });
    const { serial, notAfter, wish } = certificate;
    const until = new Date(notAfter).toISOString();
    await store.setCertificate(certificate, async (tx) => {
      await setStatus(tx, { failures: 0, notAfter });
      const after = { authority, serial, not_after: until, profile: wish.profile ?? null };
      await recordEvent(tx, "tls.certificate_issued", name, after, system.now());
    });
    meters.certificate("ok");
    log.info("the TLS certificate is there", { name, authority, until });
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof LeaseLost) throw error;
    meters.certificate("failed");
    await noteFailure(error, { name, authority, present }, deps);
  }
}

async function noteFailure(
  error: unknown,
  { name, authority, present }: { name: string; authority: string; present: Certificate | undefined },
  { db, system, log }: RenewalDeps,
): Promise<void> {
  const now = system.now();
  const reason = clean(messageOf(error), 500);
  const retryAfterMs = error instanceof AcmeProblem ? error.retryAfterMs : undefined;
  const before = await readStatus(db);
  const failures = before.failures + 1;
  const waitUntil = retryAfterMs === undefined ? {} : { waitUntil: now + retryAfterMs };
  const status: Status = { ...before, failures, failedAt: now, reason, ...waitUntil };
  await db.write(async (tx) => {
    await setStatus(tx, status);
    await recordEvent(tx, "tls.certificate_failed", name, { authority, failures, reason }, now);
  });
  const pauseMs = pauseAfter(failures);
  log.error("cannot get a TLS certificate; the present one stays in use", {
    name,
    authority,
    reason,
    hint: hintFor(error, name),
    present: present === undefined ? "own CA" : `until ${new Date(present.notAfter).toISOString()}`,
    retry: new Date(now + Math.max(pauseMs, retryAfterMs ?? 0)).toISOString(),
  });
}

/** What to do next, by the error types of RFC 8555, section 6.7. */
function hintFor(error: unknown, name: string): string {
  if (error instanceof AppError && error.details.hint !== undefined) return error.details.hint;
  const type = error instanceof AcmeProblem ? error.type : "";
  switch (type) {
    case "connection":
    case "incorrectResponse":
    case "unauthorized":
      return `The authority must reach this server as http://${name}/ on TCP port 80: check the address of ${name}, firewalls and port forwarding. Or use --acme-dns-hook.`;
    case "dns":
      return `Check the address records (A, AAAA) of ${name} and its name servers; with --acme-dns-hook, the TXT record of _acme-challenge.${name}.`;
    case "caa":
      return `The CAA record of ${name} does not permit this authority: change it, or choose another --acme-directory.`;
    case "rateLimited":
      return "Nothing to do: it is tried again when the authority permits.";
    case "rejectedIdentifier":
    case "unsupportedIdentifier":
      return `This authority gives no certificate for ${name}: check --public-url, --acme-profile and --acme-directory.`;
    case "externalAccountRequired":
      return "Give --acme-eab-kid and --acme-eab-key-file: the authority shows both to its customers.";
    case "invalidContact":
    case "unsupportedContact":
      return "Check --acme-email.";
    default:
      return "It is tried again. If it goes on, look at the status page of the authority.";
  }
}

function recordEvent(
  tx: Transaction,
  type: "tls.certificate_issued" | "tls.certificate_failed",
  name: string,
  after: Record<string, unknown>,
  at: number,
): Promise<void> {
  return record(tx, { orgId: null, at, type, actor: ourselves, subject: `tls/${name}`, after });
}
