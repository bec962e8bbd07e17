// The listener of the control plane: names, TLS, and requests that no HTTP client would send.

import { describe, expect, test } from "bun:test";
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isOwnName, parseListen } from "../../src/server/http/edge.ts";
import { issueServerX509, makeX509Ca, openIssuer } from "../../src/pki/x509.ts";
import type { ServeOptions } from "../../src/server/serve.ts";
import { rawAnswer, refusal, useServing } from "../support/serving.ts";
import { until } from "../support/until.ts";

const here = useServing();

describe("listening", () => {
  test("plain HTTP beyond loopback needs --allow-plain-http", async () => {
    const listen = { hostname: "0.0.0.0", port: 0 };
    expect(await refusal(here.serve({ listen }))).toBe("bad_configuration");
    expect(await refusal(here.serve({ listen, allowPlainHttp: true }))).toBe("none");
  });

  test("an error names a port that is in use", async () => {
    const { url } = await here.serve();
    const other = {
      dataDirectory: join(here.directory, "other"),
      listen: parseListen("", new URL(url).host),
    };
    expect(await refusal(here.serve(other))).toBe("failed");
  });

  test("TLS works, and goes on while its files cannot be read", async () => {
    const files = join(here.directory, "tls");
    mkdirSync(files);
    const [certFile, keyFile] = [join(files, "tls.crt"), join(files, "tls.key")];
    const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost";
    Bun.spawnSync(["openssl", ...words.split(" "), "-keyout", keyFile, "-out", certFile], {
      stderr: "ignore",
    });
    const { url } = await here.serve({ tls: { certFile, keyFile } });
    const { host } = new URL(url);
    const other = { dataDirectory: join(here.directory, "other"), tls: { certFile, keyFile } };
    expect(await refusal(here.serve({ ...other, listen: parseListen("", host) }))).toBe("failed");
    // A file replaces the directory: ENOTDIR.
    renameSync(files, `${files}.away`);
    writeFileSync(files, "");
    await until(() => here.logged.includes("the former one stays in use"));
    const answer = await fetch(`${url}/healthz`, { tls: { rejectUnauthorized: false } });
    expect(answer.status).toBe(200);
  });

  test("a certificate that ends soon is a warning, until another one is in the files", async () => {
    const [certFile, keyFile] = [join(here.directory, "ending.crt"), join(here.directory, "ending.key")];
    const dayMs = 86_400_000;
    const serial = crypto.getRandomValues(new Uint8Array(16));
    const make = async (pastDays: number, leftDays: number) => {
      const dates = {
        notBefore: Date.now() - pastDays * dayMs,
        notAfter: Date.now() + leftDays * dayMs,
        serial,
      };
      const issuer = await openIssuer(await makeX509Ca({ organization: "Company", ...dates }));
      const pair = await issueServerX509({ names: ["localhost"], addresses: [], ...dates }, issuer);
      writeFileSync(certFile, pair.cert);
      writeFileSync(keyFile, pair.key);
    };
    await make(0, 90);
    const { url } = await here.serve({ tls: { certFile, keyFile } });
    const warnings = async () => {
      const answer = await fetch(`${url}/readyz`, { tls: { rejectUnauthorized: false } });
      return ((await answer.json()) as { warnings: string[] }).warnings;
    };
    expect(await warnings()).toEqual([]);
    const isWarned = async () => (await warnings()).includes("tls_certificate_ending");
    await make(82, 8);
    await until(isWarned);
    await make(4, 2);
    await until(async () => !(await isWarned()));
    await make(5.5, 0.5);
    await until(isWarned);
    await make(90, -1);
    await until(async () => here.logged.split("the listener uses the new TLS certificate").length > 4);
    expect(await isWarned()).toBe(true);
  });

  test("browsers are told to insist on TLS where the operator gave the certificate, under the public name", async () => {
    const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=control.example";
    const [certFile, keyFile] = [join(here.directory, "tls.crt"), join(here.directory, "tls.key")];
    Bun.spawnSync(["openssl", ...words.split(" "), "-keyout", keyFile, "-out", certFile], {
      stderr: "ignore",
    });
    const files = { certFile, keyFile };
    const free = Bun.listen({ hostname: "0.0.0.0", port: 0, socket: { data: () => undefined } });
    const { port } = free;
    free.stop(true);
    const listen = { hostname: "0.0.0.0", port };
    const seen = async (more: Partial<ServeOptions>, name: string) => {
      const serving = await here.serve({ listen, dataDirectory: here.data, ...more });
      const scheme = more.tls === undefined ? "http" : "https";
      const paths = ["/healthz", "/api/user/", "/api", "/nothing/"];
      const headers = { Host: name };
      const answers = paths.map(async (path) => {
        const url = `${scheme}://127.0.0.1:${port}${path}`;
        const tls = { rejectUnauthorized: false };
        return (await fetch(url, { headers, tls, redirect: "manual" })).headers.get(
          "strict-transport-security",
        );
      });
      const found = await Promise.all(answers);
      await here.end(serving);
      return found;
    };
    const publicUrl = "https://control.example:8420";
    const insisted = Array.from({ length: 4 }, () => "max-age=2592000");
    const silent = Array.from({ length: 4 }, () => null);
    expect(await seen({ tls: files, publicUrl }, "control.example:8420")).toEqual(insisted);
    expect(await seen({ tls: files, publicUrl }, "localhost:8420")).toEqual(silent);
    expect(await seen({ tls: files, publicUrl }, "other.example:8420")).toEqual(silent);
    expect(await seen({ tls: "auto", publicUrl }, "control.example:8420")).toEqual(silent);
    expect(await seen({ allowPlainHttp: true, publicUrl }, "control.example:8420")).toEqual(silent);
    for (const host of ["localhost:8420", "a.localhost", "192.0.2.1:8420", "[2001:db8::1]:8420"]) {
      expect(await seen({ tls: files, publicUrl: `https://${host}` }, host)).toEqual(silent);
    }
  });

  test("thousands of requests on a few connections all get an answer", async () => {
    const { url } = await here.serve();
    const one = async () => {
      const { status, headers } = await fetch(`${url}/healthz`, { keepalive: true });
      return status === 200 && headers.get("connection") !== "close";
    };
    for (let round = 0; round < 60; round++) {
      expect(await Promise.all(Array.from({ length: 50 }, one))).not.toContain(false);
    }
  });

  test.each(["127.0.0.1", "127.0.0.1:99999", ":80", "a b:1", "http://x:1"])(
    "%s is no place to listen",
    (text) => {
      expect(() => parseListen("--listen", text)).toThrow("--listen");
    },
  );

  test("on loopback, only own names are answered, which stops DNS rebinding", async () => {
    const { url } = await here.serve();
    const { host, port } = new URL(url);
    const as = async (name: string) => (await fetch(`${url}/healthz`, { headers: { Host: name } })).status;
    for (const name of [host, `localhost:${port}`, "[::1]:80"])
      expect([name, await as(name)]).toEqual([name, 200]);
    for (const name of [
      "evil.example.org",
      `evil.example.org:${port}`,
      "127.0.0.1.evil.example.org",
      "localhost.evil",
    ])
      expect([name, await as(name)]).toEqual([name, 421]);
    expect(isOwnName("control.example.org", "https://control.example.org:8420")).toBe(true);
  });

  test.each(["127.0.0.1", "0.0.0.0"])(
    "on %s, health checks without a Host header are answered, and nothing else is",
    async (hostname) => {
      const { url } = await here.serve({ listen: { hostname, port: 0 }, allowPlainHttp: true });
      const port = Number(new URL(url).port);
      for (const line of ["GET /healthz", "GET /readyz"]) {
        const answer = await rawAnswer(port, `${line} HTTP/1.0\r\n\r\n`);
        expect(answer).toStartWith("HTTP/1.1 200 ");
        expect(answer).toContain('{"status":"ok"');
      }
      for (const path of ["/", "/api/user/", "/healthz/", "//healthz", "/readyz?x", "/%68ealthz"]) {
        const answer = await rawAnswer(port, `GET ${path} HTTP/1.0\r\n\r\n`);
        expect([path, answer]).toEqual([path, expect.stringContaining('"code":"bad_request"')]);
      }
      // No answer shows more to a page that makes a browser send requests.
      expect(await rawAnswer(port, "POST /readyz HTTP/1.0\r\n\r\n")).toContain(" 405 ");
    },
  );

  test.each(["a b", "[::1", "evil.example:99999", "a@b", ":80", ""])(
    "the invalid Host %p is refused wherever the server listens",
    async (name) => {
      const { url } = await here.serve({ listen: { hostname: "0.0.0.0", port: 0 }, allowPlainHttp: true });
      const port = Number(new URL(url).port);
      const request = `POST /api/token/ HTTP/1.1\r\nHost: ${name}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`;
      const answer = await rawAnswer(port, request);
      expect(answer).toStartWith("HTTP/1.1 400 ");
      expect(answer).toContain('"code":"bad_request"');
    },
  );

  test.each(["x", "*", "@evil/healthz", ":1/api/", "\\"])(
    "CONNECT to %p is refused like any other request that has no address, once everybody has been let in",
    async (target) => {
      const { url } = await here.serve();
      const { host, port } = new URL(url);
      expect((await fetch(`${url}/healthz`)).status).toBe(200);
      const answer = await rawAnswer(
        Number(port),
        `CONNECT ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
      );
      expect(answer).toStartWith("HTTP/1.1 400 ");
      expect(answer).toContain('"code":"bad_request"');
    },
  );

  test("a disconnect within a body is not a server error, and its address is here.logged", async () => {
    const { url } = await here.serve();
    const head = `POST /api/token/ HTTP/1.1\r\nHost: ${new URL(url).host}\r\nContent-Type: application/json\r\n`;
    const socket = await Bun.connect({
      hostname: "127.0.0.1",
      port: Number(new URL(url).port),
      socket: { data: () => undefined },
    });
    socket.write(`${head}Content-Length: 100\r\n\r\n{"email`);
    socket.flush();
    await Bun.sleep(100);
    socket.terminate();
    const end = Date.now() + 20_000;
    while (!here.logged.includes("path=/api/token/") && Date.now() < end) await Bun.sleep(20);
    expect(here.logged).toContain("status=400");
    expect(here.logged).toContain("from=127.0.0.1");
    expect(here.logged).not.toContain(" error ");
  });
});
