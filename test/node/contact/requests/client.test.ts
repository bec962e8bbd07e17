import { nodesApi } from "../../../../src/api/nodes.ts";
import { request } from "../../../../src/api/request.ts";
import { expect, test } from "bun:test";
import type { AppError } from "../../../../src/base/errors.ts";
import { makeClient } from "../../../../src/node/contact/requests/client.ts";
import type { Node } from "../../../../src/protocol/node.ts";
import type { FetchInit } from "../../../../src/base/system.ts";
import { rejection } from "../../../pki/thrown.ts";

type Answerer = (url: string, init: FetchInit) => Response | Promise<Response>;

const base = "https://control.example";
const secret = "canary-token-of-this-test-0123456789abcdefgh";

function client(answer: Answerer, calls: FetchInit[] = []) {
  const fetch = async (url: string, init: FetchInit = {}) => {
    calls.push(init);
    return answer(url, init);
  };
  return makeClient({ base, token: secret, system: { fetch, sleep: async () => {} } });
}

async function failure(work: Promise<unknown>): Promise<AppError> {
  const error = await rejection(work);
  expect(`${error.message} ${error.details.hint ?? ""}`).not.toContain(secret);
  return error;
}

const beat = { version: "1", uptime: 1 };
const good = {
  last_checkin_at: "2026-11-21T00:00:00Z",
  server_time: "2026-11-21T00:00:00Z",
  config_version: 1,
  config_changed: false,
  certificate_not_after: "2026-12-21T00:00:00Z",
};

const bases: [string, boolean, string | undefined][] = [
  ["https://control.example/", false, undefined],
  ["http://127.0.0.1:8420", false, undefined],
  ["http://localhost:8420", false, undefined],
  ["http://[::1]:8420", false, undefined],
  ["http://control.example", true, undefined],
  ["http://control.example", false, "unencrypted"],
  ["http://127.0.0.1.example", false, "unencrypted"],
  ["http://127.evil.example", false, "unencrypted"],
  ["ftp://control.example", true, "not the URL"],
  ["control.example", true, "not the URL"],
  ["https://user:pass@control.example", false, "credentials"],
  ["https://control.example/?x=1", false, "query"],
];
for (const [address, allowPlainHttp, complaint] of bases) {
  test(`the address ${address}${allowPlainHttp ? " with plain HTTP allowed" : ""} is ${complaint === undefined ? "accepted" : "refused"}`, () => {
    const make = () =>
      makeClient({
        base: address,
        allowPlainHttp,
        system: { fetch: () => Promise.reject(), sleep: async () => {} },
      });
    if (complaint === undefined) expect(make().base).toBe(address.replace(/\/$/, ""));
    else expect(make).toThrow(complaint);
  });
}

test("a valid answer is parsed, and unknown fields are ignored", async () => {
  const calls: FetchInit[] = [];
  const answer = await client(() => Response.json({ ...good, more: 1 }), calls).checkin("acme", 1, beat, {
    waitS: 7,
  });
  expect(answer).toMatchObject(good);
  expect(calls).toHaveLength(1);
  expect(calls[0]?.redirect).toBe("manual");
  expect(calls[0]?.headers).toMatchObject({ Prefer: "wait=7", Authorization: `Bearer ${secret}` });
});

const portal = "<html>Sign in to this network</html>";
const strange: [string, Answerer, string][] = [
  [
    "a portal's page",
    () => new Response(portal, { headers: { "Content-Type": "text/html" } }),
    "untrusted_answer",
  ],
  ["a portal's 401", () => new Response(portal, { status: 401 }), "untrusted_answer"],
  ["a bare 403", () => new Response("", { status: 403 }), "untrusted_answer"],
  ["a foreign JSON 403", () => Response.json({ message: "no" }, { status: 403 }), "untrusted_answer"],
  ["a foreign 404", () => new Response("nginx", { status: 404 }), "untrusted_answer"],
  ["a redirect", () => Response.redirect("https://portal.example/", 302), "untrusted_answer"],
  ["a proxy's 502", () => new Response("bad gateway", { status: 502 }), "control_plane_unreachable"],
  ["JSON that is no answer", () => Response.json({ ok: true }), "untrusted_answer"],
  [
    "an error that lies about its status",
    () => Response.json({ error: "x", code: "node_revoked", detail: "x", status_code: 200 }, { status: 403 }),
    "untrusted_answer",
  ],
  ["a refused connection", () => Promise.reject(new Error("Unable to connect")), "control_plane_unreachable"],
];
for (const [what, answer, code] of strange) {
  test(`${what} is ${code}, exit 6`, async () => {
    const error = await failure(client(answer).checkin("acme", 1, beat));
    expect(error.code).toBe(code as typeof error.code);
    expect(error.exitStatus).toBe(6);
    expect(error.message).toContain("control.example");
  });
}

test("a server error keeps its code, fields, order and Retry-After", async () => {
  const body = {
    error: "Forbidden",
    code: "node_revoked",
    detail: "Revoked.",
    status_code: 403,
    order: "a.b.c",
    errors: { name: ["x"] },
  };
  const answer = () => Response.json(body, { status: 403, headers: { "Retry-After": "7" } });
  const error = await failure(client(answer).checkin("acme", 1, beat));
  expect(error).toMatchObject({ code: "node_revoked", message: "Revoked." });
  expect(error.details).toMatchObject({ order: "a.b.c", errors: { name: ["x"] }, retryAfter: 7 });
});

