// `agent login URL`: with a browser on this machine, and with a code. The control plane is real, and so is the session; the
// browser's part is what the console's page sends.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { clientOf } from "../../src/node/contact/requests/session.ts";
import { signInHere } from "../../src/node/contact/requests/browser-sign-in.ts";
import { browserOf } from "../../src/platform/browser.ts";
import type { Serving } from "../../src/server/serve.ts";
import { realSystem } from "../../src/base/system.ts";
import { runAdmin } from "../support/admin.ts";
import { agentHere, serveHere } from "../support/in-process.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

setDefaultTimeout(60_000);
const directory = temporaryDirectory();
const umask = process.umask();
const data = join(directory.path, "data");
const home = join(directory.path, "home");
const password = "correct horse battery";
let serving: Serving;
let cookie: string;

/** A request of the console's page. */
async function page(path: string, body: object): Promise<unknown> {
  const answer = await fetch(serving.url + path, {
    method: "POST",
    headers: {
      Origin: serving.url,
      "Sec-Fetch-Site": "same-origin",
      "Content-Type": "application/json",
      Cookie: cookie,
    },
    body: JSON.stringify(body),
  });
  expect([path, answer.ok]).toEqual([path, true]);
  cookie ||= answer.headers.getSetCookie()[0]?.split(";")[0] ?? "";
  return answer.status === 204 ? undefined : answer.json();
}
const agent = (line: string) => agentHere(line.split(" "), { env: { XDG_CONFIG_HOME: home } });

beforeAll(async () => {
  serving = await serveHere(data);
  await runAdmin(data, ["user", "create", "ada@example.org", "--staff", "--password-file", "-"], password);
  cookie = "";
  await page("/api/session/", { email: "ada@example.org", password });
});
afterAll(async () => {
  await serving.stop();
  directory[Symbol.dispose]();
  process.umask(umask);
});

test("without a browser it prints a page and a code; the code, typed in a browser, signs it in", async () => {
  let err = "";
  const { run } = await import("../../src/cli/run.ts");
  let out = "";
  const signedIn = run(["login", serving.url, "--profile", "plane", "--json"], {
    ...realSystem(),
    env: { XDG_CONFIG_HOME: home },
    stdout: { write: (text) => void (out += text), isTerminal: false, columns: 80 },
    stderr: { write: (text) => void (err += text), isTerminal: false, columns: 80 },
    stdinIsTerminal: false,
  });
  const [, address, code] = await until(() => /(http\S+)[^]*\n {2}([A-Z]{5}-[A-Z]{5})\n/.exec(err));
  expect([address, err.includes("Do not type a code that another person sent you")]).toEqual([
    `${serving.url}/console/-/command-line/`,
    true,
  ]);
  expect(await page("/api/user/device_requests/find/", { user_code: code })).toMatchObject({
    machine: (await import("node:os")).hostname(),
  });
  await page("/api/user/device_requests/decide/", { user_code: code, approve: true });
  expect(await signedIn).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ profile: "plane", email: "ada@example.org" });
  expect(JSON.parse((await agent("whoami --json")).out)).toMatchObject({
    email: "ada@example.org",
    is_staff: true,
  });
  expect((await agent("admin user list")).status).toBe(0);
  const plan = JSON.parse((await agent("login --profile plane --dry-run --json")).out);
  expect(JSON.stringify(plan)).toContain(`${serving.url}/api/device/token/`);
  expect((await agent("logout")).status).toBe(0);
  expect((await agent("admin user list --profile plane")).status).not.toBe(0);
});

test("a browser on this machine brings the code to loopback; requests with another state change nothing", async () => {
  const profile = { api_base: serving.url, allow_plain_http: true, email: null, by_browser: true };
  const Code = v.object({ code: v.string() });
  let browsed: Promise<number[]> | undefined;
  const browse = async (address: string) => {
    const words = new URL(address).searchParams;
    const made = await page("/api/user/login_codes/", { code_challenge: words.get("challenge") });
    const { code } = v.parse(Code, made);
    const back = (state: string) =>
      fetch(`http://127.0.0.1:${words.get("port")}/?${new URLSearchParams({ code, state }).toString()}`);
    const statuses = [await back("x"), await back("x".repeat(43)), await back(words.get("state") ?? "")];
    return statuses.map(({ status }) => status);
  };
  const system = {
    ...realSystem(),
    run: async (argv: readonly string[]) => {
      browsed = browse(argv.at(-1) ?? "");
      return { status: 0, stdout: "", stderr: "", timedOut: false };
    },
  };
  const shown: string[] = [];
  const pair = await signInHere(
    clientOf(profile, system),
    system,
    { base: serving.url, browser: ["/usr/bin/browser"] },
    (address) => shown.push(address),
  );
  expect(await browsed).toEqual([404, 404, 200]);
  const me = await fetch(`${serving.url}/api/user/`, { headers: { Authorization: `Bearer ${pair.access}` } });
  expect(await me.json()).toMatchObject({ email: "ada@example.org" });
  expect(shown[0]).not.toContain(pair.access);
});

test("a machine that is reached by SSH, or has no display, has no browser", () => {
  const platform = "linux";
  expect(browserOf({ platform, env: {} })).toBeUndefined();
  expect(browserOf({ platform, env: { DISPLAY: ":0", SSH_CONNECTION: "1" } })).toBeUndefined();
  expect(browserOf({ platform: "darwin", env: {} })).toEqual(["/usr/bin/open"]);
});
