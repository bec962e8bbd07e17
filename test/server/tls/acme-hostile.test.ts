// What a broken or hostile ACME server can send: each answer ends as one bounded sentence, and nothing hangs.

import { expect, test } from "bun:test";
import { makeAccountKey } from "../../../src/pki/acme-keys.ts";
import { AppError } from "../../../src/base/errors.ts";
import { AcmeProblem, openAcme, readAcme } from "../../../src/server/tls/acme/client.ts";
import { Order, RenewalInfo } from "../../../src/server/tls/acme/messages.ts";

const at = (path: string) => `https://ca.example${path}`;
const good = { newNonce: at("/nonce"), newAccount: at("/account"), newOrder: at("/order") };

type Answers = Record<string, () => Response>;

/** A client of a server with these answers by path. */
function edgeOf(answers: Answers, signal = new AbortController().signal) {
  const asked: string[] = [];
  const fetch = async (url: string) => {
    const { pathname } = new URL(url);
    asked.push(pathname);
    const answer = answers[pathname];
    if (answer === undefined) throw new Error(`unexpected request: ${url}`);
    return answer();
  };
  const system = { fetch, now: () => 0, sleep: () => Promise.resolve() };
  return { asked, edge: { system, directoryUrl: at("/dir"), signal } };
}

const json =
  (body: unknown, init: ResponseInit = {}) =>
  () =>
    Response.json(body, init);

async function refused(work: Promise<unknown>): Promise<Error> {
  const error: unknown = await work.then(
    () => new Error("accepted"),
    (reason: unknown) => reason,
  );
  return error instanceof Error ? error : new Error(String(error));
}

const endless = () =>
  new Response(
    new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(65_536).fill(32)) }),
  );

const directories: Record<string, () => Response> = {
  "no JSON": () => new Response("<html>"),
  "an empty answer": () => new Response(""),
  "an endless answer": endless,
  "plain HTTP": json({ ...good, newOrder: "http://ca.example/order" }),
  "another scheme": json({ ...good, newNonce: "file:///etc/passwd" }),
  "a long URL": json({ ...good, newOrder: at(`/${"a".repeat(4096)}`) }),
  "a list": json([good]),
  "a redirect": () => new Response(null, { status: 302, headers: { location: "http://10.0.0.1/" } }),
};

for (const [what, dir] of Object.entries(directories)) {
  test(`a directory with ${what} is refused`, async () => {
    const { edge } = edgeOf({ "/dir": dir });
    const error = await refused(openAcme(edge, await makeAccountKey()));
    expect(error instanceof AppError || error instanceof AcmeProblem).toBe(true);
    expect(error.message.length).toBeLessThan(600);
  });
}

test("a server that refuses all nonces, or gives none, ends the attempt", async () => {
  const badNonce = json(
    { type: "urn:ietf:params:acme:error:badNonce", detail: "no" },
    { status: 400, headers: { "replay-nonce": "abc" } },
  );
  const nonce = () => new Response(null, { headers: { "replay-nonce": "abc" } });
  const { edge, asked } = edgeOf({ "/dir": json(good), "/nonce": nonce, "/order": badNonce });
  const client = await openAcme(edge, await makeAccountKey());
  expect(await refused(client.post(good.newOrder, Order, {}))).toMatchObject({ type: "badNonce" });
  expect(asked.filter((path) => path === "/order")).toHaveLength(30);

  const silent = edgeOf({ "/dir": json(good), "/nonce": () => new Response(null) });
  const other = await openAcme(silent.edge, await makeAccountKey());
  expect((await refused(other.post(good.newOrder, Order, {}))).message).toContain("it gave no nonce");
});

test("a problem is cut, and Retry-After is at most a day", async () => {
  const problem = { type: "urn:ietf:params:acme:error:rateLimited", detail: "x".repeat(100_000) };
  const answer = json(problem, { status: 429, headers: { "retry-after": "999999999" } });
  const { edge } = edgeOf({ "/dir": json(good), "/ari": answer });
  const error = await refused(readAcme(edge, at("/ari"), RenewalInfo));
  expect(error).toMatchObject({ type: "rateLimited", status: 429, retryAfterMs: 86_400_000 });
  expect(error.message.length).toBeLessThan(600);
});

test("a window that ends before its start, or is no time, is no suggestion", async () => {
  const windows = [
    { start: "2026-02-01T00:00:00Z", end: "2026-01-01T00:00:00Z" },
    { start: "soon", end: "later" },
    {},
  ];
  for (const suggestedWindow of windows) {
    const { edge } = edgeOf({ "/ari": json({ suggestedWindow }) });
    expect(await refused(readAcme(edge, at("/ari"), RenewalInfo))).toMatchObject({
      code: "untrusted_answer",
    });
  }
});

test("a chain for another key or another name, and one that is no PEM, are refused", async () => {
  const { issueServerX509, makeServerKey, makeX509Ca, openIssuer, readServerChain } =
    await import("../../../src/pki/x509.ts");
  const times = { notBefore: 0, notAfter: 86_400_000 };
  const serial = new Uint8Array(16).fill(0x81);
  const authority = await makeX509Ca({ organization: "test", ...times, serial });
  const issuer = await openIssuer(authority);
  const issued = await issueServerX509({ names: ["a.example"], addresses: [], ...times, serial }, issuer);
  const own = { privateKeyPem: issued.key, names: ["a.example"], addresses: [], now: 1000 };
  expect(readServerChain(issued.cert, own)).toMatchObject({ notBefore: 0, notAfter: 86_400_000 });
  // The leading zero of a serial number is part of its name at the authority.
  expect(readServerChain(issued.cert, own).renewalId?.split(".")[1]).toBe(
    Buffer.concat([Buffer.from([0]), serial]).toString("base64url"),
  );
  const wrong: [string, string, object][] = [
    ["for another key", issued.cert, { privateKeyPem: await makeServerKey() }],
    ["not for b.example", issued.cert, { names: ["b.example"] }],
    ["not for 192.0.2.1", issued.cert, { addresses: ["192.0.2.1"] }],
    ["expired", issued.cert, { now: 86_400_001 }],
    ["not a certificate", "", {}],
    ["cannot be read", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", {}],
    ["not a certificate", issued.cert + issued.key, {}],
  ];
  for (const [reason, pem, more] of wrong)
    expect(() => readServerChain(pem, { ...own, ...more })).toThrow(reason);
});

test("an abort ends a request that hangs", async () => {
  const closing = new AbortController();
  const { edge } = edgeOf({}, closing.signal);
  const hanging = {
    ...edge,
    system: {
      ...edge.system,
      fetch: (_: string, init: { signal?: AbortSignal } = {}) =>
        new Promise<Response>((_resolve, reject) => {
          init.signal?.addEventListener("abort", () => reject(new Error("aborted")));
        }),
    },
  };
  const opening = refused(openAcme(hanging, await makeAccountKey()));
  closing.abort(new Error("stopping"));
  expect((await opening).message).toBe("stopping");
});
