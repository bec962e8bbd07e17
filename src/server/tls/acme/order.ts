// One certificate from an ACME server: account, order, challenges, finalization, download (RFC 8555, section 7). A killed
// attempt continues its order. Does not decide when to order.

import { given } from "../../../base/given.ts";
import { AppError } from "../../../base/errors.ts";
import { clean } from "../../../base/log.ts";
import { bindExternalAccount, makeAccountKey, type AccountKey } from "../../../pki/acme-keys.ts";
import type { AcmeOptions } from "../../options.ts";
import { AcmeProblem, openAcme, type AcmeAnswer, type AcmeClient } from "./client.ts";
import { Account as AccountAnswer, Authorization, Challenge, Order, type Directory } from "./messages.ts";
import { identifierOf, namesOf } from "./identifier.ts";
import type { Certificate, OpenOrder, Wish } from "../../store/acme-state.ts";
import { makeSolver, type OrderDeps, type Solver } from "./solver.ts";

/** Slow validation takes minutes, an order that never ends is given up. */
const attemptWithinMs = 15 * 60_000;
/** How often the authority is asked, unless it says. */
const usualPollMs = 1500;
const maxPollMs = 60_000;

/** The certificate for these settings. Throws AppError or AcmeProblem. `replaces`: the present one (RFC 9773). */
export async function obtainCertificate(
  options: AcmeOptions,
  replaces: string | undefined,
  deps: OrderDeps,
): Promise<Certificate> {
  const tooSlow = AbortSignal.timeout(attemptWithinMs);
  const within = { ...deps, signal: AbortSignal.any([deps.signal, tooSlow]) };
  const { client, key } = await openAccount(options, within);
  const wish = wishOf(options, client.directory);
  const openOrder =
    (await continueOrder(client, wish, within)) ??
    (await beginOrder(client, options, wish, replaces, within));
  const { system, store } = within;
  const cleaners: (() => Promise<void>)[] = [];
  try {
    // Publishes the answers to challenges, and adds to `cleaners` what removes them.
    const solver = makeSolver(options, key, within, cleaners);
    const { certificate } = await followOrder(client, options, openOrder, solver, within);
    if (certificate === undefined) throw unexpected("its valid order names no certificate");
    const chain = await client.download(certificate);
    const { readServerChain } = await import("../../../pki/x509.ts");
    const { privateKey } = openOrder;
    const read = readServerChain(chain, {
      ...namesOf(options),
      privateKeyPem: privateKey,
      now: system.now(),
    });
    return { wish, chain, privateKey, ...read };
  } catch (error) {
    // An order whose chain is refused would fail each later attempt. After anything else the next attempt continues the order.
    const isUseless = error instanceof AppError && error.code === "untrusted_answer";
    if (error instanceof OrderEnded || isUseless) await store.dropOrder();
    throw tooSlow.aborted ? lateError() : error;
  } finally {
    // A stop does not wait for the program: the next attempt continues this order, and cleans up after it.
    if (!deps.signal.aborted) for (const removePublished of cleaners) await removePublished();
  }
}

/** The order has failed at the authority. A new attempt needs a new one. */
class OrderEnded extends AcmeProblem {}

/** The certificate that these settings ask for: name, authority and profile. */
function wishOf(options: AcmeOptions, { meta: { profiles } }: Directory): Wish {
  const { directoryUrl, profile } = options;
  const { type, value } = identifierOf(options);
  const offered = Object.keys(profiles);
  if (profile !== undefined && !offered.includes(profile)) {
    const list = offered.slice(0, 20).join(", ") || "none";
    throw new AppError("bad_configuration", `The ACME server has no profile "${profile}"`, {
      hint: `It offers: ${list}. Change --acme-profile.`,
    });
  }
  // Let's Encrypt gives certificates for addresses with this profile only.
  const chosen = profile ?? (type === "ip" && offered.includes("shortlived") ? "shortlived" : undefined);
  return { directoryUrl, name: value, ...given({ profile: chosen }) };
}

async function openAccount(
  options: AcmeOptions,
  deps: OrderDeps,
): Promise<{ client: AcmeClient; key: AccountKey }> {
  const { directoryUrl, trust, email, externalAccount } = options;
  const { key, url } = await deps.store.account(directoryUrl, makeAccountKey);
  const client = await openAcme({ ...deps, directoryUrl, ...given({ trust }) }, key);
  if (url !== undefined && (await isKnown(client, url))) return { client, key };
  const { newAccount, meta } = client.directory;
  if (meta.externalAccountRequired && externalAccount === undefined) {
    throw new AppError("bad_configuration", "The ACME server accepts only accounts of its customers", {
      hint: "Give the key id and the key that it shows there: --acme-eab-kid and --acme-eab-key-file.",
    });
  }
  // The account has no URL yet: the request is signed with the key itself.
  client.signAs(undefined);
  // With a key that it knows, the authority answers with the existing account.
  const { location } = await client.post(newAccount, AccountAnswer, {
    termsOfServiceAgreed: true,
    ...(email === undefined ? {} : { contact: [`mailto:${email}`] }),
    ...(externalAccount === undefined
      ? {}
      : { externalAccountBinding: await bindExternalAccount(externalAccount, key, newAccount) }),
  });
  if (location === undefined) throw unexpected("it gave no URL of the account");
  await deps.store.setAccount(directoryUrl, { key, url: location });
  client.signAs(location);
  return { client, key };
}

