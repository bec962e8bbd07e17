// Signing in with a real Chromium that reaches nothing but the control plane: the session's cookie, a passkey of a virtual
// authenticator, and the end of everything when the user is disabled.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { startBrowser, type Browser } from "../support/browser.ts";
import { password, virtualDevice } from "../support/console.ts";
import { chromiumPath, inCi, installMissing } from "../support/debian.ts";
import { asRoot } from "../support/engines.ts";
import { makeLan } from "../support/namespaces.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const missing = installMissing([chromiumPath, "/usr/sbin/ip"]);
const withBrowser = missing === undefined || inCi ? test : test.skip;
const email = "ada@example.org";
const here = "http://localhost:8420";

/** What a page of the control plane does. Answers `status` and the JSON of the body. */
const helpers = `
window.call = async (method, path, body = null) => {
  const answer = await fetch(path, {
    method,
    ...(method === "GET" ? {} : { headers: { "Content-Type": "application/json" } }),
    ...(body === null ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, json: await answer.json().catch(() => null) };
};
window.addPasskey = async (current_password) => {
  const options = await call("POST", "/api/user/passkeys/options/", { current_password });
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options.json);
  const made = await navigator.credentials.create({ publicKey });
  return call("POST", "/api/user/passkeys/", { name: "laptop", response: made.toJSON() });
};
window.usePasskey = async (path) => {
  const options = await call("POST", path + "options/", {});
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options.json);
  const made = await navigator.credentials.get({ publicKey });
  return call("POST", path, { response: made.toJSON() });
};
true`;

const call = (browser: Browser, method: string, path: string, body?: object) =>
  browser.evaluate(`call(${JSON.stringify([method, path, body ?? null]).slice(1, -1)})`);

asRoot("in a browser without any way out", () => {
  withBrowser(
    "a user signs in, adds a passkey, signs in with it, and loses all when disabled",
    async () => {
      if (missing !== undefined) throw new Error(missing);
      using directory = temporaryDirectory();
      using lan = makeLan(["desk"]);
      const desk = lan.host("desk");
      const flags = ["--public-url", here];
      await using plane = await startControlPlane(join(directory.path, "server"), flags, 8420, desk.inside);
      const must = async (args: string, input = "") =>
        agentJson(["admin", ...args.split(" "), "--data-dir", plane.dataDirectory], { input });
      await must("user create root@example.org --staff --password-file -", password);
      await must(`user create ${email} --password-file -`, password);
      await must(`org create acme --network 10.77.0.0/16 --owner ${email}`);
      await using browser = await startBrowser(desk);
      await browser.open(`${here}/reset/`);
      await browser.evaluate(helpers);

      expect(await call(browser, "GET", "/api/user/")).toMatchObject({ status: 401 });
      expect(await call(browser, "POST", "/api/session/", { email, password })).toMatchObject({
        status: 201,
      });
      expect(await browser.evaluate("document.cookie")).toBe("");
      expect(await call(browser, "GET", "/api/user/")).toMatchObject({ status: 200, json: { email } });
      expect(await call(browser, "GET", "/api/user/sessions/")).toMatchObject({
        json: [{ device: expect.stringContaining("Chrome"), is_current: true }],
      });

      await browser.send("WebAuthn.enable");
      await browser.send("WebAuthn.addVirtualAuthenticator", virtualDevice);
      const added = await browser.evaluate(`addPasskey(${JSON.stringify(password)})`);
      expect(added).toMatchObject({ status: 201, json: { passkey: { name: "laptop" } } });
      expect(await call(browser, "DELETE", "/api/session/")).toMatchObject({ status: 204 });
      expect(await call(browser, "GET", "/api/user/")).toMatchObject({ status: 401 });
      expect(await call(browser, "POST", "/api/session/", { email, password })).toMatchObject({
        status: 401,
        json: { code: "second_factor_required", methods: ["passkey", "recovery_code"] },
      });
      const signed = await browser.evaluate('usePasskey("/api/session/passkey/")');
      expect(signed).toMatchObject({ status: 201, json: { email } });
      expect(await call(browser, "PATCH", "/api/org/acme/", { name: "New" })).toMatchObject({ status: 200 });
      const stepped = await browser.evaluate('usePasskey("/api/user/step_up/passkey/")');
      expect(stepped).toMatchObject({ status: 204 });

      await must(`user disable ${email}`);
      expect(await call(browser, "GET", "/api/user/")).toMatchObject({ status: 401 });
      const away = browser.requested.filter((url) => !url.startsWith(here));
      expect(away).toEqual([]);
    },
    120_000,
  );
});