test("idempotent requests are tried three times, others once", async () => {
  const tries: string[] = [];
  const broken = client((_, init) => {
    tries.push(init.method ?? "");
    throw new Error("reset");
  });
  await failure(broken.downloadConfig("acme", 1));
  expect(tries).toEqual(["GET", "GET", "GET"]);
  tries.length = 0;
  await failure(broken.request(request(nodesApi.renewCertificate, { slug: "acme", id: 1 }, {})));
  await failure(broken.token("a@b.example", "x"));
  await failure(broken.checkin("acme", 1, beat, { waitS: 50 }));
  expect(tries).toEqual(["POST", "POST", "POST"]);
});

test("a second try that succeeds is a success", async () => {
  let count = 0;
  const flaky = client(() => {
    if (++count === 1) throw new Error("reset");
    return Response.json(good);
  });
  expect(await flaky.checkin("acme", 1, beat)).toMatchObject(good);
});

test("304 means no change, with the organization's version", async () => {
  const same = client(() => new Response(null, { status: 304, headers: { "X-Config-Version": "9" } }));
  expect(await same.downloadConfig("acme", 1, "etag")).toEqual({ changed: false, configVersion: 9 });
});

test("an endless answer is cut at 32 MiB for a configuration, else at 1 MiB", async () => {
  const chunk = new Uint8Array(1024 * 1024);
  const limits: [number, number, (from: ReturnType<typeof client>) => Promise<unknown>][] = [
    [200, 32, (from) => from.downloadConfig("acme", 1)],
    [200, 1, (from) => from.checkin("acme", 1, beat)],
    [400, 1, (from) => from.downloadConfig("acme", 1)],
  ];
  for (const [status, limit, ask] of limits) {
    let sent = 0;
    const endless = new ReadableStream({
      pull(controller) {
        sent += chunk.length;
        controller.enqueue(chunk);
      },
    });
    const error = await failure(ask(client(() => new Response(endless, { status }))));
    expect(error.code).toBe("untrusted_answer");
    expect(error.message).toContain(`larger than ${limit} MiB`);
    expect(sent / chunk.length).toBeLessThan(limit + 8);
  }
});

test("messages of a refusal and of its fields are cut and redacted", async () => {
  const body = {
    error: "Bad Request",
    code: "validation_failed",
    detail: `${"-eyJ".repeat(10_000)} Bearer abc`,
    status_code: 400,
    errors: Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`f${i}`, [`Bearer x ${i}`]])),
  };
  const error = await failure(client(() => Response.json(body, { status: 400 })).checkin("acme", 1, beat));
  expect(error.code).toBe("validation_failed");
  expect(error.message.length).toBeLessThan(5000);
  expect(Object.keys(error.details.errors ?? {}).length).toBe(100);
  expect(error.details.errors?.["f0"]).toEqual(["Bearer [token] 0"]);
});

test("an answer with millions of invalid items is refused at the first", async () => {
  const node = { subnets: Array(3_000_000).fill(1) };
  const answer = () => Response.json({ config_version: 1, node, files: {} });
  const before = process.memoryUsage.rss();
  expect((await failure(client(answer).downloadConfig("acme", 1))).code).toBe("untrusted_answer");
  expect(process.memoryUsage.rss() - before).toBeLessThan(500_000_000);
});

test("an ETag that is too long for sync.json is not stored", async () => {
  const node: Node = {
    id: 1,
    name: "alpha",
    ip_address: "10.0.0.1",
    ip_address6: null,
    subnets: [],
    state: "active",
    online: true,
    mode: "server",
    is_lighthouse: false,
    is_relay: false,
    public_ip: null,
    external_port: null,
    groups: [],
    config_overrides: {},
    certificate: null,
    config_version: 1,
    applied_config_version: null,
    agent_version: null,
    overlay_version: null,
    platform: null,
    last_checkin_at: null,
    created_at: "2026-11-21T00:00:00Z",
    revoked_at: null,
  };
  const order_key = { kty: "OKP", crv: "Ed25519", x: "x", kid: "k" };
  const files = Object.fromEntries(
    ["config.yml", "ca.crt", "host.crt", "node-config.json"].map((name) => [name, "x"]),
  );
  const answer = { config_version: 1, node, order_key, files };
  const named = (etag: string) =>
    client(() => Response.json(answer, { headers: { ETag: etag } })).downloadConfig("acme", 1);
  expect(await named('"good"')).toMatchObject({ changed: true, etag: '"good"' });
  expect(await named(`"${"e".repeat(300)}"`)).toMatchObject({ changed: true, etag: "" });
});

test("a request that its caller cancels is interrupted, not unreachable", async () => {
  const controller = new AbortController();
  const hanging = client(
    (_, init) =>
      new Promise((_, reject) => init.signal?.addEventListener("abort", () => reject(new Error("aborted")))),
  );
  const polling = hanging.checkin("acme", 1, beat, { waitS: 50, signal: controller.signal });
  controller.abort();
  expect((await failure(polling)).code).toBe("interrupted");
});