/** False if the authority has forgotten the account: then it is created again with the same key. */
async function isKnown(client: AcmeClient, account: string): Promise<boolean> {
  client.signAs(account);
  try {
    const { body } = await client.post(account, AccountAnswer);
    if (body.status === "valid") return true;
    throw new AppError("failed", `The ACME server has ended this account: ${clean(body.status)}`, {
      hint: "Ask the certificate authority, or choose another one with --acme-directory.",
    });
  } catch (error) {
    if (error instanceof AcmeProblem && error.type === "accountDoesNotExist") return false;
    throw error;
  }
}

/** The order of a former attempt, if it is for the same certificate and can still succeed. */
async function continueOrder(
  client: AcmeClient,
  wish: Wish,
  { store }: OrderDeps,
): Promise<OpenOrder | undefined> {
  const openOrder = await store.order();
  if (openOrder === undefined) return undefined;
  if (JSON.stringify(openOrder.wish) === JSON.stringify(wish)) {
    try {
      const { body } = await client.post(openOrder.url, Order);
      if (body.status !== "invalid") return openOrder;
    } catch (error) {
      // An authority forgets ended orders. Other failures are temporary: the next attempt continues the order.
      if (!(error instanceof AcmeProblem) || error.status >= 500 || error.status === 429) throw error;
    }
  }
  await store.dropOrder();
  return undefined;
}

async function beginOrder(
  client: AcmeClient,
  options: AcmeOptions,
  wish: Wish,
  replaces: string | undefined,
  { store }: OrderDeps,
): Promise<OpenOrder> {
  const { makeServerKey } = await import("../../../pki/x509.ts");
  const order = {
    identifiers: [identifierOf(options)],
    ...given({ profile: wish.profile }),
  };
  const { newOrder, renewalInfo } = client.directory;
  const create = (more: object) => client.post(newOrder, Order, { ...order, ...more });
  const replacing = renewalInfo === undefined || replaces === undefined ? {} : { replaces };
  const { location } = await create(replacing).catch((error: unknown) => {
    // The authority does not know the former certificate, or has replaced it already. Neither prevents a new order.
    const isAboutReplaced =
      error instanceof AcmeProblem && !["rateLimited", "rejectedIdentifier"].includes(error.type);
    if ("replaces" in replacing && isAboutReplaced) return create({});
    throw error;
  });
  if (location === undefined) throw unexpected("it gave no URL of the order");
  const openOrder: OpenOrder = { wish, url: location, privateKey: await makeServerKey() };
  await store.setOrder(openOrder);
  return openOrder;
}

/** Follows the order until it is valid. */
async function followOrder(
  client: AcmeClient,
  options: AcmeOptions,
  { url, privateKey }: OpenOrder,
  solve: Solver,
  deps: OrderDeps,
): Promise<Order> {
  let isFinalized = false;
  for (;;) {
    const answer = await client.post(url, Order);
    const { status, authorizations, finalize, error } = answer.body;
    if (status === "valid") return answer.body;
    if (status === "invalid") throw new OrderEnded(error ?? noReason);
    if (status === "pending") {
      for (const each of authorizations) await authorize(client, each, solve, deps);
    }
    // Only once, even if the authority still answers "ready".
    if (status === "ready" && !isFinalized) {
      const { makeServerCsr } = await import("../../../pki/x509.ts");
      const csr = await makeServerCsr({ privateKeyPem: privateKey, ...namesOf(options) });
      await client.post(finalize, Order, { csr: Buffer.from(csr).toString("base64url") });
      isFinalized = true;
      continue;
    }
    await pause(answer, deps);
  }
}

const noReason = { type: "about:blank", detail: "the authority gives no reason", subproblems: [] };

/** Proves one name of the order: answers a challenge, and waits until the authority has checked it. */
async function authorize(client: AcmeClient, url: string, solve: Solver, deps: OrderDeps): Promise<void> {
  let answered = false;
  for (;;) {
    const answer = await client.post(url, Authorization);
    const { status, challenges } = answer.body;
    if (status === "valid") return;
    if (status !== "pending") {
      const failed = challenges.find(({ error }) => error !== undefined);
      throw new OrderEnded(failed?.error ?? noReason);
    }
    if (!answered) {
      const challenge = await solve(answer.body);
      // "processing": a killed attempt has asked already.
      if (challenge.status === "pending") await client.post(challenge.url, Challenge, {});
      answered = true;
      continue;
    }
    await pause(answer, deps);
  }
}

function pause(
  { retryAfterMs = usualPollMs }: AcmeAnswer<unknown>,
  { system, signal }: OrderDeps,
): Promise<void> {
  return system.sleep(Math.min(retryAfterMs, maxPollMs), signal);
}

function lateError(): AppError {
  return new AppError("failed", `The ACME server did not finish within ${attemptWithinMs / 60_000} minutes`, {
    hint: "The next attempt continues this order.",
  });
}

function unexpected(reason: string): AppError {
  return new AppError("untrusted_answer", `The ACME server cannot be used: ${reason}`);
}
