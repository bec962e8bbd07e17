// Debian's glewlwyd as a second real provider of identities: another implementation than the one of oidc.ts, in another
// language, with rules of its own. It is configured and signed in to by plain HTTP, as its pages do it.

import { Database } from "bun:sqlite";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { exportJWK, generateKeyPair } from "jose";
import { installMissing } from "./debian.ts";
import { freePort } from "./free-port.ts";
import { temporaryDirectory } from "./temporary.ts";
import { until } from "./until.ts";

const program = "/usr/bin/glewlwyd";
const tables = "/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3";
/** Of its first administrator, as the package makes it, and of every person here. */
const password = "password";

/** The reason why there is no glewlwyd here, or undefined. */
export const noGlewlwyd = installMissing([program]);

export type GlewlwydPerson = { username: string; email: string; groups: readonly string[] };

export type Glewlwyd = AsyncDisposable & {
  issuer: string;
  clientId: string;
  clientSecret: string;
  add(person: GlewlwydPerson): Promise<void>;
  change(person: GlewlwydPerson): Promise<void>;
  /** Its administrator removes the person. */
  remove(username: string): Promise<void>;
  /** Follows an authorization request as the person's browser, to the address that leads back. */
  signIn(url: string, username: string): Promise<URL>;
};

const scopes = ["openid", "email", "groups"];
const clientId = "agent";
const clientSecret = "a-client_secret.of~forty-two_characters-ok";

export async function startGlewlwyd(redirectUris: readonly string[]): Promise<Glewlwyd> {
  await using cleanup = new AsyncDisposableStack();
  const directory = cleanup.use(temporaryDirectory()).path;
  const port = freePort();
  const base = `http://127.0.0.1:${port}/api`;
  const database = join(directory, "data.db");
  makeDatabase(database);
  const config = join(directory, "glewlwyd.conf");
  writeFileSync(config, configuration(port, database));
  const child = Bun.spawn([program, `--config-file=${config}`], {
    stdout: Bun.file(join(directory, "log")),
    stderr: Bun.file(join(directory, "log")),
    stdin: "ignore",
  });
  cleanup.defer(async () => {
    child.kill();
    await child.exited;
  });
  await until(() =>
    fetch(`${base}/../config`)
      .then(({ ok }) => ok)
      .catch(() => false),
  );
  const administrator = makeBrowser();
  await logIn(administrator, base, "admin");
  const admin = (method: string, path: string, body?: object) =>
    administrator.send(method, base + path, body);
  await admin("POST", "/scope/", {
    name: "email",
    display_name: "E-mail",
    password_required: true,
    password_max_age: 0,
  });
  await admin("POST", "/scope/", {
    name: "groups",
    display_name: "Groups",
    password_required: true,
    password_max_age: 0,
  });
  await admin("POST", "/mod/plugin/", await plugin(`${base}/oidc`));
  await admin("POST", "/client/", {
    client_id: clientId,
    name: "Agent",
    enabled: true,
    confidential: true,
    client_secret: clientSecret,
    scope: [],
    redirect_uri: redirectUris,
    authorization_type: ["code", "refresh_token"],
    token_endpoint_auth_method: ["client_secret_basic", "client_secret_post"],
  });
  const started = cleanup.move();
  const shown = ({ username, email, groups }: GlewlwydPerson) => ({
    username,
    name: username,
    email,
    email_verified: "1",
    groups,
    password,
    enabled: true,
    scope: ["g_profile", ...scopes],
  });
  return {
    issuer: `${base}/oidc`,
    clientId,
    clientSecret,
    add: (person) => admin("POST", "/user/", shown(person)).then(() => undefined),
    change: (person) => admin("PUT", `/user/${person.username}`, shown(person)).then(() => undefined),
    remove: (username) => admin("DELETE", `/user/${username}`).then(() => undefined),
    async signIn(url, username) {
      const browser = makeBrowser();
      await logIn(browser, base, username);
      await browser.send("PUT", `${base}/auth/grant/${clientId}`, { scope: scopes.join(" ") });
      // Its login page leads back to the request with this mark.
      const answer = await browser.send("GET", `${url}&g_continue`);
      return new URL(answer.headers.get("location") ?? "", url);
    },
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

/** As the package makes it, and people have groups. */
function makeDatabase(path: string): void {
  using database = new Database(path);
  database.exec(readFileSync(tables, "utf8"));
  const field = { multiple: true, read: true, write: true, "profile-read": true, "profile-write": false };
  const fields = { groups: field, email_verified: { ...field, multiple: false } };
  const user = { "use-glewlwyd-connection": true, "data-format": fields };
  database.query("UPDATE g_user_module_instance SET gumi_parameters = ?").run(JSON.stringify(user));
}

async function plugin(issuer: string): Promise<object> {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  const key = { ...(await exportJWK(privateKey)), alg: "RS256", kid: "key-1" };
  const claim = { type: "string", mandatory: true, scope: ["groups"] };
  return {
    module: "oidc",
    name: "oidc",
    display_name: "OpenID Connect",
    parameters: {
      iss: issuer,
      "jwks-private": JSON.stringify({ keys: [key] }),
      "default-kid": "key-1",
      "jwks-show": true,
      "allowed-scope": scopes,
      "auth-type-code-enabled": true,
      "auth-type-refresh-enabled": true,
      "pkce-allowed": true,
      "pkce-required": true,
      "oauth-as-iss-id": true,
      "refresh-token-one-use": "always",
      "refresh-token-rolling": true,
      "access-token-duration": 3600,
      "refresh-token-duration": 1_209_600,
      "code-duration": 60,
      "email-claim": "mandatory",
      "scope-claim": "no",
      "name-claim": "no",
      claims: [
        { ...claim, name: "groups", "user-property": "groups" },
        {
          name: "email_verified",
          "user-property": "email_verified",
          type: "boolean",
          "boolean-value-true": "1",
          "boolean-value-false": "0",
          mandatory: true,
          scope: ["email"],
        },
      ],
    },
  };
}

function configuration(port: number, database: string): string {
  const modules = ["user", "client", "plugin"].map(
    (kind) => `${kind}_module_path="/usr/lib/glewlwyd/${kind}"`,
  );
  return `port=${port}
bind_address="127.0.0.1"
external_url="http://127.0.0.1:${port}"
login_url="login.html"
api_prefix="api"
log_mode="console"
log_level="INFO"
cookie_domain="127.0.0.1"
cookie_secure=0
session_key="GLEWLWYD2_SESSION_ID"
admin_scope="g_admin"
profile_scope="g_profile"
${modules.join("\n")}
user_middleware_module_path="/usr/lib/glewlwyd/user_middleware"
user_auth_scheme_module_path="/usr/lib/glewlwyd/scheme"
hash_algorithm="SHA512"
database = { type = "sqlite3" path = ${JSON.stringify(database)} };
`;
}

type Browser = { send(method: string, url: string, body?: object): Promise<Response> };

function logIn(browser: Browser, base: string, username: string): Promise<Response> {
  return browser.send("POST", `${base}/auth/`, { username, password });
}

/** Keeps cookies, and follows no redirect. */
function makeBrowser(): Browser {
  const cookies = new Map<string, string>();
  return {
    async send(method, url, body) {
      const Cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
      const answer = await fetch(url, {
        method,
        redirect: "manual",
        headers: { Cookie, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      for (const each of answer.headers.getSetCookie()) {
        const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(each) ?? [];
        cookies.set(name, value);
      }
      if (answer.status >= 400)
        throw new Error(`${method} ${url}: glewlwyd answered ${answer.status}: ${await answer.text()}`);
      return answer;
    },
  };
}
