// Sign-in by a real provider of identities, and of the command line, in a real browser against the compiled executable.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { agent, cleanEnvironment } from "../support/agent.ts";
import {
  type Console,
  openAccount,
  owner,
  password,
  signIn,
  signOut,
  startConsole,
  violationsIn,
} from "../support/console.ts";
import { freePort } from "../support/free-port.ts";
import { startIdentityProvider, type IdentityProvider } from "../support/oidc.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

const limitMs = 120_000;
const ada = { sub: "ada-1", email: "ada@example.org", email_verified: true, groups: ["vpn"] };

describe("single sign-on", () => {
  const directory = temporaryDirectory();
  let scene: Console;
  let provider: IdentityProvider;
  let here: string;
  let page: Page;
  /** The command line's; open to the end, because the browser asks it for an icon later. */
  let listening: Bun.Server<undefined> | undefined;

  const button = (name: string | RegExp, on: Page = page) => on.getByRole("button", { name });

  beforeAll(async () => {
    const port = freePort();
    here = `http://localhost:${port}`;
    const callbacks = [1, 2].map((id) => `${here}/api/session/oidc/${id}/callback/`);
    provider = await startIdentityProvider(callbacks, { signedOut: `${here}/console/` });
    scene = await startConsole(["--public-url", here, "--webhook-allow", "127.0.0.0/8"], port);
    const client = ["--client-id", provider.clientId, "--client-secret", provider.clientSecret];
    const roles = ["--scopes", "openid email groups", "--users", "create", "--role", "vpn=acme:member"];
    await scene.admin(["oidc", "create", "Company", provider.issuer, ...client, ...roles]);
    ({ page } = scene);
  }, limitMs);
  afterAll(async () => {
    await listening?.stop(true);
    await scene[Symbol.asyncDispose]();
    await provider[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  });

  test(
    "one click signs in, back to the page that was asked for, with the role that the group gives",
    async () => {
      provider.person = ada;
      await page.goto(`${here}/console/acme/nodes/`);
      await button("With Company").waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await button("With Company").click();
      await page.getByRole("heading", { name: "Nodes" }).waitFor();
      expect(new URL(page.url()).pathname).toBe("/console/acme/nodes/");
      await page.getByText("ada@example.org").waitFor();
      await openAccount(page);
      await page.getByText("Company: ada@example.org").waitFor();
      expect(await violationsIn(page)).toEqual([]);
    },
    limitMs,
  );

  test(
    "sign-out leads to the provider, too, and a refusal there is explained on the sign-in page",
    async () => {
      await signOut(page);
      await page.waitForURL((url) => url.origin === provider.issuer);
      await page.context().clearCookies();
      provider.person = undefined;
      await page.goto(`${here}/console/`);
      await button("With Company").click();
      await page.getByText("This identity may not sign in here.").waitFor();
      expect(await violationsIn(page)).toEqual([]);
    },
    limitMs,
  );

  test(
    "a user with a password links an identity",
    async () => {
      await signIn(page);
      await openAccount(page);
      await button("Link an identity at Company").click();
      provider.person = { ...ada, sub: "owner", email: owner };
      await page.getByLabel("Your password here").fill(password);
      await button("Go on").click();
      await page.getByText(`Company: ${owner}`).waitFor();
    },
    limitMs,
  );

  test(
    "after the end of a session the providers of everybody are above the form, as on the page",
    async () => {
      const sessions = await page.request.get(`${here}/api/user/sessions/`);
      const [{ id } = { id: 0 }] = (await sessions.json()) as { id: number }[];
      await page.evaluate(`fetch("/api/user/sessions/${id}/", { method: "DELETE" }).then(() => undefined)`);
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "With Company" }).waitFor();
      expect(await dialog.locator("form ~ button").count()).toBe(0);
      await button("With Company").click();
      await page.getByText(`Company: ${owner}`).waitFor();
    },
    limitMs,
  );

  test(
    "the command line of a machine without a browser is signed in by the code that is typed here",
    async () => {
      const child = Bun.spawn([agent, "login", here, "--json"], {
        env: cleanEnvironment({ HOME: directory.path, XDG_CONFIG_HOME: directory.path }),
        stdin: "ignore",
        stdout: "pipe",
        stderr: "pipe",
      });
      let said = "";
      const reading = (async () => {
        for await (const chunk of child.stderr) said += new TextDecoder().decode(chunk);
      })();
      const [, code = ""] = await until(() => /\n {2}([A-Z]{5}-[A-Z]{5})\n/.exec(said));
      await page.goto(`${here}/console/-/command-line/`);
      await page.getByLabel("Code").fill(code.toLowerCase());
      expect(await violationsIn(page)).toEqual([]);
      await button("Go on").click();
      await page.getByText("Machine, as it calls itself").waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await button("Sign it in").click();
      await page.getByText("The machine is signed in.").waitFor();
      expect(await child.exited).toBe(0);
      await reading;
      expect(await new Response(child.stdout).json()).toMatchObject({ email: owner });
    },
    limitMs,
  );

  test(
    "the command line of this machine gets its code by loopback",
    async () => {
      const got = Promise.withResolvers<URL>();
      listening = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        fetch(request) {
          got.resolve(new URL(request.url));
          return new Response("ok");
        },
      });
      const words = `port=${listening.port}&state=abc&challenge=${"c".repeat(43)}`;
      await page.goto(`${here}/console/-/command-line/?${words}`);
      await button("Sign it in").click();
      const { searchParams } = await got.promise;
      expect([searchParams.get("state"), (searchParams.get("code") ?? "").length > 40]).toEqual([
        "abc",
        true,
      ]);
    },
    limitMs,
  );

  test(
    "an administrator adds a provider of the organization, whose users are its members only",
    async () => {
      // The former page is still on its way to the program that listened.
      ({ page } = await scene.open());
      await page.goto(`${here}/console/acme/settings/`);
      await signIn(page);
      await button("Add a provider").click();
      await page.getByLabel("Name").last().fill("Acme login");
      await page.getByLabel("Issuer").fill(provider.issuer);
      await page.getByLabel("Client ID").fill(provider.clientId);
      await page.getByLabel("Secret of the client").fill(provider.clientSecret);
      await button("Add the provider").click();
      await page.getByText(`${here}/api/session/oidc/2/callback/`).waitFor();
      await button("Edit Acme login").click();
      await page.getByLabel("Roles of groups").fill("cn=vpn,ou=groups=admin");
      await page.getByLabel("All others become members").check();
      await button("Save the provider").click();
      await page.getByText("cn=vpn,ou=groups: admin, all others: member").waitFor();
      await button("Add a domain").click();
      await page.getByRole("dialog").getByLabel("Domain", { exact: true }).fill("example.org");
      await button("Claim the domain").click();
      await page.getByText("_overlay-agent.example.org").waitFor();
      expect(await violationsIn(page)).toEqual([]);
      await scene.admin(["domain", "vouch", "acme", "example.org"]);
      await page.context().clearCookies();
      await page.goto(`${here}/console/`);
      await button("With Company").waitFor();
      expect(await button("With Acme login").count()).toBe(0);
      await page.getByLabel("E-mail").fill("ada@example.org");
      await button("With Acme login").waitFor();
      await page.goto(`${here}/console/acme/`);
      provider.person = ada;
      await button("With Acme login").click();
      await page
        .getByText(/^ada@example\.org;\d+/)
        .first()
        .waitFor();
      scene.expectQuiet();
    },
    limitMs,
  );
});
